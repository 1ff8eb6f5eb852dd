"""What RocketMQ has not delivered is found exactly, from its checkpoint and its timer log alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.rocketmq_timers import CANCEL, MESSAGE, NOTHING, ROLLS, ForeignStore, write_as_rocketmq

from orbitmq.clock import ManualClock
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.store.check import check_store
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq import taking_over
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.stat import stat_timers
from orbitmq.timing.timers.exchange import DueUnits, HandOver
from orbitmq.timing.timers.pending import PendingTimers

FILES = OsFiles()
LOG_BYTES = 52 * 20 + 16


@pytest.fixture
def foreign(tmp_path: Path, clock: ManualClock) -> ForeignStore:
    return ForeignStore(tmp_path, clock)


@pytest.fixture
def exchange(tmp_path: Path) -> TimerExchange:
    return TimerExchange(FILES, tmp_path, 1_000, 1_000, 4_096, LOG_BYTES)


def slot(clock: ManualClock, ahead_s: int) -> int:
    return clock.now_ms() // 1_000 * 1_000 + ahead_s * 1_000


def linked(sent: Dispatched, slot_ms: int, magic: int = MESSAGE) -> tuple[int, int, int, int]:
    return slot_ms, magic, sent.physical_offset, sent.size


def test_what_stands_in_a_slot_that_was_not_read_is_pending(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    """Three slots: read, read last, to be read; the log is longer than a file."""
    sent = [foreign.put(f"key{number}", slot(clock, number % 3) + 5) for number in range(50)]
    units = [linked(one, slot(clock, number % 3)) for number, one in enumerate(sent)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, 2), linked=50)
    assert foreign.taken_over(exchange) == [number for number in range(50) if number % 3 == 2]


def test_a_take_over_that_reads_units_of_other_slots_is_found(
    foreign: ForeignStore,
    exchange: TimerExchange,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: the read clock is not heeded."""
    run = taking_over.TakeOver.run

    def planted(self: taking_over.TakeOver) -> None:
        self._read_ms = 0
        run(self)

    monkeypatch.setattr(taking_over.TakeOver, "run", planted)
    with pytest.raises(AssertionError):
        test_what_stands_in_a_slot_that_was_not_read_is_pending(foreign, exchange, clock, tmp_path)


def test_a_record_that_was_not_linked_is_pending(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    sent = [foreign.put(f"key{number}", slot(clock, 9)) for number in range(4)]
    write_as_rocketmq(tmp_path, [linked(sent[1], slot(clock, 8))], LOG_BYTES, read_ms=slot(clock, 0), linked=2)
    assert foreign.taken_over(exchange) == [1, 2, 3]


def test_what_was_linked_and_read_behind_the_checkpoint_is_delivered(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    """The checkpoint says that nothing was linked; a unit in a slot that was read says otherwise."""
    sent = [foreign.put("read", slot(clock, -5) + 5), foreign.put("waits", slot(clock, 9))]
    units = [linked(sent[0], slot(clock, -5)), linked(sent[1], slot(clock, 8))]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, -2), linked=0)
    assert foreign.taken_over(exchange) == [1]


def test_without_timer_files_everything_is_pending(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock
) -> None:
    for number in range(3):
        foreign.put(f"key{number}", slot(clock, 5))
    assert not exchange.exists
    assert foreign.taken_over(exchange) == [0, 1, 2]


def test_a_store_without_timer_messages_has_nothing_pending(foreign: ForeignStore, exchange: TimerExchange) -> None:
    assert foreign.taken_over(exchange) == []


