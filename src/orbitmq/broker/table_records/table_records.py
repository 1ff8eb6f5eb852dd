"""The tables of a broker in its log: a copy that has the bytes of the log has the tables.

Whoever leads records what changes while a copy follows (`copy_follows`), beginning with everything that the tables hold: `end_turn`
appends what is to be known at once, so that a record is in the same write as the messages of its turn; tables that change all the time
are gathered, and recorded once a second. Everybody learns what holds from `apply`. The files of the tables are caches then, for a quick
look and for RocketMQ. Without a copy they are all there is, and no table keeps a file of the log.

At a start the files are loaded, and compared with the log (`bind`): where this program wrote last, the log has the last word, and a file
that is newer than it was saved just before a crash, or edited by somebody; where RocketMQ wrote last, the files have it. What the log
does not say yet is recorded anew.

Rules of this file
1. What holds is learnt in the order of the log, when it is confirmed; only a table's own change is known before, to itself.
2. A change that could not be appended, or whose write failed, is recorded with the next one, or a little later.
3. The last word on a key stays in the log: keys are recorded anew before retention takes their file, a bounded number a turn, and the
   file is needed until that is confirmed.
4. A record that cannot be read is reported, and stays where it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from orbitmq.broker.table_records.changes import OutlivingTable, OwnTable, RecordedTable, nobody_notes, note_unsaid
from orbitmq.broker.table_records.full_disk import FullDisk
from orbitmq.broker.table_records.identity import StoreIdentity
from orbitmq.broker.table_records.last_words import Key, LastWords, Place, UnsureKeys, first_keys
from orbitmq.broker.table_records.queue_ends import RecordedQueueEnds
from orbitmq.broker.table_records.record_form import (
    Changed,
    Dropped,
    Ended,
    Record,
    change_parts,
    encode_dropped,
    encode_ended,
    record_bytes_max,
)
from orbitmq.broker.table_records.recovered import RecoveredTable
from orbitmq.broker.table_records.waiting import OnRecorded, RecordWaiters, not_recorded, when_confirmed
from orbitmq.broker.table_records.word_reading import WordReading
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, RecordError, StoreUnwritableError
from orbitmq.limits.broker import (
    TABLE_GATHERING_NS,
    TABLE_KEYS_PER_TURN_MAX,
    TABLE_KEYS_REWRITTEN_MAX,
    TABLE_MOVING_PAUSE_NS,
    TABLE_RECORDS_PER_TURN_MAX,
    TABLE_RETRY_NS,
)
from orbitmq.protocol.names import TABLES_TOPIC
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.broker")

WAKEUP: Final = "table records"

TopicEnded = Callable[[str, int], None]
"""Told of a topic that somebody else deleted, and of the log position before which its messages count no more."""


class TableRecords:
    """Hand it to `open_store` as a derived structure, before those that hear of deleted topics; then `bind` the tables, and `attach` the
    store where this broker leads."""

    name = "tables"

    def __init__(
        self, clock: Clock, identity: StoreIdentity | None = None, own_tables: Sequence[OwnTable] = ()
    ) -> None:
        """`own_tables` are bound as soon as the log is read."""
        self._clock = clock
        self._identity: Final = identity
        self._own_tables = own_tables
        self._words = LastWords()
        self.reading: Final = WordReading(self._words)
        self._queues: ConsumeQueues | None = None
        self._recovered: dict[str, RecoveredTable] = {}
        self._tables: dict[str, RecordedTable] = {}
        self._store: MessageStore | None = None
        self._last_store: MessageStore | None = None
        self._is_running = False
        self._at_once: dict[str, None] = {}
        """Tables with changes that are recorded at the end of this turn."""
        self._gathered: dict[str, None] = {}
        """Tables with changes that are recorded within a second."""
        self._gather_due_ns: int | None = None
        """When these are recorded."""
        self._to_drop: dict[str, None] = {}
        """Tables of which the log is to say that it knows them no more."""
        self._is_followed: bool | None = None
        """Whether a copy is to find the tables in the log; None: as it was when the log was written."""
        self._own: dict[int, tuple[str, list[str], list[str]]] = {}
        """What this process appended and is not confirmed yet: log position -> table, keys with a value, keys without."""
        self._waiting = RecordWaiters()
        self._full_disk = FullDisk(self.copy_follows, self._record_drops, self._wake_within)
        self._is_behind = False
        """That changes could not be appended was reported."""
        self._move_below = 0
        """Keys whose last word lies below this log position are recorded anew."""
        self._end = 0
        """Log position behind the newest record of ours."""
        self._ends: RecordedQueueEnds | None = None
        self._unsure = UnsureKeys(self._words)
        self._outliving: list[OutlivingTable] = []
        """Tables that say what is known of records that are gone."""
        self.ended: list[TopicEnded] = []

    # --- what the log says (Derived, Recoverable) -------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        """Costs a comparison for a batch without records of tables."""
        queue = None if self._queues is None else self._queues.get(TABLES_TOPIC, 0)
        if queue is None or queue.max_offset <= self._words.next_offset:
            return
        for entry in entries:
            if entry.topic == TABLES_TOPIC and entry.queue_offset >= self._words.next_offset:
                place = Place(entry.queue_offset, entry.physical_offset, entry.size)
                own = self._own.pop(entry.physical_offset, None)
                if own is None or not self._takes_changes:  # a copy may have taken back what came after its own record
                    self._read(place)
                else:
                    self._words.next_offset = entry.queue_offset + 1
                    self._words.said(*own, place)
        if self._ends is not None:
            self._ends.settle()

    def write(self) -> None:
        """Nothing waits in memory: everything is a record of the log."""

    def begin_sync(self) -> None:
        """As `write`."""

    def datasync(self) -> None:
        if self._identity is not None and self._is_identified and (self._store is not None or self.log_id):
            self._identity.save()  # a copy that has received nothing yet is going to be what its log says
        for table in self._own_tables:
            table.save()

    def state(self) -> object:
        """What the recovery mark keeps: where to read from."""
        return {"first": self._words.first_offset()}

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """As `Recoverable.restore`. Costs about 25 us for each record that is read, and those with many keys more."""
        self.reading.log, self._queues = log, queues
        needed = log.end_of_files if position is None else position
        queue = queues.get(TABLES_TOPIC, 0)
        if queue is None:
            return needed
        saved: dict[str, Any] = state if isinstance(state, dict) else {}
        first = 0 if position is None else int(saved.get("first", 0))
        if first < queue.min_offset and first:
            logger.error("%d records of tables are gone", queue.min_offset - first)
        first = self._words.next_offset = max(first, queue.min_offset)
        for offset, (physical, size, _) in enumerate(queue.scan(first, queue.max_offset), first):
            if physical >= needed:
                break
            self._read(Place(offset, physical, size))
        return needed

    def finish_restore(self) -> None:
        self._is_running = True
        assert self._queues is not None, "restore() comes first"
        self._ends = RecordedQueueEnds(self.reading, self._queues)
        self.bind(self._ends)
        self._ends.settle()
        for table in (*self._own_tables, *([] if self._identity is None else [self._identity])):
            self.bind(table)

    @property
    def _is_identified(self) -> bool:
        """Whether the log says which store this is."""
        return self._identity is not None and not self._identity.changes

    def _read(self, place: Place) -> None:
        """Take in a record that somebody else appended, or this program before it was started."""
        self._words.next_offset = place.queue_offset + 1
        try:
            self._learn(self.reading.record_at(place), place)
        except (RecordError, msgspec.ValidationError, ValueError) as error:
            self.reading.unreadable_count += 1
            logger.error(
                "record %d of the tables: %s", place.queue_offset, error, extra={"event": "table_record_unread"}
            )

    def _learn(self, record: Record, place: Place) -> None:
        match record:
            case Changed():
                self._words.said(record.table, list(record.put), list(record.deleted), place)
                table = self._tables.get(record.table)
                if table is None:
                    self._recovered.setdefault(record.table, RecoveredTable()).take(record)
                else:
                    if not table.changes.is_on and table is not self._identity:
                        self._begin(table)
                    table.changes.discard((*record.put, *record.deleted))
                    table.take(record.values(), record.data_version())
                    if table is self._identity:
                        self._settle_unsure()
            case Dropped():
                self._words.forget_table(record.table)
                self._recovered.pop(record.table, None)
            case Ended():
                if self._is_running:
                    for ended in self.ended:
                        ended(record.topic, place.physical_offset)

    # --- tables -----------------------------------------------------------------------------------------------------

    def bind(self, table: RecordedTable, *, others_wrote: bool = False) -> None:
        """The table is loaded from its file: bring it and the log together. `others_wrote`: RocketMQ wrote the store last, and its files
        are the truth."""
        name = table.record_name
        self._tables[name] = table
        if isinstance(table, OutlivingTable):
            self._outliving.append(table)
        found = self._recovered.pop(name, None)
        if found is None and not self._is_followed:
            return
        table.changes.begin(nobody_notes if table is self._identity else partial(self._noted, table))
        unrecorded: list[str] = []
        if found is None:
            unrecorded = list(table.recorded_keys())
        else:
            keys = dict.fromkeys([*table.recorded_keys(), *found.values])
            differing = [key for key in keys if table.differs(key, found.values.get(key))]
            if others_wrote or table.is_newer_than(found.version):
                unrecorded = differing
            elif differing or table.version != found.version:
                if count := len(differing):
                    logger.info("%d entries of table %s are as the log says, not as its file does", count, name)
                table.take({key: found.values.get(key) for key in differing}, found.version)
        for key in unrecorded:
            table.changes.note(key, at_once=True)

    @property
    def is_followed(self) -> bool:
        """Whether a copy follows, or is to find the tables when one does."""
        return bool(self._is_followed)

    @property
    def log_id(self) -> str:
        """Which log this is, by what it says itself; empty while it does not."""
        identity = self._identity
        return identity.text if identity is not None and self._words.has(identity.record_name) else ""

    def _begin(self, table: RecordedTable) -> None:
        """Somebody who leads records this table: note from now on what is said here alone, beginning with what no record has."""
        name = table.record_name
        table.changes.begin(partial(self._noted, table))
        for key in self._words.missing(name, table.recorded_keys()):
            table.changes.note(key)

    @property
    def _takes_changes(self) -> bool:
        """Whether this broker leads; it may be about to be attached again."""
        return self._last_store is not None and not self._last_store.is_copy

    def _noted(self, table: RecordedTable, at_once: bool) -> None:
        name = table.record_name
        if at_once or not table.is_gathered:
            self._at_once[name] = None
        else:
            self._gathered[name] = None
            if self._gather_due_ns is None:
                self._gather_due_ns = self._clock.monotonic_ns() + TABLE_GATHERING_NS
                self._wake_within(TABLE_GATHERING_NS)

    # --- who leads --------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Record what changes here, beginning with what changed before (`Appender`)."""
        if self._store is not None:
            return
        self._store = self._last_store = store
        store.deadlines.define(WAKEUP, self._wake)
        if self._is_followed is None:
            self.copy_follows(len(self._words) > 0)
        for name, table in self._tables.items():
            if not self._is_followed and (table.changes.is_on or self._words.has(name)):
                self._drop(name, table)
        self._settle_unsure()
        self.say_below(self.reading.log_start)  # what went here while another one led
        if self._at_once or self._gathered or self._to_drop:
            self._gather_due_ns = None if not self._gathered else self._clock.monotonic_ns()
            self._wake_within(0)

    def detach(self) -> None:
        """Record nothing any more, and know of what was not recorded yet what the log says; whoever waits for that is told so. What changes
        here from now on is noted, and recorded when the store is attached again. Before it ever was, what stands in a file and not in the
        log does not count, but for gathered tables: whoever leads knows nothing of it."""
        has_led = self._store is not None
        if self._store is not None:
            self._store.deadlines.disarm(WAKEUP)
            self._store = None
        for name, table in self._tables.items():
            # What consumers committed while nobody led stands in the file alone, and says so.
            if table is not self._identity and (has_led or not table.is_gathered):
                unrecorded = table.changes.take(sys.maxsize)
                if self._last_store is None:
                    unrecorded = self._unsure.without(name, unrecorded, table.recorded_keys())
                self._take_from_log(table, unrecorded)
        self._settle_unsure()
        self._at_once.clear()
        if has_led:  # whoever leads next goes by what the log says then
            self._gathered.clear()
            self._is_followed = self._gather_due_ns = None
        self._waiting.fail(not_recorded())

    def _settle_unsure(self) -> None:
        """Where the log has had everything that tables held, what it has no word of does not count. Else whoever leads records it."""
        is_said = bool(self.log_id) and self._identity is not None and not self._identity.is_unsaid
        for name, keys in self._unsure.settled() if is_said or self._store is not None else ():
            if is_said:
                self._take_from_log(self._tables[name], keys)
            else:
                for key in keys:
                    self._tables[name].changes.note(key)

    def take_back(self, to: int) -> None:
        """Records from that log position on are gone, before they were confirmed: what they said does not count."""
        for position in [position for position in self._own if position >= to]:
            name, put, deleted = self._own.pop(position)
            if name in self._tables:
                self._take_from_log(self._tables[name], [*put, *deleted])
        self._end = min(self._end, to)

    def _take_from_log(self, table: RecordedTable, keys: Sequence[str]) -> None:
        """These keys say what the log does."""
        values: dict[str, bytes | None] = {}
        for key in keys:
            try:
                values[key] = self.reading.last_word(table.record_name, key)
            except RecordError as error:
                logger.error("what the log says of %s in table %s is not known: %s", key, table.record_name, error)
        if values:
            table.take(values, None)

    def copy_follows(self, is_followed: bool) -> None:
        """Whether the tables are recorded from now on, with everything that they hold. Unless this is said, it is as the log says."""
        was_followed, self._is_followed = self._is_followed, is_followed
        for name, table in self._tables.items():
            if table.changes.is_on is is_followed:
                continue
            if is_followed:
                self._to_drop.pop(name, None)
                table.changes.begin(partial(self._noted, table))
                for key in table.recorded_keys():
                    table.changes.note(key)
            elif self._store is not None:
                self._drop(name, table)
        if is_followed and was_followed is False:
            for outliving in self._outliving:
                outliving.say_again()
            self.say_below(self.reading.log_start)

    def _drop(self, name: str, table: RecordedTable) -> None:
        table.changes.end()
        self._at_once.pop(name, None)
        self._gathered.pop(name, None)
        self._to_drop[name] = None
        self._wake_within(0)

    # --- recording --------------------------------------------------------------------------------------------------

    def when_recorded(self, on_done: OnRecorded) -> None:
        """Tell when all that changed up to now, but for what is gathered, is recorded and confirmed, or why it is not; perhaps at once."""
        store = self._store if self._is_followed else None
        if (self._at_once and self._takes_changes) or (store is not None and self._own):
            self._waiting.add(on_done)
        elif store is not None and self._end > store.confirm_offset:  # recorded for somebody who asked before
            when_confirmed(store, self._end, on_done)
        else:
            on_done(None)

    def end_turn(self) -> None:
        """Append what is to be known at once. Before the log of the turn is written."""
        if self._store is None or not (self._at_once or self._to_drop or self._waiting):
            return
        try:
            self._record_drops()
            self._record(self._at_once)
            if self._identity is not None and self._identity.is_unsaid and not self._at_once:
                self._identity.say(is_unsaid=False)
                self._record({self._identity.record_name: None})
            self._tidy()
        except (StoreUnwritableError, RecordError) as error:
            self._not_recorded(error)
            self._waiting.fail(error)
            return
        self._is_behind = False
        if not self._at_once:  # else the others come next
            self._waiting.appended(self._store, self._end)

    def end_topic(self, topic: str, log_end: int) -> None:
        """A topic is being deleted here: record that. Where the store takes nothing, a copy goes on having its messages."""
        if self._store is None:
            return
        on_way = [key for name, key in self._own_keys() if name == RecordedQueueEnds.record_name]
        for key in self._words.keys_of(RecordedQueueEnds.record_name) + on_way:
            if key.startswith(f"{topic}/") and self._ends is not None:
                self._ends.changes.note(key, at_once=True)
        try:
            self._append(*encode_ended(topic), "", [], [])
        except (StoreUnwritableError, RecordError) as error:
            logger.warning("that topic %s was deleted could not be recorded: %s", topic, error)

    def _wake(self) -> None:
        if self._store is None or self._store.is_over:
            return
        self._full_disk.look(self._store, self.is_followed, drops=bool(self._to_drop), is_busy=bool(self._own))
        due_ns, now_ns = self._gather_due_ns, self._clock.monotonic_ns()
        if due_ns is not None and due_ns > now_ns:
            self._wake_within(due_ns - now_ns)
        elif due_ns is not None:
            self._gather_due_ns = None
            wait_ns = 0  # what is more than a turn's part comes in the next turns
            try:
                self._record(self._gathered)
            except (StoreUnwritableError, RecordError) as error:
                self._not_recorded(error)
                wait_ns = TABLE_GATHERING_NS
            if self._gathered:
                self._gather_due_ns = now_ns + wait_ns
                self._wake_within(wait_ns)
        self.end_turn()
        self._move(TABLE_KEYS_PER_TURN_MAX)

    def end(self) -> None:
        """The broker stops: append what is not recorded yet. Before the log is written for the last time."""
        if self._store is None:
            return
        try:
            for names in (self._at_once, self._gathered):
                while names:
                    self._record(names)
        except (StoreUnwritableError, RecordError) as error:
            self._not_recorded(error)
        self.end_turn()

    def _not_recorded(self, error: OrbitError) -> None:
        if not self._is_behind:
            logger.warning("changes of tables are not recorded yet, trying again: %s", error)
        self._is_behind = True
        self._wake_within(TABLE_RETRY_NS)

    def _wake_within(self, wait_ns: int) -> None:
        if self._store is not None:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ns)

    def _record(self, names: dict[str, None]) -> None:
        """Record what changed in these tables, a bounded part of it; the others stay. Raises StoreUnwritableError, RecordError."""
        assert self._store is not None, "attach() comes first"
        count = 0
        for name in list(names):
            names.pop(name, None)
            table = self._tables[name]
            left = dict.fromkeys(table.changes.take(TABLE_KEYS_PER_TURN_MAX))
            values = ((key, table.recorded_value(key)) for key in list(left))
            try:
                for part in change_parts(
                    name, table.version, values, record_bytes_max(self._store.settings.mapped_file_size_commit_log)
                ):
                    if count >= TABLE_RECORDS_PER_TURN_MAX:
                        break
                    self._append(part.body, b"", name, part.put, part.deleted)
                    count += 1
                    for key in (*part.put, *part.deleted):
                        del left[key]
            finally:
                for key in left:
                    table.changes.note(key)
                if table.changes:
                    names[name] = None
            if table.changes:
                if names is self._at_once:
                    self._wake_within(0)
                return

    def _append(self, body: bytes, properties: bytes, name: str, put: list[str], deleted: list[str]) -> None:
        store = self._store
        assert store is not None, "attach() comes first"
        if not self._is_identified and self._identity is not None and name != self._identity.record_name:
            if not self.log_id:
                self._identity.say(is_unsaid=True)
            self._record({self._identity.record_name: None})  # the first record of a log says whose it is
        message = NewMessage(TABLES_TOPIC, 0, body, properties, born_timestamp=self._clock.now_ms())
        entry = store.append(message, accepted=True)
        self._own[entry.physical_offset] = name, put, deleted
        self._end = entry.end_offset
        store.wait_durable(entry.end_offset, False, partial(self._written, entry.physical_offset))

    def _written(self, physical_offset: int, status: PutStatus) -> None:
        """The write of a record ended. One that failed left nothing: its keys are as if they had just changed."""
        if status is not PutStatus.SERVICE_NOT_AVAILABLE:
            return
        name, put, deleted = self._own.pop(physical_offset, ("", [], []))
        if (table := self._tables.get(name)) is not None:
            if not (put or deleted):
                self._to_drop[name] = None
            for key in (*put, *deleted):
                table.changes.note(key, at_once=True)
            self._wake_within(TABLE_RETRY_NS)

    def say_below(self, position: int) -> bool:
        """Whether everything stands in the log that a copy could learn from the records below a log position alone, or no copy follows.
        What does not is recorded in this turn or the next ones: ask again before these records go."""
        if self._store is None or not self._is_followed:
            return True
        is_said = note_unsaid(self._outliving, position, self._own_keys())
        if not is_said:
            self._wake_within(0)
        return is_said

    # --- recording anew ---------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Keep few what a start reads."""
        if too_old := self._words.too_old(TABLE_KEYS_REWRITTEN_MAX):
            own = self._own_keys()
            self._record_anew([key for key in too_old if key not in own])

    def _own_keys(self) -> set[Key]:
        """Keys of which something newer is on its way."""
        return {(name, key) for name, put, deleted in self._own.values() for key in (*put, *deleted)}

    def _record_anew(self, keys: Sequence[Key]) -> None:
        """Say the last word on these keys again. Raises StoreUnwritableError, RecordError."""
        assert self._store is not None, "attach() comes first"
        by_table: dict[str, list[str]] = {}
        for name, key in keys:
            by_table.setdefault(name, []).append(key)
        for name, chosen in by_table.items():
            table = self._tables.get(name)
            if table is not None:
                values = [(key, table.recorded_value(key)) for key in chosen]
                version = table.version
            else:  # of a later program, or a part that is switched off
                found = self._recovered.get(name) or RecoveredTable()
                values = [(key, found.values.get(key)) for key in chosen]
                version = found.version or DataVersion()
            bytes_max = record_bytes_max(self._store.settings.mapped_file_size_commit_log)
            for part in change_parts(name, version, values, bytes_max):
                self._append(part.body, b"", name, part.put, part.deleted)

    def lowest_needed(self) -> int | None:
        """Log position of the oldest last word; retention must not take its file."""
        return None if (oldest := self._words.oldest) is None else oldest.physical_offset

    def bytes_below(self, position: int) -> int:
        return self._words.bytes_below(position)

    def _record_drops(self) -> None:
        for name in list(self._to_drop):
            self._append(encode_dropped(name), b"", name, [], [])
            del self._to_drop[name]

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """Record the keys whose last word lies below `position` anew, at most `limit` now. Nothing is left for the caller."""
        self._move_below = max(self._move_below, position)
        self._move(min(limit, TABLE_KEYS_PER_TURN_MAX))
        return []

    def _move(self, limit: int) -> None:
        """Record keys anew that lie where retention wants to clean; the others a little later."""
        if self._store is None or next(self._words.below(self._move_below), None) is None:
            return
        own = self._own_keys()
        waiting = ((key, place) for key, place in self._words.below(self._move_below) if key not in own)
        try:
            self._record_anew(first_keys(waiting, limit))
        except (StoreUnwritableError, RecordError) as error:
            self._not_recorded(error)
            self._full_disk.not_recorded(self._store, self.is_followed)
            return
        self._store.commit()
        if next(self._words.below(self._move_below), None) is not None:
            self._wake_within(TABLE_MOVING_PAUSE_NS)

    def put_back(self, positions: Sequence[int]) -> None:
        """Nothing is ever taken."""
