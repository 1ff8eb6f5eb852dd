"""Clean-up of an open store: what goes, what is pinned, when sends are refused."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreUnwritableError
from orbitmq.store.files import DiskUsage, OsFiles
from orbitmq.store.housekeeping import Housekeeping, Unread

GIB = 1 << 30
HOUR_MS = 3_600_000


class Disk(OsFiles):
    """The operating system's files on a disk of 10 GiB whose use, and whose clock, the test decides."""

    def __init__(self) -> None:
        self.percent = 10
        self.modified: int | None = None

    def disk_usage(self, path: Path) -> DiskUsage:
        used = 10 * GIB * self.percent // 100
        return DiskUsage(10 * GIB, used, 10 * GIB - used)

    def modified_ms(self, path: Path) -> int:
        return self.modified if self.modified is not None else super().modified_ms(path)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def little(tmp_path: Path, disk: Disk) -> LittleStore:
    """A store of four commit log files."""
    little = LittleStore(tmp_path, files=disk)
    disk.modified = little.clock.now_ms()
    while len(little.store.log.sequence.segments) < 4:
        little.send(body=bytes(1000), KEYS="k")
    little.advance(6_000)
    return little


def housekeeping(little: LittleStore) -> Housekeeping:
    return Housekeeping(little.store, little.root, little.files, little.clock, [little.release.lowest_needed])


def log_files(little: LittleStore) -> list[str]:
    return sorted(path.name for path in (little.root / "commitlog").iterdir())


def test_expired_files_go_and_everything_that_only_spoke_of_them(little: LittleStore, disk: Disk) -> None:
    keeper = housekeeping(little)
    little.advance(0)
    assert len(log_files(little)) == 4, "nothing is old"
    little.clock.advance(73 * HOUR_MS)
    keeper.request()
    little.advance(0)
    assert log_files(little) == ["00000000000000049152"]
    assert keeper.removed == {"expired": 3, "disk": 0}
    assert little.store.log.start == 49_152
    queue = little.store.queues.get("Topic", 0)
    assert queue is not None
    assert 0 < queue.min_offset < queue.max_offset
    found = little.store.query_by_key("Topic", "k", 100, 0, 1 << 62)
    assert all((little.store.record_at(position) is not None) == (position >= 49_152) for position in found)
    assert little.records()[0].physical_offset >= 49_152
    little.kill()
    again = LittleStore(little.root, files=disk, clock=little.clock)
    assert again.store.min_offset("Topic", 0) == queue.min_offset
    assert again.send().queue_offset == queue.max_offset


def test_files_stay_until_the_log_says_again_what_they_alone_say(little: LittleStore) -> None:
    asked: list[int] = []

    def say_below(position: int) -> bool:
        asked.append(position)
        return len(asked) > 2

    keeper = Housekeeping(little.store, little.root, little.files, little.clock, say_below=say_below)
    little.advance(0)
    assert asked == [], "nothing is to go"
    little.clock.advance(73 * HOUR_MS)
    keeper.request()
    little.advance(0)
    assert (asked, len(log_files(little))) == ([49_152], 4)
    little.advance(1_000)
    assert (asked, len(log_files(little))) == ([49_152] * 2, 4), "asked again a second later"
    little.advance(1_000)
    assert (asked, len(log_files(little))) == ([49_152] * 4, 1), "and once more right before they go"


