"""Space set aside: who may use it, when sends are refused for it, and when they are taken again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles, Room
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.store import RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, SPACE_CHECK_INTERVAL_MS
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.reserve import RESERVE_FILE, Reserve, bytes_to_set_aside, is_no_room

PAGES = 2_048
SIZE = 64 * 1024


class Rig:
    """A store on a small disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.room = Room(PAGES)
        self.files = RecordingFiles(OsFiles(), root, room=self.room)
        self.little = LittleStore(root, files=self.files)
        self.little.worker.close()

    def fill(self) -> None:
        """Until a send is refused."""
        self.room.fill()
        for _ in range(8):
            if not self.little.store.writable:
                break
            self.little.send(body=bytes(4_000))
        assert not self.little.store.writable

    def reopen(self) -> None:
        self.little = LittleStore(self.root, files=self.files, clock=self.little.clock)
        self.little.worker.close()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_part_of_a_log_file_is_set_aside() -> None:
    assert bytes_to_set_aside(1 << 30) == RESERVE_BYTES_MAX
    assert bytes_to_set_aside(4 << 20) == 256 * 1024
    assert bytes_to_set_aside(16 * 1024) == RESERVE_BYTES_MIN
    assert bytes_to_set_aside(1 << 40) == RESERVE_BYTES_MAX


def test_a_part_that_stayed_of_what_could_not_be_set_aside_is_spent_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 keeps what there was room for: it would lie there, and the orderly stop would find no room."""
    allocate = OsFile.allocate

    def partly(file: OsFile, offset: int, size: int) -> None:
        allocate(file, offset, size // 2)
        raise OSError(errno.ENOSPC, "planned")

    reserve = Reserve(OsFiles(), tmp_path, SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "allocate", partly)
        reserve.take_up()
    assert not reserve.is_whole
    assert (tmp_path / RESERVE_FILE).stat().st_size == SIZE // 2
    reserve.spend()
    assert (tmp_path / RESERVE_FILE).stat().st_size == 0
    assert reserve.restore()
    reserve.close()


def test_it_is_spent_once_and_set_aside_again_as_far_as_there_is_room(tmp_path: Path) -> None:
    room = Room(64)
    files = RecordingFiles(OsFiles(), tmp_path, room=room)
    reserve = Reserve(files, tmp_path, SIZE)
    spent: list[bool] = []
    reserve.spent = lambda: spent.append(True)
    reserve.spend()
    assert spent == [], "nothing is touched before it is taken up"
    reserve.take_up()
    assert reserve.is_whole
    assert room.free == 64 - 16
    room.fill()
    other = files.open(tmp_path / "other", create=True)

    def write() -> None:
        other.pwrite(bytes(4_096 * 3), 0)

    with pytest.raises(OSError, match="No space"):
        write()
    reserve.with_room(write)
    assert spent == [True]
    assert not reserve.is_whole
    assert not reserve.restore()
    assert room.free == 0, "what is left is set aside"
    room.clear()
    assert reserve.restore()
    assert (tmp_path / RESERVE_FILE).stat().st_size == SIZE
    reserve.close()


def test_other_errors_do_not_spend_it(tmp_path: Path) -> None:
    reserve = Reserve(OsFiles(), tmp_path, SIZE)
    reserve.take_up()

    def fails() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        reserve.with_room(fails)
    assert reserve.is_whole
    assert is_no_room(OSError(errno.EDQUOT, "quota"))
    assert not is_no_room(ValueError())


def test_where_no_space_can_be_set_aside_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: OsFile, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(OsFile, "allocate", refuses)
    reserve = Reserve(OsFiles(), tmp_path, SIZE)
    reserve.take_up()
    assert reserve.is_whole, "nobody is refused for it"
    assert reserve.restore()


def test_a_size_that_became_smaller(tmp_path: Path) -> None:
    first = Reserve(OsFiles(), tmp_path, SIZE * 2)
    first.take_up()
    first.close()
    again = Reserve(OsFiles(), tmp_path, SIZE)
    again.take_up()
    assert (tmp_path / RESERVE_FILE).stat().st_size == SIZE
    assert again.is_whole


def test_sends_are_refused_and_everything_else_goes_on(rig: Rig) -> None:
    little, store = rig.little, rig.little.store
    sent = [little.send(body=b"%d" % number) for number in range(3)]
    rig.fill()
    assert "the disk is full" in store.unwritable_reason
    with pytest.raises(StoreUnwritableError):
        little.send()
    little.advance(5_000)
    assert len(little.records()) >= len(sent)
    table = ConfigFile(store._reserve.files, rig.root / "config" / "consumerOffset.json")
    table.save(b"{}" * 5_000)
    little.advance(5_000)
    assert "what is set aside, 64 KiB, is in use" in store.unwritable_reason or not store.writable
    store.delete_topic("Topic")
    little.advance(1_000)
    assert store.queue_ids("Topic") == []
    assert not store.is_over


def test_sends_resume_by_themselves(rig: Rig) -> None:
    rig.fill()
    little, store = rig.little, rig.little.store
    little.advance(SPACE_CHECK_INTERVAL_MS)
    assert not store.writable
    rig.room.clear()
    little.advance(SPACE_CHECK_INTERVAL_MS)
    assert store.writable
    little.send(body=b"again")
    assert little.bodies()[-1] == b"again"


def test_an_orderly_stop_and_a_start_on_a_full_disk(rig: Rig) -> None:
    rig.little.send(body=b"kept", KEYS="k")
    rig.fill()
    kept = rig.little.bodies()
    rig.little.timers.hand_over()
    assert rig.little.store.close(), "a clean store"
    rig.room.fill()
    rig.reopen()
    assert rig.little.store.report.scanned_records == 0
    assert rig.little.bodies() == kept
    assert not rig.little.store.writable or rig.room.free == 0


def test_a_start_after_a_crash_on_a_full_disk(rig: Rig) -> None:
    rig.little.send(body=b"kept")
    rig.fill()
    rig.little.kill()
    rig.room.fill()
    rig.reopen()
    assert rig.little.bodies()[0] == b"kept"
    rig.room.clear()
    rig.little.advance(1_000)
    assert rig.little.store.writable


def test_expired_files_go_from_a_full_disk_and_sends_resume(rig: Rig) -> None:
    little = rig.little
    while len(little.store.log.sequence.segments) < 4:
        little.send(body=bytes(1_000))
    rig.fill()
    keeper = Housekeeping(little.store, rig.root, rig.files, little.clock)
    little.clock.advance(10 * 365 * 86_400_000 * 6)  # files have the machine's time
    keeper.request()
    little.advance(0)
    assert len(little.store.log.sequence.segments) == 1
    rig.room.clear()
    little.advance(1_500)
    assert little.store.writable


def test_a_store_that_cannot_be_left_clean_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.little.send()
    rig.little.turn()
    monkeypatch.setattr(Reserve, "spend", lambda self: None)
    rig.fill()
    (rig.root / "checkpoint").touch()
    assert rig.little.store.close() is False
    assert (rig.root / "abort").exists()
