"""An orderly stop tells what waits to whoever writes RocketMQ's files; only a whole one lets RocketMQ in."""

from __future__ import annotations

import errno
import random
from array import array
from collections.abc import Callable
from itertools import accumulate, chain

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.properties import Property
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.timers import exchange
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.exchange import DueUnits, HandOver, in_due_order

Reopen = Callable[..., LittleStore]
SHAPE = IndexShape(capacity=16, carried=0, small=4)


class Told:
    """What a stop said."""

    def __init__(self, little: LittleStore, patch: pytest.MonkeyPatch) -> None:
        self.told: list[HandOver] = []
        self.pieces: list[DueUnits] = []
        self._hand_over = little.exchange.hand_over
        patch.setattr(little.exchange, "hand_over", self.hand_over)

    def hand_over(self, what: HandOver) -> None:
        for piece in what.pending:
            self.pieces.append(piece)
        self.told.append(what._replace(by_topic=dict(what.by_topic)))
        self._hand_over(what._replace(pending=self.pieces))


def rows(piece: DueUnits) -> list[tuple[int, ...]]:
    return [tuple(column[place] for column in piece[:4]) for place in piece.places]


def recalled(little: LittleStore, queue_offset: int) -> None:
    source = little.timers.read(queue_offset)
    assert source is not None
    messages = recall(source.record, little.clock.now_ms())
    little.timers.change(source, messages, wait=False, on_done=lambda status: None)
    little.store.commit()


