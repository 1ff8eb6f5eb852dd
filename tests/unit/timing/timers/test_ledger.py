"""What the files remember of pending timers, through stops, kills and damage."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.timing.timers.ledger_store import LedgerStore

from orbitmq.clock import ManualClock
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.checkpoint import read_timer_checkpoint
from orbitmq.timing.timer_files.log import ChainEnd
from orbitmq.timing.timer_files.stat import stat_timers
from orbitmq.timing.timer_files.wheel import SLOT_COUNT
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE


def opened(root: Path, clock: ManualClock, **options: object) -> LedgerStore:
    store = LedgerStore(root, clock=clock, **options)  # type: ignore[arg-type]
    store.check()
    return store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def life(tmp_path: Path, clock: ManualClock) -> LedgerStore:
    """Forty messages over forty seconds, of which every third is delivered and every seventh recalled."""
    store = opened(tmp_path, clock)
    sent = [store.send(f"k{n}", 60_000 + 1_000 * n) for n in range(40)]
    store.advance(6_000)
    for n, placed in enumerate(sent):
        if n % 3 == 0:
            store.deliver(placed)
        elif n % 7 == 0:
            store.cancel(placed)
    store.store.commit()
    store.check()
    return store


KEPT = [f"k{n}" for n in range(40) if n % 3 and n % 7]


def test_a_store_without_timers_has_no_timer_files(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock)
    store.advance(10_000)
    store.close()
    assert not (tmp_path / "timerwheel").exists()
    assert not (tmp_path / JOURNAL_FILE).exists()
    assert not (tmp_path / "config" / "timercheck").exists()


def test_a_stop_forgets_nothing(tmp_path: Path, clock: ManualClock, life: LedgerStore) -> None:
    assert life.pending() == KEPT
    life.close()
    again = opened(tmp_path, clock)
    assert again.store.report.scanned_records == 0
    assert again.pending() == KEPT
    assert again.ledger.pending.count == len(KEPT)
    again.close()


@pytest.mark.parametrize("pause_ms", [0, 100, 300, 6_000])
def test_a_kill_forgets_nothing(tmp_path: Path, clock: ManualClock, life: LedgerStore, pause_ms: int) -> None:
    life.advance(pause_ms)
    life.kill()
    again = opened(tmp_path, clock)
    assert again.pending() == KEPT
    again.send("more", 5_000)
    again.check()
    again.kill()
    again = opened(tmp_path, clock)
    assert again.pending() == [*KEPT, "more"]
    again.close()


def test_a_kill_costs_a_scan_of_what_came_since_the_last_save(
    tmp_path: Path, clock: ManualClock, life: LedgerStore
) -> None:
    life.advance(300)
    life.send("late", 5_000)
    life.kill()
    again = opened(tmp_path, clock)
    assert again.store.report.scanned_records == 1
    again.close()


@pytest.mark.parametrize(
    "name", ["orbitmq.timers", "timerwheel", "timerlog/00000000000000000000", "timerlog", "config/timercheck"]
)
@pytest.mark.parametrize("harm", ["missing", "short", "zeros"])
def test_what_is_damaged_is_made_again_and_reported(
    tmp_path: Path, clock: ManualClock, life: LedgerStore, name: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    life.close()
    path = tmp_path / name
    if path.is_dir():
        for file in path.iterdir():
            spoil(file, harm)
    else:
        spoil(path, harm)
    with caplog.at_level(logging.WARNING):
        again = opened(tmp_path, clock)
    assert again.pending() == KEPT
    if name != "config/timercheck":
        assert any(text in caplog.text for text in ("again", "collected"))
    again.send("more", 5_000)
    again.advance(6_000)
    again.check()
    again.kill()
    third = opened(tmp_path, clock)
    assert third.pending() == [*KEPT, "more"]
    third.close()


def spoil(path: Path, harm: str) -> None:
    data = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "short" else bytes(len(data)))


def test_another_precision_links_everything_again(
    tmp_path: Path, clock: ManualClock, life: LedgerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """T23."""
    life.close()
    with caplog.at_level(logging.WARNING):
        again = opened(tmp_path, clock, precision_ms=100)
    assert "precision of timers was 1000 ms and is 100 ms" in caplog.text
    assert again.pending() == KEPT
    dues = {unit.physical_offset: unit.due_ms(100) for units in again.chains().values() for unit in units}
    assert all(dues[physical] is not None for _, physical, _ in again.records())
    again.close()


def test_the_journal_is_made_shorter_and_says_the_same(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock, shorten_from_bytes=500)
    kept = []
    for n in range(120):
        sent = store.send(f"k{n}", 60_000)
        if n % 10:
            store.deliver(sent)
        else:
            kept.append(f"k{n}")
        store.advance(700)
    assert (tmp_path / JOURNAL_FILE).stat().st_size < 2_500
    store.kill()
    again = opened(tmp_path, clock)
    assert again.pending() == kept
    again.close()


def test_the_checkpoint_names_what_rocketmq_needs(tmp_path: Path, clock: ManualClock, life: LedgerStore) -> None:
    newest = life.send("last", 5_000)
    now_ms = clock.now_ms()
    life.close()
    page = read_timer_checkpoint(life.files, tmp_path / "config" / "timercheck")
    assert page is not None
    assert page.last_read_time_ms == now_ms // 1000 * 1000
    assert page.last_timer_queue_offset == page.master_timer_queue_offset == newest.queue_offset + 1
    again = opened(tmp_path, clock)
    log = again.ledger.files._log
    assert log is not None
    assert page.last_timer_log_flush_pos == log.end
    last = log.last_unit()
    assert last is not None
    assert last.physical_offset == newest.physical_offset
    again.close()


def test_the_slot_in_progress_is_handed_over_with_what_is_pending(tmp_path: Path, clock: ManualClock) -> None:
    """T11: a RocketMQ broker that takes over repeats the slot in progress as a whole."""
    store = opened(tmp_path, clock)
    overdue = [store.send(f"k{n}", 1_500 + n) for n in range(6)]
    future = store.send("future", 60_000)
    clock.advance(1_700)
    for sent in overdue[:4]:
        store.deliver(sent)
    store.store.commit()
    store.close()
    again = opened(tmp_path, clock)
    chains = again.chains()
    slot_ms = clock.now_ms() // 1000 * 1000
    assert [unit.physical_offset for unit in chains.pop(slot_ms) if not unit.is_delete] == [
        sent.physical_offset for sent in overdue[4:]
    ]
    assert [unit.physical_offset for units in chains.values() for unit in units] == [future.physical_offset]
    again.close()


def test_a_second_stop_changes_nothing(tmp_path: Path, clock: ManualClock, life: LedgerStore) -> None:
    life.close()
    first = opened(tmp_path, clock)
    end = first.ledger.files.at().log_end
    first.close()
    second = opened(tmp_path, clock)
    assert second.ledger.files.at().log_end == end
    clock.advance(5_000)
    second.close()
    third = opened(tmp_path, clock)
    assert third.ledger.files.at().log_end == end
    third.close()


@pytest.mark.parametrize("what", ["timerwheel", "timerlog"])
def test_a_chain_that_is_broken_inside_is_found_when_it_is_walked(
    tmp_path: Path, clock: ManualClock, life: LedgerStore, what: str
) -> None:
    life.close()
    path = tmp_path / what if what == "timerwheel" else tmp_path / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    number = (clock.now_ms() - 6_000 + 61_000) // 1000
    at = number % 4096 * 32 + 16 if what == "timerwheel" else 52 + 7
    data[at + 7 if what == "timerwheel" else at] ^= 1
    path.write_bytes(data)
    again = LedgerStore(tmp_path, clock=clock)
    files = again.ledger.files
    ends = {slot_ms: files.walk(slot.last, slot_ms).end for slot_ms, slot in files.slots()}
    (broken,) = [slot_ms for slot_ms, end in ends.items() if end is ChainEnd.BROKEN]
    assert len(files.units_of(broken)) == (1 if what == "timerwheel" else 0)
    again.kill()


def test_stat_counts_what_is_pending_after_a_stop_inside_a_slot(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, clock, slot_count=SLOT_COUNT)
    overdue = [store.send(f"k{n}", 1_500 + n) for n in range(6)]
    later = [store.send(f"l{n}", 60_000 + n) for n in range(5)]
    clock.advance(1_700)
    for sent in overdue[:4]:
        store.deliver(sent)
    store.store.commit()
    store.cancel(later[0])
    store.close()
    stat = stat_timers(tmp_path, OsFiles(), clock.now_ms())
    assert stat is not None
    assert (stat.pending_count, stat.cancelled_count, stat.overdue_count) == (6, 0, 2)  # what was recalled is gone
