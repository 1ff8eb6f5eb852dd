"""The weaknesses of RocketMQ's timer store that the release of timers leaves behind, by their numbers.

T1 half a second late, T3 long delays, T5 losses after three refusals, T6 one slot at a time, T7 a clock that waits for
deliveries, T8 intake, T9 one malformed record, T11 repeats of a whole slot, T17 memory, T18 idle work, T21 order,
T25 guesses whether work is left, T27 approximate lag, T28 large messages, T29 repeats after half a batch.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX, RELEASE_BATCH_MAX
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import EncodedMessage
from orbitmq.store.segments import Segment, SegmentSequence
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.release import SLEEP_MAX_MS
from orbitmq.timing.restoring import QUARANTINE_REASON
from orbitmq.timing.timers import delivery
from orbitmq.timing.timers.feeding import LEAD_MS, SLICE_TIMERS
from orbitmq.timing.timers.timers import WAKEUP

Reopen = Callable[..., LittleStore]


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


def crowd(little: LittleStore, count: int, topic: str = "Topic", **times: int) -> None:
    for number in range(count):
        little.append(topic, 0, b"%d" % number, **times)
    little.store.commit()


def fail_writes(little: LittleStore, patch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(type(little.store.log.sequence.segments[-1].file), "pwritev", full)


# --- T1: half a second late -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since_slot_ms", [1, 2, 250, 500, 999, 1_000])
def test_t01_a_message_is_not_late_wherever_in_its_second_it_is_due(little: LittleStore, since_slot_ms: int) -> None:
    little.send(after_ms=4_000 - little.clock.now_ms() % 1_000 + since_slot_ms)
    due_ms = int(decode_properties(little.records(TIMER_TOPIC)[0].properties)[Property.DUE_MS])
    settle(little)
    while little.clock.now_ms() < due_ms - 1:
        pass_time(little, 1)
    assert little.bodies() == []
    pass_time(little, 1)
    (record,) = little.records()
    assert record.store_timestamp == due_ms


def test_t01_a_loop_that_wakes_a_millisecond_early_delivers_nothing_early(little: LittleStore) -> None:
    little.send(after_ms=10)
    settle(little)
    little.clock.advance(9)
    little.timers.run()
    little.store.commit()
    assert little.bodies() == []
    assert little.store.deadlines.next_ns == little.clock.monotonic_ns() + 1_000_000


# --- T3: long delays are rewritten there, and each hop can lose or repeat them ----------------------------------------------


def test_t03_a_kill_on_the_way_neither_loses_nor_repeats_the_message(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    little.send(body=b"far", after_ms=10 * 3_600_000 + 5)
    due_ms = clock.now_ms() + 10 * 3_600_000 + 5
    for before_ms in (20_000_000, 40_000, LEAD_MS, 1_000, 1):  # and a few that have read it into memory
        pass_time(little, due_ms - before_ms - clock.now_ms())
        assert little.timers.pending_count == 1
        little.kill()
        little = open_again()
    settle(little)
    assert little.bodies() == []
    pass_time(little, 1)
    settle(little)
    (record,) = little.records()
    assert record.store_timestamp == due_ms
    assert little.store.max_offset(TIMER_TOPIC, 0) == 1


# --- T5: lost after three refused puts --------------------------------------------------------------------------------


def test_t05_refusals_without_number_lose_nothing(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(little, 5, after_ms=1_000)
    settle(little)
    with monkeypatch.context() as patch:
        fail_writes(little, patch)
        for _ in range(100):
            pass_time(little, 200)
        assert little.timers.pending_count == 5
    for _ in range(20):
        pass_time(little, 500)
    assert little.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert little.timers.quarantined_count == 0


# --- T6: a big slot or a slow put delays all that follows -------------------------------------------------------------


def test_t06_a_crowded_second_does_not_delay_the_next_one(little: LittleStore) -> None:
    begin_ms = 2_000 - little.clock.now_ms() % 1_000
    crowd(little, 10 * RELEASE_BATCH_MAX, "Crowd", after_ms=begin_ms + 999)
    little.send(after_ms=begin_ms + 1_001)
    settle(little)
    little.clock.advance(begin_ms + 999)
    little.turn()
    little.clock.advance(2)
    little.turn()
    assert little.store.max_offset("Topic", 0) == 1
    assert little.store.max_offset("Crowd", 0) < 10 * RELEASE_BATCH_MAX


@pytest.mark.parametrize("cold", [False, True])
def test_t28_large_ones_are_released_in_slices_of_bytes_so_that_senders_are_served_between(
    open_again: Reopen, cold: bool
) -> None:
    little = open_again(mapped_file_size_commit_log=64 << 20, max_message_size=4 << 20)
    body = bytes(RELEASE_BATCH_BYTES_MAX // 4)
    for number in range(10):
        little.append("Topic", 0, b"%d" % number + body, after_ms=5_000)
    little.append("Topic", 0, b"small", after_ms=5_000)
    little.store.commit()
    if cold:
        little.kill()
        little = open_again(mapped_file_size_commit_log=64 << 20, max_message_size=4 << 20)
    settle(little)
    little.clock.advance(4_000)
    settle(little)
    little.clock.advance(1_000)
    seen = [0]
    for _ in range(40):
        little.turn()
        little.worker.close()
        if (count := little.store.max_offset("Topic", 0)) != seen[-1]:
            seen.append(count)
    assert seen == [0, 3, 6, 9, 11], "each slice has three, for a record is a little more than its body"
    assert [found[:1] for found in little.bodies()] == [b"%d" % number for number in range(10)] + [b"s"]


def test_t28_the_largest_leaves_alone(open_again: Reopen) -> None:
    little = open_again(mapped_file_size_commit_log=64 << 20, max_message_size=8 << 20)
    for _ in range(2):
        little.append("Topic", 0, bytes(RELEASE_BATCH_BYTES_MAX + 1), after_ms=1_000)
    little.store.commit()
    settle(little)
    little.clock.advance(1_001)
    little.turn()
    assert little.store.max_offset("Topic", 0) == 1
    little.turn()
    assert little.store.max_offset("Topic", 0) == 2


def test_t06_a_crowd_is_read_in_slices_and_before_its_time(little: LittleStore) -> None:
    crowd(little, 5 * SLICE_TIMERS, after_ms=60_000)
    settle(little)
    assert little.timers._soon.count == 0
    little.clock.advance(60_000 - LEAD_MS)
    largest = 0
    while little.store.deadlines.next_ns is not None and little.store.deadlines.next_ns <= little.clock.monotonic_ns():
        before = little.timers._soon.count
        little.turn()
        largest = max(largest, little.timers._soon.count - before)
    assert little.timers._soon.count == 5 * SLICE_TIMERS
    assert largest <= 2 * SLICE_TIMERS
    assert little.bodies() == []


def test_t06_a_record_that_cannot_be_restored_is_not_in_the_way(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(little, 3, after_ms=1_000)
    restore = little.timers._delivery.release._restore

    def breaks(data: memoryview | bytes) -> object:
        if bytes(data[88:89]) == b"1":
            raise ZeroDivisionError("nobody thought of this")
        return restore(data)

    monkeypatch.setattr(delivery, "encoded_deliveries", lambda records, positions, precision_ms: [None] * len(records))
    monkeypatch.setattr(little.timers._delivery.release, "_restore", breaks)
    pass_time(little, 1_000)
    assert little.bodies() == [b"0", b"2"]
    (properties,) = little.properties(QUARANTINE_TOPIC)
    assert properties[QUARANTINE_REASON] == "ZeroDivisionError: nobody thought of this"
    assert little.timers.pending_count == 0


# --- T7: the write clock stands still while something overdue is being delivered --------------------------------------


def test_t07_linking_goes_on_while_deliveries_are_refused(little: LittleStore) -> None:
    crowd(little, 3, after_ms=100)
    settle(little)
    little.timers.paused = True
    pass_time(little, 10_000)
    little.send(body=b"new", after_ms=500)
    assert little.timers.pending_count == 4
    little.timers.paused = False
    pass_time(little, SLEEP_MAX_MS)
    assert little.bodies() == [b"0", b"1", b"2", b"new"]


def test_t07_late_messages_wait_for_nobody(little: LittleStore) -> None:
    crowd(little, 4 * RELEASE_BATCH_MAX, "Crowd", after_ms=1_000)
    settle(little)
    little.clock.advance(1_000)
    little.turn()
    little.append(after_ms=1)
    little.clock.advance(5)
    little.store.commit()
    little.turn()
    little.turn()
    assert little.store.max_offset("Topic", 0) == 1


# --- T8: one message at a time comes in -------------------------------------------------------------------------------


def test_t08_a_turn_of_any_size_comes_in_as_one(little: LittleStore) -> None:
    crowd(little, 1_000, after_ms=60_000)
    assert little.timers.pending_count == 1_000
    assert little.timers.index.counts().pending == 1_000


# --- T9: one malformed record stops everything ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [9, 35, 36, 90, 0, -5])
def test_t09_a_record_whose_size_is_damaged_is_no_trouble_for_its_batch(little: LittleStore, size: int) -> None:
    placed = [little.append(body=b"%d" % number, after_ms=1_000) for number in range(4)]
    little.store.commit()
    settle(little)
    little.store.log.sequence.segments[-1].file.pwrite(size.to_bytes(4, signed=True), placed[1].physical_offset)
    pass_time(little, 1_000)
    assert little.bodies() == [b"0", b"2", b"3"]
    assert little.timers.quarantined_count == 1
    assert little.timers.pending_count == 0


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "TIMER_OUT_MS"),
        ({"TIMER_OUT_MS": "soon", "REAL_TOPIC": "Topic", "REAL_QID": "0"}, None),
        ({"TIMER_OUT_MS": "1700000000000", "REAL_QID": "0"}, "REAL_TOPIC"),
        ({"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "Topic", "REAL_QID": "x"}, "REAL_QID"),
        ({"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0"}, "system topic"),
        ({"TIMER_OUT_MS": "9" * 40, "REAL_TOPIC": "Topic", "REAL_QID": "0"}, None),
    ],
)
def test_t09_a_malformed_record_is_no_trouble_for_others(
    little: LittleStore, properties: dict[str, str], reason: str | None
) -> None:
    little.store.append(little.message(TIMER_TOPIC, 0, b"odd", **properties))
    little.send(body=b"good", after_ms=1_000)
    for _ in range(5):
        pass_time(little, 500)
    assert b"good" in little.bodies()
    assert little.timers.pending_count == 0
    if reason is not None:
        (kept,) = little.properties(QUARANTINE_TOPIC)
        assert reason in kept[QUARANTINE_REASON]
        assert little.bodies(QUARANTINE_TOPIC) == [b"odd"]


# --- T11: the slot in progress is repeated as a whole -----------------------------------------------------------------


def test_t11_a_kill_inside_a_second_repeats_nothing(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    begin_ms = 2_000 - clock.now_ms() % 1_000
    for number in range(10):
        little.send(body=b"%d" % number, after_ms=begin_ms + 100 * number + 1)
    settle(little)
    for _ in range(10):
        pass_time(little, begin_ms + 1 if little.store.max_offset("Topic", 0) == 0 else 100)
        little.kill()
        little = open_again()
    settle(little)
    assert little.bodies() == [b"%d" % number for number in range(10)]


def test_t11_a_flush_that_takes_too_long_is_no_reason_to_deliver_again(open_again: Reopen) -> None:
    little = open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.send(body=b"one", after_ms=1_000)
    settle(little)
    little.clock.advance(1_000)
    little.turn()
    for _ in range(20):  # the disk hangs for ten seconds
        little.clock.advance(500)
        little.turn()
    settle(little)
    assert little.bodies() == [b"one"]


# --- T17: a slot is materialised as a whole ---------------------------------------------------------------------------


def test_t17_records_that_wait_to_be_delivered_are_not_kept_but_read_ahead_within_bounds(
    little: LittleStore, open_again: Reopen, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        little.send(body=b"%02d" % number + b"x" * 1_000, after_ms=5_000)
    little.close()
    monkeypatch.setattr("orbitmq.timing.timers.read_ahead.TIMER_READ_AHEAD_BYTES_MAX", 8_000)
    little = open_again()
    for _ in range(100):
        clock.advance(49)
        settle(little)
        assert sum(len(data or b"") for data in little.timers._read_ahead._found.values()) < 10_000
    pass_time(little, 1_000)
    assert [body[:2] for body in little.bodies()] == [b"%02d" % number for number in range(60)]


# --- T18: work while idle ---------------------------------------------------------------------------------------------


def test_t18_pending_messages_far_ahead_cost_one_look_a_second(little: LittleStore) -> None:
    crowd(little, 2_000, after_ms=3_600_000)
    settle(little)
    for _ in range(100):
        pass_time(little, 100)
    before = little.store.deadlines.wakeups.copy()
    for _ in range(600):
        pass_time(little, 100)
    woken = little.store.deadlines.wakeups - before
    assert woken[WAKEUP] <= 60_000 // SLEEP_MAX_MS + 1
    assert set(woken) == {WAKEUP}  # nothing is saved when nothing changes


# --- T21: no order among messages of one time -------------------------------------------------------------------------


def test_t21_messages_of_one_time_keep_the_order_of_sending(little: LittleStore) -> None:
    crowd(little, 3 * RELEASE_BATCH_MAX, after_ms=100_000)
    for _ in range(2_010):
        pass_time(little, 50)
    assert little.bodies() == [b"%d" % number for number in range(3 * RELEASE_BATCH_MAX)]


# --- T25: guessing whether work is left -------------------------------------------------------------------------------


def test_t25_what_is_on_its_way_is_known_exactly(open_again: Reopen) -> None:
    little = open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.send(after_ms=1_000)
    settle(little)
    assert not little.timers.is_releasing
    little.clock.advance(1_000)
    little.turn()  # written, and not yet synced
    assert little.timers.is_releasing
    assert little.timers.pending_count == 1
    until_ms = little.timers.delivered_until_ms
    little.clock.advance(60_000)
    little.turn()
    assert little.timers.delivered_until_ms == until_ms  # the slot is not over before its message is
    settle(little)
    assert not little.timers.is_releasing
    assert little.timers.pending_count == 0


# --- T27: lag is approximate ------------------------------------------------------------------------------------------


def test_t27_pending_and_the_next_due_time_are_exact(little: LittleStore) -> None:
    now = little.clock.now_ms()
    for after_ms in (1_500, 2_500, 2_700):
        little.send(after_ms=after_ms)
    settle(little)
    assert (little.timers.pending_count, little.timers.next_due_ms) == (3, now + 1_500)
    pass_time(little, 1_500)
    assert (little.timers.pending_count, little.timers.next_due_ms) == (2, now + 2_500)
    pass_time(little, 1_900)
    assert (little.timers.pending_count, little.timers.next_due_ms) == (0, None)
    assert little.timers.lateness_ms.count == 3
    assert little.timers.lateness_ms.total == 0 + 900 + 700


# --- T28: a legal message of nearly maximum size stops everything -----------------------------------------------------


def test_t28_the_largest_message_is_one_like_any_other(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    largest = bytes(little.store.settings.max_message_size)
    little.send(body=largest, after_ms=2_000, padding="x" * 3_000)
    little.send(body=b"small", after_ms=2_000)
    little.close()
    little = open_again()
    for _ in range(5):
        pass_time(little, 500)
    assert little.bodies() == [largest, b"small"]


def test_t28_a_limit_that_was_lowered_holds_nothing_back(little: LittleStore, open_again: Reopen) -> None:
    little.send(body=bytes(3_000), after_ms=2_000)
    little.close()
    little = open_again(max_message_size=100)
    for _ in range(5):
        pass_time(little, 500)
    assert little.bodies() == [bytes(3_000)]


# --- T29: repeats after half a batch ----------------------------------------------------------------------------------


def test_t29_a_turn_that_cannot_be_taken_in_is_taken_in_once(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first timers of a store, which no RocketMQ broker may open from then on; and the disk is full."""

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(little.exchange, "raise_fence", full)
        little.append(body=b"first", after_ms=5_000)
        little.append(body=b"second", after_ms=5_000)
        little.store.commit()
        assert not little.store.writable
        assert little.timers.pending_count == 0
    for _ in range(30):
        pass_time(little, 500)
    assert little.store.writable
    assert little.exchange.is_fenced
    assert little.bodies() == [b"first", b"second"]


