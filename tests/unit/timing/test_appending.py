"""Who appends to a store begins and ends together, and never before the end of the log has been applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.timing.conftest import Reopen
from tests.worlds.little_store import LittleStore
from tests.worlds.raw_log import append_raw

from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import LOOK_MS, Appenders
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.rewriting import Rewriting


class Part:
    """One that appends nothing."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told
        self.trouble: Exception | None = None

    def attach(self, store: MessageStore) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.told.append(f"+{self.name}")

    def detach(self) -> None:
        self.told.append(f"-{self.name}")


def test_they_begin_in_order_and_end_in_the_opposite_one(little: LittleStore) -> None:
    told: list[str] = []
    appenders = Appenders(little.store, little.clock, [Part("a", told), Part("b", told)])
    appenders.detach()
    for _ in range(2):
        appenders.attach()
        appenders.attach()
        appenders.detach()
        appenders.detach()
    assert told == ["+a", "+b", "-b", "-a"] * 2


def test_one_that_cannot_begin_ends_all_and_is_tried_again(little: LittleStore) -> None:
    told: list[str] = []
    good, bad = Part("good", told), Part("bad", told)
    bad.trouble = OSError("the disk cannot be read")
    appenders = Appenders(little.store, little.clock, [good, bad])
    with pytest.raises(OSError, match="cannot be read"):
        appenders.attach()
    assert told == ["+good", "-bad", "-good"]
    assert not appenders.are_attached
    bad.trouble = None
    little.advance(1_000)
    assert appenders.are_attached
    assert told[3:] == ["+good", "+bad"]


def test_nobody_begins_while_the_end_of_the_log_has_not_been_applied(open_again: Reopen) -> None:
    """A delivery of the former role lies there: it would be made a second time."""
    little = open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    appenders = Appenders(little.store, little.clock, [little.release, little.timers])
    appenders.attach()
    little.send(body=b"level", level=1)
    little.send(body=b"timer", after_ms=1_000)
    little.advance(0)
    little.clock.advance(1_500)
    little.turn()
    assert little.store.confirm_offset < little.store.log.end, "delivered, and not synced"
    for _ in range(3):
        appenders.detach()
        appenders.attach()
        assert not appenders.are_attached
        little.clock.advance(LOOK_MS)
        little.turn()
    assert not appenders.are_attached
    little.worker.close()
    little.advance(LOOK_MS)
    assert appenders.are_attached
    little.advance(5_000)
    assert sorted(little.bodies()) == [b"level", b"timer"]
    assert not little.release.pending_count + little.timers.pending_count


def test_who_is_detached_while_waiting_does_not_begin(open_again: Reopen) -> None:
    little = open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    told: list[str] = []
    appenders = Appenders(little.store, little.clock, [Part("a", told)])
    little.send()
    appenders.attach()
    appenders.detach()
    little.advance(1_000)
    assert told == ["-a"], "what it noted meanwhile is not going to be appended"


# --- what a part has in flight is its own ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["level", "timer"])
def test_what_was_being_read_when_they_were_detached_comes_once(open_again: Reopen, kind: str) -> None:
    before = open_again()
    before.send(body=b"one", **({"level": 1} if kind == "level" else {"after_ms": 1_000}))
    before.close()
    little = open_again()  # what an earlier process wrote has to be read by the worker
    little.worker.close()
    part = little.release if kind == "level" else little.timers
    little.clock.advance(1_500)
    little.turn()
    assert part.is_releasing
    assert little.worker.jobs, "its record is being read"
    part.detach()
    assert not part.is_releasing
    part.attach(little.store)
    little.turn()
    little.advance(5_000)
    assert little.bodies() == [b"one"]
    assert not part.pending_count


def test_what_is_being_moved_when_they_are_detached_stays_pending(open_again: Reopen) -> None:
    little = open_again(levels="1s 2s 2h")
    rewriting = Rewriting(little.clock, [little.release, little.timers])
    appenders = Appenders(little.store, little.clock, [little.release, little.timers, rewriting])
    assert rewriting.is_busy, "nobody may put records again yet"
    appenders.attach()
    little.send(body=b"level", level=3)
    little.send(body=b"timer", after_ms=7_200_000)
    end = little.store.log.end
    ended: list[bool] = []
    rewriting.rewrite_below(end, ended.append)
    assert little.worker.jobs
    appenders.detach()
    assert ended == [False]
    little.advance(60_000)
    assert little.store.log.end == end, "nothing was put again"
    appenders.attach()
    rewriting.rewrite_below(end, ended.append)
    for _ in range(10):
        little.advance(50)
    assert ended == [False, True]
    little.advance(7_200_000)
    assert sorted(little.bodies()) == [b"level", b"timer"]


# --- a copy ------------------------------------------------------------------------------------------------------------


class Pair:
    """A master, and a copy that gets the bytes of its log."""

    def __init__(self, root: Path, little: LittleStore) -> None:
        self.master = little
        self.copy = LittleStore(root, clock=little.clock)
        self.copy.release.detach()
        self.copy.timers.detach()

    def replicate(self) -> None:
        end, ours = self.master.store.log.end, self.copy.store.log.end
        if end > ours:
            data = self.master.store.log.read(ours, end - ours)
            assert data is not None
            append_raw(self.copy.store, ours, bytes(data))
        self.copy.advance(0)


@pytest.fixture
def pair(tmp_path: Path, little: LittleStore) -> Pair:
    return Pair(tmp_path / "copy", little)


def test_slots_of_a_copy_are_counted(pair: Pair) -> None:
    master, copy = pair.master, pair.copy
    due_ms = master.clock.now_ms() + 60_000
    slot_ms = due_ms // 1_000 * 1_000
    assert (master.timers.slot_count(slot_ms), copy.timers.slot_count(slot_ms)) == (0, 0)
    for number in range(3):
        master.send(body=b"%d" % number, after_ms=60_000)
    pair.replicate()
    slots = {at: copy.timers.slot_count(at) for at in (slot_ms - 1_000, slot_ms, slot_ms + 1_000)}
    assert slots == {at: master.timers.slot_count(at) for at in slots}
    assert sum(slots.values()) == 3
    master.advance(120_000)
    pair.replicate()
    assert sum(copy.timers.slot_count(at) for at in slots) == 0


def test_a_copy_forgets_cancel_records_when_what_they_may_name_has_left(pair: Pair) -> None:
    """Else it would heed no others one day."""
    master, copy = pair.master, pair.copy
    master.send(body=b"cancelled", after_ms=10_000, UNIQ_KEY="K")
    named = {"UNIQ_KEY": "X", "TIMER_DEL_UNIQKEY": cancel_key("Topic", "K")}
    master.send(body=b"0", after_ms=10_000, **named)
    master.send(body=b"kept", after_ms=600_000)
    pair.replicate()
    assert len(master.timers._ledger.cancels) == len(copy.timers._ledger.cancels) == 1
    for _ in range(40):
        master.advance(1_000)
        master.send(body=b"traffic")
        pair.replicate()
    assert not master.timers._ledger.cancels
    copy.store.save_durably(lambda durable: None)
    copy.advance(5_000)
    assert not copy.timers._ledger.cancels
    assert copy.timers.pending_count == master.timers.pending_count == 1
