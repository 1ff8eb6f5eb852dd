"""Putting pending records again at the tail of the log, so that the files they lie in can go.

Retention decides how far (store/retention.py). Here the pending records below that position are taken from their owners
(delay levels, timers, ...), read and verified on the worker, and appended again as what they are: same message, same
identity, same due time. Each names the record it replaces as its source, and with that the old one is finished.

Rules of this file
1. What is being moved is taken: meanwhile nobody delivers, recalls or changes it. It is finished when the log says so, and put
   back when the append fails. A crash in between leaves one of the two records pending, never both and never none.
2. One slice at a time, as large as a release of due messages may be, and a pause after it, so that senders and deliveries go on.
3. A record that cannot be read goes to the quarantine topic, as it would when it falls due. It blocks nothing.
4. The new records may use the space that is reserved for them: they were accepted before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.clock import Clock
from orbitmq.limits.timers import RELEASE_BATCH_MAX
from orbitmq.protocol.records import decode_record
from orbitmq.store.message import NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import Release, count_in_turn, left_out, read_cold
from orbitmq.timing.restoring import rewritten_message

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

    def __init__(self, clock: Clock, owners: Sequence[PendingOwner]) -> None:
        self._store: MessageStore | None = None
        self._attachment = 0
        """How many times it was attached: what is read under an earlier one is not put again."""
        self._clock = clock
        self._owners = list(owners)
        self._below: int | None = None
        self._ended: Callable[[bool], None] | None = None
        self._moving = False
        self._due_ms: dict[int, int] = {}
        """Log position -> due time of the records that are being put again."""
        self._release = Release("pending message", self._again)

    def attach(self, store: MessageStore) -> None:
        """Put records again into `store` when retention asks for it (`Appender`)."""
        if self._store is None:
            self._store = store
            self._attachment += 1
            store.deadlines.define(WAKEUP, self._move)

    def detach(self) -> None:
        """Put nothing again any more: whoever asked is told so. The owners are detached as well, and know of nothing that is taken."""
        if self._store is not None:
            self._store.deadlines.disarm(WAKEUP)
            self._store, self._moving = None, False
            self._end(complete=False)

    # --- what retention asks (Rewriter) -----------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self._below is not None or self._store is None

    @property
    def rewritten_count(self) -> int:
        """Records put again since the start of the process."""
        return self._release.released_count

    @property
    def quarantined_count(self) -> int:
        return self._release.quarantined_count

    def lowest_pending(self) -> int | None:
        known = [lowest for owner in self._owners if (lowest := owner.lowest_needed()) is not None]
        return min(known, default=None)

    def bytes_below(self, position: int) -> int:
        return sum(owner.bytes_below(position) for owner in self._owners)

    def rewrite_below(self, position: int, ended: Callable[[bool], None]) -> None:
        if self.is_busy:
            raise ValueError(f"pending records below {self._below} are being put again already, or none may be")
        self._below, self._ended = position, ended
        self._move()

    # --- one slice after the other ----------------------------------------------------------------------------------

    def _move(self) -> None:
        store = self._store
        if store is None or self._below is None or self._moving:
            return
        if store.is_over:
            self._end(complete=False)
            return
        if not store.writes_accepted:
            self._continue(RETRY_MS)
            return
        try:
            for owner in self._owners:
                if taken := owner.take_below(self._below, RELEASE_BATCH_MAX):
                    count = count_in_turn(one.size for one in taken)
                    if count < len(taken):
                        owner.put_back([one.physical_offset for one in taken[count:]])
                    self._read(store, owner, taken[:count])
                    return
            lowest = self.lowest_pending()
        except OSError as error:
            logger.error("what pends below offset %d could not be looked up, trying again: %s", self._below, error)
            self._continue(RETRY_MS)
            return
        self._end(complete=lowest is None or lowest >= self._below)

    def _continue(self, pause_ms: int) -> None:
        if self._store is not None:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + pause_ms * NS_PER_MS)

    def _end(self, *, complete: bool) -> None:
        ended = self._ended
        self._below = self._ended = None
        if ended is not None:
            ended(complete)

    def _read(self, store: MessageStore, owner: PendingOwner, taken: list[Taken]) -> None:
        self._moving = True
        attachment = self._attachment

        def done(found: list[tuple[int, bytes | None]] | BaseException) -> None:
            if self._store is None or attachment != self._attachment:
                return
            if isinstance(found, BaseException):
                logger.error("pending messages could not be read to put them again, trying again: %s", found)
                self._moving = False
                owner.put_back([one.physical_offset for one in taken])
                self._continue(RETRY_MS)
            else:
                if unread := left_out([one.physical_offset for one in taken], found):
                    owner.put_back(unread)
                self._append(store, owner, taken, found)

        read_cold(store, [(one.physical_offset, one.size) for one in taken], done)

    def _append(
        self, store: MessageStore, owner: PendingOwner, taken: list[Taken], found: Sequence[tuple[int, bytes | None]]
    ) -> None:
        self._due_ms = {one.physical_offset: one.due_ms for one in taken}

        def untake(positions: Sequence[int]) -> None:
            owner.put_back(positions)
            self._continue(RETRY_MS)

        self._moving = False
        self._continue(PAUSE_MS)
        self._release.put(store, found, lambda: None, untake)
        store.commit()

    def _again(self, data: memoryview | bytes) -> NewMessage:
        record = decode_record(data)
        return rewritten_message(record, self._due_ms[record.physical_offset])