def test_a_unit_whose_record_the_log_has_lost_is_passed_over(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    sent = foreign.put("key", slot(clock, 5))
    lost = (slot(clock, 4), MESSAGE, sent.physical_offset + 5 * sent.size, sent.size)
    write_as_rocketmq(tmp_path, [linked(sent, slot(clock, 4)), lost], LOG_BYTES, read_ms=slot(clock, 0), linked=2)
    assert foreign.taken_over(exchange) == [0]


def test_only_what_may_be_pending_by_the_log_is(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    """The journal knows what was recalled and delivered here before; a unit does not bring it back."""
    sent = [foreign.put(f"key{number}", slot(clock, 5)) for number in range(4)]
    write_as_rocketmq(
        tmp_path, [linked(one, slot(clock, 4)) for one in sent], LOG_BYTES, read_ms=slot(clock, 0), linked=4
    )
    pending = PendingTimers()
    pending.add_range(1, 3)
    assert foreign.taken_over(exchange, pending) == [1, 2]


def test_the_unit_that_ends_a_hand_over_finishes_nobody(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    """It names the newest record, which may be a message that waits."""
    sent = foreign.put("key", slot(clock, 5))
    units = [linked(sent, slot(clock, 4)), linked(sent, slot(clock, 0), NOTHING)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, 0), linked=1)
    assert foreign.taken_over(exchange) == [0]


@pytest.mark.parametrize("precision_ms", [100, 1_000, 1_700])
def test_the_width_of_slots_does_not_matter(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path, precision_ms: int
) -> None:
    first = (clock.now_ms() // precision_ms + 3) * precision_ms
    sent = [foreign.put(f"key{number}", first + number * precision_ms + 1) for number in range(6)]
    units = [linked(one, first + number * precision_ms) for number, one in enumerate(sent)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=first + 2 * precision_ms, linked=6)
    assert foreign.taken_over(exchange) == [2, 3, 4, 5]


# --- what fell due ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_delivered", [False, True])
@pytest.mark.parametrize("has_unit", [False, True])
def test_what_fell_due_is_pending_unless_its_delivery_is_found(
    foreign: ForeignStore,
    exchange: TimerExchange,
    clock: ManualClock,
    tmp_path: Path,
    was_delivered: bool,
    has_unit: bool,
) -> None:
    """In the slot in progress when RocketMQ crashed, or come upon when it was over."""
    due_ms = slot(clock, -1) + 500
    sent = foreign.put("key", due_ms)
    if was_delivered:
        foreign.put("key", due_ms, topic="Topic")
    units = [linked(sent, slot(clock, -1))] if has_unit else []
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, -1), linked=int(has_unit))
    assert foreign.taken_over(exchange) == ([] if was_delivered else [0])


@pytest.mark.parametrize("has_hopped", [False, True])
def test_a_message_that_hopped_is_pending_once(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path, has_hopped: bool
) -> None:
    due_ms = slot(clock, 5_000)
    sent = foreign.put("key", due_ms)
    if has_hopped:
        foreign.put("key", due_ms, TIMER_ROLL_TIMES="1")
    units = [linked(sent, slot(clock, -1), ROLLS)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, -1), linked=1)
    assert foreign.taken_over(exchange) == [1 if has_hopped else 0]


# --- cancellations ----------------------------------------------------------------------------------------------------


def named(foreign: ForeignStore, sent: Dispatched) -> bool:
    return foreign.cancels.name(decode_properties(sent.properties))


@pytest.mark.parametrize("is_linked", [False, True])
def test_cancel_records_that_wait_are_known_and_never_pending(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path, is_linked: bool
) -> None:
    due_ms = slot(clock, 5)
    sent, other = foreign.put("key", due_ms), foreign.put("other", due_ms)
    cancel = foreign.cancel("key", due_ms)
    units = [linked(sent, slot(clock, 4)), linked(other, slot(clock, 4))]
    units += [linked(cancel, slot(clock, 4), CANCEL)] if is_linked else []
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, 0), linked=len(units))
    assert foreign.taken_over(exchange) == [0, 1]
    assert (named(foreign, sent), named(foreign, other)) == (True, False)


