"""Rows of the far table's files, and the messages that they are.

A row is a message as its sender meant it, not a record of some log: no broker has stored it yet. The names are those of our Spark
rows, so that any reader of Parquet understands the files:

    deliverTimestamp timestamp(ms, UTC)   when it is due; files are sorted by it
    topic string, queueId int             where it goes; without a queue the broker that takes it chooses one
    body binary, tags string, keys string, shardingKey string, flag int
    msgId string                          the unique key, under which it is found and recalled before and after its promotion
    properties map<string, string>        user properties alone
    bornTimestamp timestamp(ms, UTC)      when it was scheduled

Rules of this file
1. A message that came by way of the table has the properties that it would have had if its sender had sent it to a broker.
2. The order of the rows of a file never changes: a row is named by its file and number.
3. pyarrow, and neither numpy nor any file system: tables and bytes in, tables and bytes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.limits.far import FAR_TABLE_ROW_GROUP_ROWS
from orbitmq.protocol.properties import Property
from orbitmq.timing.far.columns import TIME
from orbitmq.timing.far.parquet_bytes import parquet_bytes

SCHEMA: Final = pa.schema(
    [
        pa.field("deliverTimestamp", TIME, nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32()),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.string()),
        pa.field("shardingKey", pa.string()),
        pa.field("msgId", pa.string(), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("bornTimestamp", TIME, nullable=False),
    ]
)

ORDER: Final = [("deliverTimestamp", "ascending")]
"""The sort is stable: rows with one due time stay in the order in which they came."""

REPEATING: Final = ("topic", "tags", "properties.key_value.key")
UNBOUNDED: Final = ("body", "tags", "keys", "shardingKey", "properties", "flag", "queueId")

ANY_QUEUE: Final = -1


class FarMessage(NamedTuple):
    """A message out of a row. queue_id: `ANY_QUEUE` where the row names none. properties: as stored in a log, everything that its
    sender would have given a broker, the due time (TIMER_DELIVER_MS) included."""

    deliver_ms: int
    topic: str
    queue_id: int
    body: bytes
    flag: int
    properties: bytes
    born_ms: int
    message_id: str
    tags: str | None
    keys: str | None
    sharding_key: str | None


class FarName(NamedTuple):
    """What a recall names: a topic, and in it a key or, where `is_id`, the unique key of one message."""

    topic: str
    name: str
    is_id: bool = False


class Facts(NamedTuple):
    """What a file is known by. Times are the due times of its first and last row."""

    rows: int
    min_due_ms: int
    max_due_ms: int


# --- files ----------------------------------------------------------------------------------------------------------


def sorted_rows(table: pa.Table) -> pa.Table:
    """The rows in the order of a file. Cost: 0.3 us a row when they are in order already, up to 1 us otherwise."""
    times = table.column("deliverTimestamp").cast(pa.int64()).combine_chunks()
    if pc.all(pc.less_equal(times.slice(0, max(len(times) - 1, 0)), times.slice(1)), min_count=0).as_py():
        return table
    return table.sort_by(ORDER)


def file_bytes(table: pa.Table) -> pa.Buffer:
    """The Parquet file of sorted rows."""
    return parquet_bytes(table, group_rows=FAR_TABLE_ROW_GROUP_ROWS, repeating=REPEATING, plain=UNBOUNDED)


def facts_of(table: pa.Table) -> Facts:
    """Of sorted rows, at least one."""
    times = table.column("deliverTimestamp").cast(pa.int64())
    return Facts(table.num_rows, times[0].as_py(), times[-1].as_py())


class Group(NamedTuple):
    """A row group of a file. Times are the due times of its first and last row."""

    number: int
    first: int
    """Number in the file of its first row."""
    rows: int
    min_due_ms: int
    max_due_ms: int


def groups_between(parquet: pq.ParquetFile, from_ms: int, until_ms: int) -> Iterator[Group]:
    """Row groups that may hold rows due from `from_ms` to before `until_ms`, by due time. RecordError for a file that is no file of
    the table."""
    if parquet.schema_arrow.names != SCHEMA.names:
        raise RecordError(f"it has the columns {', '.join(parquet.schema_arrow.names)}, not those of a far table")
    first = 0
    for number in range(parquet.metadata.num_row_groups):
        about = parquet.metadata.row_group(number)
        statistics = about.column(0).statistics
        if statistics is None or not statistics.has_min_max:
            raise RecordError(f"row group {number} has no bounds of deliverTimestamp")
        low_ms, high_ms = (round(bound.timestamp() * 1000) for bound in (statistics.min, statistics.max))
        if low_ms >= until_ms:
            return  # the file is sorted
        if high_ms >= from_ms:
            yield Group(number, first, about.num_rows, low_ms, high_ms)
        first += about.num_rows


def rows_between(
    parquet: pq.ParquetFile, from_ms: int, until_ms: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The rows due from `from_ms` to before `until_ms`, a row group's at a time, and the number in the file of the first of each.

    Only row groups whose bounds say that they may hold such rows are read, of them all `columns` or those named, deliverTimestamp
    among them. RecordError as above.
    """
    for group in groups_between(parquet, from_ms, until_ms):
        table = parquet.read_row_group(group.number, columns=None if columns is None else list(columns))
        start, end = _range(table, from_ms, until_ms)
        if end > start:
            yield group.first + start, table.slice(start, end - start)


def rows_due(table: pa.Table, from_ms: int, until_ms: int | None = None) -> pa.Table:
    """Of sorted rows those due from `from_ms` to before `until_ms`, without copying any."""
    start, end = _range(table, from_ms, until_ms)
    return table.slice(start, max(end - start, 0))