def test_t29_half_a_batch_that_was_refused_is_delivered_once(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(little, 10, after_ms=1_000)
    settle(little)
    calls: list[object] = []

    def refusing(append: Callable[..., object]) -> Callable[..., object]:
        def refuses(message: object, **options: object) -> object:
            calls.append(message)
            if len(calls) == 5:
                little.store._writability.stop("space", "the disk is full")
            return append(message, **options)

        return refuses

    monkeypatch.setattr(little.store, "append", refusing(little.store.append))
    together = little.store.append_encoded

    def refuses_fifth(messages: Sequence[EncodedMessage]) -> list[Dispatched]:
        calls.append(messages)
        if len(calls) > 1:
            return together(messages)
        placed = together(messages[:4])
        little.store._writability.stop("space", "the disk is full")
        return placed

    monkeypatch.setattr(little.store, "append_encoded", refuses_fifth)
    little.clock.advance(1_000)
    little.turn()
    assert little.timers.pending_count == 6
    little.store.allow("space")
    pass_time(little, 300)
    assert little.bodies() == [b"%d" % number for number in range(10)]
    assert PutStatus.SERVICE_NOT_AVAILABLE not in little.statuses


def test_t29_a_batch_that_finds_no_room_for_the_next_file_is_delivered_once(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%d " % number + b"x" * 400 for number in range(60)]
    for body in bodies:
        little.append(body=body, after_ms=1_000)
    little.store.commit()
    settle(little)

    files = little.store.log.sequence
    grow = type(files).grow

    def full(sequence: SegmentSequence, position: int) -> Segment:
        if sequence is files:
            raise OSError(errno.ENOSPC, "No space left on device")
        return grow(sequence, position)

    with monkeypatch.context() as patch:
        patch.setattr(type(files), "grow", full)
        little.clock.advance(1_000)
        settle(little)
        delivered = little.bodies()
        assert delivered == bodies[: len(delivered)]
        assert 0 < len(delivered) < len(bodies), "a file ended in the middle of the batch"
        assert little.timers.pending_count == len(bodies) - len(delivered)
        assert not little.timers.is_releasing, "what found no place is pending again"
    for _ in range(30):
        pass_time(little, 500)
    assert little.bodies() == bodies
    assert little.timers.pending_count == 0


# --- beside T2 and T3: a stop longer than the wheel there is long ---------------------------------------------------------


def test_t03_after_a_very_long_stop_each_message_comes_in_its_time(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    little.send(body=b"overdue", after_ms=60_000)
    little.close()
    clock.advance(30_000_000)
    little = open_again()
    little.timers.paused = True
    little.send(body=b"soon", after_ms=3_000)
    little.send(body=b"later", after_ms=3_600_000)
    settle(little)
    little.timers.paused = False
    due_ms = clock.now_ms() + 3_600_000
    while little.timers.pending_count:
        pass_time(little, 500)
    assert little.store.max_offset(TIMER_TOPIC, 0) == 3
    assert little.bodies() == [b"overdue", b"soon", b"later"]
    assert little.records()[-1].store_timestamp == due_ms
