"""A master and a slave between whom nothing is plain."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority

import orbitmq.sync
from orbitmq.client import ClientOptions, SendStatus
from orbitmq.protocol.replication.frames import encode_report

from .server_process import ServedProcess, free_ports, until

Start = Callable[..., tuple[ServedProcess, ServedProcess, int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a synchronous master and a slave that take TLS only; also tells the port for slaves."""
    authority = Authority(tmp_path)
    own = authority.issue("server")
    tls = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": own.cert,
        "tls.server.keyPath": own.key,
        "tls.client.trustCertPath": authority.file,
        "brokerName": "pair",
    }
    started: list[ServedProcess] = []

    def start(**settings: object) -> tuple[ServedProcess, ServedProcess, int]:
        port = free_ports()[0]
        leads = {"brokerRole": "SYNC_MASTER", "haListenPort": port, **settings}
        started.append(master := ServedProcess(tmp_path / "master", settings={**tls, **leads}))
        follows = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": f"127.0.0.1:{master.name_port}"}
        started.append(slave := ServedProcess(tmp_path / "slave", command="broker", settings={**tls, **follows}))
        until(lambda: "following the master at" in slave.log(), 30, what="the slave following")
        return master, slave, port

    yield start
    for server in started:
        server.kill()


def test_the_log_goes_over_tls_where_calls_do(start: Start, tmp_path: Path) -> None:
    master, slave, port = start()
    trusted = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    with orbitmq.sync.connect(f"127.0.0.1:{master.name_port}", options=ClientOptions(tls=trusted)) as mq:
        mq.admin.create_topic("orders", queues_count=1)
        until(lambda: mq.send("orders", b"on both").send_status is SendStatus.SEND_OK, what="SEND_OK of the pair")
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(encode_report(0))
        assert plain.recv(1) == b"", "a plain connection is closed"
    assert "port for slaves: 127.0.0.1" in master.log()
    assert slave.log().count("following the master at") == 1


def test_a_slave_that_knows_no_tls_comes_in_from_an_address_that_is_named(start: Start) -> None:
    _, _, port = start(haPeerAddresses="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(encode_report(0))
        assert plain.recv(1), "the log, or a heartbeat"
