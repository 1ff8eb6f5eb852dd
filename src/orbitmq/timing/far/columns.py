"""Far records as columns, and back.

The columns are those of our Spark rows where these have one, so that any reader of Parquet understands the files:

    deliverTimestamp timestamp(ms, UTC)   when it is due; files are sorted by it
    topic string, queueId int             where it goes
    body binary, tags string, keys string, msgId string (the unique key that the sender knows), properties map<string, string>
    flag int, sysFlag int, reconsumeTimes int, bodyCrc int
    bornTimestamp, storeTimestamp timestamp(ms, UTC); bornHost, storeHost string
    commitLogOffset bigint                position of the far record; plus one it is the source number
    queueOffset bigint                    its place in the far topic
    transactionOffset bigint              what it took the place of itself, 0 for a first record
    size int                              bytes of the record
    rawProperties binary                  only where reading the properties and writing them again gives other bytes

Rules of this file
1. Going there and back gives the bytes of the record.
2. Page checksums are always written: a flipped bit is a damaged file, not a strange message.
3. Row groups are small enough to read one for a little, and their bounds and page index say where to look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.protocol.ids import host_text, pack_host
from orbitmq.protocol.names import FAR_TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import MagicCode, Record, encode_record
from orbitmq.timing.far.changes import deliver_ms_of
from orbitmq.timing.timers.changes import known_key

TIME: Final = pa.timestamp("ms", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("deliverTimestamp", TIME, nullable=False),
        pa.field("commitLogOffset", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.string()),
        pa.field("msgId", pa.string()),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sysFlag", pa.int32(), nullable=False),
        pa.field("reconsumeTimes", pa.int32(), nullable=False),
        pa.field("bodyCrc", pa.int32(), nullable=False),
        pa.field("bornTimestamp", TIME, nullable=False),
        pa.field("storeTimestamp", TIME, nullable=False),
        pa.field("bornHost", pa.string(), nullable=False),
        pa.field("storeHost", pa.string(), nullable=False),
        pa.field("queueOffset", pa.int64(), nullable=False),
        pa.field("transactionOffset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("rawProperties", pa.binary()),
    ]
)

WITHOUT_BODY: Final = [name for name in SCHEMA.names if name != "body"]
ORDER: Final = [("deliverTimestamp", "ascending"), ("commitLogOffset", "ascending")]


def table_of(records: Iterable[Record]) -> pa.Table:
    """The records as rows, sorted. Raises RecordError for one that is no far record. Cost: about 15 us a record."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for record in records:
        properties = decode_properties(record.properties)
        queue_text = properties.get(Property.REAL_QID, "0")
        if not (queue_text.isascii() and queue_text.isdigit()) or int(queue_text) > 0x7FFFFFFF:
            raise RecordError(f"REAL_QID of the far record at {record.physical_offset} is {queue_text!r}")
        values = (
            deliver_ms_of(record),
            record.physical_offset,
            properties[Property.REAL_TOPIC],
            int(queue_text),
            record.body,
            properties.get(Property.TAGS),
            properties.get(Property.KEYS),
            known_key(properties) or None,
            list(properties.items()),
            record.flag,
            record.sys_flag,
            record.reconsume_times,
            record.body_crc,
            record.born_timestamp,
            record.store_timestamp,
            host_text(record.born_host),
            host_text(record.store_host),
            record.queue_offset,
            record.prepared_transaction_offset,
            record.total_size,
            None if encode_properties(properties) == record.properties else record.properties,
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA).sort_by(ORDER)


def placed(table: pa.Table, base: int) -> pa.Table:
    """Rows with the positions that they have outside their file, whose `base` this is."""
    if not base:
        return table
    at = table.schema.get_field_index("commitLogOffset")
    return table.set_column(at, SCHEMA.field("commitLogOffset"), pc.add(table.column(at), base))


