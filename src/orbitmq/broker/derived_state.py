"""What rooms of a broker derive from the log: it is recovered with the store, before there is a room.

Rules of this file
1. A part learns what holds from `apply` alone, in recovery and while the broker runs, whoever appended the record.
2. A part that appends (it delivers what is due, or writes records anew) is attached to the open store to do so; that changes nothing in
   what it knows. It may be detached and attached again at any time.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.store.opening import Recoverable
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.release import DueWork
from orbitmq.timing.rewriting import PendingOwner
from orbitmq.timing.timers.timers import Timers


class Appending(Protocol):
    """A part that appends to the store while it is attached."""

    def attach(self, store: MessageStore) -> None: ...
    def detach(self) -> None: ...


class DerivedState(msgspec.Struct, kw_only=True):
    """The parts of one broker; without one of them the room that needs it refuses its requests."""

    levels: LevelRelease | None = None
    idempotence: Idempotence | None = None
    timers: Timers | None = None
    far: FarTimers | None = None
    """Takes timer messages that are due late."""
    recurrences: Recurrences | None = None
    transactions: Transactions | None = None

    def recoverable(self) -> list[Recoverable]:
        """What the store recovers, in the order in which it gives them what it dispatches."""
        parts = (self.levels, self.idempotence, self.timers, self.far, self.recurrences, self.transactions)
        return [part for part in parts if part is not None]

    def owners(self) -> list[PendingOwner]:
        """Whose pending records have to be written anew before retention takes their files."""
        parts = (self.levels, self.timers, self.far, self.recurrences, self.transactions)
        return [part for part in parts if part is not None]

    def due_work(self) -> list[DueWork]:
        """Everything that delivers, or asks, at a time of the wall clock."""
        parts = (self.levels, self.timers, self.far, self.recurrences, self.transactions)
        return [part for part in parts if part is not None]

    def attach(self, store: MessageStore) -> None:
        """Let everything append that is due. Recurring messages and transactions begin with their rooms."""
        for part in self._appending():
            part.attach(store)

    def detach(self) -> None:
        """Let nothing append that is due, until `attach`."""
        for part in self._appending():
            part.detach()

    def _appending(self) -> list[Appending]:
        return [part for part in (self.levels, self.timers, self.far) if part is not None]

    def hand_over(self) -> None:
        """Leave the files of the timers as RocketMQ reads them; it goes on refusing the store while messages wait in the far tier, which it
        does not know. Raises OSError."""
        if self.timers is not None:
            self.timers.hand_over(is_all=self.far is None or not self.far.is_needed)
