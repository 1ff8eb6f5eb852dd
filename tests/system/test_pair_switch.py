"""A master becomes a slave in its own process, alone or in exchange with its slave: nothing is lost, stored or delivered twice."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server_process import ClosedByServer, RawClient, ServedProcess, send_fields, until
from test_pair import Pair, bodies, promote, send, sent_until_copied

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer, DemoteRequest, ReseedRequest
from orbitmq.replication.kept_state import REPLICATION_FILE


@pytest.fixture(params=["SYNC_MASTER", "ASYNC_MASTER"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = level_pair(tmp_path, request.param)
    yield made
    made.end()


def level_pair(directory: Path, role: str = "SYNC_MASTER", **settings: object) -> Pair:
    made = Pair(directory, role, slaveReadEnable="true", **settings)
    made.master.create_topic("orders")
    with made.master.client() as client:
        sent_until_copied(client, b"first")
    until(lambda: made.master.runtime()["orbitmqReplicaCopiesCounted"] == "1", what="a slave that counts")
    return made


def demote(server: ServedProcess, **wanted: object) -> Command:
    with RawClient(server.port) as client:
        return client.call(RequestCode.DEMOTE_MASTER, {}, DemoteRequest(**wanted).encode())  # type: ignore[arg-type]


def switch(server: ServedProcess, **wanted: object) -> DemoteAnswer:
    answer = demote(server, hands_over=True, **wanted)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return DemoteAnswer.decode(answer.body)


def role_of(server: ServedProcess) -> str:
    return server.runtime()["orbitmqReplicaRole"]


def kept(server: ServedProcess) -> dict[str, object]:
    found: dict[str, object] = json.loads((server.data / "config" / REPLICATION_FILE).read_text())
    return found


def follows(server: ServedProcess) -> bool:
    return server.runtime().get("orbitmqReplicaConnected") == "true"


class Sender:
    """Sends numbers to whichever of two brokers takes them. What is not answered is sent again."""

    def __init__(self, *brokers: ServedProcess, topic: str = "orders") -> None:
        self._brokers = brokers
        self._topic = topic
        self._over = threading.Event()
        self.sent: list[bytes] = []
        self.codes: Counter[int] = Counter()
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number, at, last = 0, 0, time.monotonic()
        while not self._over.is_set():
            body = b"%06d" % number
            try:
                with RawClient(self._brokers[at].port) as client:
                    while not self._over.is_set():
                        code = send(client, body, self._topic)
                        self.codes[code] += 1
                        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
                            break  # somebody else leads
                        if code == ResponseCode.SUCCESS:
                            now = time.monotonic()
                            self.longest_s, last = max(self.longest_s, now - last), now
                            self.sent.append(body)
                            number += 1
                            body = b"%06d" % number
            except (OSError, ClosedByServer):
                pass
            at = (at + 1) % len(self._brokers)

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)


def test_roles_are_exchanged_while_messages_are_sent(pair: Pair, figure: Callable[[str], None]) -> None:
    sender = Sender(pair.master, pair.slave)
    try:
        until(lambda: len(sender.sent) > 50, what="sends under way")
        with pair.master.client() as client:
            fields = {**send_fields("orders"), "i": "TIMER_DELAY_SEC\x012\x02"}
            assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"timed").code == ResponseCode.SUCCESS
        began = time.monotonic()
        answer = switch(pair.master)
        took_s = time.monotonic() - began
        assert answer.master == f"127.0.0.1:{pair.slave.port}"
        assert (role_of(pair.master), role_of(pair.slave)) == ("SLAVE", pair.master_settings["brokerRole"])
        before = len(sender.sent)
        until(lambda: len(sender.sent) > before + 50, 30, what="sends to the new master")
        until(lambda: b"timed" in bodies(pair.slave), what="the timer of the former master")
    finally:
        sender.end()
    figure(
        f"exchange of roles: {took_s:.3f} s, longest without SEND_OK {sender.longest_s:.3f} s, answers {dict(sender.codes)}"
    )
    found = bodies(pair.slave)
    counted = Counter(found)
    assert not [body for body in sender.sent if body not in counted], "what was answered is there"
    assert counted[b"timed"] == 1
    until(lambda: follows(pair.master), 30, what="the former master following")
    until(lambda: bodies(pair.master) == found, 30, what="both having the same")


def test_roles_are_exchanged_there_and_back(pair: Pair) -> None:
    timed = {**send_fields("orders"), "i": "TIMER_DELAY_SEC\x014\x02"}
    role = pair.master_settings["brokerRole"]
    for number in range(2):
        master, slave = (pair.master, pair.slave) if number == 0 else (pair.slave, pair.master)
        with master.client() as client:
            body = b"timed-%d" % number
            assert client.call(RequestCode.SEND_MESSAGE_V2, timed, body).code == ResponseCode.SUCCESS
        answer = switch(master)
        assert answer.broker_id == (2 if number == 0 else 1), "the first free one, and what the settings say"
        until(lambda: follows(master), 30, what="the former master following")  # noqa: B023
        until(lambda: slave.runtime()["orbitmqReplicaCopiesCounted"] == "1", what="a copy that counts")  # noqa: B023
        assert (role_of(slave), role_of(master)) == (role, "SLAVE")
        with slave.client() as client:
            sent_until_copied(client, b"switched-%d" % number)
    assert not {"promoted", "demoted"} & {*kept(pair.master), *kept(pair.slave)}, "all is as the settings say"
    until(lambda: {b"timed-0", b"timed-1"} <= set(bodies(pair.master)), what="the timers")
    counted = Counter(bodies(pair.master))
    assert (counted[b"timed-0"], counted[b"timed-1"]) == (1, 1)
    until(lambda: bodies(pair.slave) == bodies(pair.master), 30, what="both having the same")


def test_a_master_becomes_a_slave_and_then_its_slave_the_master(pair: Pair) -> None:
    answer = demote(pair.master)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert DemoteAnswer.decode(answer.body).broker_id == 2
    with pair.master.client() as client:
        refused = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"nobody leads")
        assert (refused.code, "ask the master" in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    assert "is not followed" in pair.master.runtime()["orbitmqReplicaTrouble"]
    again = demote(pair.master)
    assert (again.code, again.remark) == (ResponseCode.INVALID_PARAMETER, "this broker is no master")
    assert demote(pair.slave).code == ResponseCode.INVALID_PARAMETER
    synchronous = pair.master_settings["brokerRole"] == "SYNC_MASTER"
    assert promote(pair.slave, synchronous=synchronous).code == ResponseCode.SUCCESS
    until(lambda: follows(pair.master), 30, what="the former master following")
    with pair.slave.client() as client:
        sent_until_copied(client, b"at the new master")
    until(lambda: bodies(pair.master)[-1:] == [b"at the new master"], 30, what="a copy at the former master")


def test_a_master_whose_slave_is_gone_leads_on_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    pair = level_pair(tmp_path)
    try:
        pair.slave.kill()
        until(lambda: "is let go" in pair.master.log(), what="the end of the slave's connection")
        with pair.master.client() as client:
            assert send(client, b"only here") == ResponseCode.SLAVE_NOT_AVAILABLE
            for wanted in ({}, {"hands_over": True}, {"hands_over": True, "successor": 7}):
                refused = demote(pair.master, **wanted)
                assert refused.code == ResponseCode.NO_PERMISSION
            assert "slave 7 does not follow this master" in (refused.remark or "")
            assert send(client, b"it leads on") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert demote(pair.master, although_behind=True).code == ResponseCode.SUCCESS
        assert promote(pair.master, synchronous=True).code == ResponseCode.SUCCESS, "and back"
        with pair.master.client() as client:
            assert send(client, b"it leads again") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert bodies(pair.master)[-3:] == [b"only here", b"it leads on", b"it leads again"]
        pair.start_slave()
        with pair.master.client() as client:
            sent_until_copied(client, b"both")
    finally:
        pair.end()


def test_what_only_the_former_master_has_is_refused_by_the_next_one(tmp_path: Path) -> None:
    pair = level_pair(tmp_path)
    try:
        pair.slave.send_signal(signal.SIGSTOP)
        with pair.master.client() as client:
            assert send(client, b"only here") == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert demote(pair.master, although_behind=True).code == ResponseCode.SUCCESS
        pair.slave.kill()
        pair.slave = pair.start_slave_alone()
        assert promote(pair.slave, although_behind=True).code == ResponseCode.SUCCESS
        with pair.slave.client() as client:
            assert send(client, b"only at the new master") == ResponseCode.SUCCESS
        until(lambda: "has parted from ours" in pair.master.log(), 30, what="the refusal")
        assert "orbitmq replica reseed" in pair.master.log()
        assert bodies(pair.master)[-1] == b"only here", "nothing is taken back"
        with RawClient(pair.master.port) as client:
            wanted = ReseedRequest(although_parted=True).encode()
            assert client.call(RequestCode.RESEED_SLAVE, {}, wanted).code == ResponseCode.SUCCESS
        until(lambda: "the store was put aside" in pair.master.log(), 30, what="the store put aside")
        until(lambda: bodies_or_none(pair.master)[-1:] == [b"only at the new master"], 60, what="the copy")
        assert role_of(pair.master) == "SLAVE", "its settings say that it is a master"
    finally:
        pair.end()


def bodies_or_none(server: ServedProcess) -> list[bytes]:
    try:
        return bodies(server)
    except (OSError, ClosedByServer):
        return []


def test_a_slave_that_lags_does_not_become_master_and_the_master_takes_messages_again(tmp_path: Path) -> None:
    pair = level_pair(tmp_path, "ASYNC_MASTER")
    try:
        pair.slave.send_signal(signal.SIGSTOP)
        with pair.master.client() as client:
            assert send(client, b"the slave does not have it") == ResponseCode.SUCCESS
            answers: list[Command] = []
            asking = threading.Thread(target=lambda: answers.append(demote(pair.master, hands_over=True)))
            asking.start()
            until(lambda: send(client, b"meanwhile") == ResponseCode.SERVICE_NOT_AVAILABLE, what="sends being refused")
            asking.join(60)
            assert answers[0].code == ResponseCode.NO_PERMISSION
            assert "no slave had within" in (answers[0].remark or "")
            assert send(client, b"it leads on") == ResponseCode.SUCCESS
        assert "demoted" not in kept(pair.master)
    finally:
        pair.end()


def test_a_master_killed_before_the_change_is_kept_leads_and_after_it_follows(tmp_path: Path) -> None:
    pair = level_pair(tmp_path, "ASYNC_MASTER")
    try:
        pair.slave.send_signal(signal.SIGSTOP)
        with pair.master.client() as client:
            assert send(client, b"the slave does not have it") == ResponseCode.SUCCESS
            asking = threading.Thread(target=lambda: demote_or_none(pair.master))
            asking.start()
            until(lambda: send(client, b"meanwhile") == ResponseCode.SERVICE_NOT_AVAILABLE, what="sends being refused")
        pair.master.send_signal(signal.SIGKILL)
        asking.join(60)
        pair.slave.kill()
        pair.start_master()
        with pair.master.client() as client:
            assert send(client, b"it leads") == ResponseCode.SUCCESS
        pair.slave = pair.start_slave()
        until(lambda: pair.master.runtime()["orbitmqReplicaCopiesCounted"] == "1", what="a copy that counts")

        switch(pair.master)
        pair.master.send_signal(signal.SIGKILL)
        with pair.slave.client() as client:
            assert send(client, b"at the new master") == ResponseCode.SUCCESS
        pair.start_master()
        assert "its settings still say that it is a master" in pair.master.log()
        with pair.master.client() as client:
            assert send(client, b"refused") == ResponseCode.SERVICE_NOT_AVAILABLE
        until(lambda: follows(pair.master), 30, what="the former master following")
        until(lambda: bodies(pair.master)[-1:] == [b"at the new master"], 30, what="a copy at the former master")

        pair.master.stop()
        pair.start_master(brokerRole="SLAVE", brokerId=2, haMasterAddress=f"127.0.0.1:{pair.slave.port + 1}")
        until(lambda: follows(pair.master), 30, what="the former master following by its settings")
        until(lambda: "demoted" not in kept(pair.master), 30, what="nothing being kept of the command")
    finally:
        pair.end()


def demote_or_none(server: ServedProcess) -> None:
    try:
        demote(server)
    except (OSError, ClosedByServer) as error:
        print(f"the master ended before it answered: {error}")
