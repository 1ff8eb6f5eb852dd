"""Finding out after a start which timers are pending, whoever stopped how.

Three cases. *Ours*: the journal says what was pending at a position of the log, and the entries behind it say the rest. *Made
again*: journal, wheel or timer log is missing, damaged or of another precision; what is pending comes from the commit log, and every
pending record is linked anew. *Taken over*: RocketMQ wrote last; its checkpoint and its timer log say what it has delivered.

Rules of this file
1. What cannot be believed is reported and not used. Nothing is thrown away before what replaces it can be made again after
   another crash.
2. A journal is believed up to the last position block that the recovered log is known to contain: one up to the recovery mark,
   one written while the machine has been up, one that was synced; when RocketMQ ran, one whose last record still stands in its place.
3. What RocketMQ's checkpoint calls delivered is; what fell due behind it is looked for, see `foreign_deliveries`. A repeat is better
   than a loss.

Source: RocketMQ timer store, recovery; its checkpoint.
"""

from __future__ import annotations

import enum
import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_KNOWN_CANCELS_MAX
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record, sound_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched, DueTime
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import is_sound, store_timestamp_of
from orbitmq.store.recovery import LogScan
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.timer_files.checkpoint import TimerCheckpoint
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, TimerUnit
from orbitmq.timing.timer_files.wheel import NO_POSITION
from orbitmq.timing.timers.facts import facts_of_record
from orbitmq.timing.timers.foreign_deliveries import delivered_by_rocketmq, position_at
from orbitmq.timing.timers.ledger import NO_PRECISION, TimerLedger
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE, FilesAt, JournalPosition, Loaded
from orbitmq.timing.timers.relinking import Relinking

logger = logging.getLogger("orbitmq.timing")

LINK_BATCH: Final = 4_096
"""Records linked at a time."""

LINK_AT_ONCE_MAX: Final = 20_000
"""Pending records that are linked anew before the store serves, in a fifth of a second; more of them wait until it does."""

_CANCELS: Final = f"{Property.TIMER_DEL_UNIQKEY}\x01".encode()
_ROLL_TIMES: Final = f"{Property.TIMER_ROLL_TIMES}\x01".encode()

LinkOf = Callable[[Dispatched], Link | None]
"""How a record of the timer topic is linked; None for one that does not say when it is due."""


class _Way(enum.Enum):
    OURS = "ours"
    RELINK = "relink"
    """What is pending is linked anew."""
    TAKEN_OVER = "taken over"


class _Waiting(NamedTuple):
    """What the files say that RocketMQ wrote last."""

    checkpoint: TimerCheckpoint
    records: array[int]
    """Log positions of the messages in slots that it has not read, ascending."""
    named: list[tuple[int, int]]
    """(slot time, log position) of cancellations in slots that it has not read, whose effect is to come."""
    ours: list[tuple[int, int]]
    """The same of the cancellations of our changes."""
    cancels: set[int]
    """Log positions of cancellations that have a unit."""
    overdue: dict[int, bool]
    """Log position of those whose slot has come -> whether it rolls there."""
    read: set[int]
    """Log positions of messages in slots that it has read, of those that its checkpoint does not call linked."""


