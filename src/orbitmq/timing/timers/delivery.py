"""Taking what is due: one last look at its record, then the message, a hop, or the cancellation is appended.

Rules of this file
1. The record decides. One that is not pending any more is passed over; one whose time has not come goes back to its slot under
   the right time, or hops on when that lies beyond its slot. So nothing is ever early, whatever a unit says.
2. Whoever a cancel record names that is known is cancelled, from whatever slot it was taken.
3. Taken is leaving: a message whose record waits to be written, or to be synced, is not taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import RecordError
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import QUEUE_OFFSET_AT, decode_record
from orbitmq.store.message import EncodedMessage, NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import Data, Release, count_in_turn
from orbitmq.timing.timers.changes import recall
from orbitmq.timing.timers.delivered_records import deliver, encoded_deliveries, roll, stored_due_ms
from orbitmq.timing.timers.facts import TimerFacts, facts_of_record
from orbitmq.timing.timers.leaving import Leaving, LeavingTimers
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.read_ahead import ReadAhead
from orbitmq.timing.timers.slots import DueUnit, NearSlots

_PLACE: Final = Struct(">qq")
"""Queue offset and log position, as they stand in a record."""
_PLACE_END: Final = QUEUE_OFFSET_AT + _PLACE.size

HOLD_MS: Final = 1_000
"""How long a message that cannot hop now is left alone."""

_new = tuple.__new__
"""Makes a named tuple in half the time."""

_CANCELS: Final = f"{Property.TIMER_DEL_UNIQKEY}\x01".encode()


class Delivery:
    """Of the timers of one store."""

    def __init__(
        self,
        ledger: TimerLedger,
        near: NearSlots,
        leaving: LeavingTimers,
        read_ahead: ReadAhead,
        clock: Clock,
        precision_ms: int,
    ) -> None:
        self._ledger = ledger
        self._near = near
        self._leaving = leaving
        self._read_ahead = read_ahead
        self._clock = clock
        self._precision_ms = precision_ms
        self._hops: set[int] = set()
        self._cancelled: set[int] = set()
        """Log positions of what was taken and is not to be delivered."""
        self._held: list[DueUnit] = []
        """Units that the wheel has no later place for: it still has to be read from so long ago."""
        self._held_until_ms = 0
        self.release = Release("timer message", self._restored)

    @property
    def held_due_ms(self) -> int | None:
        """Due time of the first unit that the wheel has no place for."""
        return min((unit.due_ms for unit in self._held), default=None)

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
        if self._held and not 0 <= self._held_until_ms - now_ms <= HOLD_MS:
            held, self._held = self._held, []
            for unit in held:
                self._near.give_back(unit)
        read_ahead = self._read_ahead
        units = self._near.take(now_ms, limit, read_ahead.is_ready, read_ahead.warm_from)
        if not units:
            return 0
        positions = [unit.physical_offset for unit in units]
        try:
            records = read_ahead.take(store, positions)
        except OSError:  # the alarm tries again
            for unit in units:
                self._near.give_back(unit)
            raise
        count = count_in_turn(0 if data is None else len(data) for data in records)
        if count < len(units):
            for unit in units[count:]:
                self._near.give_back(unit)
            for unit, data in zip(units[count:], records[count:], strict=False):  # not all of them were read
                read_ahead.keep(unit.physical_offset, data)
            units, positions, records = units[:count], positions[:count], records[:count]
        found = encoded_deliveries(records, positions, self._precision_ms)
        if len(set(positions)) < len(positions):  # linked twice: each is looked at for itself
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
                if (
                    not next(pending)
                    or due_ms > now_ms
                    or may_name(unit.slot_ms, due_ms)
                    or leaving.get(physical_offset) is not None
                ):
                    row = None
            if row is not None:
                known.append((physical_offset, _new(Leaving, (queue_offset, due_ms, unit, None))))
            else:
                try:
                    if not self._may_leave(unit, data, now_ms):
                        continue
                except OSError as error:  # nothing is known of this one now; the others leave
                    self._near.give_back(unit)
                    failure = error
                    continue
            taken.append((physical_offset, data))
            rows.append(row)
        leaving.add_many(known)
        if taken:
            self.release.put(store, taken, written, untake, rows)
            self._hops.clear()
            self._cancelled.clear()
        elif failure is not None:
            raise failure  # the alarm tries again
        return len(taken)

    def _may_leave(self, unit: DueUnit, data: Data, now_ms: int) -> bool:
        """Raises OSError before anything has changed."""
        physical_offset = unit.physical_offset
        queue_offset = self._queue_offset(data, physical_offset)
        if queue_offset is None or not self._ledger.pending.is_pending(queue_offset):
            if queue_offset is None or not self._is_far_cancel(data, unit, now_ms):
                self._near.finish(unit.slot_ms)
                return False
            self._hops.add(physical_offset)
        if self._leaving.get(physical_offset) is not None:
            if not self._leaving.fell_due(physical_offset, unit):  # linked twice
                self._near.finish(unit.slot_ms)
            return False
        due_ms = self._due_ms(unit, data)
        if physical_offset not in self._hops and data is not None and self._is_cancelled(unit, due_ms, data):
            self._cancelled.add(physical_offset)
        elif due_ms > now_ms and physical_offset not in self._hops:
            if due_ms <= unit.slot_ms + self._precision_ms:
                self._near.give_back(unit, due_ms)
                self._read_ahead.keep(physical_offset, data)
                return False
            if not self._can_hop(unit, due_ms, now_ms):
                self._held.append(unit)
                self._held_until_ms = now_ms + HOLD_MS
                return False
            self._hops.add(physical_offset)
        self._leaving.add(physical_offset, Leaving(queue_offset, due_ms, unit))
        return True

    def _can_hop(self, unit: DueUnit, due_ms: int, now_ms: int) -> bool:
        """Whether the wheel has a later slot for a message; hops on the spot would only fill the log."""
        slot_ms, _ = self._ledger.files.place(due_ms - 1, now_ms)
        return slot_ms > unit.slot_ms

    def _queue_offset(self, data: Data, physical_offset: int) -> int | None:
        if data is not None and len(data) >= _PLACE_END:  # a damaged one may be of any size
            queue_offset, position = _PLACE.unpack_from(data, QUEUE_OFFSET_AT)
            if position == physical_offset:
                return int(queue_offset)
        return self._ledger.offset_of_source(physical_offset)

    def _due_ms(self, unit: DueUnit, data: Data) -> int:
        """When the record says its time comes; what the unit says when it does not say."""
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

    def _is_cancelled(self, unit: DueUnit, due_ms: int, data: memoryview | bytes) -> bool:
        if not self._ledger.cancels.may_name(unit.slot_ms, due_ms):
            return False
        try:
            return self._ledger.cancels.name(decode_properties(decode_record(data, body=False).properties))
        except RecordError:  # its release says so
            return False

    def _is_far_cancel(self, data: Data, unit: DueUnit, now_ms: int) -> bool:
        """Whether this is a cancel record on its way to a slot that is too far for the wheel."""
        if data is None or _CANCELS not in bytes(data):
            return False
        facts = self._facts(data)
        return (
            facts is not None and facts.is_cancel and facts.deliver_ms > max(unit.slot_ms + self._precision_ms, now_ms)
        )

    def _restored(self, data: memoryview | bytes) -> NewMessage:
        if self._hops or self._cancelled:
            _, physical_offset = _PLACE.unpack_from(data, QUEUE_OFFSET_AT)
            if physical_offset in self._hops:
                return roll(decode_record(data))
            if physical_offset in self._cancelled:
                return recall(decode_record(data), self._clock.now_ms())[0]
        return deliver(data)
