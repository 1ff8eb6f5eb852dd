"""Bugs to plant into a master and a slave: a life that does not catch them checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.appending import Appenders
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.timers.timers import Timers


@contextmanager
def timers_released_by_a_slave() -> Iterator[None]:
    """Timers go on when the others end."""
    with mock.patch.object(Timers, "detach"):
        yield


@contextmanager
def levels_released_by_a_slave() -> Iterator[None]:
    with mock.patch.object(LevelRelease, "detach"):
        yield


def _not_applied(part: type[Any]) -> Callable[[], AbstractContextManager[None]]:
    """A slave does not apply what it hears."""

    @contextmanager
    def planted() -> Iterator[None]:
        correct = part.apply

        def apply(self: Any, entries: Sequence[Dispatched]) -> None:
            if self._store is not None:
                correct(self, entries)

        with mock.patch.object(part, "apply", apply):
            yield

    return planted


@contextmanager
def keys_of_a_copied_log_forgotten() -> Iterator[None]:
    """What nobody announced is not learnt."""
    with mock.patch.object(Idempotence, "_learn"):
        yield


@contextmanager
def half_messages_of_a_copied_log_never_end() -> Iterator[None]:
    """Op records are read by who wrote them."""
    correct = Transactions._op

    def op(self: Transactions, entry: Dispatched) -> None:
        if any(known.ending is not None for known in self.undecided):
            correct(self, entry)

    with mock.patch.object(Transactions, "_op", op):
        yield


@contextmanager
def attached_before_the_log_is_applied() -> Iterator[None]:
    """What was delivered and is not synced is delivered again."""

    def attach(self: Appenders) -> None:
        self._store.commit()
        self.are_attached = True
        for part in self._parts:
            part.attach(self._store)

    with mock.patch.object(Appenders, "attach", attach):
        yield


Plant = Callable[[], AbstractContextManager[None]]

PLANTS: dict[str, Plant] = {
    "timers released by a slave": timers_released_by_a_slave,
    "levels released by a slave": levels_released_by_a_slave,
    "recurring messages not applied by a slave": _not_applied(Recurrences),
    "timers not applied by a slave": _not_applied(Timers),
    "keys of a copied log forgotten": keys_of_a_copied_log_forgotten,
    "half messages of a copied log never end": half_messages_of_a_copied_log_never_end,
    "attached before the log is applied": attached_before_the_log_is_applied,
}
