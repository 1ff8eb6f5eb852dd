"""Where recovery begins and what it takes for the end: RocketMQ's rules, our mark, damage and torn ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.errors import StoreDamagedError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import Mark
from orbitmq.store.recovery import (
    LastWriter,
    LogScan,
    RecoveryPlan,
    find_end,
    find_record_after,
    judge_end,
    plan_recovery,
)

PAGE = Checkpoint(physic_msg_timestamp=10_000, logics_msg_timestamp=9_000)
FILE = SMALL.mapped_file_size_commit_log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four files; the first record of each was stored at 1, 2, 3 and 4 thousand ms behind the first."""
    little = LittleStore(tmp_path)
    start = little.clock.now_ms()
    for number in range(52):
        little.clock.set_wall(start + (little.store.log.end + 1_104) // FILE * 1_000)
        little.send(body=bytes([number]) * 1000)
    assert len(little.store.log.sequence.segments) == 4
    little.close()
    return tmp_path


def log_of(root: Path) -> CommitLog:
    log = CommitLog(OsFiles(), root / "commitlog", FILE)
    log.sequence.load()
    log.expose_files()
    return log


def mark(end: int, *, boot: str = "now", **positions: int) -> Mark:
    return Mark(serial=1, boot=boot, end=end, positions=positions or {"all": end}, checkpoints=[PAGE.digest()])


def plan(
    log: CommitLog, found: Mark | None, *, page: Checkpoint = PAGE, abort: bool = True, indexed: int = 0
) -> RecoveryPlan:
    return plan_recovery(log, found, page, abort, indexed, "now")


def end_of(root: Path) -> int:
    return find_end(log_of(root), 0)


def test_an_empty_directory_is_a_new_store(tmp_path: Path) -> None:
    assert plan(log_of(tmp_path), None).origin is LastWriter.NEW


def test_with_our_mark_the_scan_begins_at_the_lowest_position(root: Path) -> None:
    found = plan(log_of(root), mark(5_000, queues=5_000, index=4_000))
    assert (found.origin, found.start, found.sound_until, found.same_boot) == (LastWriter.OURS, 4_000, 5_000, True)
    assert not plan(log_of(root), mark(5_000, boot="before")).same_boot


def test_a_mark_that_does_not_know_the_checkpoint_page_is_older_than_rocketmqs_work(root: Path) -> None:
    other = Checkpoint(physic_msg_timestamp=10_001)
    assert plan(log_of(root), mark(5_000), page=other).origin is LastWriter.FOREIGN_CRASH


def test_after_an_orderly_stop_of_rocketmq_the_file_of_the_last_indexed_record(root: Path) -> None:
    for indexed, start in ((0, 0), (FILE - 5, 0), (FILE, 0), (FILE + 1, FILE), (3 * FILE, 2 * FILE)):
        found = plan(log_of(root), None, abort=False, indexed=indexed)
        assert (found.origin, found.start) == (LastWriter.FOREIGN_CLEAN, start)


def test_after_a_crash_of_rocketmq_the_newest_file_older_than_its_checkpoint(root: Path) -> None:
    first = next(iter(LogScan(log_of(root), 0, lambda *_: 0))).store_timestamp

    def start(physic: int, logics: int) -> int:
        page = Checkpoint(physic_msg_timestamp=physic, logics_msg_timestamp=logics)
        return plan(log_of(root), None, page=page).start

    assert start(first + 2_000 + 3_000, first + 99_000) == 2 * FILE
    assert start(first + 99_000, first + 1_999 + 3_000) == FILE, "the earlier of the two times, less three seconds"
    assert start(first + 99_000, first + 99_000) == 3 * FILE
    assert start(0, 0) == 0, "a checkpoint of zeros means all of it"


def test_the_end_of_a_sound_log(root: Path) -> None:
    log = log_of(root)
    end = find_end(log, 0)
    scan = LogScan(log, 0, lambda *_: 0)
    entries = list(scan)
    assert scan.position == end == entries[-1].end_offset
    assert scan.records == 52
    assert judge_end(log, end, plan(log, None)) == 0


def test_a_bad_record_below_what_the_mark_vouches_for_is_damage(root: Path) -> None:
    log = log_of(root)
    with pytest.raises(StoreDamagedError, match=r"damaged at offset 100 .*the log was good up to 5000"):
        judge_end(log, 100, plan(log, mark(5_000)))


def test_good_records_behind_a_bad_one(root: Path) -> None:
    log = log_of(root)
    second = next(iter(LogScan(log, 0, lambda *_: 0))).end_offset
    assert find_record_after(log, 0) == second
    for found in (plan(log, None), plan(log, None, abort=False), plan(log, mark(0))):
        with pytest.raises(StoreDamagedError, match=f"good records follow at {second}"):
            judge_end(log, 0, found)
    after_power_failure = plan(log, mark(0, boot="before"))
    torn = judge_end(log, 0, after_power_failure)
    assert torn == end_of(root) - 2, "unpromised pages that the disk kept, up to the zeros of an empty property length"


def test_leftovers_of_an_older_log_are_no_records(root: Path) -> None:
    """A record counts only where it says that it lies."""
    path = root / "commitlog" / f"{3 * FILE:020d}"
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    path.write_bytes(data)
    assert end_of(root) == 3 * FILE


@pytest.mark.parametrize("lost", [1, 2])
def test_a_page_of_properties_that_was_lost_ends_the_log(tmp_path: Path, lost: int) -> None:
    """Only bodies have checksums: a page of zeros inside the properties is seen by looking."""
    little = LittleStore(tmp_path)
    little.send()
    at = little.send(body=b"x", long="v" * 12_000).physical_offset
    little.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    assert end_of(tmp_path) > at
    data = bytearray(path.read_bytes())
    data[lost * 4096 : (lost + 1) * 4096] = bytes(4096)
    path.write_bytes(data)
    assert end_of(tmp_path) == at