def _range(table: pa.Table, from_ms: int, until_ms: int | None) -> tuple[int, int]:
    times = table.column("deliverTimestamp").cast(pa.int64())
    start = pc.sum(pc.less(times, from_ms), min_count=0).as_py()
    end = table.num_rows if until_ms is None else pc.sum(pc.less(times, until_ms), min_count=0).as_py()
    return start, end


# --- messages -------------------------------------------------------------------------------------------------------


def messages_of(table: pa.Table) -> list[FarMessage]:
    """The message of each row. RecordError when a text in the rows cannot stand in properties. Cost: about 5 us a row."""
    encoded = message_properties(table)
    columns = [
        table.column("deliverTimestamp").cast(pa.int64()).to_pylist(),
        table.column("topic").to_pylist(),
        pc.fill_null(table.column("queueId"), ANY_QUEUE).to_pylist(),
        table.column("body").to_pylist(),
        table.column("flag").to_pylist(),
        encoded.to_pylist(),
        table.column("bornTimestamp").cast(pa.int64()).to_pylist(),
        *(table.column(name).to_pylist() for name in ("msgId", "tags", "keys", "shardingKey")),
    ]
    return [FarMessage(*values) for values in zip(*columns, strict=True)]


def message_properties(table: pa.Table) -> pa.ChunkedArray:
    """The stored form of all properties of each row's message. RecordError as above. Cost: about 0.6 us a row."""
    parts: list[Any] = [f"{Property.WAIT}\x01true\x02".encode()]
    times = table.column("deliverTimestamp").cast(pa.int64()).cast(pa.string())
    texts = [(Property.UNIQ_KEY, table.column("msgId")), (Property.TIMER_DELIVER_MS, times)]
    texts += [
        (prop, table.column(name))
        for prop, name in ((Property.TAGS, "tags"), (Property.KEYS, "keys"), (Property.SHARDING_KEY, "shardingKey"))
        if table.column(name).null_count < table.num_rows
    ]
    for prop, column in texts:
        _refuse_separators(column, prop)
        entry = pc.binary_join_element_wise(f"{prop}\x01".encode(), column.cast(pa.binary()), b"\x02", b"")
        parts.append(pc.fill_null(entry, b""))
    parts.append(_user_properties(table.column("properties")))
    return pc.binary_join_element_wise(*parts, b"")


def _user_properties(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([_encoded_maps(chunk) for chunk in column.chunks], pa.binary())


def _encoded_maps(maps: pa.MapArray) -> pa.Array:
    offsets = maps.offsets
    begin, end = offsets[0].as_py(), offsets[len(maps)].as_py()
    if begin == end:
        return pa.array([b""], pa.binary()).take(pa.array([0] * len(maps), pa.int32()))
    names, values = maps.keys.slice(begin, end - begin), maps.items.slice(begin, end - begin)
    for texts in (names, values):
        _refuse_separators(texts, "properties")
    entries = pc.binary_join_element_wise(names.cast(pa.binary()), b"\x01", values.cast(pa.binary()), b"\x02", b"")
    return pc.binary_join(pa.ListArray.from_arrays(pc.subtract(offsets, begin), entries), b"")


def _refuse_separators(texts: pa.Array | pa.ChunkedArray, what: str) -> None:
    if pc.any(pc.match_substring_regex(texts, "[\x01\x02]"), min_count=0).as_py():
        raise RecordError(f"a row has the separator 0x01 or 0x02 in {what}")


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows given one by one, as a sorted table; what a row leaves out is null, or what an ordinary message has."""
    defaults: dict[str, Any] = {"flag": 0, "properties": [], "bornTimestamp": 0}
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for row in rows:
        for name, column in columns.items():
            value = row.get(name, defaults.get(name))
            column.append(list(value.items()) if isinstance(value, Mapping) else value)
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return sorted_rows(pa.Table.from_arrays(arrays, schema=SCHEMA))


# --- recalls --------------------------------------------------------------------------------------------------------


def named_rows(table: pa.Table, names: Iterable[FarName]) -> pa.ChunkedArray | pa.Array:
    """For each row whether one of `names` is its own: booleans. A row has the key when it is one of its keys, which blanks separate.

    Cost: 0.1 us a row, and as much again for every key that any row has; what is named hardly counts.
    """
    wanted = list(names)
    ids = [f"{name.name}\t{name.topic}" for name in wanted if name.is_id]
    keys = [f"{name.name}\t{name.topic}" for name in wanted if not name.is_id]
    found = pa.array([False], pa.bool_()).take(pa.array([0] * table.num_rows, pa.int32()))
    if ids:
        own = pc.binary_join_element_wise(table.column("msgId"), table.column("topic"), "\t")
        found = pc.or_(found, pc.is_in(own, value_set=pa.array(ids, pa.string())))
    if keys and table.column("keys").null_count < table.num_rows:
        words = pc.utf8_split_whitespace(table.column("keys")).combine_chunks()
        rows = pc.list_parent_indices(words)
        own = pc.binary_join_element_wise(
            pc.list_flatten(words), table.column("topic").combine_chunks().take(rows), "\t"
        )
        hits = rows.filter(pc.is_in(own, value_set=pa.array(keys, pa.string())))
        if len(hits):
            numbers = pa.array(range(table.num_rows), hits.type)
            found = pc.or_(found, pc.is_in(numbers, value_set=hits))
    return found
