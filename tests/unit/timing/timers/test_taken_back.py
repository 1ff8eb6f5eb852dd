"""A change of a timer whose record was not confirmed: remembered until the log says more, forgotten when it is cut off."""

from __future__ import annotations

import pytest
from tests.unit.timing.conftest import Reopen
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreUnwritableError
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.timers import TimerState


@pytest.fixture
def little(open_again: Reopen) -> LittleStore:
    return open_again(flush_disk_type=FlushDiskType.SYNC_FLUSH)


def sent(little: LittleStore) -> int:
    """A timer message; answers its queue offset."""
    placed = little.send(body=b"one", after_ms=10_000, UNIQ_KEY="K")
    little.advance(0)
    return placed.queue_offset


def recall_it(little: LittleStore, queue_offset: int) -> int:
    """Append a recall without ending the turn; answers where the log ended before."""
    record = little.timers.read(queue_offset)
    assert record is not None
    before = little.store.log.end
    messages = recall(record.record, little.clock.now_ms(), record.values)
    little.timers.change(record, messages, wait=True, on_done=little.statuses.append)
    return before


def test_until_the_log_says_more_it_is_leaving_attached_or_not(little: LittleStore) -> None:
    one = sent(little)
    recall_it(little, one)
    little.turn()
    assert little.timers.state_of(one) is TimerState.LEAVING
    little.timers.detach()
    assert little.timers.state_of(one) is TimerState.LEAVING
    little.timers.attach(little.store)
    little.clock.advance(15_000)
    little.turn()
    assert little.bodies() == []
    little.advance(0)
    assert little.timers.state_of(one) is TimerState.GONE
    assert not little.timers.is_releasing


def test_when_its_record_is_cut_off_the_message_is_pending_and_comes(little: LittleStore) -> None:
    one = sent(little)
    cut_at = recall_it(little, one)
    little.turn()
    little.timers.detach()
    little.timers.take_back(cut_at)
    assert little.timers.state_of(one) is TimerState.PENDING
    assert not little.timers.is_releasing


def test_what_lies_before_the_cut_stays(little: LittleStore) -> None:
    one = sent(little)
    recall_it(little, one)
    little.turn()
    little.timers.detach()
    little.timers.take_back(little.store.log.end)
    assert little.timers.state_of(one) is TimerState.LEAVING
    little.advance(0)
    assert little.timers.state_of(one) is TimerState.GONE


def test_a_sync_that_takes_too_long_takes_nothing_back(little: LittleStore) -> None:
    one = sent(little)
    recall_it(little, one)
    little.turn()
    little.clock.advance(6_000)
    little.turn()
    assert little.statuses[-1] is PutStatus.FLUSH_DISK_TIMEOUT
    assert little.timers.state_of(one) is TimerState.LEAVING


def test_who_is_detached_takes_no_change(little: LittleStore) -> None:
    one = sent(little)
    little.timers.detach()
    end = little.store.log.end
    with pytest.raises(StoreUnwritableError, match="ask the master"):
        recall_it(little, one)
    assert little.timers.state_of(one) is TimerState.PENDING
    assert little.store.log.end == end
