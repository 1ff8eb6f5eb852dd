"""The weaknesses of RocketMQ's timer store that show after a stop, one by one: each test carries the number of the one that is
absent here.

T2 seven days of downtime, T10 units linked again, T12 a wheel ahead of its log, T13 a chain of another slot, T14 progress ahead
of the log, T15 no checksums, T16 a start that walks, T22 counts that drift, T23 precision for ever, T26 space.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.unit import UNIT_BYTES
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.settings import TimerSettings

Reopen = Callable[..., LittleStore]
LOG_FILE_BYTES = SMALL_TIMERS.log_file_bytes
SLOTS = SMALL_TIMERS.slot_count


def settle(little: LittleStore) -> None:
    """Everything that can be done at this moment."""
    for _ in range(500):
        little.turn()
        little.worker.close()
        next_ns = little.store.deadlines.next_ns
        if next_ns is None or next_ns > little.clock.monotonic_ns():
            return


def pass_time(little: LittleStore, ms: int) -> None:
    little.clock.advance(ms)
    settle(little)


def sent(little: LittleStore, count: int, *, first_ms: int = 10_000, step_ms: int = 700) -> list[bytes]:
    """Messages in several slots, saved durably; their bodies."""
    for number in range(count):
        little.send(body=b"%d" % number, after_ms=first_ms + number * step_ms)
    pass_time(little, 6_000)
    return [b"%d" % number for number in range(count)]


def all_delivered(little: LittleStore, bodies: list[bytes], ms: int = 60_000) -> None:
    """Every message comes once, none before its time, none stays."""
    for _ in range(0, ms, 500):
        pass_time(little, 500)
    assert sorted(little.bodies()) == sorted(bodies)
    assert little.timers.pending_count == 0
    for record, properties in zip(little.records(), little.properties(), strict=True):
        assert record.store_timestamp >= int(properties["TIMER_DELIVER_MS"])


def timer_log_bytes(root: Path) -> int:
    """Bytes of the timer log that hold something."""
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in (root / "timerlog").iterdir())


# --- T2: slots older than seven days of downtime are lost -------------------------------------------------------------


@pytest.mark.parametrize("laps", [0.4, 0.6, 1.0, 3.7])
def test_t02_any_downtime_loses_nothing(
    little: LittleStore, open_again: Reopen, clock: ManualClock, laps: float
) -> None:
    bodies = sent(little, 30, step_ms=60_000)
    little.close()
    clock.advance(int(laps * SLOTS) * 1000)
    again = open_again()
    for number in range(20):  # while the overdue ones still wait
        again.send(body=b"new %d" % number, after_ms=1_000 + number * 300_000)
        bodies.append(b"new %d" % number)
    for _ in range(7_000):
        pass_time(again, 1_000)
    assert sorted(again.bodies()) == sorted(bodies)
    again.close()


def test_t02_a_clock_set_far_forward_loses_nothing(little: LittleStore, clock: ManualClock) -> None:
    bodies = sent(little, 10)
    clock.advance(2 * SLOTS * 1000)
    for number in range(5):
        little.send(body=b"new %d" % number, after_ms=2_000 + number * 400_000)
        bodies.append(b"new %d" % number)
    for _ in range(2_000):
        pass_time(little, 1_000)
    assert sorted(little.bodies()) == sorted(bodies)


# --- T10: after a crash units are linked again ------------------------------------------------------------------------


def test_t10_no_kill_links_a_message_twice(
    little: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    for number in range(12):
        little.send(body=b"%d" % number, after_ms=20_000 + number)
        if number % 3 == 0:
            little.advance(250)
        little.kill()
        little = open_again()
    little.advance(250)
    assert timer_log_bytes(tmp_path) <= 12 * UNIT_BYTES
    all_delivered(little, [b"%d" % number for number in range(12)])


# --- T12, T13: a wheel that names what is not there, or what is another's ---------------------------------------------


def test_t12_a_wheel_ahead_of_its_log_ends_no_start_and_loses_nothing(
    little: LittleStore, open_again: Reopen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = sent(little, 8)
    little.kill()
    path = tmp_path / "timerlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: 5 * UNIT_BYTES].ljust(LOG_FILE_BYTES, b"\0"))
    with caplog.at_level(logging.WARNING):
        again = open_again()
    assert "can be read up to 260, it reached 416" in caplog.text
    all_delivered(again, bodies)


@pytest.mark.parametrize("target", [0, 3 * UNIT_BYTES, 7 * UNIT_BYTES, 11 * UNIT_BYTES, 52 * 1000 + 1])
def test_t13_a_slot_that_leads_elsewhere_delivers_nothing_early(
    little: LittleStore, open_again: Reopen, tmp_path: Path, target: int
) -> None:
    bodies = sent(little, 12, first_ms=12_000, step_ms=1_000)
    now_ms = little.clock.now_ms()
    little.close()
    data = bytearray((tmp_path / "timerwheel").read_bytes())
    place = (now_ms - 6_000 + 17_000) // 1000 % SLOTS * 32
    assert any(data[place : place + 32])
    data[place + 16 : place + 24] = target.to_bytes(8)
    (tmp_path / "timerwheel").write_bytes(data)
    all_delivered(open_again(), bodies)


# --- T14: progress is durable before what was delivered ---------------------------------------------------------------


def test_t14_what_the_files_say_becomes_durable_after_what_they_speak_of(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root)
    little = LittleStore(root, files=files)
    sent(little, 3, first_ms=8_000, step_ms=10)
    before = len(files.calls)
    pass_time(little, 2_500)
    assert len(little.bodies()) == 3
    pass_time(little, 6_000)
    synced = [call.path for call in files.calls[before:] if call.kind == "sync"]
    names = [path.parent.name if path.name.isdigit() else path.name for path in synced]
    end = names.index("orbitmq.mark")
    order = [
        max(at for at, found in enumerate(names[:end]) if found == name)
        for name in ("commitlog", "timerwheel", "timercheck", "orbitmq.timers")
    ]
    assert order == sorted(order)
    little.close()


# --- T15: no checksum or version --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orbitmq.timers", "timerwheel"])
def test_t15_no_flipped_bit_is_believed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    little = LittleStore(root)
    bodies = sent(little, 12)
    little.close()
    whole = (root / name).read_bytes()
    used = [at for at in range(len(whole)) if whole[at]]
    for at in used[:: max(len(used) // 25, 1)]:
        other = tmp_path / f"flipped-{at}"
        shutil.copytree(root, other)
        data = bytearray(whole)
        data[at] ^= 0x10
        (other / name).write_bytes(data)
        again = LittleStore(other, clock=ManualClock(little.clock.now_ms()))
        all_delivered(again, bodies, 20_000)
        again.close()
        shutil.rmtree(other)


@pytest.mark.parametrize("field", [3, 11, 15, 22, 26])
def test_t15_a_unit_with_a_flipped_bit_costs_nobody_a_message(
    little: LittleStore, open_again: Reopen, tmp_path: Path, field: int
) -> None:
    """Size, previous unit, magic, write clock, delay."""
    bodies = sent(little, 12)
    little.close()
    path = tmp_path / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[11 * UNIT_BYTES + field] ^= 0x40
    path.write_bytes(data)
    all_delivered(open_again(), bodies, 30_000)


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
    pass_time(little, 3_000)
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
    settings = TimerSettings(precision_ms=precision_ms, log_file_bytes=LOG_FILE_BYTES, slot_count=SLOTS)
    again = open_again(timers=settings)
    all_delivered(again, bodies, 30_000)
    late = [
        record.store_timestamp - int(properties["TIMER_DELIVER_MS"])
        for record, properties in zip(again.records(), again.properties(), strict=True)
    ]
    assert max(late) < 500  # the step of this test
    hops = again.store.max_offset(TIMER_TOPIC, 0) - 20
    assert hops <= (0 if precision_ms < 1_000 else 20), "nobody hops within a slot that was wider, and nobody twice"


# --- T26: space is released by whole files ----------------------------------------------------------------------------


def test_t26_files_of_the_timer_log_go_with_the_records(little: LittleStore, tmp_path: Path) -> None:
    for _ in range(10):
        sent(little, 20, first_ms=1_000, step_ms=10)
    little.send(body=b"kept", after_ms=3_000_000)
    pass_time(little, 6_000)
    before = sorted(path.name for path in (tmp_path / "timerlog").iterdir())
    kept = little.timers.lowest_needed()
    assert kept is not None
    count = sum(segment.end <= kept for segment in little.store.log.sequence)
    little.store.remove_paths(little.store.drop_first_segments(count))
    little.send(body=b"more", after_ms=3_000_000)
    pass_time(little, 6_000)
    after = sorted(path.name for path in (tmp_path / "timerlog").iterdir())
    assert len(after) <= 2 < len(before)
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    assert again.timers.pending_count == 2
    assert again.store.max_offset(TIMER_TOPIC, 0) == 202
    again.close()
