"""Timer messages over their life: waiting, the millisecond they leave in, changes, and what the timers tell about themselves."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.check import check_store
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.release import SLEEP_MAX_MS
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts
from orbitmq.timing.timers.pending_records import TimerRecord
from orbitmq.timing.timers.timers import WAKEUP, TimerState

Reopen = Callable[..., LittleStore]


def released_at(little: LittleStore, ms: int) -> dict[int, list[bytes]]:
    """Milliseconds from now -> bodies that became visible then, over the next `ms`."""
    start, found = little.clock.now_ms(), {}
    known = little.store.max_offset("Topic", 0)
    for _ in range(ms):
        little.clock.advance(1)
        settle(little)
        if little.store.max_offset("Topic", 0) > known:
            found[little.clock.now_ms() - start] = little.bodies()[known:]
            known = little.store.max_offset("Topic", 0)
    return found


def settle(little: LittleStore) -> None:
    """Everything that can be done at this moment."""
    for _ in range(200):
        little.turn()
        little.worker.close()
        next_ns = little.store.deadlines.next_ns
        if next_ns is None or next_ns > little.clock.monotonic_ns():
            return


def pass_time(little: LittleStore, ms: int) -> None:
    little.clock.advance(ms)
    settle(little)


def pending(little: LittleStore, queue_offset: int) -> TimerRecord:
    record = little.timers.read(queue_offset)
    assert record is not None
    return record


# --- waiting and leaving ----------------------------------------------------------------------------------------------


def test_a_message_leaves_in_its_millisecond(little: LittleStore) -> None:
    little.send(body=b"one", after_ms=1_234)
    assert released_at(little, 2_000) == {1_234: [b"one"]}


@pytest.mark.parametrize("after_ms", [1, 2, 999, 1_000, 1_001, 2_999, 3_000, 3_001])
def test_any_distance_from_the_end_of_a_slot_is_the_same(little: LittleStore, after_ms: int) -> None:
    little.send(after_ms=after_ms)
    assert list(released_at(little, 3_100)) == [after_ms]


def test_messages_of_a_slot_leave_in_due_order_and_equal_times_in_the_order_of_arrival(little: LittleStore) -> None:
    for body, after_ms in ((b"c", 900), (b"a", 500), (b"d", 900), (b"b", 500)):
        little.append(body=body, after_ms=after_ms)
    little.store.commit()
    pass_time(little, 2_000)
    assert little.bodies() == [b"a", b"b", b"c", b"d"]


def test_a_message_that_is_due_when_it_is_linked_leaves_at_once(little: LittleStore) -> None:
    little.append(body=b"late", after_ms=5)
    little.clock.advance(4_000)  # its turn took that long
    little.store.commit()
    settle(little)
    assert little.bodies() == [b"late"]


def test_the_loop_sleeps_until_messages_are_to_be_read_or_one_is_due(little: LittleStore) -> None:
    assert WAKEUP not in little.store.deadlines._due_ns
    little.send(after_ms=10_000)
    settle(little)
    before = little.store.deadlines.wakeups[WAKEUP]
    released_at(little, 9_999)
    assert little.store.deadlines.wakeups[WAKEUP] - before <= 10_000 // SLEEP_MAX_MS + 3
    released_at(little, 1)
    assert little.store.max_offset("Topic", 0) == 1
    assert WAKEUP not in little.store.deadlines._due_ns  # nothing is pending: nothing wakes


def test_a_delivered_message_is_what_its_sender_sent(little: LittleStore) -> None:
    sent = little.send(body=b"body", after_ms=10, TAGS="tag", KEYS="k1 k2", UNIQ_KEY="u1", colour="red")
    pass_time(little, 10)
    (record,) = little.records()
    properties = decode_properties(record.properties)
    assert (record.topic, record.queue_id, bytes(record.body)) == ("Topic", 0, b"body")
    assert record.prepared_transaction_offset == sent.physical_offset + 1
    assert {"TAGS", "KEYS", "UNIQ_KEY", "colour", Property.TIMER_OUT_MS, Property.REAL_TOPIC} <= properties.keys()
    assert Property.DUE_MS not in properties


def test_the_lateness_of_what_was_delivered_is_counted(little: LittleStore) -> None:
    little.send(after_ms=10)
    little.send(after_ms=20)
    pass_time(little, 40)
    assert (little.timers.lateness_ms.count, little.timers.lateness_ms.total) == (2, 30 + 20)
    assert little.timers.delivered_count == 2


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_clock_set_forward_is_noticed_within_a_second(little: LittleStore) -> None:
    little.send(after_ms=3_600_000)
    settle(little)
    little.clock.set_wall(little.clock.now_ms() + 3_600_000)
    released_at(little, SLEEP_MAX_MS)
    assert little.store.max_offset("Topic", 0) == 1


def test_a_clock_set_forward_is_noticed_at_once_when_somebody_says_so(little: LittleStore) -> None:
    little.send(after_ms=3_600_000)
    settle(little)
    little.clock.set_wall(little.clock.now_ms() + 3_600_000)
    little.timers.clock_moved()
    settle(little)
    assert little.store.max_offset("Topic", 0) == 1


def test_a_clock_set_back_makes_a_message_wait_for_its_time(little: LittleStore) -> None:
    little.send(after_ms=2_000)
    settle(little)
    little.clock.set_wall(little.clock.now_ms() - 60_000)
    assert list(released_at(little, 63_000)) == [62_000]


def test_a_message_for_a_slot_that_was_over_before_the_clock_was_set_back_leaves_in_its_time(
    little: LittleStore,
) -> None:
    little.send(body=b"first", after_ms=100)
    pass_time(little, 60_000)
    little.clock.set_wall(little.clock.now_ms() - 59_950)
    little.send(body=b"second", after_ms=60)
    assert released_at(little, 200) == {60: [b"second"]}


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_burst_is_released_in_batches_with_senders_served_between(little: LittleStore) -> None:
    for _ in range(700):
        little.append(after_ms=1_000)
    little.store.commit()
    settle(little)
    little.clock.advance(1_000)
    little.turn()
    assert 0 < little.store.max_offset("Topic", 0) <= 256
    assert little.store.deadlines.next_ns == little.clock.monotonic_ns()
    settle(little)
    assert little.store.max_offset("Topic", 0) == 700


def test_the_burst_of_one_topic_lets_another_topic_through_with_the_first_batch(little: LittleStore) -> None:
    for _ in range(1_500):
        little.append("Crowd", after_ms=1_000)
    little.append("Topic", after_ms=1_000)
    little.store.commit()
    settle(little)
    little.clock.advance(1_000)
    little.turn()
    assert little.store.max_offset("Topic", 0) == 1
    assert little.store.max_offset("Crowd", 0) < 256


def test_what_is_far_ahead_is_read_from_the_files_in_time(little: LittleStore) -> None:
    for second in range(0, 600, 7):
        little.send(body=b"%d" % second, after_ms=100_000 + second * 1_000 + second % 1_000)
    settle(little)
    assert little.timers._soon.count == 0
    late = []
    start = little.clock.now_ms()
    while little.timers.pending_count:
        due_ms = little.timers.next_due_ms
        assert due_ms is not None
        little.clock.advance(max(due_ms - little.clock.now_ms(), 0) or 1)
        settle(little)
    for record in little.records():
        second = int(bytes(record.body))
        late.append(record.store_timestamp - (start + 100_000 + second * 1_000 + second % 1_000))
    assert len(late) == 86
    assert set(late) == {0}


# --- records that are not in memory -----------------------------------------------------------------------------------


def test_old_records_are_read_and_checked_before_their_time(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    little.send(body=b"old", after_ms=5_000)
    little.close()
    little = open_again()
    for _ in range(40):
        clock.advance(100)
        little.turn()
        while little.worker.step():
            little.turn()
    assert little.timers._read_ahead.is_ready(0)
    clock.advance(999)
    little.turn()
    assert little.bodies() == []
    clock.advance(1)
    little.turn()  # no worker needed
    assert little.store.max_offset("Topic", 0) == 1


def test_a_slow_disk_holds_up_nobody_whose_record_is_in_memory(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    little.append("Cold", after_ms=1_000)
    little.send("Topic", 0, b"cold", after_ms=1_000)
    little.close()
    little = open_again()
    little.send("Warm", 0, b"warm", after_ms=500)
    clock.advance(1_000)
    for _ in range(20):
        little.turn()  # the worker hangs
    assert little.bodies("Warm") == [b"warm"]
    settle(little)
    assert little.bodies() == [b"cold"]
    assert little.bodies("Cold") != []


@pytest.mark.parametrize("size", [-5, 0, 3, 2**30])
def test_a_consume_queue_that_errs_about_a_size_costs_no_message(
    little: LittleStore, open_again: Reopen, clock: ManualClock, size: int
) -> None:
    for name in (b"one", b"two", b"three"):
        little.send("Topic", 0, name, after_ms=1_000)
    little.close()
    path = little.root / "consumequeue" / TIMER_TOPIC / "0" / "00000000000000000000"
    units = bytearray(path.read_bytes())
    struct.pack_into(">i", units, 20 + 8, size)  # of the second one
    path.write_bytes(units)
    little = open_again()
    little.timers.will_read([2, 1, 0, 99, -1])
    assert little.timers.read(1) is not None
    clock.advance(1_000)
    settle(little)
    assert little.bodies() == [b"one", b"two", b"three"]


def test_a_record_that_cannot_be_read_is_tried_again(
    little: LittleStore, open_again: Reopen, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    little.send(body=b"old", after_ms=1_000)
    little.close()
    little = open_again()
    with monkeypatch.context() as patch:

        def fails(*args: object) -> object:
            raise OSError(5, "the disk does not answer")

        patch.setattr("orbitmq.timing.release.read_sound", fails)
        pass_time(little, 3_000)
        assert little.bodies() == []
    for _ in range(5):
        pass_time(little, 200)
    assert little.bodies() == [b"old"]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_look_that_fails_takes_nothing_to_be_moved(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        little.send(body=b"%d" % number, after_ms=1_000 + number)
    settle(little)
    correct = ConsumeQueue.kept_unit

    def fails(queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        if offset == 2:
            raise OSError(5, "the disk does not answer")
        return correct(queue, offset)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "kept_unit", fails)
        with pytest.raises(OSError, match="does not answer"):
            little.timers.take_below(1 << 40, 10)
    pass_time(little, 3_000)
    assert little.bodies() == [b"0", b"1", b"2"]


def test_a_store_that_takes_nothing_is_waited_for_without_limit(little: LittleStore) -> None:
    little.send(body=b"late", after_ms=1_000)
    settle(little)
    little.store._writability.stop("space", "the disk is full")
    for _ in range(60):
        pass_time(little, 1_000)
    assert little.bodies() == []
    assert little.timers.pending_count == 1
    little.store.allow("space")
    pass_time(little, 200)
    assert little.bodies() == [b"late"]


def test_while_it_is_paused_nothing_leaves_and_the_loop_sleeps(little: LittleStore) -> None:
    little.send(body=b"one", after_ms=1_000)
    little.timers.paused = True
    before = little.store.deadlines.wakeups[WAKEUP]
    for _ in range(50):
        pass_time(little, 100)
    assert little.bodies() == []
    assert little.store.deadlines.wakeups[WAKEUP] - before <= 12
    little.timers.paused = False
    pass_time(little, SLEEP_MAX_MS)
    assert little.bodies() == [b"one"]


def test_a_damaged_record_is_reported_in_quarantine(
    little: LittleStore, open_again: Reopen, clock: ManualClock, tmp_path: Path
) -> None:
    bad = little.send(body=b"x" * 100, after_ms=2_000)
    little.send(body=b"good", after_ms=2_000)
    little.close()
    (segment,) = (tmp_path / "commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    content[bad.physical_offset + 120] ^= 1
    segment.write_bytes(content)
    little = open_again()
    for _ in range(20):
        pass_time(little, 200)
    assert little.bodies() == [b"good"]
    assert little.timers.quarantined_count == 1
    assert little.timers.pending_count == 0


@pytest.mark.parametrize("number", range(1, 9))
def test_a_damaged_record_whose_place_cannot_be_looked_up_holds_up_no_other(
    little: LittleStore, open_again: Reopen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bad = little.send(body=b"x" * 100, after_ms=2_000)
    little.send(body=b"good", after_ms=2_000)
    little.close()
    (segment,) = (tmp_path / "commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    content[bad.physical_offset + 120] ^= 1
    segment.write_bytes(content)
    little = open_again()
    correct, looks = ConsumeQueue.offset_of, list[int]()

    def fails(queue: ConsumeQueue, physical_offset: int) -> int | None:
        looks.append(physical_offset)
        if len(looks) == number:
            raise OSError(24, "too many open files")
        return correct(queue, physical_offset)

    monkeypatch.setattr(ConsumeQueue, "offset_of", fails)
    for _ in range(40):
        with suppress(OSError):  # reported by the alarm
            pass_time(little, 200)
    assert little.bodies() == [b"good"]
    assert little.timers.quarantined_count == 1
    assert little.timers.pending_count == 0


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_recalled_message_never_comes(little: LittleStore, open_again: Reopen) -> None:
    little.send(body=b"one", after_ms=1_000, UNIQ_KEY="u1")
    record = pending(little, 0)
    on_done: list[PutStatus] = []
    little.timers.change(record, recall(record.record, little.clock.now_ms()), wait=True, on_done=on_done.append)
    assert little.timers.state_of(0) is TimerState.LEAVING
    little.turn()
    assert on_done == [PutStatus.PUT_OK]
    assert little.timers.state_of(0) is TimerState.GONE
    assert little.timers.pending_count == 0
    little.kill()
    little = open_again()
    assert little.timers.pending_count == 0
    pass_time(little, 5_000)
    assert little.bodies() == []


@pytest.mark.parametrize("to_ms", [500, 999, 1_001, 60_000])
def test_a_rescheduled_message_comes_at_its_new_time_only(little: LittleStore, to_ms: int) -> None:
    little.send(body=b"one", after_ms=1_000, UNIQ_KEY="u1")
    record = pending(little, 0)
    now = little.clock.now_ms()
    moved = reschedule(record.record, now + to_ms, now, 1_000, fresh_key="fresh")
    little.timers.change(record, moved, wait=False, on_done=lambda status: None)
    settle(little)
    assert little.timers.pending_count == 1
    assert list(released_at(little, 61_000)) == [to_ms]
    (properties,) = little.properties()
    assert properties[Property.UNIQ_KEY] == "u1"
    assert Property.LEFT_MS not in properties
    assert Property.REAL_UNIQ_KEY not in properties


def test_a_change_that_could_not_be_written_has_not_happened(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(little)
    little.send(body=b"one", after_ms=1_000, UNIQ_KEY="u1")
    record = pending(little, 0)
    on_done: list[PutStatus] = []
    little.timers.change(record, recall(record.record, little.clock.now_ms()), wait=True, on_done=on_done.append)
    file = little.store.log.sequence.segments[-1].file

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "pwritev", full)
        little.store.commit()
    assert on_done == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert little.timers.state_of(0) is TimerState.PENDING
    little.store.allow("space")
    pass_time(little, 1_200)
    assert little.bodies() == [b"one"]


def test_what_falls_due_while_a_change_waits_for_the_disk_is_not_delivered(open_again: Reopen) -> None:
    little = open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.send(body=b"one", after_ms=1_000, UNIQ_KEY="u1")
    settle(little)
    record = pending(little, 0)
    little.clock.advance(999)
    little.timers.change(
        record, recall(record.record, little.clock.now_ms()), wait=True, on_done=little.statuses.append
    )
    little.turn()
    little.clock.advance(500)
    little.turn()  # the worker has not synced the recall
    assert little.timers.state_of(0) is TimerState.LEAVING
    settle(little)
    assert little.timers.state_of(0) is TimerState.GONE
    pass_time(little, 5_000)
    assert little.bodies() == []


def test_only_what_is_pending_can_be_changed(little: LittleStore) -> None:
    little.send(after_ms=10, UNIQ_KEY="u1")
    record = pending(little, 0)
    pass_time(little, 10)
    assert little.timers.read(0) is None
    assert little.timers.state_of(99) is TimerState.GONE
    with pytest.raises(ValueError, match="is not pending"):
        little.timers.change(record, recall(record.record, 0), wait=False, on_done=lambda status: None)


def test_a_store_that_takes_nothing_refuses_a_change(little: LittleStore) -> None:
    little.send(after_ms=1_000, UNIQ_KEY="u1")
    record = pending(little, 0)
    little.store._writability.stop("space", "the disk is full")
    with pytest.raises(StoreUnwritableError):
        little.timers.change(record, recall(record.record, 0), wait=False, on_done=lambda status: None)
    assert little.timers.state_of(0) is TimerState.PENDING


# --- cancel records of RocketMQ ---------------------------------------------------------------------------------------


def cancel(little: LittleStore, key: str, after_ms: int) -> None:
    """A cancel record as a client of RocketMQ sends it: no source."""
    little.send(body=b"0", after_ms=after_ms, TIMER_DEL_UNIQKEY=key, UNIQ_KEY="c", TAGS="_RECALL_TAG_")


@pytest.mark.parametrize("after_ms", [1_500, 100_500])
@pytest.mark.parametrize("key", ["Topic+u1", "u1"])
def test_a_foreign_cancel_record_works_in_its_slot(little: LittleStore, key: str, after_ms: int) -> None:
    after_ms -= little.clock.now_ms() % 1_000
    little.send(body=b"one", after_ms=after_ms, UNIQ_KEY="u1")
    little.send(body=b"two", after_ms=after_ms, UNIQ_KEY="u2")
    cancel(little, key, after_ms + 100)
    assert little.timers.pending_count == 2
    for _ in range(8):
        pass_time(little, after_ms // 7)
    assert little.bodies() == [b"two"]
    assert little.timers.pending_count == 0


def test_a_foreign_cancel_record_in_another_slot_has_no_effect(little: LittleStore) -> None:
    after_ms = 1_500 - little.clock.now_ms() % 1_000
    little.send(body=b"one", after_ms=after_ms, UNIQ_KEY="u1")
    cancel(little, "Topic+u1", after_ms + 1_000)
    pass_time(little, 5_000)
    assert little.bodies() == [b"one"]


def test_a_foreign_cancel_record_is_read_again_after_a_restart(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    after_ms = 10_500 - clock.now_ms() % 1_000
    little.send(body=b"one", after_ms=after_ms, UNIQ_KEY="u1")
    cancel(little, "Topic+u1", after_ms + 100)
    little.close()
    little = open_again()
    for _ in range(20):
        pass_time(little, 1_000)
    assert little.bodies() == []
    assert little.timers.pending_count == 0


# --- far away ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far_ms", [5 * 7_200_000 + 345, 400 * 86_400_000 + 1])
def test_a_message_far_ahead_waits_where_it_is_and_comes_in_its_millisecond(little: LittleStore, far_ms: int) -> None:
    little.send(body=b"far", after_ms=far_ms, UNIQ_KEY="u1")
    start = little.clock.now_ms()
    while little.timers.pending_count:
        due_ms = little.timers.next_due_ms
        assert due_ms is not None
        assert little.timers.pending_count == 1
        little.clock.advance(max(due_ms - little.clock.now_ms(), 1))
        settle(little)
    (record,) = little.records()
    assert record.store_timestamp == start + far_ms
    assert Property.TIMER_ROLL_TIMES not in decode_properties(record.properties)
    assert little.store.max_offset(TIMER_TOPIC, 0) == 1


def test_messages_near_and_far_that_come_together_wait_each_for_its_time(little: LittleStore) -> None:
    start = little.clock.now_ms()
    due = {b"far": 2 * 7_200_000 + 345, b"near": 1_234, b"further": 3 * 7_200_000 + 1}
    for number, (body, after_ms) in enumerate(due.items()):
        little.append(body=body, after_ms=after_ms, UNIQ_KEY=f"u{number}")
    little.turn()
    assert little.timers.pending_count == len(due)
    while little.timers.pending_count:
        due_ms = little.timers.next_due_ms
        assert due_ms is not None
        little.clock.advance(max(due_ms - little.clock.now_ms(), 1))
        settle(little)
    assert {bytes(record.body): record.store_timestamp - start for record in little.records()} == due


def test_a_foreign_cancel_record_is_remembered_as_long_as_its_message_waits(little: LittleStore) -> None:
    far_ms = 2 * 7_200_000 + 500
    little.send(body=b"far", after_ms=far_ms, UNIQ_KEY="u1")
    cancel(little, "Topic+u1", far_ms)
    for _ in range(2 * 7_200 + 20):
        little.clock.advance(1_000)
        if little.store.deadlines.next_ns is not None and little.store.deadlines.next_ns <= little.clock.monotonic_ns():
            settle(little)
    assert little.bodies() == []
    assert little.timers.pending_count == 0


# --- what they tell ---------------------------------------------------------------------------------------------------


def test_observers_hear_of_everything_that_begins_and_ends(little: LittleStore) -> None:
    linked: list[TimerFacts] = []
    finished: list[FinishedTimer] = []
    little.timers.taken_in.append(linked.extend)
    little.timers.finished.append(finished.extend)
    due_ms = little.clock.now_ms() + 100
    placed = little.send("Topic", 3, b"one", after_ms=100, KEYS="k1", UNIQ_KEY="u1")
    (facts,) = linked
    assert (facts.queue_offset, facts.topic, facts.queue_id, facts.deliver_ms) == (0, "Topic", 3, due_ms)
    assert (facts.unique_key, facts.keys, facts.physical_offset) == ("u1", "k1", placed.physical_offset)
    pass_time(little, 100)
    assert finished == [FinishedTimer(0, placed.physical_offset, "Topic", due_ms)]


def test_pending_messages_can_be_looked_at(little: LittleStore) -> None:
    now = little.clock.now_ms()
    first = little.send(after_ms=5_000)
    second = little.send(after_ms=2_000)
    assert list(little.timers.pending_units()) == [
        (None, first.physical_offset, now + 5_000),
        (None, second.physical_offset, now + 2_000),
    ]
    assert little.timers.lowest_needed() == first.physical_offset
    assert little.timers.bytes_below(second.physical_offset) == first.size
    assert [taken.physical_offset for taken in little.timers.take_below(second.physical_offset, 10)] == [0]
    assert [taken.physical_offset for taken in little.timers.take_below(1 << 40, 10)] == [second.physical_offset]


def test_what_retention_moves_is_not_delivered_meanwhile_and_comes_once(little: LittleStore) -> None:
    placed = little.send(body=b"one", after_ms=1_000)
    settle(little)
    (taken,) = little.timers.take_below(1 << 40, 10)
    assert taken.physical_offset == placed.physical_offset
    assert little.timers.take_below(1 << 40, 10) == []
    pass_time(little, 2_000)
    assert little.bodies() == []
    little.timers.put_back([placed.physical_offset])
    pass_time(little, 200)
    assert little.bodies() == [b"one"]


def test_the_messages_of_a_slot_are_counted_exactly(little: LittleStore, open_again: Reopen) -> None:
    after_ms = 10_500 - little.clock.now_ms() % 1_000
    for _ in range(3):
        little.send(after_ms=after_ms, UNIQ_KEY="u")
    slot_ms = (little.clock.now_ms() + after_ms) // 1_000 * 1_000
    assert little.timers.slot_count(slot_ms) == 3
    little.send(after_ms=after_ms)
    assert little.timers.slot_count(slot_ms) == 4
    record = pending(little, 1)
    little.timers.change(record, recall(record.record, 0), wait=False, on_done=lambda status: None)
    little.turn()
    assert little.timers.slot_count(slot_ms) == 3
    little.kill()
    assert open_again().timers.slot_count(slot_ms) == 3


def test_a_record_that_says_no_time_is_named_in_the_log_of_the_process(
    little: LittleStore, caplog: pytest.LogCaptureFixture
) -> None:
    little.store.append(little.message(TIMER_TOPIC, 0, b"odd", REAL_TOPIC="Topic", REAL_QID="0"))
    with caplog.at_level(logging.ERROR):
        little.turn()
        settle(little)
    assert "TIMER_OUT_MS" in caplog.text
    assert little.bodies(QUARANTINE_TOPIC) == [b"odd"]


def test_settings_choose_the_width_of_a_slot(open_again: Reopen) -> None:
    little = open_again(timers=msgspec.structs.replace(SMALL_TIMERS, precision_ms=100))
    little.send(after_ms=1_234)
    assert list(released_at(little, 1_300)) == [1_234]


def test_what_a_stop_leaves_behind_is_sound(open_again: Reopen, tmp_path: Path) -> None:
    little = open_again(wheel={"roll_window_slots": 172_800})
    begin_ms = 2_000 - little.clock.now_ms() % 1_000
    for after_ms in (begin_ms + 100, begin_ms + 500, begin_ms + 900, 100_000):
        little.send(after_ms=after_ms)
    pass_time(little, begin_ms + 300)
    little.append(body=b"late", after_ms=1)
    little.clock.advance(2_000)
    little.store.commit()  # linked when its slot was over
    little.close()
    assert not little.exchange.is_fenced
    assert [str(finding) for finding in check_store(tmp_path, OsFiles(), timers=check_timers).findings] == []