class TimerRecovery:
    """One start of one store."""

    def __init__(self, ledger: TimerLedger, link_of: LinkOf, due_time: DueTime) -> None:
        self._ledger = ledger
        self._link_of = link_of
        self._due_time = due_time
        self._way = _Way.OURS
        self._keep_bytes: int | None = None
        """What the journal is to be cut to; None when it stays as it is."""
        self._waiting: _Waiting | None = None
        self._foreign_from = 0
        """Queue offset from which on RocketMQ may have written."""
        self.relinking: Relinking | None = None
        """What is left to do when the store serves."""

    # --- before the entries -------------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """See `Recoverable`."""
        ledger = self._ledger
        ledger.log, ledger.queues = log, queues
        if isinstance(state, dict):
            ledger.cancels.restore(state.get("cancels"))
        loaded = ledger.journal.load(lambda at: self._is_believed(at, log, position))
        if loaded is not None:
            self._report_torn(loaded)
        if position is None:
            needed = self._restore_taken_over(log, loaded)
        else:
            needed = self._restore_ours(log, loaded, state, position)
        ledger.links_wait = self._way is not _Way.OURS
        return needed

    def _is_believed(self, at: JournalPosition, log: CommitLog, position: int | None) -> bool:
        if position is not None:
            is_known = at.synced or at.position <= position or at.boot == self._ledger.boot
            # What finished its timers may have stood in files that retention has removed since.
            return is_known and at.position >= log.start
        if at.position <= log.start:
            return True
        record = log.record(at.witness) if at.witness >= 0 else None
        return (
            record is not None
            and is_sound(record, at.witness)
            and store_timestamp_of(record) == at.witness_ms
            and at.witness + len(record) == at.position
        )

    def _report_torn(self, loaded: Loaded) -> None:
        size = self._ledger.journal.file_bytes
        if loaded.good_bytes < size:
            logger.warning(
                "%s ends in %d bytes that are no whole block: what they said is collected from the log",
                JOURNAL_FILE, size - loaded.good_bytes,
            )  # fmt: skip

    def _restore_ours(self, log: CommitLog, loaded: Loaded | None, state: object, position: int) -> int:
        ledger = self._ledger
        if loaded is None or loaded.at is None:
            if loaded is not None:
                self._keep_bytes = 0
            if state is None:  # no timer was known at the mark; what there is of files is younger
                ledger.position = position
                self._way = _Way.RELINK if ledger.files.on_disk else _Way.OURS
                return position
            why = "is missing" if loaded is None else "cannot be believed"
            ledger.made_again.append(f"{JOURNAL_FILE} {why}")
            logger.error("%s %s: which timers are pending is collected from the log", JOURNAL_FILE, why)
            return self._collect(log)
        at = loaded.at
        self._take(loaded, at)
        self._keep_bytes = loaded.keep_bytes
        if at.precision_ms == NO_PRECISION:
            logger.warning("timers were being linked again when the broker ended: that begins anew")
            self._way = _Way.RELINK
        elif at.precision_ms != ledger.files.precision_ms:
            logger.warning(
                "the precision of timers was %d ms and is %d ms: all that are pending are linked again",
                at.precision_ms, ledger.files.precision_ms,
            )  # fmt: skip
            self._way = _Way.RELINK
        elif at.log_end or ledger.files.on_disk:
            files_at = FilesAt(at.read_ms, at.log_end, at.wheel_end, at.waiting_sum)
            try:
                ledger.files.restore(files_at, at.position)
            except StoreDamagedError as error:
                ledger.made_again.append(str(error))
                logger.error("%s; all pending timers are linked again from the commit log", error)
                self._way = _Way.RELINK
            else:
                self._restore_closed_files(state)
                if ledger.files.made_again:
                    ledger.made_again.append(ledger.files.made_again)
        return at.position

    def _take(self, loaded: Loaded, at: JournalPosition) -> None:
        ledger = self._ledger
        ledger.pending = loaded.pending
        ledger.position, ledger.witness = at.position, (at.witness, at.witness_ms)
        ledger.noted(at)

    def _restore_closed_files(self, state: object) -> None:
        table = state.get("files") if isinstance(state, dict) else None
        if isinstance(table, dict):
            self._ledger.files.closed_files.update({int(base): int(above) for base, above in table.items()})

    def _collect(self, log: CommitLog) -> int:
        """Forget everything: the entries of the whole timer topic say what is pending."""
        ledger, queue = self._ledger, self._queue()
        self._way = _Way.RELINK
        self._keep_bytes = 0
        ledger.position = log.start
        if queue is not None:
            first = queue.first_at(log.start)
            unit = queue.kept_unit(first)
            if unit is not None:
                ledger.position = max(unit[0], log.start)
                ledger.pending.next_offset = first
        return ledger.position

    def _queue(self) -> ConsumeQueue | None:
        assert self._ledger.queues is not None
        return self._ledger.queues.get(TIMER_TOPIC, 0)

    # --- RocketMQ wrote last ------------------------------------------------------------------------------------------

    def _restore_taken_over(self, log: CommitLog, loaded: Loaded | None) -> int:
        ledger, queue = self._ledger, self._queue()
        needed = log.end_of_files
        if queue is None and loaded is None and not ledger.files.on_disk:
            return needed
        self._way = _Way.TAKEN_OVER
        self._keep_bytes = None if loaded is None else 0
        if loaded is not None and loaded.at is not None:
            self._take(loaded, loaded.at)
            needed, self._foreign_from = ledger.position, ledger.pending.next_offset
        elif queue is not None:
            first = queue.first_at(log.start)
            ledger.pending.next_offset = first
            ledger.pending.add_range(first, queue.max_offset)
            ledger.position = max(queue.max_physical, log.start)
        self._waiting = self._read_foreign()
        return needed

    def _read_foreign(self) -> _Waiting | None:
        """What RocketMQ has not delivered, from its files; None when they cannot be used."""
        files, now_ms = self._ledger.files, self._ledger.clock.now_ms()
        checkpoint = files.read_checkpoint()
        records, cancels, overdue = array("q"), set[int](), dict[int, bool]()
        named: list[tuple[int, int]] = []
        ours: list[tuple[int, int]] = []
        read, unlinked_from = set[int](), self._position_of(_unlinked(checkpoint))
        highest, ascending = -1, True
        if files.on_disk:
            try:
                for unit in files.take_over(checkpoint):
                    if unit.is_void:
                        continue
                    physical = unit.physical_offset
                    if unit.is_delete:
                        cancels.add(physical)
                        if unit.slot_ms >= checkpoint.last_read_time_ms:
                            (ours if unit.deliver_ms else named).append((unit.slot_ms, physical))
                    elif unit.slot_ms >= checkpoint.last_read_time_ms:
                        records.append(physical)
                        ascending = ascending and physical > highest
                        highest = max(highest, physical)
                        if unit.slot_ms <= now_ms:
                            overdue[physical] = unit.is_roll
                    elif physical >= unlinked_from:
                        read.add(physical)
            except StoreDamagedError as error:
                logger.error(
                    "%s; all timers that RocketMQ has not delivered are linked again from the commit log", error
                )
                return None
        if not ascending:
            records = array("q", sorted(records))
        return _Waiting(checkpoint, records, named, ours, cancels, overdue, read)

    # --- a chain that is broken ---------------------------------------------------------------------------------------

    def units_of(self, slot_ms: int) -> list[TimerUnit]:
        """Every unit of a slot, in log order, although its chain is broken: from the whole timer log, and for pending records whose
        units are damaged from the commit log. 0.7 us a unit and 5 us a pending record: on the worker."""
        ledger = self._ledger
        found = {unit.physical_offset: unit for unit in ledger.files.units_of(slot_ms)}
        first = ledger.pending.first_pending
        for offset, entry in self._records(first) if first is not None else ():
            if entry.physical_offset in found or not ledger.pending.is_pending(offset):
                continue
            link = self._link_of(entry)
            if link is not None and ledger.files.floor(link.slot_ms) == slot_ms:
                found[entry.physical_offset] = TimerUnit(NO_POSITION, NO_POSITION, link.magic, slot_ms, 0, *link[2:])
        return [found[physical] for physical in sorted(found)]

    # --- after the entries --------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All entries up to the end of the log have been told. Raises OSError."""
        self._finish()
        self._ledger.is_starting = False

    def _finish(self) -> None:
        ledger = self._ledger
        assert ledger.log is not None
        queue = self._queue()
        end = 0 if queue is None else queue.max_offset
        if ledger.pending.next_offset > end:
            raise StoreDamagedError(
                f"{JOURNAL_FILE} speaks of {ledger.pending.next_offset} timer messages, the log holds {end}",
                remedy=f"move {JOURNAL_FILE} away: it is made again from the log",
            )
        ledger.position = min(ledger.position, ledger.log.end)
        ledger.links_wait = False
        if ledger.pending.next_offset:
            ledger.files.raise_fence()
        if self._way is _Way.OURS:
            lost = ledger.files.unlink_beyond(ledger.log.end)
            if lost:
                logger.warning("%d timers were unlinked whose records the log has lost", lost)
            if self._keep_bytes is not None:
                ledger.journal.cut(self._keep_bytes)
            return
        if self._way is _Way.TAKEN_OVER:
            self._finish_taken_over()
        else:
            self._relink_all()
        ledger.rewrite()

    def _relink_all(self) -> None:
        """Make the files again, with everything that is pending."""
        ledger = self._ledger
        if self._keep_bytes is not None:
            # Until the new files are complete nothing may speak for the old ones.
            ledger.journal.cut(0)
        ledger.files.forget()
        first = ledger.pending.first_pending
        if first is None:
            return
        if ledger.pending.count > LINK_AT_ONCE_MAX:
            self.relinking = Relinking(ledger, first, ledger.pending.next_offset, self._unlinked)
        else:
            count = self._link_from(first)
            logger.warning("%d timers were linked again from the commit log", count)

    def _link_from(self, first: int) -> int:
        """Link what has no unit: pending records from queue offset `first` on, and cancellations. Returns how many."""
        ledger, count = self._ledger, 0
        batch: list[Link] = []
        for offset, entry in self._records(first):
            link = self._new_link(offset, entry)
            if link is None:
                continue
            batch.append(link)
            if len(batch) >= LINK_BATCH:
                count += len(batch)
                ledger.link(batch)
                ledger.files.write()
                batch = []
        if batch:
            ledger.link(batch)
        return count + len(batch)

    def _new_link(self, offset: int, entry: Dispatched) -> Link | None:
        """None when the record needs no unit."""
        link = self._link_of(entry)
        if self._ledger.pending.is_pending(offset):
            if link is None:  # it is taken at once, and goes to quarantine
                return Link(0, DEFAULT, entry.physical_offset, entry.size, 0, 0)
            if link.magic & DELETE:
                self._ledger.pending.finish(offset)
            return link
        return link if link is not None and link.magic & DELETE and not entry.prepared_transaction_offset else None

    def _unlinked(self, first: int, end: int) -> list[tuple[Dispatched, Link]]:
        found: list[tuple[Dispatched, Link]] = []
        for offset, entry in self._records(first, end):
            link = self._new_link(offset, entry)
            if link is not None:
                found.append((entry, link))
        return found

    def _records(self, first: int, end: int | None = None) -> Iterator[tuple[int, Dispatched]]:
        """(queue offset, entry without keys) of the records of the timer topic from `first` on, before `end`. 3 us each."""
        log, queue = self._ledger.log, self._queue()
        if log is None or queue is None:
            return
        first = max(first, queue.first_kept(first))
        is_pending = self._ledger.pending.is_pending
        end = queue.max_offset if end is None else end
        for offset, (physical, size, tags_code) in enumerate(queue.scan(first, end), first):
            view = log.read(physical, size)
            record = None if view is None else sound_record(bytes(view), physical)
            if record is not None:
                yield (
                    offset,
                    Dispatched(
                        physical,
                        size,
                        TIMER_TOPIC,
                        0,
                        offset,
                        tags_code,
                        record.store_timestamp,
                        None,
                        None,
                        record.sys_flag,
                        record.prepared_transaction_offset,
                        record.properties,
                    ),
                )
            elif is_pending(offset):
                # Nothing is left of it but its place: it is taken at once, found damaged, and goes to quarantine.
                yield offset, Dispatched(physical, size, TIMER_TOPIC, 0, offset, 0, 0, None, None, 0, 0, b"")

    def _finish_taken_over(self) -> None:
        ledger, waiting = self._ledger, self._waiting
        if waiting is None:
            self._drop_read_ones(ledger.files.read_checkpoint())
            self._relink_all()
            return
        unlinked, linked_until = _unlinked(waiting.checkpoint), ledger.files.linked_until
        self._keep_waiting(waiting, unlinked)
        lost = ledger.files.unlink_beyond(_log_end(ledger))
        if lost:
            logger.warning("%d timers were unlinked whose records the log has lost", lost)
        self._read_cancels(sorted(waiting.named))
        self._take_back_copies(waiting, unlinked)
        for physical in self._delivered(waiting, unlinked):
            offset = ledger.offset_of_source(physical)
            if offset is not None:
                ledger.pending.finish(offset)
        if not ledger.files.read_ms:
            slots = [slot_ms for slot_ms, _ in ledger.files.slots()]
            ledger.files.read_until(min(slots, default=ledger.clock.now_ms()))
        self._link_passed_over(waiting, unlinked, min(linked_until, ledger.files.linked_until))
        self._link_from(unlinked)
        logger.info("%d timers of RocketMQ are pending", ledger.pending.count)

    def _read_cancels(self, named: list[tuple[int, int]]) -> None:
        """Know whom cancel records name, the first slots first, before anything is delivered. 20 us each."""
        ledger = self._ledger
        assert ledger.log is not None
        for _, physical in named:
            if ledger.cancels.is_full:
                return
            view = ledger.log.record(physical)
            if view is not None and is_sound(view, physical):
                ledger.cancels.add(facts_of_record(decode_record(view, body=False), ledger.files.precision_ms))

    def _take_back_copies(self, waiting: _Waiting, unlinked: int) -> None:
        """Call no copy pending that RocketMQ made of a message that was recalled or moved. In the slot from which they hop it
        copies the message and then the cancel record, and may stop between the two. 20 us for each cancel record."""
        ledger = self._ledger
        assert ledger.log is not None
        waiting_ones = sorted(waiting.ours + waiting.named)[:TIMER_KNOWN_CANCELS_MAX]
        places = [physical for _, physical in waiting_ones]
        places += [entry.physical_offset for _, entry in self._records(unlinked) if _CANCELS in entry.properties]
        copies = self._copies() if places else {}
        for physical in places if copies else ():
            view = ledger.log.record(physical)
            if view is None or not is_sound(view, physical):
                continue
            values = decode_properties(decode_record(view, body=False).properties)
            slot, named = values.get(Property.TIMER_OUT_MS, ""), values.get(Property.TIMER_DEL_UNIQKEY, "")
            for offset in copies.pop((slot, named), ()):
                ledger.cancels.add_named(int(slot), named)  # for a start that has to ask the log
                ledger.pending.finish(offset)

    def _copies(self) -> dict[tuple[str, str], list[int]]:
        """Slot time and `topic+unique key` of the pending messages that RocketMQ has let hop, and their queue offsets."""
        found: dict[tuple[str, str], list[int]] = {}
        for offset, entry in self._records(self._foreign_from):
            if _ROLL_TIMES in entry.properties and self._ledger.pending.is_pending(offset):
                values = decode_properties(entry.properties)
                slot, key = values.get(Property.TIMER_OUT_MS, ""), values.get(Property.UNIQ_KEY)
                if key and slot.isascii() and slot.isdigit() and len(slot) <= 18:
                    found.setdefault((slot, cancel_key(values.get(Property.REAL_TOPIC, ""), key)), []).append(offset)
        return found

    def _keep_waiting(self, waiting: _Waiting, unlinked: int) -> None:
        """Of what is pending by the log, keep what RocketMQ has not delivered."""
        ledger, queue = self._ledger, self._queue()
        if queue is None:
            return
        records, cancels, read = waiting.records, waiting.cancels, waiting.read
        pending, at = ledger.pending, 0
        for first, end in _runs(pending.offsets()):
            start = queue.first_kept(first)
            if start > first:  # of retention, or of a lost file
                logger.error("the records of %d timers that were pending are gone", min(start, end) - first)
                pending.finish_range(first, start)
            for offset, (physical, _, _) in enumerate(queue.scan(start, end), start):
                at = bisect_left(records, physical, at)
                is_kept = at < len(records) and records[at] == physical
                if not is_kept and (offset < unlinked or physical in read or physical in cancels):
                    pending.finish(offset)

    def _link_passed_over(self, waiting: _Waiting, unlinked: int, linked_until: int) -> None:
        """What was due when RocketMQ came upon it gets no unit there, but is delivered beside the linking of others: it may be
        pending still, with units of later ones behind it."""
        ledger, records = self._ledger, waiting.records
        links: list[Link] = []
        for offset, entry in self._records(unlinked):
            if entry.physical_offset >= linked_until:
                break
            at = bisect_left(records, entry.physical_offset)
            has_unit = at < len(records) and records[at] == entry.physical_offset
            link = None if has_unit or not ledger.pending.is_pending(offset) else self._new_link(offset, entry)
            if link is not None:
                links.append(link)
        if links:
            now_ms = ledger.clock.now_ms()
            ledger.files.link(min(ledger.files.read_ms or now_ms, now_ms), links, again=True)

    def _drop_read_ones(self, checkpoint: TimerCheckpoint) -> None:
        """Without units: what asked for a slot that RocketMQ has read, and was linked, is delivered."""
        ledger, files = self._ledger, self._ledger.files
        first = ledger.pending.first_pending
        if first is None:
            return
        for offset, entry in self._records(first):
            link = self._link_of(entry)
            was_linked = offset < checkpoint.last_timer_queue_offset
            if was_linked and link is not None and files.floor(link.slot_ms) < checkpoint.last_read_time_ms:
                ledger.pending.finish(offset)

    def _delivered(self, waiting: _Waiting, unlinked: int) -> list[int]:
        """Of the records whose slots had come, those that RocketMQ delivered before it crashed."""
        ledger = self._ledger
        log = ledger.log
        assert log is not None
        overdue = {physical: is_roll for physical, is_roll in waiting.overdue.items() if self._is_pending(physical)}
        now_ms = ledger.clock.now_ms()
        for offset, entry in self._records(unlinked):
            link = self._link_of(entry)
            if link is not None and link.slot_ms <= now_ms and ledger.pending.is_pending(offset):
                overdue.setdefault(entry.physical_offset, bool(link.magic & ROLL))
        if not overdue:
            return []
        start = max(min(overdue), position_at(log, waiting.checkpoint.last_read_time_ms))
        return delivered_by_rocketmq(log, overdue, LogScan(log, start, self._due_time))

    def _position_of(self, queue_offset: int) -> int:
        """Log position of a record of the timer topic, or of the first that is there behind it; the end of the log when none is."""
        queue, log = self._queue(), self._ledger.log
        assert log is not None
        unit = None if queue is None else queue.kept_unit(queue.first_kept(queue_offset))
        return log.end_of_files if unit is None else unit[0]

    def _is_pending(self, physical: int) -> bool:
        offset = self._ledger.offset_of_source(physical)
        return offset is not None and self._ledger.pending.is_pending(offset)


def _unlinked(checkpoint: TimerCheckpoint) -> int:
    """Queue offset of the first record that RocketMQ has perhaps not linked."""
    return min(checkpoint.last_timer_queue_offset, checkpoint.master_timer_queue_offset)


def _log_end(ledger: TimerLedger) -> int:
    assert ledger.log is not None
    return ledger.log.end


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, end) of runs of ascending offsets."""
    first = end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    if first >= 0:
        yield first, end
