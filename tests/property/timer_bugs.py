"""Bugs to plant into the timers: a model that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import msgspec

from orbitmq.broker.timers import changing
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.finding import TimerFinder
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, append_property, without_property
from orbitmq.protocol.records import Record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.timing import rewriting
from orbitmq.timing.far.state import FarState
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.delivery import Delivery
from orbitmq.timing.timers.soon import SoonTimers
from orbitmq.timing.timers.timers import Timers

Plant = Callable[[], AbstractContextManager[Any]]


@contextmanager
def early_by_a_millisecond() -> Iterator[None]:
    """The clock is read a millisecond ahead when deliveries are taken."""
    correct = Delivery.leave

    def leave(self: Delivery, store: Any, now_ms: int, *rest: Any) -> int:
        return correct(self, store, now_ms + 1, *rest)

    with mock.patch.object(Delivery, "leave", leave):
        yield


@contextmanager
def deliveries_forgotten_in_recovery() -> Iterator[None]:
    """A start does not look whom the records in the log deliver."""
    correct = Timers._finish_sources

    def finish_sources(self: Timers, entries: Sequence[Dispatched]) -> None:
        if self._store is not None:
            correct(self, entries)

    with mock.patch.object(Timers, "_finish_sources", finish_sources):
        yield


@contextmanager
def recalls_forgotten_in_recovery() -> Iterator[None]:
    """A start looks at deliveries only."""
    correct = Timers._finish_sources

    def finish_sources(self: Timers, entries: Sequence[Dispatched]) -> None:
        correct(self, [entry for entry in entries if self._store is not None or entry.topic != TIMER_TOPIC])

    with mock.patch.object(Timers, "_finish_sources", finish_sources):
        yield


@contextmanager
def reschedule_leaves_the_old_one() -> Iterator[None]:
    """A message that moves does not name the record it moves from."""
    correct = changing.reschedule

    def reschedule(*arguments: Any, **options: Any) -> tuple[NewMessage, ...]:
        first, *others = correct(*arguments, **options)
        return msgspec.structs.replace(first, prepared_transaction_offset=0), *others

    with mock.patch.object(changing, "reschedule", reschedule):
        yield


@contextmanager
def recall_answered_and_not_done() -> Iterator[None]:
    def recall(self: TimerChanges, timer: object, on_done: Callable[[PutStatus], None]) -> None:
        on_done(PutStatus.PUT_OK)

    with mock.patch.object(TimerChanges, "recall", recall):
        yield


@contextmanager
def page_without_its_last() -> Iterator[None]:
    """The index loses an entry of every full page."""
    correct = TimerIndex.page

    def page(self: TimerIndex, query: Any) -> Any:
        found = correct(self, query)
        return found._replace(candidates=found.candidates[:-1]) if len(found.candidates) == query.limit else found

    with mock.patch.object(TimerIndex, "page", page):
        yield


@contextmanager
def equal_times_reversed() -> Iterator[None]:
    correct = SoonTimers.take

    def take(self: SoonTimers, *arguments: Any) -> list[Any]:
        return sorted(correct(self, *arguments), key=lambda unit: (unit.due_ms, -unit.physical_offset))

    with mock.patch.object(SoonTimers, "take", take):
        yield


@contextmanager
def rewriting_loses_the_due_time() -> Iterator[None]:
    """What makes way for retention is due when it is put again."""
    correct = rewriting.rewritten_message

    def rewritten(record: Record, due_ms: int) -> NewMessage:
        message = correct(record, due_ms)
        properties = without_property(message.properties, Property.DUE_MS.encode())
        message.properties = append_property(properties, Property.DUE_MS, str(record.store_timestamp))
        return message

    with mock.patch.object(rewriting, "rewritten_message", rewritten):
        yield


@contextmanager
def far_handed_over_twice() -> Iterator[None]:
    """The mark behind what left a file is forgotten."""

    def promoted(held: FarState, change: object) -> None:
        held.unmarked.clear()

    with mock.patch.object(FarState, "_promoted", promoted):
        yield


@contextmanager
def foreign_cancellations_ignored() -> Iterator[None]:
    with mock.patch.object(Delivery, "_is_cancelled", return_value=False):
        yield


@contextmanager
def recall_takes_one_copy() -> Iterator[None]:
    """Of what a sender's retry stored twice only the first is found."""
    correct = TimerFinder.near

    def near(self: TimerFinder, wanted: Any, limit: int) -> Any:
        found = correct(self, wanted, limit)
        return found if wanted.message_id is None else found._replace(pending=found.pending[:1])

    with mock.patch.object(TimerFinder, "near", near):
        yield


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        early_by_a_millisecond,
        deliveries_forgotten_in_recovery,
        recalls_forgotten_in_recovery,
        reschedule_leaves_the_old_one,
        recall_answered_and_not_done,
        page_without_its_last,
        equal_times_reversed,
        rewriting_loses_the_due_time,
        foreign_cancellations_ignored,
        far_handed_over_twice,
        recall_takes_one_copy,
    )
}
NEED_FAR = frozenset({"far_handed_over_twice"})
