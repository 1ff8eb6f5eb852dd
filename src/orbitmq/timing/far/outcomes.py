"""Messages leave the far tier: what a step leads to is appended to the log, slice by slice, and behind it the change that the log notes.

Rules of this file
1. A message is appended only while it is pending, and is *leaving* from then until the log says so or the write fails.
2. One that is being changed is waited for. What a step leads to under an earlier attachment comes to nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.far import FAR_SLICE_ROWS
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import Change, change_message, leaving_message
from orbitmq.timing.far.state import FarState
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.timing")

SLICE: Final = "far-timers slice"

TAKEN: Final = -1
"""Instead of the log position of a change: taken by retention."""


class FarLeaving(NamedTuple):
    """A message that leaves the tier: its record, or what is known of one that cannot be read."""

    source: int
    record: Record | None
    due: tuple[int, str] | None = None
    """Due time and topic, where they are known without the record."""


Outcome = tuple[Sequence[FarLeaving], Change | None]
"""Result of a step: messages that leave the tier, and behind them the change that the log notes."""


def of_unit(unit: FarUnit, data: bytes | None = None) -> FarLeaving:
    return FarLeaving(unit.source, None if data is None else decode_record(data), (unit.deliver_ms, unit.topic))


class _Batch:
    """The part of an outcome that is not appended yet."""

    def __init__(self, messages: Sequence[FarLeaving], change: Change | None) -> None:
        self.left = deque(messages)
        self.change = change


class StepOutcomes:
    """Of one keeper."""

    def __init__(
        self,
        held: FarState,
        clock: Clock,
        precision_ms: int,
        *,
        appended: Callable[[int | None], None],
        failed: Callable[[], None],
    ) -> None:
        """`appended(position)`: all of an outcome is in the log, its last record there; None: there was nothing to append. `failed()`:
        something of it could not be written."""
        self._state = held
        self._clock = clock
        self._precision_ms = precision_ms
        self._appended = appended
        self._failed = failed
        self._store: MessageStore | None = None
        self._attachment = 0
        self._batch: _Batch | None = None
        self.leaving: set[int] = set()
        """Source numbers of messages whose timer record is appended and has not come back through the log."""
        self.changing: dict[int, int] = {}
        """Source numbers of messages that are being recalled or rescheduled, with the log positions of the records that say so; or that
        retention has taken to put them again, with `TAKEN`."""
        self.quarantined_count = 0

    def attach(self, store: MessageStore) -> None:
        self._store = store
        self._attachment += 1
        store.deadlines.define(SLICE, self._slice)

    def detach(self) -> None:
        """Forget what is in flight. What is being changed remains so until the log says more."""
        assert self._store is not None
        self._store.deadlines.disarm(SLICE)
        self._store, self._batch = None, None
        self._attachment += 1
        self.leaving.clear()
        self.changing = {source: at for source, at in self.changing.items() if at != TAKEN}

    def append(self, messages: Sequence[FarLeaving], change: Change | None) -> None:
        self._batch = _Batch(messages, change)
        self._slice()

    def give_up(self) -> None:
        """The present outcome is appended no further."""
        self._batch = None

    def _slice(self) -> None:
        """Append the next messages of the batch; the change with the last ones."""
        store, batch = self._store, self._batch
        if store is None or batch is None:
            return
        last: Dispatched | None = None
        sources: list[int] = []
        try:
            while batch.left and len(sources) < FAR_SLICE_ROWS:
                message = batch.left[0]
                if message.source in self.changing:
                    break
                if message.source not in self.leaving and self._state.is_pending(message.source):
                    last = self._leave(store, message)
                    sources.append(message.source)
                batch.left.popleft()
            if not batch.left and batch.change is not None:
                last = store.append(change_message(batch.change), accepted=True)
        except StoreUnwritableError as error:
            logger.warning("a step of the far tier waits: %s", error)
            self._failed()
        self.leaving.update(sources)
        if self._batch is not None and not batch.left:
            self._batch = None
            self._appended(None if last is None else last.physical_offset)
        if last is not None:
            self._wait(store, last.end_offset, sources)
        elif self._batch is not None:  # the next message is being changed: wait for what becomes of it
            store.deadlines.arm(SLICE, self._clock.monotonic_ns() + NS_PER_MS)

    def _wait(self, store: MessageStore, end: int, sources: list[int]) -> None:
        attachment = self._attachment

        def committed(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                self.leaving.difference_update(sources)
            if attachment != self._attachment:
                return
            if status is not PutStatus.PUT_OK:
                self._failed()
            elif self._batch is not None:
                store.deadlines.arm(SLICE, self._clock.monotonic_ns())

        store.wait_durable(end, False, committed)

    def _leave(self, store: MessageStore, leaving: FarLeaving) -> Dispatched:
        message, problem = leaving_message(leaving.record, leaving.source, leaving.due, self._precision_ms)
        if problem:
            logger.error("the far message %d goes to quarantine: %s", leaving.source, problem)
            self.quarantined_count += 1
        return store.append(message, accepted=True)
