"""A master and a slave in two processes: what is on both, what a send hears, who answers what."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server_process import RawClient, ServedProcess, free_ports, pull_fields, send_fields, until

from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import ForgetRequest, PromoteRequest
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState

Serve = Callable[..., ServedProcess]


class Pair:
    """`master` runs a name server as well."""

    def __init__(self, directory: Path, role: str = "SYNC_MASTER", **settings: object) -> None:
        self.directory = directory
        self.ha_port = free_ports()[0]
        self.master_settings = {"brokerRole": role, "haListenPort": self.ha_port, "brokerName": "pair", **settings}
        self.slave_settings = {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"127.0.0.1:{self.ha_port}",
            "brokerName": "pair",
            "slaveReadEnable": "true",
            **settings,
        }
        self.processes: list[ServedProcess] = []
        self.master = self.start_master()
        self.slave = self.start_slave()

    def start_master(self, name: str = "master", **settings: object) -> ServedProcess:
        self.master = ServedProcess(self.directory / name, settings={**self.master_settings, **settings})
        self.processes.append(self.master)
        return self.master

    def start_slave_alone(self) -> ServedProcess:
        """Without waiting until it follows."""
        self.slave = ServedProcess(
            self.directory / "slave",
            command="broker",
            settings={**self.slave_settings, "namesrvAddr": f"127.0.0.1:{self.master.name_port}"},
        )
        self.processes.append(self.slave)
        return self.slave

    def start_slave(self) -> ServedProcess:
        self.start_slave_alone()
        until(lambda: "following the master at" in self.slave.log(), 30, what="the slave following")
        return self.slave

    def end(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.end()


def send(client: RawClient, body: bytes, topic: str = "orders") -> int:
    return client.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic), body).code


def bodies(server: ServedProcess, topic: str = "orders") -> list[bytes]:
    """All of queue 0."""
    found: list[bytes] = []
    with RawClient(server.port) as client:
        while (answer := client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset=len(found)))).code == 0:
            found += [bytes(record.body) for record in decode_records(bytes(answer.body))]
    return found


def sent_until_copied(client: RawClient, body: bytes) -> None:
    """A slave counts as soon as it keeps up."""
    until(lambda: send(client, body) == ResponseCode.SUCCESS, what="SEND_OK of the pair")


def test_a_send_is_on_both_when_it_is_answered(pair: Pair) -> None:
    assert f", slaves at 127.0.0.1:{pair.ha_port} (SYNC_MASTER), " in pair.master.line
    assert f", slave 1 of 127.0.0.1:{pair.ha_port}, " in pair.slave.line
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        for number in range(20):
            assert send(client, b"%d" % number) == ResponseCode.SUCCESS
    pair.master.kill()
    found = bodies(pair.slave)
    assert found[-20:] == [b"%d" % number for number in range(20)]


def test_a_message_that_is_larger_than_what_may_be_on_its_way_reaches_the_slave(tmp_path: Path) -> None:
    pair = Pair(tmp_path, maxMessageSize=16_646_144)
    try:
        pair.master.create_topic("orders")
        with pair.master.client() as client:
            sent_until_copied(client, b"first")
            large = b"x" * 12_000_000
            assert send(client, large) in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
            sent_until_copied(client, b"behind it")
        assert pair.slave.runtime()["orbitmqReplicaTrouble"] == ""
    finally:
        pair.end()


def test_without_its_slave_a_synchronous_master_says_so_and_goes_on(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        pair.slave.kill()
        until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
        assert send(client, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert bodies(pair.master)[-1] == b"alone", "delivered all the same"
        pair.start_slave()
        sent_until_copied(client, b"together")
    until(lambda: bodies(pair.slave)[-1:] == [b"together"], what="the slave having caught up")
    assert b"alone" in bodies(pair.slave)


def test_a_slave_takes_no_sends(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
    until(lambda: pair.slave.topic("orders") is not None, what="the slave knowing the topic")
    with pair.slave.client() as client:
        answer = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "ask the master" in (answer.remark or "")


def test_a_slave_that_takes_over_has_everything_and_delivers_what_is_pending(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        fields = {**send_fields("orders"), "i": "TIMER_DELAY_SEC\x011\x02"}
        assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"timed").code == ResponseCode.SUCCESS
    pair.master.kill()
    pair.slave.stop(signal.SIGTERM)
    again = pair.start_master("slave")
    until(lambda: bodies(again)[-1:] == [b"timed"], what="the timer of the old master")
    with again.client() as client:
        assert send(client, b"new") == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_slave_says_who_it_is_and_gets_the_whole_log(tmp_path: Path) -> None:
    small = {"mappedFileSizeCommitLog": 1 << 20}
    master = ServedProcess(tmp_path / "master", settings={"brokerName": "pair", **small})
    slave = None
    try:
        master.create_topic("orders")
        with master.client() as client:
            for number in range(60):
                assert send(client, b"%02d" % number + b"x" * 60_000) == ResponseCode.SUCCESS
        assert len(list((master.data / "commitlog").iterdir())) > 2
        slave = ServedProcess(
            tmp_path / "slave",
            command="broker",
            settings={
                "brokerRole": "SLAVE", "brokerId": 3, "brokerName": "pair", "slaveReadEnable": "true",
                "namesrvAddr": f"127.0.0.1:{master.name_port}", **small,
            },
        )  # fmt: skip
        until(lambda: "slave 3 at" in master.log(), 30, what="the slave being known by its id")
        files = sorted(path.name for path in (master.data / "commitlog").iterdir())
        until(lambda: sorted(p.name for p in (slave.data / "commitlog").iterdir()) == files, 30, what="all files")
        until(lambda: bodies(slave)[:1] != [] and bodies(slave)[0].startswith(b"00"), 30, what="the oldest message")
    finally:
        master.kill()
        if slave is not None:
            slave.kill()


def test_a_master_that_lost_its_part_is_not_followed_and_does_not_follow(pair: Pair) -> None:
    """The slave took over and took messages; so did the old master before it stood still."""
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"both")
        pair.slave.kill()
        until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
        assert send(client, b"only at the old master") == ResponseCode.SLAVE_NOT_AVAILABLE
    pair.master.stop()
    new = pair.start_master("slave")
    with new.client() as client:
        assert send(client, b"only at the new master") == ResponseCode.SLAVE_NOT_AVAILABLE
    old = ServedProcess(
        pair.directory / "master",
        command="broker",
        settings={**pair.slave_settings, "brokerId": 2, "namesrvAddr": f"127.0.0.1:{new.name_port}"},
    )
    pair.processes.append(old)
    until(lambda: "has parted from ours" in old.log(), 30, what="the refusal")
    assert "empty the store of the slave" in old.log()


def promote(server: ServedProcess, **wanted: bool) -> Command:
    with RawClient(server.port) as client:
        return client.call(RequestCode.PROMOTE_SLAVE, {}, PromoteRequest(**wanted).encode())


def test_no_slave_follows_while_messages_wait_in_the_far_tier_whose_files_it_would_lack(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")
    master = ServedProcess(tmp_path / "master", settings={"brokerName": "pair"})
    settings = {
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "brokerName": "pair",
        "namesrvAddr": f"127.0.0.1:{master.name_port}",
    }
    slave = None
    try:
        master.create_topic("orders")
        fields = {**send_fields("orders"), "i": "TIMER_DELAY_SEC\x0130000000\x02"}
        with master.client() as client:
            assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"next year").code == ResponseCode.SUCCESS
        slave = ServedProcess(tmp_path / "slave", command="broker", settings=settings)
        until(lambda: "timer far restore" in slave.log(), 30, what="the reason of the refusal")
        with master.client() as client:
            restore = FarTierRequest(action=FarTierAction.RESTORE).encode()
            assert client.call(RequestCode.FAR_TIER, {}, restore).code == ResponseCode.SUCCESS
        until(lambda: "following the master at" in slave.log(), 60, what="the slave following")
        with master.client() as client:
            assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"the year after").code == ResponseCode.SUCCESS
            state = FarTierState.decode(client.call(RequestCode.FAR_TIER, {}, FarTierRequest().encode()).body)
        assert (state.pending, state.takes_messages) == (0, False)
    finally:
        master.kill()
        if slave is not None:
            slave.kill()


def test_a_slave_is_made_master_while_it_runs(pair: Pair) -> None:
    pair.master.create_topic("orders")
    with pair.master.client() as client:
        sent_until_copied(client, b"first")
        fields = {**send_fields("orders"), "i": "TIMER_DELAY_SEC\x013\x02"}
        assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"timed").code == ResponseCode.SUCCESS
        refused = promote(pair.slave)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "stop that one first" in (refused.remark or "")
    pair.master.kill()
    until(lambda: "is not followed" in pair.slave.log(), 30, what="the slave missing its master")
    began = time.monotonic()
    answer = promote(pair.slave)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    with pair.slave.client() as client:
        assert send(client, b"new") == ResponseCode.SUCCESS, "an asynchronous master asks nobody"
    assert time.monotonic() - began < 10
    until(lambda: set(bodies(pair.slave)) == {b"first", b"timed", b"new"}, what="the timer of the old master")
    assert promote(pair.slave).code == ResponseCode.INVALID_PARAMETER

    pair.slave.stop()
    pair.slave = pair.start_slave()
    with pair.slave.client() as client:
        assert send(client, b"after a start") == ResponseCode.SUCCESS, "it stays the master, whatever its settings say"
    assert "its settings still say SLAVE" in pair.slave.log()


def test_an_id_belongs_to_one_directory_until_the_master_forgets_it(pair: Pair) -> None:
    pair.slave.kill()
    shutil.rmtree(pair.slave.data)
    pair.slave = ServedProcess(
        pair.directory / "slave",
        command="broker",
        settings={**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{pair.master.name_port}"},
    )
    pair.processes.append(pair.slave)
    until(lambda: "another store had this id" in pair.slave.log(), 30, what="the refusal")
    with pair.master.client() as client:
        forget = ForgetRequest(broker_id=1).encode()
        assert client.call(RequestCode.FORGET_SLAVE, {}, forget).code == ResponseCode.SUCCESS
        assert client.call(RequestCode.FORGET_SLAVE, {}, forget).code == ResponseCode.QUERY_NOT_FOUND
    before = pair.slave.log().count("following the master at")
    until(lambda: pair.slave.log().count("following the master at") > before, 30, what="the emptied slave following")


def test_a_slave_becomes_master_although_it_can_take_no_slaves_then(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pair = Pair(tmp_path)
        try:
            pair.slave.kill()
            pair.slave_settings["haListenPort"] = taken.getsockname()[1]
            pair.start_slave()
            assert promote(pair.slave, although_master_lives=True).code == ResponseCode.SUCCESS
            assert "no slave can follow this broker" in pair.slave.log()
            pair.slave.create_topic("orders")
            with pair.slave.client() as client:
                assert send(client, b"taken") == ResponseCode.SUCCESS
        finally:
            pair.end()


def test_a_broker_with_a_history_of_its_own_is_no_copy_however_alike_it_looks(tmp_path: Path) -> None:
    master, other = (ServedProcess(tmp_path / name, settings={"brokerName": "pair"}) for name in ("master", "slave"))
    slave = None
    try:
        for server in (master, other):
            server.create_topic("orders")
            with server.client() as client:
                assert [send(client, b"%d" % number) for number in range(3)] == [ResponseCode.SUCCESS] * 3
        with master.client() as client:
            assert send(client, b"more") == ResponseCode.SUCCESS
        other.stop()
        slave = ServedProcess(
            tmp_path / "slave",
            command="broker",
            settings={
                "brokerRole": "SLAVE",
                "brokerId": 1,
                "brokerName": "pair",
                "namesrvAddr": f"127.0.0.1:{master.name_port}",
            },
        )
        until(lambda: "has other bytes before its end" in slave.log(), 30, what="the refusal")
        assert len(bodies(master)) == 4
    finally:
        for process in (master, other, slave):
            if process is not None:
                process.kill()