def records_of(table: pa.Table) -> Iterator[bytes]:
    """The bytes of the record of every row; without the column `body`, with an empty body. Cost: about 20 us a record."""
    names = table.column_names
    numeric = table
    for name in ("bornTimestamp", "storeTimestamp"):
        at = names.index(name)
        numeric = numeric.set_column(at, name, numeric.column(name).cast(pa.int64()))
    drop = [name for name in ("deliverTimestamp", "topic", "queueId", "tags", "keys", "msgId", "size") if name in names]
    for row in numeric.drop_columns(drop).to_pylist():
        properties = row["rawProperties"]
        if properties is None:
            properties = encode_properties(dict(row["properties"]))
        yield encode_record(
            Record(
                magic=MagicCode.V1,
                body_crc=row["bodyCrc"],
                queue_id=0,
                flag=row["flag"],
                queue_offset=row["queueOffset"],
                physical_offset=row["commitLogOffset"],
                sys_flag=row["sysFlag"],
                born_timestamp=row["bornTimestamp"],
                born_host=_packed(row["bornHost"]),
                store_timestamp=row["storeTimestamp"],
                store_host=_packed(row["storeHost"]),
                reconsume_times=row["reconsumeTimes"],
                prepared_transaction_offset=row["transactionOffset"],
                body=row.get("body", b""),
                topic=FAR_TIMER_TOPIC,
                properties=properties,
            )
        )


def _packed(host: str) -> bytes:
    ip, _, port = host.rpartition(":")
    return pack_host(ip.strip("[]"), int(port))


KEY_SCHEMA: Final = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("deliver", pa.int64(), nullable=False),
        pa.field("source", pa.int64(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
    ]
)
"""The index by key of files that were written together; `file` counts them from 0. A name is `k` and a key, or `u` and the unique
key, then a tab and the topic."""

KEY_ORDER: Final = [("name", "ascending"), ("deliver", "ascending"), ("source", "ascending")]
INDEX_COLUMNS: Final = ["deliverTimestamp", "commitLogOffset", "topic", "keys", "msgId"]
"""Columns that an index is made from."""


def key_name(key: str, topic: str) -> str:
    return f"k{key}\t{topic}"


def id_name(message_id: str, topic: str) -> str:
    return f"u{message_id}\t{topic}"


def key_prefix(beginning: str) -> str:
    return f"k{beginning}"


def keys_of(table: pa.Table, number: int) -> pa.Table:
    """The entries of a sorted table of messages, the file `number` in an index; in any order. Cost: 0.5 us a row with a key."""
    words = pc.utf8_split_whitespace(pc.fill_null(table.column("keys"), "").combine_chunks())
    keys = _entries(table, "k", pc.list_flatten(words), pc.list_parent_indices(words))
    if keys.num_rows > len(words):  # a message may have one key twice
        keys = keys.group_by(["name", "row"]).aggregate([])
    ids = table.column("msgId").combine_chunks()
    entries = pa.concat_tables([keys, _entries(table, "u", ids, pa.array(range(len(ids)), pa.int64()))])
    rows = entries.column("row")
    deliver = table.column("deliverTimestamp").cast(pa.int64()).take(rows)
    source = pc.add(table.column("commitLogOffset"), 1).take(rows)
    files = pc.fill_null(pa.nulls(len(rows), pa.int32()), number)
    return pa.Table.from_arrays(
        [entries.column("name"), deliver, source, files, rows.cast(pa.int32())], schema=KEY_SCHEMA
    )


def _entries(table: pa.Table, kind: str, words: pa.Array, rows: pa.Array) -> pa.Table:
    """Names of these words of rows, and the rows, without empty words."""
    there = pc.fill_null(pc.not_equal(words, ""), False)
    words, rows = words.filter(there), rows.filter(there).cast(pa.int64())
    topics = table.column("topic").combine_chunks().take(rows)
    names = pc.binary_join_element_wise(pc.binary_join_element_wise(kind, words, ""), topics, "\t")
    return pa.table([names, rows], names=["name", "row"])


def parquet_bytes(
    table: pa.Table, *, group_rows: int, repeating: Sequence[str], plain: Collection[str] = ()
) -> pa.Buffer:
    """A table as the bytes of a Parquet file. repeating: columns with few different values, which are written as a dictionary. plain:
    columns that get no bounds, because nobody looks for a range of them."""
    sink = pa.BufferOutputStream()
    leaves = _leaves(table.schema)
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=group_rows,
        write_page_checksum=True,
        write_page_index=True,
        write_statistics=[leaf for leaf in leaves if leaf.partition(".")[0] not in plain] if plain else True,
        use_dictionary=list(repeating) or False,
    )
    return sink.getvalue()


def _leaves(schema: pa.Schema) -> list[str]:
    """Names of columns as Parquet counts them."""
    found: list[str] = []
    for field in schema:
        if pa.types.is_map(field.type):
            found += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        else:
            found.append(field.name)
    return found
