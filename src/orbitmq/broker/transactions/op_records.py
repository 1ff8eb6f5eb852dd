"""Writing op records for half messages that have ended without one.

A decision brings its op record along. Copies, messages that were given up and whatever a crash tore apart get theirs here, a little later
and many in one record: RocketMQ, which reads nothing else, asks about none of them again.

Rules of this file
1. What was not written is tried again; naming a half message twice changes nothing. So nothing has to be remembered of what is in flight.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.transactions.records import Ending, op_message
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.transactions import OP_OFFSETS_MAX
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import RETRY_MS
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "transaction-op-records"


class OpRecords:
    """The op records that one broker owes."""

    def __init__(self, core: BrokerCore, transactions: Transactions) -> None:
        self._store: MessageStore | None = None
        self._clock = core.clock
        self._store_host = core.facilities.store_host
        self._deadlines = core.deadlines
        self._undecided = transactions.undecided
        self._is_writing = False
        core.deadlines.define(WAKEUP, self._write)
        transactions.unnamed_found = self._arm

    def attach(self, store: MessageStore) -> None:
        """Begin to write what is owed (`Appender`)."""
        self._store = store
        if self._undecided.unnamed:
            self._arm()

    def detach(self) -> None:
        self._store, self._is_writing = None, False
        self._deadlines.disarm(WAKEUP)

    def _arm(self, after_ms: int = 0) -> None:
        if self._store is not None and not self._is_writing:
            self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + after_ms * NS_PER_MS)

    def _write(self) -> None:
        """Append one op record; the store's next commit writes it."""
        unnamed, store = self._undecided.unnamed, self._store
        if store is None or self._is_writing or not unnamed:
            return
        ending = next(iter(unnamed.values()))
        offsets = [offset for offset, other in unnamed.items() if other is ending][:OP_OFFSETS_MAX]
        message = op_message(offsets, ending, self._store_host, self._clock.now_ms())
        try:
            end_offset = store.append(message, accepted=True).end_offset
        except StoreUnwritableError:
            self._arm(RETRY_MS)
            return
        self._is_writing = True

        def written(status: PutStatus) -> None:
            self._is_writing = False
            if unnamed:
                self._arm(0 if status.satisfies_flush else RETRY_MS)

        store.wait_durable(end_offset, True, written)


def decision_record(offsets: list[int], ending: Ending, core: BrokerCore) -> Dispatched | None:
    """Append the op record of a decision behind what else it writes in this turn; answers where. None when there was no room: it is
    owed then."""
    try:
        message = op_message(offsets, ending, core.facilities.store_host, core.clock.now_ms())
        return core.store.append(message, accepted=True)
    except StoreUnwritableError:
        return None
