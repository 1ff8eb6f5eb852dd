"""Rows as the members of batch requests: Arrow columns in, one array of encoded members out.

A member of a batch is head, body, and properties (`protocol/batches.py`). Heads and the properties that every row has are arrays of equally
long pieces, the rest is joined by Arrow; no row becomes a Python object. A 1 KB row with a key costs 0.47 us without numbers and 1.1 with
them, most of it reading and copying the body.

Rules of this file
1. Pure: no clock, no network. What is wrong with a row is found before anything of its Arrow batch is given away, and said with its place.
2. The content of a row decides its number (`row_hashes`): topic, queue, flag, body, and the properties that the row gives. What is new with
   every attempt, the message's id, does not, and neither do the rows beside it.
3. Properties that every message has stand first, so that their places are the same in each member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import MessageIllegalError
from orbitmq.limits.broker import ONCE_KEY_BYTES_MAX
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.properties import Property, user_property_problem
from orbitmq.spark.writing.row_columns import ROW_KEY
from orbitmq.spark.writing.row_hashes import Words, number_column, row_hashes
from orbitmq.units import US_PER_MS

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

HEAD_BYTES: Final = 20
_BINARY: Final = pa.binary()
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())
_HEX: Final = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint16)
_HEX_UPPER: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)


class CheckedRows(NamedTuple):
    """Checked rows of one Arrow batch, all of one length. Columns without nulls, except `topics`, which is None for one topic.

    queues: -1 where the row names none. brokers: names, with nulls, or None; a row with one has a queue. ordering: sharding keys,
    with nulls, or None. given: the properties that rows give.
    numbers: what stands for the content, or for the row key. row_keys: encoded property, or None. timed: rows with a due time.
    leveled: rows with a delay level.
    """

    first: int
    bodies: pa.Array
    topics: pa.Array | None
    flags: Ints
    queues: Ints | None
    brokers: pa.Array | None
    ordering: pa.Array | None
    given: pa.Array | None
    numbers: Words
    row_keys: pa.Array | None
    timed: Flags | None
    leveled: Flags | None


_GIVING: Final = frozenset(
    {"tags", "keys", "shardingKey", "messageGroup", "properties", "deliverTimestamp", "delaySeconds", "delayLevel"}
)
"""Columns that give properties."""

_KEYS: Final = ("keys", "shardingKey")
"""Columns that may be bytes where they come from a column `key`."""


class RowReader:
    """Reads the rows of a task out of its Arrow batches."""

    def __init__(
        self,
        places: Mapping[str, int],
        *,
        topic: str | None,
        max_message_bytes: int,
        place: str,
        by_key: bool,
        numbered: bool = True,
    ) -> None:
        """places: `row_columns`. place: the task, for errors. by_key: rows are named by the column `ROW_KEY`. numbered: rows need
        a number."""
        self._places = places
        self._topic = topic
        self._max_bytes = max_message_bytes
        self._place = place
        self._by_key = by_key
        self._numbered = numbered
        self._gives = not _GIVING.isdisjoint(places)

    @property
    def body_place(self) -> int:
        return self._places["body"]

    def read(self, batch: pa.RecordBatch, first: int) -> CheckedRows:
        """The rows, of which the first is number `first` of the task. `MessageIllegalError` names the first bad one."""
        bodies = self._bodies(self._column(batch, "body"), first)
        count = len(bodies)
        topics = None if self._topic is not None else self._topics(self._column(batch, "topic"), first)
        flag_column, queue_column = self._column(batch, "flag"), self._column(batch, "queueId")
        flags = self._numbers(flag_column, "flag", -(2**31), 2**31 - 1, 0, first)
        queues = self._numbers(queue_column, "queueId", 0, 2**31 - 1, -1, first)
        brokers = self._column(batch, "brokerName")
        if brokers is not None:
            without = np.asarray(pc.is_valid(brokers)) & (queues < 0)
            self._refuse(without, first, "has a brokerName and no queueId", "give both, or neither")
        parts, timed, leveled = self._given(batch, first, count)
        given = _joined(parts)
        ordering = self._column(batch, "shardingKey")
        ordering = self._column(batch, "messageGroup") if ordering is None else ordering
        row_keys = None
        if self._by_key:
            key = self._row_key(self._column(batch, ROW_KEY), first)
            numbers = row_hashes([key])
            row_keys = _entry(Property.ONCE_KEY, key)
        elif self._numbered:
            columns = [bodies]
            if topics is not None:
                columns.append(topics.cast(pa.binary()))
            if self._gives:  # also where no row of this batch gives any: the rows beside a row are none of its content
                columns.append(pa.repeat(pa.scalar(b"", _BINARY), count) if given is None else given)
            if flag_column is not None or queue_column is not None:
                columns.append(number_column(flags << 32 | (queues + 1)))
            if brokers is not None:
                columns.append(pc.fill_null(brokers, "").cast(pa.binary()))
            numbers = row_hashes(columns)
        else:
            numbers = np.zeros(count, np.uint64)
        return CheckedRows(
            first,
            bodies,
            topics,
            flags,
            None if queue_column is None else queues,
            brokers,
            ordering,
            given,
            numbers,
            row_keys,
            timed,
            leveled,
        )

    # --- columns ----------------------------------------------------------------------------------------------------

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        place = self._places.get(name)
        if place is None:
            return None
        column = batch.column(place)
        if pa.types.is_large_string(column.type):
            return column.cast(pa.string())
        if pa.types.is_large_binary(column.type):
            column = column.cast(_BINARY)
        if pa.types.is_map(column.type) and not pa.types.is_string(column.type.key_type):
            return column.cast(_PROPERTIES)
        if name in _KEYS and pa.types.is_binary(column.type):
            try:
                return column.cast(pa.string())
            except pa.ArrowInvalid as problem:
                raise MessageIllegalError(
                    f"a row of {self._place} has a key that is no text in UTF-8",
                    remedy="encode it, for example base64(key)",
                ) from problem
        return column

    def _bodies(self, column: pa.Array | None, first: int) -> pa.Array:
        assert column is not None  # `row_columns` saw to it
        self._refuse_nulls(column, "body", first, "a message needs a body; filter such rows out, or give them one")
        bodies = column if pa.types.is_binary(column.type) else column.cast(pa.binary())
        lengths = np.asarray(pc.binary_length(bodies))
        self._refuse(lengths == 0, first, "has an empty body, which no broker takes", "filter such rows out")
        self._refuse(
            lengths > self._max_bytes,
            first,
            lambda row: f"has a body of {lengths[row]} bytes, and {self._max_bytes} is the most",
            "send a reference to the data, or raise maxMessageBytes here and maxMessageSize at the brokers",
        )
        return bodies

    def _topics(self, column: pa.Array | None, first: int) -> pa.Array:
        assert column is not None
        self._refuse_nulls(column, "topic", first, "give the option topic, or a topic in every row")
        for topic in pc.unique(column).to_pylist():
            problem = topic_name_problem(topic)
            if problem is not None:
                wrong = np.asarray(pc.equal(column, topic))
                self._refuse(wrong, first, f"has a topic that cannot be: {problem}", "correct its column topic")
        return column

    def _numbers(self, column: pa.Array | None, name: str, low: int, high: int, absent: int, first: int) -> Ints:
        """Values of a column of whole numbers; `absent` for nulls. Without the column one value for all."""
        if column is None:
            return np.full(1, absent, np.int64)
        valid = np.asarray(pc.is_valid(column))
        values: Ints = np.asarray(pc.fill_null(column.cast(pa.int64()), absent))
        wrong = valid & ((values < low) | (values > high))
        self._refuse(wrong, first, lambda row: f"has {name} {values[row]}", f"it is {low} to {high}")
        return values

    def _row_key(self, column: pa.Array | None, first: int) -> pa.Array:
        assert column is not None
        self._refuse_nulls(column, "row key", first, "a row key names a row: give every row one")
        text = column if pa.types.is_string(column.type) else column.cast(pa.string())
        key = self._clean(text, "row key", first)
        long = np.asarray(pc.binary_length(key)) > ONCE_KEY_BYTES_MAX
        self._refuse(
            long, first, f"has a row key of more than {ONCE_KEY_BYTES_MAX} bytes", "name rows by a shorter text"
        )
        empty = np.asarray(pc.binary_length(key)) == 0
        self._refuse(empty, first, "has an empty row key", "a row key names a row: give every row one")
        return key

    # --- properties -------------------------------------------------------------------------------------------------

    def _given(
        self, batch: pa.RecordBatch, first: int, count: int
    ) -> tuple[list[pa.Array], Flags | None, Flags | None]:
        parts: list[pa.Array] = []
        for name, prop in (
            ("tags", Property.TAGS),
            ("keys", Property.KEYS),
            ("shardingKey", Property.SHARDING_KEY),
            ("messageGroup", Property.SHARDING_KEY),
        ):
            column = self._column(batch, name)
            if column is not None and column.null_count < count:
                parts.append(_entry(prop, self._clean(column, name, first)))
                blank = pc.equal(pc.utf8_trim_whitespace(column), "")
                self._refuse(_true(blank), first, f"has blank {name}", "use null where there are none")
                if name == "tags":
                    several = _true(pc.match_substring(column, "||"))
                    self._refuse(several, first, "has '||' in tags, which separates tags in filters", "use one tag")
        column = self._column(batch, "properties")
        if column is not None and column.null_count < count:
            parts.append(self._properties(column, first))
        times, timed, leveled = self._times(batch, first, count)
        return parts + times, timed, leveled

    def _times(
        self, batch: pa.RecordBatch, first: int, count: int
    ) -> tuple[list[pa.Array], Flags | None, Flags | None]:
        """Properties of due times, which rows have one, and which have a delay level."""
        parts: list[pa.Array] = []
        stated = np.zeros(count, np.int64)
        timed = leveled = None
        for name, prop in (
            ("deliverTimestamp", Property.TIMER_DELIVER_MS),
            ("delaySeconds", Property.TIMER_DELAY_SEC),
            ("delayLevel", Property.DELAY),
        ):
            column = self._column(batch, name)
            if column is None or column.null_count == count:
                continue
            if name == "deliverTimestamp":
                us = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
                column = pa.array(-(-np.asarray(us.fill_null(0)) // US_PER_MS), mask=np.asarray(us.is_null()))
            lowest = 0 if name == "delaySeconds" else 1
            self._numbers(column, name, lowest, 2**31 - 1 if name != "deliverTimestamp" else 2**53, lowest, first)
            valid = np.asarray(pc.is_valid(column))
            stated += valid
            parts.append(_entry(prop, column.cast(pa.string()).cast(pa.binary())))
            if name == "delayLevel":
                leveled = valid
            else:
                timed = valid if timed is None else timed | valid
        if len(parts) > 1:
            self._refuse(
                stated > 1,
                first,
                "has more than one of deliverTimestamp, delaySeconds and delayLevel",
                "leave one, and null in the others",
            )
        return parts, timed, leveled

    def _properties(self, column: pa.Array, first: int) -> pa.Array:
        """The user properties of each row, encoded."""
        offsets = np.asarray(column.offsets)
        begin, end = int(offsets[0]), int(offsets[-1])
        names, values = column.keys.slice(begin, end - begin), column.items.slice(begin, end - begin)
        offsets = offsets - begin
        if values.null_count or bool(pc.any(pc.equal(pc.utf8_trim_whitespace(values), ""), min_count=0).as_py()):
            wrong = np.asarray(pc.or_kleene(pc.is_null(values), pc.equal(pc.utf8_trim_whitespace(values), "")))
            self._refuse(
                _any_in(wrong, offsets),
                first,
                "has a property with a null or blank value",
                "leave such properties out",
            )
        for name in pc.unique(names).to_pylist():
            problem = user_property_problem(name, "value")
            if problem is not None:
                wrong = _any_in(np.asarray(pc.equal(names, name)), offsets)
                self._refuse(wrong, first, f"cannot have its properties: {problem}", "rename or drop the property")
        _refuse_separators(values, lambda wrong: self._refuse(
            _any_in(wrong, offsets), first, "has the separator 0x01 or 0x02 in a property", "put the value into the body"
        ))  # fmt: skip
        return encoded_maps(names, values, offsets)

    def _clean(self, column: pa.Array, name: str, first: int) -> pa.Array:
        """Text as bytes, without the separators of properties."""
        _refuse_separators(column, lambda wrong: self._refuse(
            wrong, first, f"has the separator 0x01 or 0x02 in its {name}", "remove these characters"
        ))  # fmt: skip
        return column.cast(pa.binary())

    # --- refusing ---------------------------------------------------------------------------------------------------

    def _refuse_nulls(self, column: pa.Array, name: str, first: int, remedy: str) -> None:
        if column.null_count:
            self._refuse(np.asarray(pc.is_null(column)), first, f"has no {name} (null)", remedy)

    def _refuse(self, wrong: np.ndarray[Any, Any], first: int, what: str | Callable[[int], str], remedy: str) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            words = what if isinstance(what, str) else what(row)
            raise MessageIllegalError(f"row {first + row} of {self._place} {words}", remedy=remedy)


class ScopeIdentity(NamedTuple):
    """What all messages of one scope have in common. Without a `scope` repeats are not recognised."""

    scope: str | None = None
    epoch: int = 0
    part: int = 0


def members(rows: CheckedRows, identity: ScopeIdentity, counts: Ints, unique: tuple[str, int], place: str) -> pa.Array:
    """The encoded members of a batch, one for each row.

    counts: equal rows before each. unique: `UniqueIds.several`.
    """
    count = len(rows.bodies)
    pieces = [f"{Property.WAIT}\x01true\x02{Property.UNIQ_KEY}\x01".encode(), *unique_ids(*unique, count), b"\x02"]
    if identity.scope is not None:
        pieces[-1] = (
            f"\x02{Property.ONCE_SCOPE}\x01{identity.scope}\x02{Property.ONCE_EPOCH}\x01{identity.epoch}\x02".encode()
        )
        if rows.row_keys is None:
            pieces.append(f"{Property.ONCE_KEY}\x01{identity.part}.".encode())
            pieces.append(_hex(rows.numbers.astype(">u8").view(np.uint8).reshape(count, 8), _HEX))
            pieces.append(b".")
            pieces.append(_hex(counts.astype(">i8").view(np.uint8).reshape(count, 8)[:, 5:], _HEX))
            pieces.append(b"\x02")
    variable = _joined([part for part in (rows.row_keys, rows.given) if part is not None])
    tails = in_rows(pieces, count, before=2)
    lengths = np.full(count, tails.shape[1] - 2, np.int64)
    if variable is not None:
        lengths += np.asarray(pc.binary_length(variable))
        most = PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES
        too_long = lengths > most
        if too_long.any():
            row = int(too_long.argmax())
            raise MessageIllegalError(
                f"row {rows.first + row} of {place} has {lengths[row]} bytes of properties with those of every message, and "
                f"{most} is the most",
                remedy="move the data into the body",
            )
    tails[:, :2] = lengths.astype(">i2").view(np.uint8).reshape(count, 2)
    sizes = np.asarray(pc.binary_length(rows.bodies)).astype(np.int64)
    heads = np.zeros((count, 5), ">i4")
    heads[:, 0] = HEAD_BYTES + sizes + 2 + lengths
    heads[:, 3] = rows.flags
    heads[:, 4] = sizes
    parts = [column_of(heads.view(np.uint8).reshape(count, HEAD_BYTES)), rows.bodies, column_of(tails)]
    if variable is not None:
        parts.append(variable)
    return pc.binary_join_element_wise(*parts, b"")


def encoded_maps(names: pa.Array, values: pa.Array, offsets: Any) -> pa.Array:
    """User properties of each row, encoded. offsets: where those of a row begin, and the last end."""
    entries = pc.binary_join_element_wise(names.cast(pa.binary()), b"\x01", values.cast(pa.binary()), b"\x02", b"")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries), b"")


def unique_ids(prefix: str, number: int, count: int) -> list[bytes | Bytes]:
    """The texts of `UniqueIds.several`, in pieces that are joined for each row."""
    ids = (number + np.arange(count, dtype=np.int64)).astype(">i8").view(np.uint8).reshape(count, 8)[:, 2:]
    return [prefix.encode(), _hex(ids, _HEX_UPPER)]


def in_rows(pieces: Sequence[bytes | Bytes], count: int, before: int = 0) -> Bytes:
    """The pieces of each row one behind the other, with room before them."""
    widths = [len(piece) if isinstance(piece, bytes) else piece.shape[1] for piece in pieces]
    rows = np.empty((count, before + sum(widths)), np.uint8)
    at = before
    for piece, width in zip(pieces, widths, strict=True):
        rows[:, at : at + width] = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        at += width
    return rows


def _hex(data: Bytes, digits: np.ndarray[Any, Any]) -> Bytes:
    """Two digits for each byte of each row."""
    return digits[data].view(np.uint8).reshape(len(data), 2 * data.shape[1])


def column_of(data: Bytes, kind: Any = _BINARY) -> pa.Array:
    """The rows of an array of bytes as a column."""
    count, width = data.shape
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _entry(name: str, column: pa.Array) -> pa.Array:
    """An encoded property for each value, nothing for null."""
    entries = pc.binary_join_element_wise(f"{name}\x01".encode(), column, b"\x02", b"")
    return pc.fill_null(entries, b"") if entries.null_count else entries


def _joined(parts: Sequence[pa.Array]) -> pa.Array | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return pc.binary_join_element_wise(*parts, b"")


def _true(mask: pa.Array) -> np.ndarray[Any, Any]:
    return np.asarray(pc.fill_null(mask, False))


def _any_in(wrong: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each list whether one of its values is wrong."""
    before = np.concatenate(([0], np.cumsum(wrong)))
    found: np.ndarray[Any, Any] = before[offsets[1:]] > before[offsets[:-1]]
    return found


def _refuse_separators(column: pa.Array, refuse: Callable[[np.ndarray[Any, Any]], None]) -> None:
    """Call `refuse` with the rows that contain a separator of properties, if there are any."""
    data = column.buffers()[2]
    if data is None or not (np.frombuffer(data, np.uint8) - np.uint8(1) < 2).any():
        return
    text = column.cast(pa.string())
    found = pc.or_(pc.match_substring(text, "\x01"), pc.match_substring(text, "\x02"))
    refuse(_true(found))
