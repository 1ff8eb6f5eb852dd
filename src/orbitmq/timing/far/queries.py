"""Finding far messages: in the log those that no file holds, in the files the others, as one list by due time.

Rules of this file
1. Files and records are read elsewhere; the state is asked here, and only here it is decided what is pending.
2. A page costs what it shows: files without a row in range are not opened, others give a row group at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import StoreError
from orbitmq.limits.far import FAR_LANDING_ROWS_MAX, FAR_QUERIES_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record, iter_records
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.buffered import Buffered, FarUnit
from orbitmq.timing.far.changes import source_of_far
from orbitmq.timing.far.keeper import FarKeeper
from orbitmq.timing.far.log_reads import Read, read_units
from orbitmq.timing.far.state import FarState
from orbitmq.timing.far.tier import FarBusyError, FarQuery, FarTierError, Found, Tier
from orbitmq.timing.timers.changes import known_key

INSTANT_MS_MAX = 1 << 62


class FarRecord(NamedTuple):
    """A pending message of the far tier."""

    source: int
    deliver_ms: int
    topic: str
    queue_id: int
    message_id: str | None
    """The unique key that its sender knows."""
    keys: str | None
    size: int
    """Bytes of its record, body included."""
    record: Record
    """Its record in the far topic; without the body unless that was asked for."""


class FarPage(NamedTuple):
    records: list[FarRecord]
    more: bool
    """Whether there may be more behind the last."""
    left_out: int = 0
    """At most so many messages within the times asked for lie in damaged files: they wait, and are not on any page."""


Done = Callable[[FarPage | Exception], None]


def far_record(record: Record, size: int) -> FarRecord:
    properties = decode_properties(record.properties)
    return FarRecord(
        source_of_far(record),
        int(properties[Property.DUE_MS]),
        properties[Property.REAL_TOPIC],
        int(properties.get(Property.REAL_QID, "0")),
        known_key(properties) or None,
        properties.get(Property.KEYS),
        size,
        record,
    )


def matches(message: FarRecord, query: FarQuery) -> bool:
    """Whether a message is one that the query wants, whatever its limit."""
    keys = (message.keys or "").split()
    return (
        (query.topic is None or message.topic == query.topic)
        and (query.message_id is None or message.message_id == query.message_id)
        and (query.key is None or query.key in keys)
        and (query.key_prefix is None or any(key.startswith(query.key_prefix) for key in keys))
        and (query.from_ms is None or message.deliver_ms >= query.from_ms)
        and (query.until_ms is None or message.deliver_ms < query.until_ms)
        and (query.after is None or (message.deliver_ms, message.source) > tuple(query.after))
    )


def find(store: MessageStore | None, state: FarState, keeper: FarKeeper, query: FarQuery, done: Done) -> None:
    """Give `done` the first pending messages that match, in order of due time; or a FarTierError, FarBusyError when too many ask."""
    if store is None or keeper.is_closed:
        done(StoreError("the broker is not running"))
        return
    if keeper.questions >= FAR_QUERIES_MAX:
        done(FarBusyError(f"{FAR_QUERIES_MAX} look-ups in the far tier wait already", remedy="ask again in a moment"))
        return
    keeper.questions += 1

    def finished(answer: FarPage | Exception) -> None:
        keeper.questions -= 1
        done(answer)

    _Search(state, keeper, store, query, finished).begin()


def in_log(store: MessageStore, buffered: Buffered, query: FarQuery) -> list[FarUnit]:
    """Messages that no file holds and that may match, by due time."""
    name = query.message_id or query.key
    if name is not None and store.index is not None:
        found = store.query_by_key(FAR_TIMER_TOPIC, name, FAR_LANDING_ROWS_MAX, 0, INSTANT_MS_MAX)
        offsets = [buffered.offset_of(position + 1) for position in found]
        if query.message_id is not None:  # the store's index has the key that the record bears
            offsets += buffered.renamed(query.message_id)
        units = [
            buffered.unit(offset)
            for offset in dict.fromkeys(offsets)
            if offset is not None and buffered.is_pending(offset)
        ]
        return sorted(units, key=lambda unit: (unit.deliver_ms, unit.queue_offset))
    since_ms = max(query.from_ms or 0, query.after[0] if query.after is not None else 0)
    units = buffered.due(INSTANT_MS_MAX if query.until_ms is None else query.until_ms - 1, since_ms=since_ms)
    if query.topic is not None:
        units = [unit for unit in units if unit.topic == query.topic]
    if query.after is not None:
        units = [unit for unit in units if (unit.deliver_ms, unit.source) > tuple(query.after)]
    # Which of them have a name is not known without the store's key index, nor which begin with a text: all are read.
    return units if query.key_prefix is not None or name is not None else units[: query.limit + 1]


AGAIN_MAX: Final = 3
"""How often a question is asked again because what it found was changed meanwhile."""


class _Search:
    """One question on its way: first the log, then the files, again from where they ended while rows do not count."""

    def __init__(self, state: FarState, keeper: FarKeeper, store: MessageStore, query: FarQuery, done: Done) -> None:
        self._state = state
        self._keeper = keeper
        self._store = store
        self._query = query
        self._done = done
        self._found: dict[int, FarRecord] = {}
        self._again_left = AGAIN_MAX
        self._finished: set[int] = set()
        """Sources of rows that do not count any more; they may have counted when the question was asked."""
        self._known_count = 0
        """How many of them were known when the question was asked the last time."""

    def begin(self) -> None:
        units = in_log(self._store, self._state.buffered, self._query)
        if units:
            read_units(self._store, units, self._from_log, self._fail, lambda: self._keeper.is_closed)
        else:
            self._from_log([])

    def _fail(self) -> None:
        """Nothing is left out for a read that failed: who asked would take it for gone."""
        remedy = "look at the broker's log, and ask again"
        self._done(FarTierError("far messages could not be read from the log", remedy=remedy))

    def _from_log(self, read: Read) -> None:
        records = [far_record(decode_record(data), unit.size) for unit, data in read if data is not None]
        self._found = {record.source: record for record in records if matches(record, self._query)}
        self._ask(self._query)

    def _ask(self, query: FarQuery) -> None:
        views, storage = self._state.files.views(query), self._keeper.storage

        def find(tier: Tier) -> Found:
            found = tier.find(views, query)
            if found.damaged:
                storage.check(tier)
            return found

        if views:
            self._keeper.ask(find, lambda found: self._from_files(query, found))
        else:
            self._answer(False)

    def _from_files(self, query: FarQuery, found: Found | BaseException) -> None:
        if isinstance(found, Exception):
            self._done(found)
            return
        assert isinstance(found, Found)
        if not self._state.files.note_damage(found.damaged):  # removed while it was asked: its rows are elsewhere now
            self._ask(query)
            return
        last: FarRecord | None = None
        count = 0
        for record, size in zip(iter_records(found.records), found.sizes, strict=True):
            last = far_record(record, size)
            if self._state.is_pending(last.source):
                self._found[last.source] = last
                count += 1
            else:
                self._finished.add(last.source)
        if found.more and last is not None and count < query.limit:
            rest = msgspec.structs.replace(query, after=(last.deliver_ms, last.source), limit=query.limit - count)
            self._ask(rest)
        else:
            self._answer(found.more)

    def _answer(self, more: bool) -> None:
        limit = self._query.limit
        pending = [record for record in self._found.values() if self._state.is_pending(record.source)]
        known_count, self._known_count = self._known_count, len(self._finished)
        if self._again_left and (len(pending) < len(self._found) or len(self._finished) > known_count):
            # Changed while it was read: a message that was moved waits elsewhere in the tier.
            self._again_left -= 1
            self.begin()
            return
        pending.sort(key=lambda record: (record.deliver_ms, record.source))
        self._done(FarPage(pending[:limit], more or len(pending) > limit, self._state.files.left_out(self._query)))
