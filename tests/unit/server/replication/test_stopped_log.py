"""The log of a store that nobody has opened is mended from another copy, and from nobody else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.broker.table_records.identity import IDENTITY_FILE
from orbitmq.errors import ConnectionLostError, LogDamagedError, LogFileLostError, StoreError, StoreLockedError
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication import missing_range
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks
from orbitmq.replication.kept_state import REPLICATION_FILE, KeptState
from orbitmq.replication.range_answers import OwnLog, check_range
from orbitmq.server.replication.stopped_log import DamagedPlace, StoppedLog
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.lost_files import lost_files

FILE = SMALL.mapped_file_size_commit_log
ID = "ab" * 16


class Stopped:
    """A store of three files that was stopped, or killed, and the log of its other copy."""

    def __init__(self, root: Path, *, killed: bool = False) -> None:
        self.root = root
        little = LittleStore(root)
        for number in range(60):
            little.send(body=bytes([number + 1]) * (200 + 41 * number))
        self.entries: list[Dispatched] = list(little.store.scan(0))
        self.end = little.store.confirm_offset
        self.theirs = b"".join(one.read(one.base, one.size) for one in little.store.log.sequence.segments)
        self.epochs = EpochMarks([EpochMark(1, 0)])
        (root / IDENTITY_FILE).write_text(ID)
        state = KeptState("d" * 32, epochs=self.epochs, copies=["other:1"])
        ConfigFile(OsFiles(), root / "config" / REPLICATION_FILE).save(state.table())
        if killed:
            little.kill()
        else:
            little.close()

    def flip(self, *numbers: int) -> None:
        for number in numbers:
            at = self.entries[number].physical_offset + 150
            with (self.root / "commitlog" / f"{at - at % FILE:020}").open("r+b") as file:
                file.seek(at % FILE)
                file.write(bytes([self.theirs[at] ^ 4]))

    def at(self, number: int) -> int:
        return self.entries[number].physical_offset

    def log(self) -> StoppedLog:
        return StoppedLog(OsFiles(), self.root, None, FILE)

    async def ask(self, wanted: LogRangeRequest) -> bytes:
        size = check_range(wanted, OwnLog("pair", ID, self.epochs, 0, self.end, FILE))
        return self.theirs[wanted.position : wanted.position + size]

    async def mended(self) -> list[DamagedPlace]:
        log = self.log()
        try:
            return [
                one for stretch in log.stretches() for one in await log.mend(*stretch, {"other:1": self.ask}, group="")
            ]
        finally:
            log.close()

    def found(self) -> list[int]:
        log = self.log()
        try:
            return [one.position for stretch in log.stretches() for one in log.places(*stretch)]
        finally:
            log.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_every_place_is_found_and_mended(tmp_path: Path, killed: bool) -> None:
    stopped = Stopped(tmp_path, killed=killed)
    numbers = [3, 30, 31, 57]
    stopped.flip(*numbers)
    assert stopped.found() == [stopped.at(number) for number in numbers]
    mended = await stopped.mended()
    assert [one.position for one in mended] == [stopped.at(3), stopped.at(30), stopped.at(57)], (
        "neighbours are one place"
    )
    assert {one.came_from for one in mended} == {"other:1"}
    assert stopped.found() == []
    again = LittleStore(tmp_path)
    assert again.log_bytes(0, FILE) == stopped.theirs[:FILE]
    assert len(again.bodies()) == 60
    again.close()


async def test_what_the_copy_does_not_have_stays_and_the_rest_is_mended(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    stopped.flip(3, 30)
    theirs = bytearray(stopped.theirs)
    theirs[stopped.at(3) + 300] ^= 1
    stopped.theirs = bytes(theirs)
    left, mended = await stopped.mended()
    assert left.position == stopped.at(3)
    assert left.came_from == ""
    assert "no record follows" in left.refusals
    assert mended.came_from == "other:1"
    assert stopped.found() == [stopped.at(3)]


async def test_another_log_gives_nothing_and_nothing_is_changed(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    stopped.flip(3)
    (tmp_path / IDENTITY_FILE).write_text("cd" * 16)
    (left,) = await stopped.mended()
    assert "the log here is" in left.refusals
    assert stopped.found() == [stopped.at(3)]


async def test_a_copy_that_does_not_answer_has_said_nothing(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    stopped.flip(3)

    async def ask(wanted: LogRangeRequest) -> bytes:
        raise ConnectionLostError("other:1 cannot be reached")

    log = stopped.log()
    (left,) = await log.mend(0, stopped.end, {"other:1": ask}, group="pair")
    assert not log.has_answered
    assert "cannot be reached" in left.refusals
    log.close()


async def test_a_store_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    stopped.flip(3)
    open_store = LittleStore(tmp_path)
    with pytest.raises(StoreLockedError):
        await stopped.mended()
    open_store.close()


def test_the_log_remembers_where_a_record_was_read_that_is_damaged(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    stopped.flip(3, 5)
    little = LittleStore(tmp_path)
    log = little.store.log
    assert log.sound_record(stopped.at(4)) is not None
    assert log.sound_record(little.store.confirm_offset) is None
    assert log.unsound_at is None, "nothing was there"
    assert log.sound_record(stopped.at(5)) is None
    assert log.sound_record(stopped.at(3)) is None
    assert log.unsound_at == stopped.at(5)
    little.close()


def test_a_store_that_never_had_a_copy_has_none(tmp_path: Path) -> None:
    Stopped(tmp_path)
    (tmp_path / "config" / REPLICATION_FILE).unlink()
    log = StoppedLog(OsFiles(), tmp_path, None, FILE)
    assert not log.has_copies
    (tmp_path / "orbitmq.mark").unlink()
    with pytest.raises(StoreError, match="up to where its log is confirmed"):
        log.stretches()
    log.close()


async def test_a_start_says_what_is_to_be_mended_a_sector_that_cannot_be_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consume queues are gone, so all of the log is read."""
    stopped = Stopped(tmp_path, killed=True)
    pread = OsFile.pread

    def failing(file: OsFile, size: int, offset: int) -> bytes:
        if Path(file.path).name == "0" * 20 and offset <= stopped.at(3) + 60 < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size, offset)

    stopped.flip(30)
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(LogDamagedError) as met:
        LittleStore(tmp_path)
    assert met.value.position == stopped.at(30)
    log = stopped.log()
    await log.mend(met.value.position, met.value.until, {"other:1": stopped.ask}, group="pair", why="x")
    log.close()
    again = LittleStore(tmp_path)
    assert len(again.bodies()) == 60
    again.kill()
    (tmp_path / "orbitmq.mark").write_bytes(b"")
    with monkeypatch.context() as patched:
        patched.setattr(OsFile, "pread", failing)
        with pytest.raises(OSError, match="Input/output error"):
            LittleStore(tmp_path)