def test_files_stay_when_the_first_copy_comes_while_they_are_about_to_go(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody followed when retention asked; now there is something to say."""
    is_said = [True]
    keeper = Housekeeping(little.store, little.root, little.files, little.clock, say_below=lambda position: is_said[0])
    little.advance(0)
    little.clock.advance(73 * HOUR_MS)
    save = little.store.save_durably

    def save_while_a_copy_comes(on_done: Callable[[bool], None]) -> None:
        is_said[0] = False
        save(on_done)

    with monkeypatch.context() as patch:
        patch.setattr(little.store, "save_durably", save_while_a_copy_comes)
        keeper.request()
        little.advance(0)
        assert len(log_files(little)) == 4
    is_said[0] = True
    little.advance(1_000)
    assert len(log_files(little)) == 1


def test_a_pending_delayed_message_pins_its_file_and_all_behind_it(tmp_path: Path, disk: Disk) -> None:
    little = LittleStore(tmp_path, files=disk, levels="1s 1h")
    while len(little.store.log.sequence.segments) < 2:
        little.send(body=bytes(1000))
    little.send(body=b"pending", level=2)
    while len(little.store.log.sequence.segments) < 4:
        little.send(body=bytes(1000))
    disk.modified = 0
    keeper = housekeeping(little)
    keeper.request()
    little.advance(0)
    assert log_files(little) == ["00000000000000016384", "00000000000000032768", "00000000000000049152"]
    little.advance(HOUR_MS)
    keeper.request()
    little.advance(0)
    assert log_files(little)[-1:] == log_files(little), "once delivered it pins nothing"
    assert little.bodies()[-1] == b"pending"


def test_when_only_pinned_files_are_left_sends_are_refused_and_nothing_is_deleted(tmp_path: Path, disk: Disk) -> None:
    little = LittleStore(tmp_path, files=disk)
    little.send(body=b"pending", level=3)
    while len(little.store.log.sequence.segments) < 3:
        little.send(body=bytes(1000))
    disk.percent = 88  # above 85 %: files go whatever their age
    housekeeping(little)
    little.turn()
    little.worker.close()
    assert len(log_files(little)) == 3
    with pytest.raises(StoreUnwritableError, match="hold messages still to be delivered"):
        little.append()
    little.advance(5_000)
    assert little.bodies()[-1] == b"pending", "what is pending is delivered: that is what frees the files"
    little.advance(10_000)
    assert len(log_files(little)) == 1
    assert little.store.writable


def test_a_full_disk_refuses_sends_until_there_is_room(little: LittleStore, disk: Disk) -> None:
    disk.percent = 95
    keeper = housekeeping(little)
    little.advance(0)
    with pytest.raises(StoreUnwritableError, match=r"the disk is full \(95 % used"):
        little.append()
    disk.percent = 50
    little.advance(10_000)
    little.send()
    assert keeper.disk_use == {str(little.root): 0.5}
    assert keeper.room is not None
    total, free = keeper.room
    assert free * 2 == total


def test_trouble_with_looking_is_reported_and_tried_again(
    little: LittleStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = housekeeping(little)

    def broken(path: Path) -> DiskUsage:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "disk_usage", broken)
        little.advance(0)
    assert "cannot be read" in caplog.text
    assert keeper.disk_use == {}
    little.advance(10_000)
    assert keeper.disk_use != {}


def test_files_are_removed_on_the_worker_while_readers_keep_what_they_hold(little: LittleStore, disk: Disk) -> None:
    view = little.store.log.read(0, 100)
    assert view is not None
    before = bytes(view)
    paths = little.store.drop_first_segments(2)
    little.store.remove_paths(paths)
    assert all(path.exists() for path in paths)
    little.worker.close()
    assert not any(path.exists() for path in paths)
    assert bytes(view) == before


# --- a request is kept until it is done ------------------------------------------------------------------------------


def test_a_request_that_finds_no_place_is_kept(little: LittleStore) -> None:
    keeper = housekeeping(little)
    little.advance(0)
    little.clock.advance(73 * HOUR_MS)
    little.worker.is_full = True
    keeper.request()
    little.advance(0)
    assert len(log_files(little)) == 4
    little.worker.is_full = False
    little.advance(little.store.settings.clean_resource_interval_ms)
    assert len(log_files(little)) == 1


def test_a_request_whose_save_fails_is_kept(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = housekeeping(little)
    little.advance(0)
    little.clock.advance(73 * HOUR_MS)
    with monkeypatch.context() as patch:
        patch.setattr(little.store, "save_durably", lambda on_done: on_done(False))
        patch.setattr(little.store.log, "synced_end", -1)
        keeper.request()
        little.advance(0)
        assert len(log_files(little)) == 4
        patch.undo()
    little.advance(little.store.settings.clean_resource_interval_ms)
    assert len(log_files(little)) == 1


def test_a_request_goes_on_when_one_round_does_not_take_all(tmp_path: Path, disk: Disk) -> None:
    little = LittleStore(tmp_path, files=disk, delete_file_batch_max=1)
    disk.modified = little.clock.now_ms()
    while len(little.store.log.sequence.segments) < 4:
        little.send(body=bytes(1000))
    keeper = housekeeping(little)
    little.advance(6_000)
    little.clock.advance(73 * HOUR_MS)
    keeper.request()
    little.advance(0)
    assert len(log_files(little)) == 1
    assert not keeper._manual, "nothing is left to do for it"


class Rewriter:
    """Everything waits for what pends at the beginning of the log, and is too much to be put again."""

    is_busy = False
    rewritten_count = 0

    def lowest_pending(self) -> int | None:
        return 100

    def bytes_below(self, position: int) -> int:
        return position

    def rewrite_below(self, position: int, ended: Callable[[bool], None]) -> None:
        raise AssertionError("it is not worth it")


def test_what_keeps_the_oldest_file_is_told_when_nothing_can_go_on_a_full_disk(little: LittleStore, disk: Disk) -> None:
    keeper = Housekeeping(little.store, little.root, little.files, little.clock, rewriter=Rewriter())
    told: list[int] = []
    keeper.out_of_room = told.append
    little.advance(0)
    assert told == []
    disk.percent = 99
    little.advance(20_000)
    assert told[:1] == [100]
    assert not little.store.writable


SIX_FILES = 6 * 16_384


class SmallDisk(Disk):
    """A disk that holds nothing but the log of a store and a heap of something else, ten times as large as six files of that log. Each byte
    counts a hundredfold, for what is free has to reach a mebibyte."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.shown_late: int | None = None
        """What it shows as used whatever has gone."""
        self._log = root / "commitlog"

    def disk_usage(self, path: Path) -> DiskUsage:
        used = self.shown_late
        if used is None:
            used = 100 * (8 * SIX_FILES + 16_384 + sum(one.stat().st_size for one in self._log.glob("*")))
        return DiskUsage(1_000 * SIX_FILES, used, 1_000 * SIX_FILES - used)


def small_store(root: Path, disk: SmallDisk, **settings: int) -> LittleStore:
    little = LittleStore(root, files=disk, **settings)
    disk.modified = little.clock.now_ms()
    while len(little.store.log.sequence.segments) < 6:
        little.send(body=bytes(1000))
    little.advance(6_000)
    return little


def test_what_had_no_room_is_taken_as_soon_as_files_have_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(tmp_path)
    little = small_store(tmp_path, disk)
    little.clock.advance(90 * 60_000)
    unread = [Unread("readers", "Topic", 12), Unread("others", "Topic", 3)]
    keeper = Housekeeping(little.store, tmp_path, disk, little.clock, going_unread=lambda: lambda: unread)
    with caplog.at_level(logging.INFO, "orbitmq.store"):
        little.advance(0)
    assert little.store.writable, "no second has passed"
    assert keeper.removed == {"expired": 0, "disk": 5}
    assert keeper.unread == {"expired": 0, "disk": 15}
    assert keeper.disk_free_bytes == disk.disk_usage(tmp_path / "commitlog").free_bytes, (
        "what is shown is what is there"
    )
    (line,) = [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and "before their time" in record.message
    ]
    assert "00000000000000000000 (1.5 h old), 00000000000000016384 (1.5 h old)" in line.message
    assert "92 % used" in line.message
    assert line.message.endswith("not read by readers on Topic (12 messages), others on Topic (3 messages)")


def test_a_disk_that_shows_late_what_has_gone_does_not_cost_the_whole_log(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    little = small_store(tmp_path, disk, delete_file_batch_max=2)
    disk.shown_late = disk.disk_usage(tmp_path).used_bytes
    keeper = Housekeeping(little.store, tmp_path, disk, little.clock)
    little.advance(0)
    little.advance(9_000)
    assert keeper.removed["disk"] == 2
    assert not little.store.writable
    little.advance(2_000)
    assert keeper.removed["disk"] == 4, "an interval later whatever is shown"
    disk.shown_late = None
    little.advance(1_000)
    assert little.store.writable


def test_a_write_that_finds_no_room_is_answered_by_making_some(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    disk.shown_late = 0
    little = small_store(tmp_path, disk)
    keeper = Housekeeping(little.store, tmp_path, disk, little.clock)
    little.advance(0)
    assert keeper.removed["disk"] == 0
    disk.shown_late = None
    little.store.shortage.met(OSError(errno.ENOSPC, "No space left on device"))
    little.advance(0)
    assert keeper.removed["disk"] == 5, "ten seconds before the next usual look"
    little.advance(600)
    assert little.store.writable
    disk.shown_late = disk.disk_usage(tmp_path).total_bytes
    while len(little.store.log.sequence.segments) < 3:
        little.send(body=bytes(1000))
    little.store.shortage.met(OSError(errno.ENOSPC, "No space left on device"))
    little.advance(0)
    assert keeper.removed["disk"] == 7, "it has shown what went before, and goes on at once"
