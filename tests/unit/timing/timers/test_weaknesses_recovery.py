"""The weaknesses of RocketMQ's timer store that show after a stop, one by one: each test carries the number of the one that is
absent here.

T2 seven days of downtime, T14 progress ahead of the log, T15 no checksums, T16 a start that walks, T22 counts that drift,
T23 precision for ever, T26 space. There is no live wheel for T10, T12 and T13: units linked again, a wheel ahead of its log, a chain of
another slot.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.files import OsFiles
from orbitmq.timing.index.directory import INDEX_DIRECTORY
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE
from orbitmq.timing.timers.timers import TimerSettings

Reopen = Callable[..., LittleStore]
SHAPE = IndexShape(capacity=5, carried=0, small=2)
"""Twelve timers make two runs and a journal."""


def sent(little: LittleStore, count: int, *, first_ms: int = 10_000, step_ms: int = 700) -> list[bytes]:
    """Messages in several slots, saved durably; their bodies."""
    for number in range(count):
        little.send(body=b"%d" % number, after_ms=first_ms + number * step_ms)
    little.pass_time(6_000)
    return [b"%d" % number for number in range(count)]


def all_delivered(little: LittleStore, bodies: list[bytes], ms: int = 60_000) -> None:
    """Every message comes once, none before its time, none stays."""
    for _ in range(0, ms, 500):
        little.pass_time(500)
    assert sorted(little.bodies()) == sorted(bodies)
    assert little.timers.pending_count == 0
    for record, properties in zip(little.records(), little.properties(), strict=True):
        assert record.store_timestamp >= int(properties["TIMER_DELIVER_MS"])


# --- T2: slots older than seven days of downtime are lost -------------------------------------------------------------


@pytest.mark.parametrize("laps", [0.4, 0.6, 1.0, 3.7])
def test_t02_any_downtime_loses_nothing(
    little: LittleStore, open_again: Reopen, clock: ManualClock, laps: float
) -> None:
    bodies = sent(little, 30, step_ms=60_000)
    little.close()
    clock.advance(int(laps * 20_000_000))
    again = open_again()
    for number in range(20):  # while the overdue ones still wait
        again.send(body=b"new %d" % number, after_ms=1_000 + number * 300_000)
        bodies.append(b"new %d" % number)
    for _ in range(7_000):
        again.pass_time(1_000)
    assert sorted(again.bodies()) == sorted(bodies)
    again.close()


def test_t02_a_clock_set_far_forward_loses_nothing(little: LittleStore, clock: ManualClock) -> None:
    bodies = sent(little, 10)
    clock.advance(40_000_000)
    for number in range(5):
        little.send(body=b"new %d" % number, after_ms=2_000 + number * 400_000)
        bodies.append(b"new %d" % number)
    for _ in range(2_000):
        little.pass_time(1_000)
    assert sorted(little.bodies()) == sorted(bodies)


# --- T14: progress is durable before what was delivered ---------------------------------------------------------------


def test_t14_what_the_files_say_becomes_durable_after_what_they_speak_of(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root)
    little = LittleStore(root, files=files)
    sent(little, 3, first_ms=8_000, step_ms=10)
    before = len(files.calls)
    little.pass_time(2_500)
    assert len(little.bodies()) == 3
    little.pass_time(6_000)
    synced = [call.path for call in files.calls[before:] if call.kind == "sync"]
    names = [path.parent.name if path.name[0].isdigit() else path.name for path in synced]
    end = names.index("orbitmq.mark")
    order = [
        max(at for at, found in enumerate(names[:end]) if found == name)
        for name in ("commitlog", INDEX_DIRECTORY, JOURNAL_FILE)
    ]
    assert order == sorted(order)
    little.close()


# --- T15: no checksum or version --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [JOURNAL_FILE, f"{INDEX_DIRECTORY}/*.run", f"{INDEX_DIRECTORY}/*.journal"])
def test_t15_no_flipped_bit_is_believed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    little = LittleStore(root, index=SHAPE)
    bodies = sent(little, 12)
    little.close()
    name = str(min(root.glob(name)).relative_to(root))
    whole = (root / name).read_bytes()
    used = [at for at in range(len(whole)) if whole[at]]
    for at in used[:: max(len(used) // 25, 1)]:
        other = tmp_path / f"flipped-{at}"
        shutil.copytree(root, other)
        data = bytearray(whole)
        data[at] ^= 0x10
        (other / name).write_bytes(data)
        again = LittleStore(other, clock=ManualClock(little.clock.now_ms()), index=SHAPE)
        all_delivered(again, bodies, 20_000)
        again.close()
        shutil.rmtree(other)


# --- T16: a start scans files and walks seconds -----------------------------------------------------------------------


def test_t16_a_start_reads_what_came_since_the_last_save(little: LittleStore, open_again: Reopen) -> None:
    sent(little, 100, step_ms=10)
    little.advance(300)
    little.send(body=b"late", after_ms=60_000)
    little.kill()
    again = open_again()
    assert again.store.report.scanned_records == 1
    assert again.timers.pending_count == 101


def test_t16_hours_without_messages_cost_no_turns(little: LittleStore, open_again: Reopen, clock: ManualClock) -> None:
    little.send(body=b"one", after_ms=5_000)
    little.close()
    clock.advance(5 * 3_600_000)
    again = open_again()
    for _ in range(4):
        again.turn()
        again.worker.close()
    assert again.bodies() == [b"one"]


# --- T22: counts drift ------------------------------------------------------------------------------------------------


def test_t22_counts_are_exact_through_kills_recalls_and_deliveries(little: LittleStore, open_again: Reopen) -> None:
    sent(little, 30, first_ms=7_000, step_ms=500)
    for offset in range(20, 26):
        record = little.timers.read(offset)
        assert record is not None
        little.timers.change(
            record, recall(record.record, little.clock.now_ms()), wait=False, on_done=lambda status: None
        )
    little.store.commit()
    little.pass_time(3_000)
    delivered = len(little.bodies())
    assert delivered > 0
    for _ in range(3):
        assert little.timers.pending_count == 30 - 6 - delivered
        little.kill()
        little = open_again()


# --- T23: the precision cannot be changed -----------------------------------------------------------------------------


@pytest.mark.parametrize("precision_ms", [100, 250, 1_500])
def test_t23_another_precision_moves_no_due_time(little: LittleStore, open_again: Reopen, precision_ms: int) -> None:
    bodies = sent(little, 20)
    little.close()
    again = open_again(timers=TimerSettings(precision_ms=precision_ms))
    all_delivered(again, bodies, 30_000)
    late = [
        record.store_timestamp - int(properties["TIMER_DELIVER_MS"])
        for record, properties in zip(again.records(), again.properties(), strict=True)
    ]
    assert max(late) < 500  # the step of this test
    assert again.store.max_offset(TIMER_TOPIC, 0) == 20


# --- T26: space is released by whole files ----------------------------------------------------------------------------


def test_t26_what_is_kept_of_timers_grows_with_what_waits_and_not_with_what_has_left(
    open_again: Reopen, tmp_path: Path
) -> None:
    little = open_again(index=SHAPE)
    little.send(body=b"kept", after_ms=3_000_000)
    sizes = []
    for _ in range(12):
        sent(little, 20, first_ms=1_000, step_ms=10)
        little.pass_time(6_000)
        sizes.append(sum(path.stat().st_size for path in (tmp_path / INDEX_DIRECTORY).iterdir()))
    assert max(sizes[6:]) <= 2 * max(sizes[:6])
    assert len(little.timers.index.parts.runs) <= 5
    assert little.timers.pending_count == 1
    little.kill()
    again = open_again(index=SHAPE)
    assert again.timers.pending_count == 1
    again.close()
