"""The weaknesses of RocketMQ's delay levels, one by one: each test carries the number of the one that is absent here.

A2 polling, A3 head-of-line blocking, A4 permanent failures, A5 exceptions, A6 repeats, A7 and A8 losses, A9 records that
are gone, A10 stepped clocks, A11 store times out of order, A12 a changed list, A13 a lost offset file, A16 what a
consumer sees, A17 one thread for all. A1, A14 and A15 are limits of the format, not of the service.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import RecordError
from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX, RELEASE_BATCH_MAX
from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing import release as shared_release
from orbitmq.timing.levels import release as levels_release
from orbitmq.timing.levels.offsets import LevelOffsets
from orbitmq.timing.levels.release import WAKEUP
from orbitmq.timing.release import SLEEP_MAX_MS
from orbitmq.timing.restoring import QUARANTINE_REASON, QUARANTINE_SOURCE, restore_stored

Reopen = Callable[..., LittleStore]


def one_by_one(records: list[object], positions: list[int]) -> list[None]:
    """No record is restored together with others."""
    return [None] * len(records)


def released_at(little: LittleStore, ms: int, step_ms: int = 1) -> dict[int, list[bytes]]:
    """Milliseconds from now -> bodies that became visible then, over the next `ms`."""
    start, found = little.clock.now_ms(), {}
    known = little.store.max_offset("Topic", 0)
    for _ in range(0, ms, step_ms):
        little.clock.advance(step_ms)
        little.turn()
        if little.store.max_offset("Topic", 0) > known:
            found[little.clock.now_ms() - start] = little.bodies()[known:]
            known = little.store.max_offset("Topic", 0)
    return found


# --- A2: up to 100 ms late by polling -------------------------------------------------------------------------------


def test_a02_a_message_becomes_visible_in_the_millisecond_it_is_due(little: LittleStore) -> None:
    little.send(body=b"one", level=1)
    assert released_at(little, 1_500) == {1_000: [b"one"]}


def test_a02_the_service_sleeps_until_due_and_its_wakeups_are_counted(little: LittleStore) -> None:
    assert WAKEUP not in little.store.deadlines._due_ns
    little.send(level=1)
    before = little.clock.monotonic_ns()
    assert little.store.deadlines._due_ns[WAKEUP] == before + 1_000 * 1_000_000
    released_at(little, 3_000)
    assert little.store.deadlines.wakeups[WAKEUP] == 1
    assert WAKEUP not in little.store.deadlines._due_ns


def test_a02_an_idle_store_with_pending_levels_wakes_only_to_look_at_the_clock(little: LittleStore) -> None:
    little.send(level=3)
    little.advance(0)
    released_at(little, 4_900, step_ms=10)
    assert little.store.deadlines.wakeups[WAKEUP] <= 4_900 // SLEEP_MAX_MS + 1


def test_a02_what_fell_due_while_the_broker_was_down_comes_with_its_first_turn(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    little.send(body=b"one", level=2)
    little.close()
    clock.advance(60_000)
    little = open_again()
    little.turn()
    little.worker.close()  # the record was written by another process: it is read and verified first
    assert little.bodies() == [b"one"]


# --- A3 and A17: one message or level holds up others ---------------------------------------------------------------


def test_a03_levels_do_not_wait_for_each_other(little: LittleStore) -> None:
    for _ in range(3 * RELEASE_BATCH_MAX):
        little.append("Crowd", level=1)
    little.send(body=b"alone", level=1)
    little.clock.advance(1)
    little.send("Topic", 0, b"other", level=2)
    little.clock.advance(2_500)
    little.turn()  # everything is due: both levels get their share of the first turn
    assert b"other" in little.bodies()


def test_a03_large_ones_are_released_in_slices_of_bytes(open_again: Reopen) -> None:
    little = open_again(mapped_file_size_commit_log=64 << 20, max_message_size=4 << 20)
    for number in range(10):
        little.append(body=b"%d" % number + bytes(RELEASE_BATCH_BYTES_MAX // 4), level=1 + number % 2)
    little.store.commit()
    little.clock.advance(2_100)
    seen = [0]
    for _ in range(10):
        little.turn()
        little.worker.close()
        if (count := little.store.max_offset("Topic", 0)) != seen[-1]:
            seen.append(count)
    assert seen == [0, 3, 6, 9, 10]
    assert sorted(found[:1] for found in little.bodies()) == [b"%d" % number for number in range(10)]


def test_a03_a_burst_is_released_in_slices_so_that_senders_are_served_between(little: LittleStore) -> None:
    for _ in range(RELEASE_BATCH_MAX + 10):
        little.append(level=1)
    little.store.commit()
    little.clock.advance(1_000)
    little.turn()
    assert little.store.max_offset("Topic", 0) == RELEASE_BATCH_MAX
    assert little.store.deadlines.next_ns == little.clock.monotonic_ns()  # the rest follows in the next turn
    little.send(body=b"sender")
    little.turn()
    assert little.store.max_offset("Topic", 0) == RELEASE_BATCH_MAX + 11


def test_a17_a_slow_disk_does_not_delay_other_levels(little: LittleStore) -> None:
    little.send(level=1)
    little.send(level=2)
    little.clock.advance(1_000)
    little.turn()
    little.store.run_blocking(lambda: None, lambda result: None)  # the worker hangs: nothing steps it
    little.clock.advance(1_000)
    little.turn()
    assert little.store.max_offset("Topic", 0) == 2


# --- A4: a record that can never be stored --------------------------------------------------------------------------


def test_a04_a_record_that_cannot_be_stored_never_blocks_its_level(little: LittleStore) -> None:
    placed = little.store.append(
        little.message(SCHEDULE_TOPIC, 0, b"bad", REAL_QID="0", DELAY="1", UNIQ_KEY="u1")  # no REAL_TOPIC
    )
    little.send(body=b"good", level=1)
    little.advance(1_000)
    assert little.bodies() == [b"good"]
    (kept,) = little.records(QUARANTINE_TOPIC)
    properties = decode_properties(kept.properties)
    assert kept.body == b"bad"
    assert properties[QUARANTINE_REASON] == "it has no property REAL_TOPIC"
    assert properties[QUARANTINE_SOURCE] == str(placed.physical_offset)
    assert properties["UNIQ_KEY"] == "u1"
    assert little.release.quarantined_count == 1
    assert little.release.pending_count == 0


def test_a04_limits_that_were_lowered_do_not_apply_to_what_was_accepted(
    little: LittleStore, open_again: Reopen
) -> None:
    little.send(body=bytes(3000), level=1)
    little.close()
    little = open_again(max_message_size=100)
    little.advance(1_000)
    assert little.bodies() == [bytes(3000)]


def test_a04_a_record_that_fits_nowhere_leaves_its_reason(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    little.send(body=b"x", level=1)

    def too_large(data: object) -> object:
        raise RecordError("it does not fit")

    def huge(record: object, physical: int, reason: str) -> object:
        message = quarantine(record, physical, reason)  # type: ignore[arg-type]
        if record is not None:
            message.body = bytes(20_000)
        return message

    quarantine = shared_release.quarantine_message
    monkeypatch.setattr(levels_release, "encoded_messages", one_by_one)
    monkeypatch.setattr(little.release._release, "_restore", too_large)
    monkeypatch.setattr(shared_release, "quarantine_message", huge)
    little.advance(1_000)
    assert little.bodies(QUARANTINE_TOPIC) == [b"it does not fit"]
    assert little.release.pending_count == 0


def test_a04_a_store_that_takes_nothing_is_waited_for_without_limit(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    little.send(body=b"late", level=1)
    little.store._writability.stop("space", "the disk is full")
    little.advance(60_000)
    assert little.bodies() == []
    little.store.allow("space")
    little.advance(200)
    assert little.bodies() == [b"late"]


# --- A5: an exception in one record ---------------------------------------------------------------------------------


def test_a05_an_exception_in_one_record_neither_drops_it_nor_blocks_its_level(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"odd", b"two"):
        little.send(body=body, level=1)
    restore = restore_stored

    def breaks(data: memoryview) -> object:
        if b"odd" in bytes(data):
            raise ZeroDivisionError("nobody thought of this")
        return restore(data)

    monkeypatch.setattr(levels_release, "encoded_messages", one_by_one)
    monkeypatch.setattr(little.release._release, "_restore", breaks)
    little.advance(1_000)
    assert little.bodies() == [b"one", b"two"]
    (properties,) = little.properties(QUARANTINE_TOPIC)
    assert properties[QUARANTINE_REASON] == "ZeroDivisionError: nobody thought of this"
    assert little.bodies(QUARANTINE_TOPIC) == [b"odd"]


# --- A6 to A8: repeats and losses -----------------------------------------------------------------------------------


def test_a06_no_repeat_after_an_orderly_stop(little: LittleStore, open_again: Reopen) -> None:
    little.send(body=b"once", level=1)
    little.advance(1_000)
    little.close()
    little = open_again()
    little.advance(10_000)
    assert little.bodies() == [b"once"]


def test_a06_no_repeat_after_a_kill_right_behind_the_delivery(little: LittleStore, open_again: Reopen) -> None:
    little.send(body=b"once", level=1)
    little.clock.advance(1_000)
    little.turn()
    little.kill()  # nothing was saved since
    little = open_again()
    little.advance(10_000)
    assert little.bodies() == [b"once"]
    assert little.release.pending_count == 0


def test_a06_no_repeat_when_one_turn_fails_and_an_earlier_one_is_not_yet_synced(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    little = LittleStore(tmp_path, clock=clock, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.send(body=b"first", level=1)
    little.clock.advance(10)
    little.send(body=b"second", level=1)
    little.worker.close()
    clock.advance(990)
    little.turn()  # the delivery of the first is written, and waits for its sync
    clock.advance(10)
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "write", full)
        little.turn()  # that of the second fails
        little.store.log.discard()
    little.store.run_due(clock.monotonic_ns() + 300 * 1_000_000)  # it is tried again, the first is still not synced
    for _ in range(4):
        little.advance(1_000)
    assert sorted(little.bodies()) == [b"first", b"second"]


def test_a07_and_a08_progress_never_leads_the_log(little: LittleStore) -> None:
    """delayOffset.json is written after the sync of the log, and holds what was delivered before that sync."""
    for _ in range(3):
        little.send(level=1)
    little.clock.advance(1_000)
    little.turn()
    little.clock.advance(10_000)
    little.turn()  # submits the durable save of this moment
    little.send(level=1)
    little.clock.advance(1_000)
    little.turn()  # delivered after that moment
    assert little.offsets_file.load() is None
    little.worker.close()
    assert (little.offsets_file.load() or {})["offsetTable"] == {"1": 3}


def test_a08_the_file_that_rocketmq_reads_is_plain_json_with_quoted_levels(little: LittleStore, tmp_path: Path) -> None:
    little.send(level=1)
    little.send(level=3)
    little.advance(1_000)
    little.close()
    table = json.loads((tmp_path / "config" / "delayOffset.json").read_text())
    assert table["offsetTable"] == {"1": 1, "3": 0}
    assert set(table["dataVersion"]) == {"counter", "stateVersion", "timestamp"}


# --- A9: the record is gone before it is due ------------------------------------------------------------------------


def test_a09_a_pending_message_pins_its_file(little: LittleStore) -> None:
    assert little.release.lowest_needed() is None
    little.send(level=3)
    second = little.send(level=1)
    assert little.release.lowest_needed() == 0
    little.advance(1_000)
    little.advance(5_000)
    assert little.release.lowest_needed() is None
    assert second.physical_offset > 0


def test_a09_a_damaged_record_is_reported_in_quarantine(little: LittleStore, open_again: Reopen) -> None:
    placed = little.send(body=b"x" * 50, level=2)
    little.send(body=b"good", level=2)
    little.close()
    path = little.root / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 50)] ^= 1
    path.write_bytes(data)
    little = open_again()
    little.advance(2_000)
    assert little.bodies() == [b"good"]
    (properties,) = little.properties(QUARANTINE_TOPIC)
    assert "damaged or gone" in properties[QUARANTINE_REASON]
    assert properties[QUARANTINE_SOURCE] == str(placed.physical_offset)
    little.kill()  # recovery reads the quarantine record again and knows that the source is done with
    little = open_again()
    little.advance(5_000)
    assert len(little.records(QUARANTINE_TOPIC)) == 1
    assert little.release.pending_count == 0


def test_a09_a_record_whose_file_was_taken_away_is_reported(little: LittleStore, open_again: Reopen) -> None:
    little.send(body=b"lost", level=3)
    while little.store.log.end < 20_000:
        little.send(body=bytes(1000))
    little.send(body=b"kept", level=3)
    little.close()
    (little.root / "commitlog" / "00000000000000000000").unlink()
    little = open_again()
    little.advance(5_000)
    assert little.bodies()[-1] == b"kept"
    (properties,) = little.properties(QUARANTINE_TOPIC)
    assert properties[QUARANTINE_SOURCE] == "0"
    little.close()
    little = open_again()
    little.advance(5_000)
    assert len(little.records(QUARANTINE_TOPIC)) == 1


# --- A10 and A11: clocks --------------------------------------------------------------------------------------------


def test_a10_a_clock_set_back_makes_nothing_early(little: LittleStore, clock: ManualClock) -> None:
    start = clock.now_ms()
    little.send(body=b"one", level=2)
    clock.set_wall(start - 3_600_000)
    little.advance(10_000)
    assert little.bodies() == []
    clock.set_wall(start + 1_999)
    little.advance(0)
    assert little.bodies() == []
    little.advance(1)
    little.advance(1_000)
    assert little.bodies() == [b"one"]


def test_a10_a_clock_set_forward_is_noticed_within_the_longest_sleep(little: LittleStore, clock: ManualClock) -> None:
    little.send(body=b"one", level=3)
    clock.set_wall(clock.now_ms() + 3_600_000)
    little.advance(SLEEP_MAX_MS)
    assert little.bodies() == [b"one"]


def test_a11_a_later_message_with_an_earlier_due_time_is_not_blocked(little: LittleStore, clock: ManualClock) -> None:
    start = clock.now_ms()
    little.send(body=b"before", level=1)
    clock.set_wall(start - 60_000)
    little.send(body=b"after", level=1)
    little.advance(1_000)
    assert little.bodies() == [b"after"]
    assert little.release.pending_count == 1
    clock.set_wall(start + 1_000)
    little.advance(SLEEP_MAX_MS)
    assert little.bodies() == [b"after", b"before"]


def test_a11_store_timestamps_never_decrease_and_due_times_stay_exact(little: LittleStore, clock: ManualClock) -> None:
    first = little.send(level=1)
    clock.set_wall(clock.now_ms() - 5_000)
    second = little.send(level=1)
    assert second.store_timestamp == first.store_timestamp
    assert second.tags_code == first.tags_code - 5_000


# --- A12: another list of levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", ["9s 8s 7s", "1h", "1s 1s 1s 1s 1s 1s"])
@pytest.mark.parametrize("lose_queues", [False, True])
def test_a12_a_changed_list_keeps_every_pending_due_time(
    little: LittleStore, open_again: Reopen, levels: str, lose_queues: bool
) -> None:
    for level in (1, 2, 3):
        little.send(body=str(level).encode(), level=level)
    little.close()
    if lose_queues:
        shutil.rmtree(little.root / "consumequeue")
    little = open_again(levels=levels)
    little.worker.close()
    due = {}
    start = little.clock.now_ms()
    for _ in range(600):
        little.advance(10)
        for body in little.bodies():
            due.setdefault(body, little.clock.now_ms() - start)
    assert due == {b"1": 1_000, b"2": 2_000, b"3": 5_000}


def test_a12_a_record_without_its_own_due_time_follows_the_list_of_its_time(
    little: LittleStore, open_again: Reopen, clock: ManualClock
) -> None:
    """As RocketMQ writes them: no property of ours. The consume queue is lost and made again under another list."""
    message = little.message(body=b"theirs", level=2)
    values = decode_properties(message.properties)
    del values[Property.DUE_MS]
    message.properties = encode_properties(values)
    little.store.append(message)
    little.close()
    clock.advance(10)
    open_again(levels="1s 30m").close()  # the new list begins to hold here
    shutil.rmtree(little.root / "consumequeue")
    little = open_again(levels="1s 30m")
    little.advance(1_980)
    assert little.bodies() == []
    little.advance(10)
    assert little.bodies() == [b"theirs"]


# --- A13: the offset file is lost -----------------------------------------------------------------------------------


def test_a13_a_lost_offset_file_repeats_nothing(little: LittleStore, open_again: Reopen) -> None:
    for _ in range(5):
        little.send(level=1)
    little.advance(1_000)
    little.send(body=b"pending", level=3)
    little.close()
    for path in (little.root / "config").glob("delayOffset.json*"):
        path.unlink()
    little = open_again()
    assert little.release.pending_by_level() == {1: 0, 3: 1}
    little.advance(5_000)
    assert little.store.max_offset("Topic", 0) == 6
    assert little.release.first_pending_by_level() == {1: 5, 3: 1}


def test_a13_a_garbled_offset_file_is_replaced(
    little: LittleStore, open_again: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    little.send(level=1)
    little.advance(1_000)
    little.close()
    (little.root / "config" / "delayOffset.json").write_text("{ not json")
    little = open_again()
    little.send(level=1)
    little.advance(1_000)
    with caplog.at_level(logging.WARNING):
        little.close()
    assert json.loads((little.root / "config" / "delayOffset.json").read_text())["offsetTable"] == {"1": 2}


# --- A16: what others see -------------------------------------------------------------------------------------------


def test_a16_a_consumer_sees_the_message_of_its_sender(little: LittleStore) -> None:
    sent = little.send("Topic", 3, b"body", level=1, TAGS="t", KEYS="k", UNIQ_KEY="u", mine="1")
    little.advance(1_000)
    (record,) = little.records("Topic", 3)
    properties = decode_properties(record.properties)
    assert {name: properties[name] for name in ("TAGS", "KEYS", "UNIQ_KEY", "mine")} == {
        "TAGS": "t",
        "KEYS": "k",
        "UNIQ_KEY": "u",
        "mine": "1",
    }
    assert Property.DUE_MS not in properties
    # RocketMQ's clients read these two from delivered messages; they stay, as its own broker leaves them.
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Topic", "3")
    assert record.prepared_transaction_offset == sent.physical_offset + 1
    assert little.store.query_by_key("Topic", "k", 10, 0, 1 << 62) == [record.physical_offset]


# --- what holds it together -----------------------------------------------------------------------------------------


def test_deliveries_are_refused_only_by_a_store_that_cannot_write(little: LittleStore) -> None:
    """When the disk is nearly full new messages are refused; what is due goes out, for it pins its files."""
    little.send(body=b"due", level=1)
    little.store.refuse("disk", "the disk is nearly full")
    little.advance(1_000)
    assert little.bodies() == [b"due"]


def test_a_maintenance_pause_keeps_what_is_due(little: LittleStore) -> None:
    little.send(body=b"one", level=1)
    little.release.paused = True
    little.advance(5_000)
    assert little.bodies() == []
    little.release.paused = False
    little.store.deadlines.arm(WAKEUP, 0)
    little.advance(0)
    assert little.bodies() == [b"one"]


def test_a_full_disk_under_the_offset_file_stops_nothing(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LevelOffsets, "save", full)
    little.send(level=1)
    little.advance(10_000)
    assert "offsets of the delay levels were not saved" in caplog.text
    assert little.store.writable
    assert little.statuses == [PutStatus.PUT_OK]


# --- looking at what is pending -------------------------------------------------------------------------------------


def test_pending_units_are_those_not_delivered_with_their_due_times(little: LittleStore, clock: ManualClock) -> None:
    start = clock.now_ms()
    little.send(body=b"a", level=1)
    little.send(body=b"b", level=3)
    little.send(body=b"c", level=3)
    little.advance(1_000)
    assert little.bodies() == [b"a"]
    pending = list(little.release.pending_units())
    assert [(level, due_ms - start) for level, _, due_ms in pending] == [(3, 5_000), (3, 5_000)]
    assert [physical for _, physical, _ in pending] == [unit[0] for unit in units_of(little, level=3)]


def units_of(little: LittleStore, level: int) -> list[tuple[int, int, int]]:
    queue = little.store.queues.get(SCHEDULE_TOPIC, level - 1)
    assert queue is not None
    return list(queue.scan(0, queue.max_offset))


# --- a clock that was ahead -------------------------------------------------------------------------------------------


def test_the_start_says_which_levels_wait_for_a_clock_that_was_ahead(
    little: LittleStore, open_again: Reopen, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    little.send(level=3)
    clock.set_wall(clock.now_ms() + 1_000_000)
    little.send(level=2)
    clock.set_wall(clock.now_ms() - 1_000_000)
    little.advance(6_000)
    little.store.close()
    again = open_again()
    again.release.report_future(5_000)
    assert "delay levels 2 hold messages that are due later than any level is long" in caplog.text
    caplog.clear()
    again.advance(1_010_000)
    again.release.report_future(5_000)
    assert not caplog.text
