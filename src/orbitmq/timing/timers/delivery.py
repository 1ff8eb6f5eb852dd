"""Taking what is due: one last look at its record, then the message, or its cancellation, is appended.

Rules of this file
1. The record decides. One that is not pending any more is passed over; one whose time has not come goes back under the right time. So
   nothing is ever early, whatever a run says.
2. A message that a known cancel record names is cancelled when its time comes.
3. What was taken is *leaving* until the log says so or the append failed: it is not taken a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import RecordError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import QUEUE_OFFSET_AT, decode_record
from orbitmq.store.message import EncodedMessage, NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import Data, Release, count_in_turn
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.delivered_records import deliver, encoded_deliveries, stored_due_ms
from orbitmq.timing.timers.facts import TimerFacts, facts_of_record
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.read_ahead import ReadAhead
from orbitmq.timing.timers.soon import DueTimer, SoonTimers

_PLACE: Final = Struct(">qq")
"""Queue offset and log position, as they stand in a record."""
_PLACE_END: Final = QUEUE_OFFSET_AT + _PLACE.size

_new = tuple.__new__
"""Makes a named tuple in half the time."""


class Delivery:
    """Appends what is due, or its cancellation, for the timers of one store."""

    def __init__(
        self,
        ledger: TimerLedger,
        soon: SoonTimers,
        leaving: LeavingTimers,
        read_ahead: ReadAhead,
        clock: Clock,
        precision_ms: int,
    ) -> None:
        self._ledger = ledger
        self._soon = soon
        self._leaving = leaving
        self._read_ahead = read_ahead
        self._clock = clock
        self._precision_ms = precision_ms
        self._cancelled: set[int] = set()
        """Log positions of what was taken and is not to be delivered."""
        self.release = Release("timer message", self._restored)

    def leave(
        self,
        store: MessageStore,
        now_ms: int,
        limit: int,
        written: Callable[[], None],
        untake: Callable[[Sequence[int]], None],
    ) -> int:
        """Append what is due, at most `limit` messages and as many bytes as one turn takes; the store's next commit writes them. See
        `Release.put`. Raises OSError when nothing could be read or looked up; then nothing was taken."""
        read_ahead = self._read_ahead
        units = self._soon.take(now_ms, limit, read_ahead.is_ready, read_ahead.warm_from)
        if not units:
            return 0
        positions = [unit.physical_offset for unit in units]
        try:
            records = read_ahead.take(store, positions)
        except OSError:  # the alarm tries again
            for unit in units:
                self._soon.give_back(unit)
            raise
        count = count_in_turn(0 if data is None else len(data) for data in records)
        if count < len(units):
            for unit in units[count:]:
                self._soon.give_back(unit)
            for unit, data in zip(units[count:], records[count:], strict=False):  # not all of them were read
                read_ahead.keep(unit.physical_offset, data)
            units, positions, records = units[:count], positions[:count], records[:count]
        found = encoded_deliveries(records, positions, self._precision_ms)
        if len(set(positions)) < len(positions):  # one of them twice: each is looked at for itself
            found = [None] * len(found)
        leaving, may_name = self._leaving, self._ledger.cancels.may_name
        pending = iter(self._ledger.pending.are_pending([row[1] for row in found if row is not None]))
        taken: list[tuple[int, Data]] = []
        rows: list[EncodedMessage | None] = []
        known: list[tuple[int, Leaving]] = []
        failure: OSError | None = None
        for unit, data, one in zip(units, records, found, strict=True):
            row, physical_offset = None, unit.physical_offset
            if one is not None:
                row, queue_offset, due_ms = one
                if not next(pending) or due_ms > now_ms or may_name(due_ms) or leaving.get(physical_offset) is not None:
                    row = None
            if row is not None:
                known.append((physical_offset, _new(Leaving, (queue_offset, due_ms, unit, None))))
            else:
                try:
                    if not self._may_leave(unit, data, now_ms):
                        continue
                except OSError as error:  # nothing is known of this one now; the others leave
                    self._soon.give_back(unit)
                    failure = error
                    continue
            taken.append((physical_offset, data))
            rows.append(row)
        leaving.add_many(known)
        if taken:
            self.release.put(store, taken, written, untake, rows)
            self._cancelled.clear()
        elif failure is not None:
            raise failure  # the alarm tries again
        return len(taken)

    def _may_leave(self, unit: DueTimer, data: Data, now_ms: int) -> bool:
        """Raises OSError before anything has changed."""
        physical_offset = unit.physical_offset
        queue_offset = self._queue_offset(data, physical_offset)
        if queue_offset is None or not self._ledger.pending.is_pending(queue_offset):
            return False
        if self._leaving.get(physical_offset) is not None:
            self._leaving.fell_due(physical_offset, unit)
            return False
        due_ms = self._due_ms(unit, data)
        if data is not None and self._is_cancelled(due_ms, data):
            self._cancelled.add(physical_offset)
        elif due_ms > now_ms:
            self._soon.give_back(unit, due_ms)
            self._read_ahead.keep(physical_offset, data)
            return False
        self._leaving.add(physical_offset, Leaving(queue_offset, due_ms, unit))
        return True

    def _queue_offset(self, data: Data, physical_offset: int) -> int | None:
        if data is not None and len(data) >= _PLACE_END:  # a damaged one may be of any size
            queue_offset, position = _PLACE.unpack_from(data, QUEUE_OFFSET_AT)
            if position == physical_offset:
                return int(queue_offset)
        return self._ledger.offset_of_source(physical_offset)

    def _due_ms(self, unit: DueTimer, data: Data) -> int:
        """When the record says its time comes; what the run says when it does not say."""
        if data is None:
            return unit.due_ms
        due_ms = stored_due_ms(data, self._precision_ms)
        if due_ms is None:
            facts = self._facts(data)
            due_ms = unit.due_ms if facts is None else facts.deliver_ms
        return due_ms

    def _facts(self, data: memoryview | bytes) -> TimerFacts | None:
        try:
            return facts_of_record(decode_record(data, body=False), self._precision_ms)
        except RecordError:
            return None

    def _is_cancelled(self, due_ms: int, data: memoryview | bytes) -> bool:
        if not self._ledger.cancels.may_name(due_ms):
            return False
        try:
            return self._ledger.cancels.name(decode_properties(decode_record(data, body=False).properties))
        except RecordError:  # its release says so
            return False

    def _restored(self, data: memoryview | bytes) -> NewMessage:
        if self._cancelled:
            _, physical_offset = _PLACE.unpack_from(data, QUEUE_OFFSET_AT)
            if physical_offset in self._cancelled:
                return recall(decode_record(data), self._clock.now_ms())[0]
        return deliver(data)
