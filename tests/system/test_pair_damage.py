"""Damage in the log of one broker of a pair is fetched from the other one; where nobody has it, everything is as without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import RawClient, ServedProcess, pull_fields, send_fields, until
from test_pair import Pair, bodies, promote, send, sent_until_copied

from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest

COUNT = 40


def pair_with_messages(directory: Path) -> Pair:
    """Several files of the log, and all of it at both."""
    made = Pair(directory, mappedFileSizeCommitLog=1 << 20)
    made.master.create_topic("orders")
    with made.master.client() as client:
        sent_until_copied(client, b"first")
        for number in range(COUNT):
            assert send(client, body(number)) == ResponseCode.SUCCESS
    return made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = pair_with_messages(tmp_path)
    yield made
    made.end()


def body(number: int) -> bytes:
    return b"%04d" % number * 4_000


def log_files(server: ServedProcess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((server.data / "commitlog").iterdir())}


def damage(server: ServedProcess, *numbers: int, size: int = 1) -> None:
    """Bits of the bodies of these messages are not what they were."""
    for path in sorted((server.data / "commitlog").iterdir()):
        data = path.read_bytes()
        with path.open("r+b") as file:
            for number in numbers:
                at = data.find(body(number))
                if at >= 0:
                    file.seek(at + 1_000)
                    file.write(bytes(byte ^ 0x40 for byte in data[at + 1_000 : at + 1_000 + size]))


def read_on(server: ServedProcess) -> list[bytes]:
    """What a consumer gets that goes on where each answer says."""
    found: list[bytes] = []
    offset = before = 0
    with server.client() as client:
        while True:
            answer = pulled(client, offset)
            before, offset = offset, int(answer.fields["nextBeginOffset"])
            found += [bytes(record.body) for record in decode_records(bytes(answer.body))]
            if offset == before:
                return found


def pulled(client: RawClient, offset: int) -> Command:
    """The answer to a consumer that asks again for as long as it is told that what is damaged may come from another copy."""
    answers: list[Command] = []

    def is_told() -> bool:
        answers.append(client.call(RequestCode.PULL_MESSAGE, pull_fields("orders", offset=offset)))
        return "asked for at another copy" not in (answers[-1].remark or "")

    until(is_told, 60, "messages, or what is behind the damage")
    return answers[-1]


def facts(server: ServedProcess) -> dict[str, str]:
    return {name.removeprefix("orbitmqReplica"): value for name, value in server.runtime().items()}


def is_mended(server: ServedProcess) -> bool:
    told = facts(server)
    return told["DamagedPlaces"] == "0" and int(told["MendedBytes"]) > 0


def test_a_slave_mends_itself_from_its_master(pair: Pair) -> None:
    pair.slave.stop()
    damage(pair.slave, 3, 4, 30, size=3_000)
    pair.start_slave()
    until(lambda: is_mended(pair.slave), 30, what="the slave mended")
    assert "the log was damaged at" in pair.slave.log()
    until(lambda: "the log has no damage any more" in pair.slave.log(), what="the end of the damage")
    assert log_files(pair.slave) == log_files(pair.master)
    assert bodies(pair.slave)[-COUNT:] == [body(number) for number in range(COUNT)]
    until(lambda: '"state":"counted"' in facts(pair.master)["Slaves"], 30, what="the slave counting again")


def test_a_master_mends_itself_from_its_slave_and_no_consumer_misses_the_message(pair: Pair) -> None:
    pair.slave.stop()
    pair.master.stop()
    damage(pair.master, 7, 8)
    master = pair.start_master()
    pair.start_slave()
    until(lambda: is_mended(master), 30, what="the master mended")
    assert log_files(master) == log_files(pair.slave)
    assert bodies(master)[-COUNT:] == [body(number) for number in range(COUNT)]


def test_a_slave_that_is_damaged_does_not_count_and_is_not_made_master(pair: Pair) -> None:
    """Both have lost the same message."""
    pair.slave.stop()
    pair.master.stop()
    for server in (pair.master, pair.slave):
        damage(server, 12)
    pair.start_master()
    pair.start_slave()
    until(lambda: facts(pair.slave)["DamagedPlaces"] == "1", 30, what="the slave knowing its damage")
    until(lambda: "stays, other copies are asked again" in pair.slave.log(), 30, what="the answer of the master")
    until(lambda: '"state":"damaged"' in facts(pair.master)["Slaves"], 40, what="the master knowing of it")
    assert "the log is damaged at" in facts(pair.slave)["Trouble"]
    with pair.master.client() as client:
        assert send(client, b"alone") in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    pair.master.kill()
    until(lambda: "is not followed" in pair.slave.log(), 30, what="the slave missing its master")
    refused = promote(pair.slave)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "the log is damaged at" in (refused.remark or "")
    assert "make another slave the master" in (refused.remark or "")
    assert promote(pair.slave, although_behind=True).code == ResponseCode.SUCCESS
    found = read_on(pair.slave)
    assert body(12) not in found, "what is damaged is never served"
    assert body(11) in found
    assert body(13) in found


def test_bytes_of_the_log_are_given_to_its_copies_alone(pair: Pair) -> None:
    def ask(**fields: object) -> tuple[int, bytes]:
        wanted = {"broker_name": "pair", "log": "f" * 32, "end": 5_000, "epochs": "0\n0\n", "position": 0, "size": 900}
        with pair.master.client() as client:
            answer = client.call(RequestCode.READ_LOG, {}, LogRangeRequest(**{**wanted, **fields}).encode())  # type: ignore[arg-type]
        return answer.code, bytes(answer.body)

    assert ask() == (ResponseCode.NO_PERMISSION, b"")
    assert ask(broker_name="other") == (ResponseCode.NO_PERMISSION, b"")
    assert ask(size=-1)[0] == ResponseCode.NO_PERMISSION


def test_a_broker_without_a_copy_passes_over_what_is_damaged(tmp_path: Path) -> None:
    server = ServedProcess(tmp_path / "alone")
    try:
        server.create_topic("orders")
        with server.client() as client:
            for number in range(5):
                assert send(client, body(number)) == ResponseCode.SUCCESS
        server.stop()
        damage(server, 2)
        server = ServedProcess(tmp_path / "alone")
        found = read_on(server)
        assert found == [body(number) for number in (0, 1, 3, 4)]
        assert facts(server)["DamagedPlaces"] == "0"
    finally:
        server.kill()


LONG = 500
"""Messages of a log that takes a broker several seconds to look through: what lies at its end is met by whoever reads first."""


def send_more(server: ServedProcess, numbers: range) -> None:
    with server.client() as client:
        for number in numbers:
            assert send(client, body(number)) == ResponseCode.SUCCESS


def whole_log(server: ServedProcess) -> bytes:
    return b"".join(log_files(server).values())


def test_damage_that_a_promotion_does_not_know_of_yet_is_served_to_nobody(pair: Pair) -> None:
    """It is met by the new master, which has nobody to ask, until the former one is back as its slave."""
    lost = [LONG - 8, LONG - 3]
    send_more(pair.master, range(COUNT, LONG))
    timer = send_fields("timers", {"TIMER_DELAY_SEC": "4"})
    pair.master.create_topic("timers")
    with pair.master.client() as client:
        answer = client.call(RequestCode.SEND_MESSAGE_V2, timer, body(LONG))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    pair.slave.stop()
    pair.master.kill()
    damage(pair.slave, *lost, LONG)
    slave = pair.start_slave_alone()
    assert promote(slave).code == ResponseCode.SUCCESS
    end = int(facts(slave)["LogEnd"])
    found = read_on(slave)
    with slave.client() as client:
        assert send(client, b"taken") == ResponseCode.SUCCESS
    assert found == [b"first", *(body(number) for number in range(LONG) if number not in lost)]
    until(lambda: "the log is damaged at" in facts(slave)["Trouble"], 30, what="the damage being told")
    assert int(facts(slave)["DamagedPlaces"]) >= 1
    assert "the log is damaged at" in slave.log()
    assert int(facts(slave)["LogEnd"]) > end
    until(lambda: "goes to quarantine: its record in the commit log is damaged" in slave.log(), 30, what="the timer")

    former = ServedProcess(
        pair.directory / "master",
        command="broker",
        settings={**pair.slave_settings, "brokerId": 2, "haMasterAddress": f"127.0.0.1:{slave.port + 1}"},
    )
    pair.processes.append(former)
    until(lambda: is_mended(slave), 60, what="the new master mended")
    assert read_on(slave)[: LONG + 1] == [b"first", *(body(number) for number in range(LONG))]
    assert bodies(slave, "timers") == []
    until(lambda: whole_log(former) == whole_log(slave), 30, what="equal logs")


def test_a_slave_is_seeded_up_to_damage_of_its_master_and_further_when_somebody_has_what_is_lost(pair: Pair) -> None:
    pair.slave.stop()
    pair.master.stop()
    damage(pair.master, 20, 21)
    size = len(whole_log(pair.master))
    master = pair.start_master()
    new = ServedProcess(
        pair.directory / "new",
        command="broker",
        settings={**pair.slave_settings, "brokerId": 2, "namesrvAddr": f"127.0.0.1:{master.name_port}"},
    )
    pair.processes.append(new)
    until(lambda: "the log is damaged at" in facts(master)["Trouble"], 30, what="the master knowing its damage")
    until(lambda: bodies(new)[-1:] == [body(19)], 30, what="what lies before it at the new slave")
    until(lambda: "is not followed" in facts(new)["Trouble"], 30, what="the new slave saying so")
    with master.client() as client:
        assert send(client, b"alone") in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert promote(new, although_master_lives=True).code == ResponseCode.NO_PERMISSION
    assert body(20) not in read_on(master)
    assert len(whole_log(master)) >= size

    pair.start_slave()
    until(lambda: is_mended(master), 60, what="the master mended")
    until(lambda: whole_log(new) == whole_log(master) == whole_log(pair.slave), 60, what="three equal logs")
    found = [one for one in bodies(new) if one != b"first"]  # is sent until it is copied
    assert found[:COUNT] == [body(number) for number in range(COUNT)]
    until(lambda: facts(master)["CopiesCounted"] == "2", 30, what="both counting")
