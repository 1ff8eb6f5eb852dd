"""Damage in the log of one broker of a pair is fetched from the other one; where nobody has it, everything is as without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ServedProcess, pull_fields, until
from test_pair import Pair, bodies, promote, send, sent_until_copied

from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
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
            answer = client.call(RequestCode.PULL_MESSAGE, pull_fields("orders", offset=offset))
            before, offset = offset, int(answer.fields["nextBeginOffset"])
            found += [bytes(record.body) for record in decode_records(bytes(answer.body))]
            if offset == before:
                return found


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
