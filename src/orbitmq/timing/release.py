"""Appending what has fallen due, for everything that delivers at a time: delay levels and timers; and what each of these tells of itself.

A *taken* record is restored to the message it becomes, appended, and written by the end of the loop turn. What becomes of it
is one of three: it is in the log; it can never be appended and went to the quarantine topic with its reason; or the
store takes nothing at the moment and its owner has it back.

Rules of this file
1. The trouble of one record is never the trouble of another: whatever restoring it raises, the rest goes on.
2. A store that takes no messages is no trouble of the record: it is handed back, without limit.
3. Nothing is remembered here between two calls but counts. Who owns a record and when it is due is its owner's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import decode_record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import EncodedMessage, NewMessage
from orbitmq.store.reading import read_sound
from orbitmq.store.reads import being_fetched
from orbitmq.store.store import MessageStore
from orbitmq.timing.restoring import Undeliverable, quarantine_message

logger = logging.getLogger("orbitmq.timing")

SLEEP_MAX_MS: Final = 1_000
"""Longest sleep while anything is pending: how late a forward step of the wall clock is noticed."""

RETRY_MS: Final = 200
"""Pause before trying again when the store takes no messages."""

LATENESS_BOUNDS_MS: Final = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000,
)  # fmt: skip
"""Buckets of lateness: about three a decade where it is good, an hour where something stood still."""

Data = memoryview | bytes | None
"""The bytes of a record; None when it is damaged or gone."""

_TIMER_NAME: Final = f"{Property.TIMER_OUT_MS}\x01".encode()
_LEVEL_NAME: Final = f"{Property.DELAY}\x01".encode()


class Release:
    """Appends taken records of one owner."""

    def __init__(self, what: str, restore: Callable[[memoryview | bytes], NewMessage]) -> None:
        """`what` names one record in the log of the process. `restore` makes the message of a record, or raises RecordError or
        Undeliverable."""
        self._what = what
        self._restore = restore
        self.released_count = 0
        self.quarantined_count = 0

    def put(
        self,
        store: MessageStore,
        taken: Sequence[tuple[int, Data]],
        written: Callable[[], None],
        untake: Callable[[Sequence[int]], None],
        encoded: Sequence[EncodedMessage | None] | None = None,
    ) -> None:
        """Append the messages of `taken`, (log position, record), in order; the store's next commit writes them.

        `encoded` has for each of them what its owner made of it already, or None for one that is to be restored here, as all
        are without it.
        `untake` is told, at once or after that commit, of the positions whose messages are not in the log. `written` comes after a
        commit that wrote what was appended.
        """
        positions = [physical for physical, _ in taken]
        last_end = at = 0
        while at < len(taken):
            try:
                last_end, count = self._append(store, *taken[at], _known(encoded, at))
            except StoreUnwritableError:
                break
            at += count
        if at < len(taken):
            untake(positions[at:])
        appended = positions[:at]

        def committed(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                written()
            else:
                untake(appended)

        if appended:
            store.wait_durable(last_end, False, committed)

    def _append(self, store: MessageStore, physical: int, data: Data, encoded: list[EncodedMessage]) -> tuple[int, int]:
        """Append the message of a record, or what it was made to and some of those behind it; answers the end of the last record,
        and how many it took."""
        count = 1
        try:
            if encoded:
                placed = store.append_encoded(encoded)
                end, count = placed[-1].end_offset, len(placed)
            elif data is None:
                raise Undeliverable("its record in the commit log is damaged or gone")
            else:
                end = store.append(self._restore(data), accepted=True).end_offset
            self.released_count += count
        except StoreUnwritableError:
            raise
        except (Undeliverable, RecordError) as error:
            end = self.quarantine(store, data, physical, str(error))
        except Exception as error:  # whatever it is: one record stops neither its owner nor the others
            logger.exception("restoring the %s at %d failed", self._what, physical)
            end = self.quarantine(store, data, physical, f"{type(error).__name__}: {error}")
        return end, count

    def quarantine(self, store: MessageStore, data: Data, physical: int, reason: str) -> int:
        """Append what is left of a record, with the reason, to the quarantine topic; answers the end of the new record.

        Raises StoreUnwritableError.
        """
        logger.error("the %s at %d goes to quarantine: %s", self._what, physical, reason)
        try:
            record = None if data is None else decode_record(data)
        except RecordError:
            record = None  # the reason says so already
        try:
            end = store.append(quarantine_message(record, physical, reason), accepted=True).end_offset
        except RecordError as error:  # with the reason it fits nowhere: the reason alone always does
            logger.error("only the reason is kept: %s", error)
            end = store.append(quarantine_message(None, physical, reason), accepted=True).end_offset
        self.quarantined_count += 1
        return end


def _known(encoded: Sequence[EncodedMessage | None] | None, first: int) -> list[EncodedMessage]:
    """Messages from `first` on, up to one that is not encoded."""
    found: list[EncodedMessage] = []
    for message in islice(encoded or (), first, None):
        if message is None:
            break
        found.append(message)
    return found


def count_in_turn(sizes: Iterable[int]) -> int:
    """How many records of these sizes, from the first on, one loop turn takes: as many as `RELEASE_BATCH_BYTES_MAX` allows, at least
    one."""
    room_bytes, count = RELEASE_BATCH_BYTES_MAX, 0
    for size in sizes:
        room_bytes -= size
        if room_bytes < 0 and count:
            break
        count += 1
    return count


def read_cold(
    store: MessageStore,
    units: Sequence[tuple[int, int]],
    done: Callable[[list[tuple[int, bytes | None]] | BaseException], None],
) -> None:
    """Read and check the records at (log position, size) on the worker; `done` gets (log position, record or None) in the same
    order, or why nothing could be read. None stands for a record that is damaged or gone; one that could not be read, or that another
    copy may have, is left out, for whoever asked to ask again (`left_out`)."""

    def job() -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        problem: OSError | None = None
        for physical, size in units:
            try:
                found.append((physical, read_sound(store.log, physical, size)))
            except OSError as error:
                problem = error
                logger.error("the record at %d cannot be read now: %s", physical, error)
        if problem is not None and not found:
            raise problem
        return found

    def read(found: list[tuple[int, bytes | None]] | BaseException) -> None:
        if isinstance(found, list) and any(record is None for _, record in found):
            there = [one for one in found if one[1] is not None or not store.reads.suspect(one[0])]
            found = there if there else being_fetched(found[0][0])
        done(found)

    store.read_elsewhere(job, read)


def left_out(units: Sequence[int], found: Sequence[tuple[int, Data]]) -> list[int]:
    """Those of the log positions that `read_cold` was given which could not be read."""
    if len(found) == len(units):
        return []
    there = {physical for physical, _ in found}
    return [physical for physical in units if physical not in there]


def may_be_of_level(entry: Dispatched) -> bool:
    """Whether a record that names a source can have been made of a delayed message: that is cheaper to see than to find the
    source. Those made of timer messages carry their slot time and no level."""
    # rfind, because `in` takes four times as long
    return entry.properties.rfind(_TIMER_NAME) < 0 or entry.properties.rfind(_LEVEL_NAME) >= 0


def may_be_of_timer(entry: Dispatched) -> bool:
    """As `may_be_of_level`, for timer messages."""
    return entry.properties.rfind(_LEVEL_NAME) < 0 or entry.properties.rfind(_TIMER_NAME) >= 0


class DueWork(Protocol):
    """Messages that wait for a time."""

    @property
    def next_due_ms(self) -> int | None:
        """Wall time at which the next message is due; None when none is pending."""
        ...

    @property
    def is_releasing(self) -> bool:
        """Whether something that was due is on its way and not visible yet."""
        ...

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        """(delay level or None, log position of the record, due time) of every pending message. For tests and tools: one look
        at an index each."""
        ...

    def clock_moved(self) -> None:
        """The wall clock was set: what is due by it is released with the next turns."""
        ...
