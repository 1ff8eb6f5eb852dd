"""A store that RocketMQ wrote last: what waits there comes once and in its time, and the store is ours from then on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LITTLE_WHEEL, LittleStore
from tests.worlds.rocketmq_timers import CANCEL, MESSAGE, ForeignStore, write_as_rocketmq

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.rocketmq.checkpoint import TIMER_CHECKPOINT_FILE, read_timer_checkpoint

Reopen = Callable[..., LittleStore]
Put = Callable[[ForeignStore], None]


class RocketMQ(ForeignStore):
    """A RocketMQ broker that serves the store for a while."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root, clock)
        self.units: list[tuple[int, int, int, int]] = []

    def link(self, sent: Dispatched, magic: int = MESSAGE) -> None:
        slot_ms = int(decode_properties(sent.properties)[Property.TIMER_OUT_MS])
        self.units.append((slot_ms, magic, sent.physical_offset, sent.size))

    def link_all(self) -> None:
        """Everything in the timer topic, as after a start without timer files."""
        queue = self.store.queues.get(TIMER_TOPIC, 0)
        assert queue is not None
        for physical, size, _ in queue.scan(0, queue.max_offset):
            view = self.store.record_at(physical)
            assert view is not None
            values = decode_properties(decode_record(view).properties)
            magic = CANCEL if Property.TIMER_DEL_UNIQKEY in values else MESSAGE
            self.units.append((int(values[Property.TIMER_OUT_MS]), magic, physical, size))

    def deliver(self, key: str, due_ms: int) -> None:
        self.put(key, due_ms, topic="Topic")

    def end(self, *, read_ms: int, linked: int) -> None:
        """With slots before its read clock read, and records of the timer topic before that queue offset linked."""
        self.store.close()
        (self.root / MARK_FILE).unlink()
        log_bytes = LITTLE_WHEEL["log_file_bytes"]
        write_as_rocketmq(self.root, self.units, log_bytes, read_ms=slot_time(read_ms, 1_000), linked=linked)


@pytest.fixture
def waiting(little: LittleStore) -> LittleStore:
    """Two messages due in a minute, and one in two, that RocketMQ goes on with."""
    for number, after_ms in enumerate((60_500, 60_700, 120_500)):
        little.send(body=b"%d" % number, after_ms=after_ms, UNIQ_KEY=f"u{number}")
    little.close()
    assert not little.exchange.is_fenced
    return little