# --- files that were lost -------------------------------------------------------------------------------------------------


def lose(stopped: Stopped, base: int, left: int | None) -> None:
    path = stopped.root / "commitlog" / f"{base:020}"
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)


async def brought(stopped: Stopped) -> list[DamagedPlace]:
    log = stopped.log()
    try:
        return await log.bring({"other:1": stopped.ask}, group="pair")
    finally:
        log.close()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("left", [None, 0, 5_000], ids=["missing", "emptied", "cut short"])
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "last"])
async def test_a_file_that_was_lost_comes_whole_from_the_copy(
    tmp_path: Path, number: int, left: int | None, killed: bool
) -> None:
    """But one of which nobody knows: the first, which retention may have removed, and the last, where the mark of a killed broker ends
    before it."""
    stopped = Stopped(tmp_path, killed=killed)
    base = list(range(0, stopped.end, FILE))[number]
    lose(stopped, base, left)
    if (number, left) == (0, None) or (killed and number == -1 and not left):
        assert await brought(stopped) == []
        return
    with pytest.raises(LogFileLostError):
        LittleStore(tmp_path)
    (place,) = await brought(stopped)
    assert (place.position, place.came_from) == (base, "other:1")
    assert place.size_bytes == min(FILE, stopped.end - base)
    assert stopped.found() == []
    again = LittleStore(tmp_path)
    assert again.log_bytes(0, stopped.end) == stopped.theirs[: stopped.end]
    assert len(again.bodies()) == 60
    again.close()


async def test_a_lost_file_of_which_the_copy_lacks_a_record_is_not_made(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    lose(stopped, FILE, 4_000)
    theirs = bytearray(stopped.theirs)
    theirs[FILE + 700] ^= 1
    stopped.theirs = bytes(theirs)
    (place,) = await brought(stopped)
    assert (place.came_from, place.refusals[:8]) == ("", "other:1:")
    assert (tmp_path / "commitlog" / f"{FILE:020}").stat().st_size == 4_000, "nothing was changed"


async def test_a_last_file_is_not_made_from_a_copy_that_was_behind(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    lose(stopped, stopped.end - stopped.end % FILE, None)
    stopped.end = stopped.at(57)
    (place,) = await brought(stopped)
    assert (place.came_from, "and ours was confirmed up to" in place.refusals) == ("", True)


async def test_a_long_place_is_mended_in_parts_while_nobody_has_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Stopped(tmp_path)
    monkeypatch.setattr(missing_range, "MEND_RANGE_BYTES_MAX", 5_000)
    monkeypatch.setattr(missing_range, "MEND_READ_BYTES", 5_000)
    path = tmp_path / "commitlog" / f"{FILE:020}"
    data = bytearray(path.read_bytes())
    data[500:] = bytes(len(data) - 500)
    path.write_bytes(data)
    (place,) = await stopped.mended()
    assert place.came_from == "other:1"
    assert place.size_bytes > 2 * 5_000
    assert stopped.found() == []


def test_with_another_file_size_configured_nothing_is_lost(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path)
    assert lost_files(OsFiles(), tmp_path / "commitlog", FILE, stopped.end) == []
    for size in (FILE // 2, FILE * 2):
        assert lost_files(OsFiles(), tmp_path / "commitlog", size, stopped.end) == []
