"""What rooms of a broker derive from the log: it is recovered with the store, before there is a room.

Rules of this file
1. A part learns what holds from `apply` alone, in recovery and while the broker runs, whoever appended the record.
2. A part that appends (it delivers what is due, or writes records anew) is attached to the open store to do so (`timing.appending`); that
   changes nothing in what it knows.
3. What a part learnt before its record was applied (the key of a send, a recall, a decision) it keeps whatever the waiters of that record
   hear, `UNKNOWN` included, until `apply` confirms it. `take_back(to)`, which a part has where it learns so, forgets what it learnt of
   records at the log position `to` and behind it, when the log is cut there.
"""

from __future__ import annotations

import msgspec

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.store.opening import Recoverable
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import Appender
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.release import DueWork
from orbitmq.timing.rewriting import PendingOwner
from orbitmq.timing.timers.timers import Timers


class DerivedState(msgspec.Struct, kw_only=True):
    """The parts of one broker; without one of them the room that needs it refuses its requests."""

    tables: TableRecords | None = None
    """Before the others: it tells them of topics that were deleted elsewhere."""
    levels: LevelRelease | None = None
    idempotence: Idempotence | None = None
    timers: Timers | None = None
    far: FarTimers | None = None
    """Takes timer messages that are due late."""
    recurrences: Recurrences | None = None
    transactions: Transactions | None = None

    def recoverable(self) -> list[Recoverable]:
        """What the store recovers, in the order in which it gives them what it dispatches."""
        parts = (self.tables, self.levels, self.idempotence, self.timers, self.far, self.recurrences, self.transactions)
        return [part for part in parts if part is not None]

    def owners(self) -> list[PendingOwner]:
        """Whose pending records have to be written anew before retention takes their files."""
        parts = (self.levels, self.timers, self.far, self.recurrences, self.transactions, self.tables)
        return [part for part in parts if part is not None]

    def due_work(self) -> list[DueWork]:
        """Everything that delivers, or asks, at a time of the wall clock."""
        parts = (self.levels, self.timers, self.far, self.recurrences, self.transactions)
        return [part for part in parts if part is not None]

    def appenders(self) -> list[Appender]:
        """What appends by itself, and is attached and detached with the others (`timing.appending`). Recurring messages need their room
        first."""
        parts = (self.tables, self.levels, self.timers, self.far, self.recurrences)
        return [part for part in parts if part is not None]

    def begin(self, store: MessageStore) -> None:
        """The store is open: work that appends nothing begins, at a broker that copies another's log as well."""
        if self.timers is not None:
            self.timers.index.attach(store)
        if self.far is not None:
            self.far.begin(store)

    def hand_over(self) -> None:
        """Leave the files of the timers as RocketMQ reads them; it goes on refusing the store while messages wait in the far tier, which it
        does not know. Raises OSError."""
        if self.timers is not None:
            self.timers.hand_over(is_all=self.far is None or not self.far.is_needed)
