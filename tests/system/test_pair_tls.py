"""A master and a slave between whom nothing is plain, and nothing unsigned, also while they exchange their roles."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority

import orbitmq.sync
from orbitmq.client import ClientOptions, SendStatus
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import PolicyEntryInfo, PolicyInfo
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest
from orbitmq.protocol.replication.frames import encode_report

from .server_process import ServedProcess, free_ports, until

Start = Callable[..., tuple[ServedProcess, ServedProcess, int]]
ROOT, SHOP = orbitmq.Credentials("root", "secret-of-root"), orbitmq.Credentials("shop", "secret-of-the-shop")


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
        follows = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": f"127.0.0.1:{master.name_port}", **settings}
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


def test_roles_change_over_tls_among_users(start: Start, tmp_path: Path) -> None:
    """Exchanged, and after a kill: what a user of the first master may she may at each, and who signs nothing may nothing."""
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(b"k" * 32))
    key.chmod(0o600)
    first, second, _ = start(
        authenticationEnabled="true",
        authorizationEnabled="true",
        initAuthenticationUser=json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
        innerClientAuthenticationCredentials=json.dumps({"accessKey": ROOT.access_key, "secretKey": ROOT.secret_key}),
        accessKeyFile=key,
    )
    trusted = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    names = f"127.0.0.1:{first.name_port}"
    sent: list[str] = []
    with contextlib.ExitStack() as stack:
        root, shop, stranger = (
            stack.enter_context(orbitmq.sync.connect(names, options=ClientOptions(tls=trusted, credentials=who)))
            for who in (ROOT, SHOP, None)
        )

        def sends_are_signed(body: str) -> None:
            until(lambda: is_copied(shop, body), what="a signed SEND_OK of the pair")
            sent.append(body)
            with pytest.raises(ClientError, match="NO_PERMISSION"):
                stranger.send("orders", b"not signed")

        root.admin.create_topic("orders", queues_count=1)
        root.admin.create_user(SHOP.access_key, SHOP.secret_key)
        entry = PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")
        root.admin.set_policies(SHOP.access_key, [PolicyInfo("Custom", [entry])])
        sends_are_signed("first")
        before = second.log().count("following the master at")
        answer = root.admin.demote_master(f"127.0.0.1:{first.port}", DemoteRequest(hands_over=True))
        assert answer.master == f"127.0.0.1:{second.port}"
        sends_are_signed("exchanged")
        assert (before, first.log().count("following the master at")) == (1, 1), "each followed at its first attempt"
        second.kill()
        until(lambda: is_promoted(root, first), what="the former master leading again")
        until(lambda: is_copied(shop, "killed"), what="a signed SEND_OK of the former master")
        queue = orbitmq.MessageQueue("orders", "pair", 0)
        consumer, found = root.pull_consumer("readers"), list[str]()
        while messages := consumer.pull(queue, len(found)).messages:
            found += [message.body.decode() for message in messages]
        assert set(found) == {*sent, "killed"}


def is_copied(mq: orbitmq.sync.Client, body: str) -> bool:
    with contextlib.suppress(ClientError):  # of a broker that does not lead
        return mq.send("orders", body.encode()).send_status is SendStatus.SEND_OK
    return False


def is_promoted(mq: orbitmq.sync.Client, server: ServedProcess) -> bool:
    """Once it has noticed that its master is gone."""
    with contextlib.suppress(ClientError):
        mq.admin.promote_slave(f"127.0.0.1:{server.port}")
        return True
    return False


def test_a_slave_that_knows_no_tls_comes_in_from_an_address_that_is_named(start: Start) -> None:
    _, _, port = start(haPeerAddresses="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(encode_report(0))
        assert plain.recv(1), "the log, or a heartbeat"