def test_what_waits_is_told_in_the_order_of_due_times_with_its_places(
    open_again: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From runs and from memory, in pieces; not what was delivered or recalled."""
    monkeypatch.setattr(exchange, "PIECE", 7)
    monkeypatch.setattr(exchange, "SAMPLE", 2)
    little = open_again(index=SHAPE)
    now_ms = little.clock.now_ms()
    sent = []
    for number in range(60):
        after_ms = 1_000 if number % 5 == 0 else 60_000 + number * 7_919 % 60
        placed = little.append(("A", "B")[number % 2], after_ms=after_ms, UNIQ_KEY=f"u{number}")
        sent.append((now_ms + after_ms, placed.physical_offset, placed.size, java_hash(("A", "B")[number % 2])))
    little.store.commit()
    little.pass_time(1_000)
    recalled(little, 7)
    little.timers.index.work_off()
    newest = little.send("A", after_ms=90_000)
    told = Told(little, monkeypatch)
    little.close()
    waiting = [one for number, one in enumerate(sent) if number % 5 and number != 7]
    waiting.append((now_ms + 91_000, newest.physical_offset, newest.size, java_hash("A")))
    assert [row for piece in told.pieces for row in rows(piece)] == sorted(waiting)
    assert len(told.pieces) > 3
    (what,) = told.told
    assert what.newest == (newest.physical_offset, newest.size)
    assert what.next_offset == newest.queue_offset + 1
    assert what.now_ms == little.clock.now_ms()
    assert what.by_topic == {"A": 25, "B": 23}
    assert not little.exchange.is_fenced


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_told_as_one_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part ascends; of equal due times those of the first part come first."""
    monkeypatch.setattr(exchange, "PIECE", 12)
    monkeypatch.setattr(exchange, "SAMPLE", 3)
    rng = random.Random(seed)
    parts = [sorted(rng.randrange(rng.choice([1, 9, 500])) for _ in range(rng.randrange(40))) for _ in range(seed)]
    dues = array("q", chain.from_iterable(parts))
    pieces = list(in_due_order(dues, [0, *accumulate(map(len, parts))]))
    assert [place for piece in pieces for place in piece] == sorted(range(len(dues)), key=dues.__getitem__)
    assert len(pieces) > len(dues) // 40


def test_cancel_records_that_wait_are_told_with_their_places(
    little: LittleStore, open_again: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this life and of one before."""
    cancels = []
    for number in range(2):
        values = {Property.TIMER_DEL_UNIQKEY: f"Topic+u{number}", Property.UNIQ_KEY: f"u{number}"}
        little.append(body=b"one", after_ms=60_500, UNIQ_KEY=f"u{number}")
        placed = little.append(body=b"0", after_ms=60_500, **values)
        little.store.commit()
        slot_ms = slot_time(little.clock.now_ms() + 60_500, 1_000)
        cancels.append((slot_ms, placed.physical_offset, placed.size))
        little.advance(6_000)
        little.kill()
        little = open_again()
    told = Told(little, monkeypatch)
    little.close()
    (what,) = told.told
    assert sorted(what.cancels) == sorted(cancels)
    assert what.by_topic == {"Topic": 2}


def test_a_store_that_never_saw_a_timer_leaves_nothing(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(little, monkeypatch)
    little.send()
    little.close()
    assert told.told == []
    assert not little.exchange.exists


def test_what_stops_being_said_once_more_is_said_anew(little: LittleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word counts: messages that came or went after it are not left out."""
    told = Told(little, monkeypatch)
    little.send(after_ms=60_000, UNIQ_KEY="u0")
    little.timers.hand_over()
    little.timers.hand_over()
    assert len(told.told) == 1, "nothing has changed"
    little.send(after_ms=60_000)
    recalled(little, 0)
    little.close()
    assert [what.by_topic for what in told.told] == [{"Topic": 1}, {"Topic": 1}]
    assert told.told[-1].next_offset == 3
    assert not little.exchange.is_fenced


# --- what keeps the fence up ------------------------------------------------------------------------------------------


def test_while_a_broker_serves_the_store_rocketmq_is_refused(little: LittleStore, open_again: Reopen) -> None:
    assert not little.exchange.is_fenced
    little.send(after_ms=1_000)
    assert little.exchange.is_fenced
    little.close()
    assert not little.exchange.is_fenced
    again = open_again()
    assert again.exchange.is_fenced
    again.kill()
    assert again.exchange.is_fenced


def test_a_kill_after_the_files_were_written_leaves_the_fence_up(little: LittleStore, open_again: Reopen) -> None:
    """They are right, but nothing says that everything else is on the disk."""
    little.send(body=b"one", after_ms=1_000)
    little.timers.hand_over()
    assert little.exchange.is_fenced
    little.kill()
    again = open_again()
    again.pass_time(1_000)
    assert again.bodies() == [b"one"]
    again.close()


def test_what_came_after_the_files_were_written_keeps_the_fence_up(little: LittleStore) -> None:
    little.send(after_ms=60_000)
    little.timers.hand_over()
    little.send(after_ms=60_000)
    little.store.close()
    assert little.exchange.is_fenced


@pytest.mark.parametrize("why", ["others wait elsewhere", "too many", "no room"])
def test_a_stop_that_cannot_leave_everything_leaves_the_fence_up_and_loses_nothing(
    little: LittleStore, open_again: Reopen, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    for number in range(4):
        little.append(body=b"%d" % number, after_ms=1_000)
    little.store.commit()
    if why == "others wait elsewhere":
        little.timers.hand_over(is_all=False)
    elif why == "too many":
        little.timers.handed_over_max = 3
        little.timers.hand_over()
    else:

        def full(what: HandOver) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(little.exchange, "hand_over", full)
        with pytest.raises(OSError, match="No space"):
            little.timers.hand_over()
    little.store.close()
    assert little.exchange.is_fenced
    again = open_again()
    assert again.store.report.scanned_records == 0
    again.pass_time(1_000)
    assert again.bodies() == [b"0", b"1", b"2", b"3"]
    again.close()
    assert not again.exchange.is_fenced


def test_as_many_as_may_be_left_are(little: LittleStore) -> None:
    for _ in range(3):
        little.send(after_ms=60_000)
    little.timers.handed_over_max = 3
    little.close()
    assert not little.exchange.is_fenced


def test_when_all_have_left_rocketmq_may_go_on(little: LittleStore) -> None:
    little.send(after_ms=1_000)
    little.pass_time(1_000)
    little.close()
    assert not little.exchange.is_fenced
