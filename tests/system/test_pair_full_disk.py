"""A pair whose disks are really full, small ones of their own: nothing is answered 0 that a copy lacks, and room that is made is enough."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Final

import pytest
from server_process import RawClient, ServedProcess, send_fields, until
from test_pair import Pair, bodies, sent_until_copied
from test_pair_switch import demote, role_of
from tests.edges.full_disk import small_file_system
from tests.edges.run import CannotRunError

from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

SIZE_MB: Final = 24
SMALL: Final = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "maxIndexNum": 2_000,
    "maxHashSlotNum": 500,
    "slaveReadEnable": "true",
}
UNCOPIED: Final = {ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
LIMIT_S: Final = 30.0


class FullPair:
    """`master` and `slave` are who is it now; each has a disk of its own."""

    def __init__(self, directory: Path, **settings: object) -> None:
        """CannotRunError where no small disk can be made."""
        self._disks = ExitStack()
        self.answers: dict[bytes, int] = {}
        try:
            for name in ("master", "slave"):
                disk = self._disks.enter_context(small_file_system(directory / f"disk of the {name}", SIZE_MB))
                (directory / name).mkdir()
                (directory / name / "data").symlink_to(disk)
            pair = Pair(directory, **SMALL, **settings)
            self._disks.callback(pair.end)
            self.master, self.slave = pair.master, pair.slave
            until(lambda: counted(self.master) == "1", LIMIT_S, "a slave that counts")
            self.master.create_topic("orders")
        except BaseException:
            self._disks.close()
            raise

    def end(self) -> None:
        self._disks.close()

    def send(self, name: str, count: int = 8) -> list[tuple[int, str]]:
        """Codes of so many sends, and what was said to them."""
        told = []
        with RawClient(self.master.port) as client:
            for number in range(count):
                body = f"{name}-{number}-".encode().ljust(20_000, b"x")
                answer = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), body)
                self.answers[body] = answer.code
                told.append((answer.code, answer.remark or ""))
        return told

    def goes_on(self) -> None:
        """The slave counts again by itself, sends are answered 0, and both have the same: each message that was taken, and none besides."""
        with self.master.client() as client:
            sent_until_copied(client, b"goes on")
        until(lambda: counted(self.master) == "1", LIMIT_S, "a slave that counts")
        until(lambda: log_end(self.slave) == log_end(self.master), LIMIT_S, "logs of one length")
        assert log_bytes(self.slave) == log_bytes(self.master)
        found = Counter(bodies(self.master))
        refused = {body for body, code in self.answers.items() if code == ResponseCode.SERVICE_NOT_AVAILABLE}
        assert not refused & found.keys()
        assert {found[body] for body in self.answers.keys() - refused} <= {1}

    def leads_one(self) -> None:
        """Of two brokers, and they are told apart anew."""
        leading = [one for one in (self.master, self.slave) if role_of(one) == "SYNC_MASTER"]
        assert len(leading) == 1
        if leading[0] is self.slave:
            self.master, self.slave = self.slave, self.master


def counted(master: ServedProcess) -> str:
    return master.runtime()["orbitmqReplicaCopiesCounted"]


def trouble(server: ServedProcess) -> str:
    """What `orbitmq replica status` says of it."""
    return server.runtime()["orbitmqReplicaTrouble"]


def why_not(master: ServedProcess) -> str:
    """Why its only slave does not count, as `haStatus` has it."""
    with RawClient(master.port) as client:
        (slave,) = HaRuntimeInfo.decode(client.call(RequestCode.GET_BROKER_HA_STATUS).body).ha_connection_info
    return slave.why_not


def log_end(server: ServedProcess) -> int:
    return int(server.runtime()["orbitmqReplicaLogEnd"])


def log_bytes(server: ServedProcess) -> bytes:
    with (server.data / "commitlog" / f"{0:020d}").open("rb") as file:
        return file.read(log_end(server))


def has_room(file: RawIOBase, size: int) -> bool:
    """Write as many bytes; False where there is no room for them."""
    try:
        return file.write(bytes(size)) is not None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


@contextmanager
def full(server: ServedProcess) -> Iterator[None]:
    """No block of its disk is free, meanwhile."""
    ballast = server.data / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            while has_room(file, size):
                pass
    try:
        yield
    finally:
        ballast.unlink()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullPair]:
    made = made_or_skipped(tmp_path_factory.mktemp("pair"))
    yield made
    made.end()


def made_or_skipped(directory: Path, **settings: object) -> FullPair:
    try:
        return FullPair(directory, **settings)
    except CannotRunError as error:
        pytest.skip(str(error))


def test_a_slave_without_room_does_not_count_and_follows_again_when_it_has_some(pair: FullPair) -> None:
    with full(pair.slave):
        told = pair.send("the slave is full")
        assert {code for code, _ in told} <= {0, *UNCOPIED}
        assert told[-1][0] in UNCOPIED
        copied = set(bodies(pair.slave))
        assert not [body for body, code in pair.answers.items() if code == 0 and body not in copied]
        assert counted(pair.master) == "0"
        assert "1 more slave has to keep up" in trouble(pair.master)
        until(lambda: "append failed: the disk is full" in trouble(pair.slave), LIMIT_S, "the reason at the slave")
        assert "append failed: the disk is full" in pair.slave.log()
        at_master = "has trouble with its store: the disk is full"
        until(lambda: at_master in pair.master.log(), LIMIT_S, "the reason at the master")
        until(lambda: "the disk is full" in why_not(pair.master), LIMIT_S, "the reason in its list of slaves")
    pair.goes_on()


def test_a_master_without_room_refuses_by_name_and_nobody_has_what_it_refused(pair: FullPair) -> None:
    with full(pair.master):
        told = pair.send("the master is full")
        assert told[-1][0] == ResponseCode.SERVICE_NOT_AVAILABLE
        assert {code for code, _ in told} <= {0, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert "the disk is full" in told[-1][1]
        assert counted(pair.master) == "1", "its slave has everything"
        until(lambda: bodies(pair.slave) == bodies(pair.master), LIMIT_S, "both having the same")
    pair.goes_on()


def switched(pair: FullPair) -> Command:
    """The answer to the command, whatever it is; one of both leads afterwards."""
    answer = demote(pair.master, hands_over=True)
    pair.leads_one()
    return answer


def test_a_successor_without_room_does_not_become_the_master(pair: FullPair) -> None:
    """Whether it has met that or not."""
    master = pair.master
    with full(pair.slave):
        answer = switched(pair)
        assert (answer.code, pair.master) == (ResponseCode.NO_PERMISSION, master)
        assert "would take no messages: the disk is full" in (answer.remark or "")
        told = pair.send("it leads on")
        assert {code for code, _ in told} <= {0, *UNCOPIED}
        until(lambda: "append failed" in trouble(pair.slave), LIMIT_S, "the slave having met it")
        answer = switched(pair)
        assert (answer.code, pair.master) == (ResponseCode.NO_PERMISSION, master)
        assert "no slave keeps up" in (answer.remark or "")
    pair.goes_on()


@pytest.mark.parametrize("has_met", [False, True], ids=["not met yet", "met"])
def test_a_master_without_room_hands_over_to_one_that_has_some(pair: FullPair, has_met: bool) -> None:
    former = pair.master
    with full(former):
        if has_met:
            assert pair.send("it is full")[-1][0] == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = switched(pair)
        assert (answer.code, pair.slave) == (ResponseCode.SUCCESS, former), answer.remark
        told = pair.send(f"the new one leads, {has_met}")
        assert {code for code, _ in told} <= {0, *UNCOPIED}
    pair.goes_on()


def test_a_master_that_refuses_without_copies_refuses_what_a_slave_without_room_lacks(tmp_path: Path) -> None:
    pair = made_or_skipped(tmp_path, refuseWithoutCopies="true", flushDiskType="SYNC_FLUSH")
    try:
        with full(pair.slave):
            told = pair.send("the slave is full")
            assert {code for code, _ in told} <= {0, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR}
            assert all("not confirmed" in text for code, text in told if code == ResponseCode.SYSTEM_ERROR)
            assert told[-1][0] == ResponseCode.SERVICE_NOT_AVAILABLE
            seen = bodies(pair.master)
            assert {body for body, code in pair.answers.items() if code == 0} <= set(bodies(pair.slave))
            assert not [body for body, code in pair.answers.items() if code and body in seen], "no copy has it"
        with pair.master.client() as client:
            sent_until_copied(client, b"goes on")
        until(lambda: log_end(pair.slave) == log_end(pair.master), LIMIT_S, "logs of one length")
        assert log_bytes(pair.slave) == log_bytes(pair.master)
    finally:
        pair.end()
