"""Putting pending records again at the tail of the log, so that the files they lie in can go.

Retention decides how far (store/retention.py). Here the pending records below that position are taken from their owners
(delay levels, timers, ...), read and verified on the worker, and appended again as what they are: same message, same
identity, same due time. Each names the record it replaces as its source, and with that the old one is finished.

Rules of this file
1. What is being moved is taken: meanwhile nobody delivers, recalls or changes it. It is finished when the log says so, and put
   back when the append fails. A crash in between leaves one of the two records pending, never both and never none.
2. One slice of `REWRITE_BATCH_MAX` at a time and a pause after it, so that senders and deliveries go on.
3. A record that cannot be read goes to the quarantine topic, as it would when it falls due. It blocks nothing.
4. The new records may use the space that is reserved for them: they were accepted before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.clock import Clock
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits import PROPERTIES_BYTES_MAX, REWRITE_BATCH_MAX
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.durability import PutStatus
from orbitmq.store.reading import read_and_verify
from orbitmq.store.store import MessageStore
from orbitmq.timing.restoring import quarantine_message, rewritten_message

logger = logging.getLogger("orbitmq.timing")

WAKEUP: Final = "rewriting"

PAUSE_MS: Final = 20
"""Between two slices: moving takes a fifth of the loop at most, about 10,000 records a second."""

RETRY_MS: Final = 1_000
"""Pause before trying again when the store takes nothing."""

NS_PER_MS: Final = 1_000_000


class Taken(NamedTuple):
    """A pending record that is being moved."""

    physical_offset: int
    size: int
    due_ms: int


class PendingOwner(Protocol):
    """Who knows which records of the log are pending."""

    def lowest_needed(self) -> int | None:
        """Log position of the oldest pending record; None when nothing is pending. Taken ones are pending."""
        ...

    def bytes_below(self, position: int) -> int:
        """About how many bytes of pending records lie below a log position. Costs some look-ups, however many there are."""
        ...

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """Take pending records that begin below `position`, at most `limit`, in an order in which they may be put again.
        Empty when none is left, or when none may be moved now."""
        ...

    def put_back(self, positions: Sequence[int]) -> None:
        """Records taken from these log positions were not moved: they are pending where they were."""
        ...


class Rewriting:
    """Moves the pending records of all owners out of the way of retention."""

    def __init__(self, store: MessageStore, clock: Clock, owners: Sequence[PendingOwner]) -> None:
        self._store = store
        self._clock = clock
        self._owners = list(owners)
        self._below: int | None = None
        self._ended: Callable[[bool], None] | None = None
        self._moving = False
        self.rewritten_count = 0
        """Records put again since the start of the process."""
        self.quarantined_count = 0
        store.deadlines.define(WAKEUP, self._move)

    # --- what retention asks (Rewriter) -----------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self._below is not None

    def lowest_pending(self) -> int | None:
        known = [lowest for owner in self._owners if (lowest := owner.lowest_needed()) is not None]
        return min(known, default=None)

    def bytes_below(self, position: int) -> int:
        return sum(owner.bytes_below(position) for owner in self._owners)

    def rewrite_below(self, position: int, ended: Callable[[bool], None]) -> None:
        if self._below is not None:
            raise ValueError(f"pending records below {self._below} are being put again already")
        self._below, self._ended = position, ended
        self._move()

    # --- one slice after the other ----------------------------------------------------------------------------------

    def _move(self) -> None:
        if self._below is None or self._moving:
            return
        if self._store.is_over:
            self._end()
            return
        if not self._store.writes_accepted:
            self._continue(RETRY_MS)
            return
        for owner in self._owners:
            if taken := owner.take_below(self._below, REWRITE_BATCH_MAX):
                self._read(owner, taken)
                return
        self._end()

    def _continue(self, pause_ms: int) -> None:
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + pause_ms * NS_PER_MS)

    def _end(self) -> None:
        below, ended = self._below, self._ended
        self._below = self._ended = None
        lowest = self.lowest_pending()
        if ended is not None and below is not None:
            ended(lowest is None or lowest >= below)

    def _read(self, owner: PendingOwner, taken: list[Taken]) -> None:
        store = self._store
        self._moving = True

        def job() -> list[bytes | None]:
            found: list[bytes | None] = []
            for physical, size, due_ms in taken:
                read = read_and_verify(store.log, [(physical, size, due_ms)])
                found.append(read.records[0] if read.records else None)
            return found

        def done(found: list[bytes | None] | BaseException) -> None:
            if isinstance(found, BaseException):
                logger.error("pending messages could not be read to put them again, trying again: %s", found)
                self._stop_slice(owner, taken)
            else:
                self._append(owner, taken, found)

        store.run_blocking(job, done)

    def _append(self, owner: PendingOwner, taken: list[Taken], found: list[bytes | None]) -> None:
        store = self._store
        count = last_end = 0
        try:
            for one, data in zip(taken, found, strict=True):
                last_end = self._put(one, data)
                count += 1
        except StoreUnwritableError as error:
            logger.warning("the store takes no pending messages again, trying again: %s", error)
        appended, left = taken[:count], taken[count:]

        def committed(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self.rewritten_count += len(appended)
                self._stop_slice(owner, left)
            else:
                self._stop_slice(owner, taken)

        if appended:
            store.wait_durable(last_end, False, committed)
            store.commit()
        else:
            self._stop_slice(owner, left)

    def _put(self, one: Taken, data: bytes | None) -> int:
        """Append the record again, or what quarantine keeps of it; answers the end of what was appended."""
        reason = "its record in the commit log is damaged or gone"
        record: Record | None = None
        try:
            if data is not None:
                record = decode_record(data)
                message = rewritten_message(record, one.due_ms)
                if len(message.properties) > PROPERTIES_BYTES_MAX:
                    raise RecordError("its properties leave no room for its due time")
                return self._store.append(message, accepted=True).end_offset
        except RecordError as error:
            reason = str(error)
        logger.error("the pending message at %d goes to quarantine: %s", one.physical_offset, reason)
        self.quarantined_count += 1
        return self._store.append(quarantine_message(record, one.physical_offset, reason), accepted=True).end_offset

    def _stop_slice(self, owner: PendingOwner, left: Sequence[Taken]) -> None:
        """The slice has ended; what is left of it was not moved."""
        self._moving = False
        if left:
            owner.put_back([one.physical_offset for one in left])
        self._continue(RETRY_MS if left else PAUSE_MS)
