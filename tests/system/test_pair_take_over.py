"""Who becomes master, who does not, and who is no copy any more."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

from .server_process import ServedProcess, until
from .test_pair import Pair, bodies, promote, send, sent_until_copied


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    made.master.create_topic("orders")
    with made.master.client() as client:
        sent_until_copied(client, b"both")
    yield made
    made.end()


def test_no_second_master_although_the_slave_has_not_connected_yet(pair: Pair) -> None:
    pair.slave.stop()
    slave = ServedProcess(
        pair.directory / "slave",
        command="broker",
        settings={**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{pair.master.name_port}"},
    )
    pair.processes.append(slave)
    answer = promote(slave)
    assert (answer.code, "lives, and there would be two" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)


def test_a_slave_that_would_forget_that_it_is_the_master_does_not_become_one(pair: Pair) -> None:
    pair.master.kill()
    until(lambda: "is not followed" in pair.slave.log(), 30, what="the master missed")
    config = pair.slave.data / "config"
    config.rename(config.with_name("away"))
    config.write_text("no directory")
    answer = promote(pair.slave)
    assert (answer.code, "could not be saved" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    with pair.slave.client() as client:
        assert send(client, b"x") == ResponseCode.SERVICE_NOT_AVAILABLE
    config.unlink()
    config.with_name("away").rename(config)
    assert promote(pair.slave).code == ResponseCode.SUCCESS
    pair.slave.kill()
    again = ServedProcess(pair.directory / "slave", command="broker", settings=pair.slave_settings)
    pair.processes.append(again)
    with again.client() as client:
        assert send(client, b"after") == ResponseCode.SUCCESS


def test_the_slave_that_has_more_of_the_log_goes_first(tmp_path: Path) -> None:
    pair = Pair(tmp_path, totalReplicas=3, inSyncReplicas=2)
    name_server = ServedProcess(tmp_path / "names", command="nameserver")
    try:
        pair.processes.append(name_server)
        names = {"namesrvAddr": f"127.0.0.1:{name_server.name_port}"}
        pair.master.kill()
        pair.slave.kill()
        master = ServedProcess(tmp_path / "master", command="broker", settings={**pair.master_settings, **names})
        slaves = [
            ServedProcess(
                tmp_path / f"slave{number}",
                command="broker",
                settings={**pair.slave_settings, "brokerId": number, **names},
            )
            for number in (2, 3)
        ]
        pair.processes += [master, *slaves]
        master.create_topic("orders")
        until(lambda: master.runtime()["orbitmqReplicaCopiesCounted"] == "2", 60, what="two slaves that count")
        slaves[0].kill()
        until(lambda: "is let go" in master.log(), what="the end of the connection")
        with master.client() as client:
            sent_until_copied(client, b"on the second alone")
        master.kill()
        behind = ServedProcess(
            tmp_path / "slave2", command="broker", settings={**pair.slave_settings, "brokerId": 2, **names}
        )
        pair.processes.append(behind)
        until(lambda: promote(behind).code == ResponseCode.NO_PERMISSION, 30, what="the refusal")
        assert f"the slave at 127.0.0.1:{slaves[1].port} has the log up to" in (promote(behind).remark or "")
        assert promote(slaves[1], synchronous=True).code == ResponseCode.SUCCESS
    finally:
        pair.end()


def test_a_master_that_cannot_be_asked_for_a_ticket_is_not_followed(pair: Pair) -> None:
    """Unnamed it would compare nothing, and the messages of two masters would become one log."""
    pair.slave.kill()
    until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
    with pair.master.client() as client:
        assert [send(client, b"OLD-%d" % number) for number in range(3)] == [ResponseCode.SLAVE_NOT_AVAILABLE] * 3
    pair.master.kill()
    leader = pair.start_master("slave")
    with leader.client() as client:
        assert [send(client, b"NEW-%d" % number) for number in range(6)] == [ResponseCode.SLAVE_NOT_AVAILABLE] * 6
    parted = ServedProcess(pair.directory / "master", settings={**pair.slave_settings, "brokerId": 2})
    pair.processes.append(parted)
    until(lambda: "was to be asked for a ticket" in parted.log(), 30, what="the attempt to follow")
    assert parted.runtime()["orbitmqReplicaConnected"] == "false"
    assert "following the master" not in parted.log()
    assert not [body for body in bodies(parted) if body.startswith(b"NEW")]


def test_a_master_that_refuses_without_copies_answers_changes_of_its_tables(tmp_path: Path) -> None:
    pair = Pair(tmp_path, refuseWithoutCopies="true")
    try:
        until(lambda: pair.master.runtime()["orbitmqReplicaCopiesCounted"] == "1", what="a slave that counts")
        pair.master.create_topic("orders")
        with pair.master.client() as client:
            sent_until_copied(client, b"both")
        pair.slave.kill()
        until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
        with pair.master.client() as client:
            assert send(client, b"alone") == ResponseCode.SERVICE_NOT_AVAILABLE
            fields = {
                "topic": "more",
                "defaultTopic": "TBW102",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
            }
            answer = client.call(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {**fields, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
            )
        assert answer.code != ResponseCode.SUCCESS
        assert "another leader may cut it off" in (answer.remark or "")
        assert promote(pair.start_slave(), although_master_lives=True, synchronous=True).code == ResponseCode.SUCCESS
        with pair.slave.client() as client:
            assert send(client, b"alone") == ResponseCode.SERVICE_NOT_AVAILABLE, "the rule goes with the role"
    finally:
        pair.end()


def test_what_no_copy_has_stays_unseen_over_a_start_of_a_master_that_refuses(tmp_path: Path) -> None:
    pair = Pair(tmp_path, refuseWithoutCopies="true")
    try:
        until(lambda: pair.master.runtime()["orbitmqReplicaCopiesCounted"] == "1", what="a slave that counts")
        pair.master.create_topic("orders")
        with pair.master.client() as client:
            sent_until_copied(client, b"both")
            pair.slave.send_signal(signal.SIGSTOP)
            assert send(client, b"alone") == ResponseCode.SYSTEM_ERROR, "not known, when the slave is late"
        pair.slave.kill()
        pair.master.kill()
        pair.start_master()
        assert bodies(pair.master)[-1] == b"both"
        pair.start_slave()
        until(lambda: bodies(pair.master)[-1] == b"alone", what="the copy of it")
    finally:
        pair.end()