def test_a_cancel_record_whose_slot_was_read_is_over(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path
) -> None:
    cancel = foreign.cancel("key", slot(clock, -3) + 5)
    units = [linked(cancel, slot(clock, -3), CANCEL)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, -1), linked=1)
    assert foreign.taken_over(exchange) == []
    assert len(foreign.cancels) == 0


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_copy_of_what_was_recalled_here_is_not_pending(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path, is_copied: bool
) -> None:
    """RocketMQ let the message hop, and was stopped before the cancel record, or behind it."""
    due_ms = slot(clock, 5_000)
    sent = foreign.put("key", due_ms)
    cancel = foreign.cancel("key", due_ms, ORBITMQ_LEFT_MS="5")
    foreign.put("key", due_ms, TIMER_ROLL_TIMES="1")
    if is_copied:
        foreign.cancel("key", due_ms, ORBITMQ_LEFT_MS="5", TIMER_ROLL_TIMES="1")
    units = [linked(sent, slot(clock, -1), ROLLS), linked(cancel, slot(clock, -1), CANCEL | 2)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, 0 if is_copied else -1), linked=2)
    pending = PendingTimers(2)
    pending.add_range(2, 4 if is_copied else 3)
    assert foreign.taken_over(exchange, pending, foreign_from=2) == []


# --- a timer log that cannot be used ----------------------------------------------------------------------------------


def damage(root: Path, how: str) -> None:
    path = root / "timerlog" / f"{0:020d}"
    if how == "a stranger":
        (root / "timerlog" / "odd").write_bytes(b"x")
    elif how == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[52:56] = bytes(4)
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["a stranger", "missing", "a damaged unit"])
def test_the_slot_times_of_records_decide_where_the_timer_log_does_not(
    foreign: ForeignStore, exchange: TimerExchange, clock: ManualClock, tmp_path: Path, how: str
) -> None:
    dues = [slot(clock, -3) + 5, slot(clock, 3) + 5, slot(clock, -3) + 7, slot(clock, 9) + 5]
    sent = [foreign.put(f"key{number}", due_ms) for number, due_ms in enumerate(dues)]
    cancel = foreign.cancel("key3", dues[3])
    units = [linked(one, due_ms // 1_000 * 1_000) for one, due_ms in zip(sent[:2], dues, strict=False)]
    write_as_rocketmq(tmp_path, units, LOG_BYTES, read_ms=slot(clock, -1), linked=2)
    damage(tmp_path, how)
    assert foreign.taken_over(exchange) == [1, 2, 3]
    assert cancel.physical_offset
    assert named(foreign, sent[3])


# --- whole stores -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["timer-clean", "timer-crash", "timer-far"])
def test_a_store_of_rocketmq_is_taken_over_and_left_to_it_exactly(
    golden_store: Callable[[str], Any], clock: ManualClock, name: str
) -> None:
    root, expected = golden_store(name)
    clock.set_wall(max(message["storeTimestamp"] for message in expected["messages"]))
    sizes = dict(line.split("=", 1) for line in expected["brokerConf"])
    foreign = ForeignStore(
        root,
        clock,
        mapped_file_size_commit_log=int(sizes["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(sizes["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(sizes["maxHashSlotNum"]),
        max_index_num=int(sizes["maxIndexNum"]),
    )
    exchange = TimerExchange(FILES, root, 1_000, 10, log_file_bytes=5_200)
    records = {m["queueOffset"]: m for m in expected["messages"] if m["topic"] == TIMER_TOPIC}
    found = [records[offset] for offset in foreign.taken_over(exchange)]
    cancelled = [record for record in found if foreign.cancels.name(record["properties"])]
    waits = [record for record in found if record not in cancelled]
    assert places(waits) == places(expected["pendingTimers"])
    assert set(places(cancelled)) <= set(places(expected["cancelledTimers"])), "those that hopped are finished at once"

    units = sorted(
        (
            int(record["properties"]["TIMER_OUT_MS"]) + 1_000,
            record["physicalOffset"],
            record["size"],
            java_hash(record["properties"]["REAL_TOPIC"]),
        )
        for record in waits
    )
    newest = records[max(records)]
    place = (newest["physicalOffset"], newest["size"])
    exchange.hand_over(HandOver([DueUnits.of(units)], {}, [], place, max(records) + 1, clock.now_ms()))
    exchange.lower_fence()
    foreign.store.close()
    assert check_store(root, FILES, timers=check_timers).findings == []
    stat = stat_timers(root, FILES, clock.now_ms())
    assert stat is not None
    assert (stat.pending_count, stat.cancelled_count, stat.unlinked_count) == (len(waits), 0, 0)


def places(messages: list[dict[str, Any]]) -> list[int]:
    return sorted(message["physicalOffset"] for message in messages)
