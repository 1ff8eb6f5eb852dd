"""What a store remembers of pending timers, through stops, kills and damage."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.blocks import decode_blocks, encode_block
from orbitmq.store.mark import MARK_FILE
from orbitmq.timing.index.directory import INDEX_DIRECTORY, MANIFEST
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.delivered_records import deliver
from orbitmq.timing.timers.pending_journal import (
    JOURNAL_FILE,
    MAGIC,
    OLD_POSITION,
    OLD_SYNCED_POSITION,
    POSITION,
    SYNCED_POSITION,
)
from orbitmq.timing.timers.timers import TimerSettings

COUNT = 40
KEPT = [f"k{n}" for n in range(COUNT) if n % 3 and n % 7]
END_MS = 1 << 62
"""Behind every due time."""
JOURNALS = f"{INDEX_DIRECTORY}/*.journal"


def opened(root: Path, clock: ManualClock, **options: object) -> LittleStore:
    """A store that delivers nothing by itself."""
    store = LittleStore(root, clock=clock, **options)  # type: ignore[arg-type]
    store.timers.paused = True
    store.settle()
    check(store)
    return store


def deliver_now(store: LittleStore, queue_offset: int) -> None:
    source = store.timers.read(queue_offset)
    assert source is not None
    view = store.store.log.record(source.physical_offset)
    assert view is not None
    store.store.append(deliver(view))
    store.store.commit()


def recall_now(store: LittleStore, queue_offset: int) -> None:
    source = store.timers.read(queue_offset)
    assert source is not None
    messages = recall(source.record, store.clock.now_ms())
    store.timers.change(source, messages, wait=False, on_done=lambda status: None)
    store.store.commit()


def pending(store: LittleStore) -> list[str | None]:
    """Unique keys of what is pending, in the order of the topic."""
    records = [store.timers.read(offset) for offset in store.timers.pending.offsets()]
    return [record.unique_key for record in records if record is not None]


def check(store: LittleStore) -> None:
    """Every message that is pending has its record, is found by the index once, and is counted."""
    timers = store.timers
    offsets = list(timers.pending.offsets())
    records = [timers.read(offset) for offset in offsets]
    assert None not in records
    found = timers.index.due((0, -1), END_MS, timers.next_offset + 1)
    assert found.end[0] == END_MS
    waiting = [entry for entry in found.entries if timers.pending.is_pending(entry[1])]
    assert waiting == sorted((record.deliver_ms, record.queue_offset, record.topic) for record in records if record)
    assert timers.pending_count == len(offsets)


@pytest.fixture
def life(tmp_path: Path, clock: ManualClock) -> LittleStore:
    """Forty messages over forty seconds, of which every third is delivered and every seventh recalled."""
    store = opened(tmp_path, clock)
    sent = [store.send(after_ms=60_000 + 1_000 * n, UNIQ_KEY=f"k{n}") for n in range(COUNT)]
    store.advance(6_000)
    for n, placed in enumerate(sent):
        if n % 3 == 0:
            deliver_now(store, placed.queue_offset)
        elif n % 7 == 0:
            recall_now(store, placed.queue_offset)
    check(store)
    return store


def test_a_store_without_timers_has_no_files_of_them(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock)
    store.advance(10_000)
    store.close()
    for name in (JOURNAL_FILE, INDEX_DIRECTORY, "timerwheel", "timerlog", "config/timercheck"):
        assert not (tmp_path / name).exists()


def test_a_stop_forgets_nothing(tmp_path: Path, clock: ManualClock, life: LittleStore) -> None:
    assert pending(life) == KEPT
    life.close()
    again = opened(tmp_path, clock)
    assert again.store.report.scanned_records == 0
    assert pending(again) == KEPT
    assert again.timers.index.is_complete
    again.close()


@pytest.mark.parametrize("pause_ms", [0, 100, 300, 6_000])
def test_a_kill_forgets_nothing(tmp_path: Path, clock: ManualClock, life: LittleStore, pause_ms: int) -> None:
    life.advance(pause_ms)
    life.kill()
    again = opened(tmp_path, clock)
    assert pending(again) == KEPT
    again.send(after_ms=5_000, UNIQ_KEY="more")
    check(again)
    again.kill()
    again = opened(tmp_path, clock)
    assert pending(again) == [*KEPT, "more"]
    again.close()


def as_an_earlier_version_wrote_it(journal: bytes) -> bytes:
    """The same blocks in the format `ORBTIME1`, whose positions also told of the timer log and the wheel."""
    written = b"ORBTIME1"
    for block in decode_blocks(journal, MAGIC):
        body = bytes(block.body)
        if block.kind in (POSITION, SYNCED_POSITION):
            kind = OLD_POSITION if block.kind == POSITION else OLD_SYNCED_POSITION
            written += encode_block(kind, body[:32] + bytes(36) + body[32:])
        else:
            written += encode_block(block.kind, body)
    return written


@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_a_journal_of_an_earlier_version_is_believed_and_written_anew(
    tmp_path: Path, clock: ManualClock, life: LittleStore, end: Callable[[LittleStore], None]
) -> None:
    path = tmp_path / JOURNAL_FILE
    end(life)
    path.write_bytes(as_an_earlier_version_wrote_it(path.read_bytes()))
    again = opened(tmp_path, clock)
    assert again.timers._recovery.made_again == []
    assert pending(again) == KEPT
    again.kill()
    blocks = list(decode_blocks(path.read_bytes(), MAGIC))
    assert blocks[-1].end == path.stat().st_size
    assert {OLD_POSITION, OLD_SYNCED_POSITION}.isdisjoint(block.kind for block in blocks)
    again = opened(tmp_path, clock)
    assert pending(again) == KEPT
    again.close()


def test_a_kill_costs_a_scan_of_what_came_since_the_last_save(
    tmp_path: Path, clock: ManualClock, life: LittleStore
) -> None:
    life.advance(300)
    life.send(after_ms=5_000)
    life.kill()
    again = opened(tmp_path, clock)
    assert again.store.report.scanned_records == 1
    again.close()


@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
@pytest.mark.parametrize("name", [JOURNAL_FILE, f"{INDEX_DIRECTORY}/{MANIFEST}", JOURNALS])
@pytest.mark.parametrize("harm", ["missing", "short", "zeros"])
def test_what_is_damaged_is_made_again_and_reported(
    tmp_path: Path,
    clock: ManualClock,
    life: LittleStore,
    name: str,
    harm: str,
    end: Callable[[LittleStore], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    life.advance(6_000)
    end(life)
    found = list(tmp_path.glob(name))
    assert found or name.endswith(MANIFEST)  # as long as there is no run
    for path in found:
        spoil(path, harm)
    with caplog.at_level(logging.INFO):
        again = opened(tmp_path, clock)
    assert pending(again) == KEPT
    assert not found or "collect" in caplog.text
    again.send(after_ms=5_000, UNIQ_KEY="more")
    again.advance(6_000)
    check(again)
    again.kill()
    third = opened(tmp_path, clock)
    assert pending(third) == [*KEPT, "more"]
    third.close()


def spoil(path: Path, harm: str) -> None:
    data = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "short" else bytes(len(data)))


@pytest.mark.parametrize("name", ["timerwheel", "timerlog", "config/timercheck"])
def test_what_was_left_for_rocketmq_is_not_read(
    tmp_path: Path, clock: ManualClock, life: LittleStore, name: str
) -> None:
    life.close()
    path = tmp_path / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        spoil(path, "zeros")
    again = opened(tmp_path, clock)
    assert pending(again) == KEPT
    assert again.store.report.scanned_records == 0
    again.close()


@pytest.mark.parametrize("precision_ms", [100, 1_700])
def test_another_precision_changes_nothing(
    tmp_path: Path, clock: ManualClock, life: LittleStore, precision_ms: int
) -> None:
    life.close()
    again = opened(tmp_path, clock, timers=TimerSettings(precision_ms=precision_ms))
    assert pending(again) == KEPT
    assert again.store.report.scanned_records == 0
    assert again.timers.index.is_complete
    again.close()


def test_the_journal_is_made_shorter_and_says_the_same(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock)
    store.timers._ledger.shorten_from_bytes = 500
    kept = []
    for n in range(120):
        sent = store.send(after_ms=60_000, UNIQ_KEY=f"k{n}")
        if n % 10:
            deliver_now(store, sent.queue_offset)
        else:
            kept.append(f"k{n}")
        store.advance(700)
    assert (tmp_path / JOURNAL_FILE).stat().st_size < 2_500
    store.kill()
    again = opened(tmp_path, clock)
    assert pending(again) == kept
    again.close()


def test_a_journal_that_speaks_of_more_than_the_log_holds_is_not_believed(
    tmp_path: Path, clock: ManualClock, life: LittleStore
) -> None:
    """It belongs to another store."""
    life.close()
    small = tmp_path / "small"
    other = opened(small, clock)
    other.send(after_ms=60_000)
    other.close()
    shutil.copy(tmp_path / JOURNAL_FILE, small / JOURNAL_FILE)
    again = opened(small, clock)
    assert again.timers.pending_count == 1
    again.close()


@pytest.mark.parametrize("name", [MARK_FILE, JOURNAL_FILE])
def test_without_a_mark_or_a_journal_the_log_says_what_is_pending(
    tmp_path: Path, clock: ManualClock, life: LittleStore, name: str
) -> None:
    """RocketMQ cannot have run: the fence is up."""
    life.kill()
    (tmp_path / name).unlink()
    again = opened(tmp_path, clock)
    assert pending(again) == KEPT
    assert again.store.max_offset(TIMER_TOPIC, 0) == life.store.max_offset(TIMER_TOPIC, 0)
    again.close()