def test_what_waits_is_delivered_in_its_time_and_once(
    waiting: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    begin_ms = clock.now_ms()
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    rocketmq.link(rocketmq.put("new", begin_ms + 30_500))
    rocketmq.put("unlinked", begin_ms + 90_500)
    rocketmq.end(read_ms=begin_ms, linked=4)
    again = open_again()
    assert again.timers.pending_count == 5
    assert again.exchange.is_fenced
    assert not (tmp_path / "timerlog").exists()
    for _ in range(2 * 125):
        again.pass_time(500)
    dues = [record.store_timestamp - begin_ms for record in again.records()]
    assert dues == [30_500, 60_500, 61_000, 90_500, 120_500]
    assert again.timers.pending_count == 0
    again.close()


def test_what_was_delivered_meanwhile_is_not_delivered_again(
    waiting: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    begin_ms = clock.now_ms()
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    clock.advance(62_000)
    for number in range(2):
        rocketmq.deliver(f"u{number}", begin_ms + 60_500)
    rocketmq.end(read_ms=clock.now_ms(), linked=3)
    again = open_again()
    assert list(again.timers.pending.offsets()) == [2]
    again.pass_time(60_000)
    assert len(again.bodies()) == 3
    again.close()


@pytest.mark.parametrize("was_delivered", [False, True])
@pytest.mark.parametrize("is_later_read", [False, True])
def test_what_was_overdue_there_is_not_taken_for_delivered_because_a_later_one_is_linked(
    waiting: LittleStore,
    open_again: Reopen,
    tmp_path: Path,
    clock: ManualClock,
    was_delivered: bool,
    is_later_read: bool,
) -> None:
    """What is due when RocketMQ comes upon it has no unit: it delivers that beside the linking of others, and may crash before."""
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    clock.advance(3_000)
    rocketmq.put("overdue", clock.now_ms() - 500)
    later = rocketmq.put("later", clock.now_ms() + 1_500)
    rocketmq.link(later)
    if was_delivered:
        rocketmq.deliver("overdue", clock.now_ms() - 500)
    rocketmq.end(read_ms=clock.now_ms() + (3_000 if is_later_read else 0), linked=3)
    again = open_again()
    again.advance(2_000)
    keys = [properties[Property.UNIQ_KEY] for properties in again.properties()]
    assert sorted(keys) == (["overdue"] if is_later_read else ["later", "overdue"])
    again.kill()
    again = open_again()
    again.advance(60_000)
    assert len(again.bodies()) == len(keys) + 2
    again.close()


def test_cancel_records_that_rocketmq_took_in_come_into_effect(
    waiting: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    begin_ms = clock.now_ms()
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    rocketmq.link(rocketmq.cancel("u0", begin_ms + 60_500), CANCEL)
    rocketmq.cancel("u2", begin_ms + 120_500)  # not linked
    rocketmq.end(read_ms=begin_ms, linked=4)
    again = open_again()
    assert again.timers.pending_count == 3
    again.kill()
    again = open_again()
    for _ in range(125):
        again.pass_time(1_000)
    assert again.bodies() == [b"1"]
    assert again.timers.pending_count == 0
    again.close()


@pytest.mark.parametrize("has_mark", [False, True])
def test_a_store_is_taken_over_once(
    waiting: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock, has_mark: bool
) -> None:
    """From its end on the fence says that RocketMQ cannot have run, whatever else is lost."""
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    rocketmq.end(read_ms=clock.now_ms(), linked=3)
    again = open_again()
    again.pass_time(61_000)
    assert len(again.bodies()) == 2
    again.kill()
    if not has_mark:
        (tmp_path / MARK_FILE).unlink(missing_ok=True)
    third = open_again()
    assert not third.timers._recovery.is_taken_over
    assert list(third.timers.pending.offsets()) == [2]
    third.pass_time(60_000)
    assert third.bodies() == [b"0", b"1", b"2"]
    third.close()


def test_rocketmq_finds_nothing_that_it_would_lose_after_a_kill(
    waiting: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    """An operator may take the fence away: then everything from the first pending record on is linked again."""
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    clock.advance(62_000)
    rocketmq.end(read_ms=clock.now_ms(), linked=3)
    open_again().kill()
    page = read_timer_checkpoint(OsFiles(), tmp_path / "config" / TIMER_CHECKPOINT_FILE)
    assert page is not None
    assert page.unlinked_from == 2


@pytest.mark.parametrize("topic", ["Topic", TIMER_TOPIC])
def test_a_store_without_pending_timers_is_taken_over_too(
    little: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock, topic: str
) -> None:
    little.send(body=b"x")
    little.close()
    rocketmq = RocketMQ(tmp_path, clock)
    if topic == TIMER_TOPIC:
        rocketmq.link(rocketmq.put("gone", clock.now_ms() - 10_000))
    rocketmq.end(read_ms=clock.now_ms(), linked=len(rocketmq.units))
    again = open_again()
    assert again.timers.pending_count == 0
    again.send(body=b"y", after_ms=1_000)
    again.pass_time(1_000)
    assert again.bodies() == [b"x", b"y"]
    assert again.exchange.is_fenced
    again.close()


def test_many_are_found_beside_the_work_and_what_is_overdue_of_them_leaves_at_once(
    little: LittleStore, open_again: Reopen, tmp_path: Path, clock: ManualClock
) -> None:
    begin_ms = clock.now_ms()
    for number in range(300):
        little.append(body=b"%03d" % number, after_ms=50_000 + number * 7_919 % 300, UNIQ_KEY=f"u{number}")
    little.store.commit()
    little.close()
    rocketmq = RocketMQ(tmp_path, clock)
    rocketmq.link_all()
    clock.advance(60_000)
    rocketmq.end(read_ms=begin_ms, linked=300)
    again = open_again(index=IndexShape(capacity=64, carried=0, small=8))
    again.settle()
    order = sorted(range(300), key=lambda number: (number * 7_919 % 300, number))
    assert sorted(again.bodies()) == sorted(b"%03d" % number for number in order)
    assert again.timers.pending_count == 0
    again.close()
