"""Messages as files of a broker's far tier.

A row is a message as its sender meant it: no broker has stored it yet. What a broker that takes it in would add stands in the file
already, so that it is a file of the tier like any other: the record of each row, but for its position, which is its number in the file.

Rules of this file
1. A message that came this way has the properties that it would have if it had been sent one by one, in that order.
2. No row becomes a Python object, but for the checksum of its body.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import RecordError
from orbitmq.limits.far import FAR_ROW_GROUP_ROWS
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.protocol.ids import host_text
from orbitmq.protocol.names import FAR_TIMER_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import MagicCode, Record, encode_record
from orbitmq.protocol.sysflag import SysFlag
from orbitmq.spark.writing.encoding import encoded_maps
from orbitmq.store.message import LOCAL_HOST
from orbitmq.store.placing import CRC_MASK
from orbitmq.timing.far.columns import SCHEMA, parquet_bytes

MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("deliverTimestamp", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("queueId", pa.int32()),
        pa.field("body", pa.binary()),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.string()),
        pa.field("shardingKey", pa.string()),
        pa.field("msgId", pa.string()),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
        pa.field("flag", pa.int32()),
        pa.field("bornTimestamp", pa.int64()),
    ]
)
"""Messages on their way into files. properties: those of users alone."""

_CONSTANT: Final = (
    "sysFlag", "reconsumeTimes", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "transactionOffset",
    "queueOffset", "flag", "queueId", "topic", "tags", "properties.key_value.key",
)  # fmt: skip
"""Columns with few different values."""

_PLAIN: Final = frozenset(SCHEMA.names) - {"deliverTimestamp"}
"""Nobody looks for a range of these in a loaded file."""


class Host(NamedTuple):
    """What the broker of a load gives each of its messages. own: properties, as stored. precision_ms: width of a slot."""

    store_host: bytes
    own: bytes
    precision_ms: int


def loaded_table(messages: pa.Table, host: Host, now_ms: int) -> pa.Table:
    """The rows of a file: messages of `MESSAGE_SCHEMA` whose queues are chosen, sorted by due time. They were checked
    (`row_checks`). RecordError for one with too many properties."""
    messages = _sorted(messages).combine_chunks()
    count = messages.num_rows
    raw = _stored_properties(messages, host)
    bodies = messages.column("body").combine_chunks()
    flags = SysFlag.STORE_HOST_V6.value if len(host.store_host) > len(LOCAL_HOST) else 0
    sizes = pc.add(pc.add(pc.binary_length(bodies), pc.binary_length(raw)), _empty_size(host.store_host, flags))
    numbers = pa.array(np.arange(count, dtype=np.int64))
    values: dict[str, Any] = {
        "commitLogOffset": numbers,
        "bodyCrc": np.fromiter((crc32(body) & CRC_MASK for body in bodies.to_pylist()), np.int32, count),
        "sysFlag": flags,
        "reconsumeTimes": 0,
        "storeTimestamp": now_ms,
        "bornHost": host_text(LOCAL_HOST),
        "storeHost": host_text(host.store_host),
        "queueOffset": 0,
        "transactionOffset": 0,
        "size": sizes,
        "rawProperties": raw,
    }
    arrays = []
    for field in SCHEMA:
        value = values[field.name] if field.name in values else messages.column(field.name).combine_chunks()
        if not isinstance(value, pa.Array):
            value = pa.array(value) if isinstance(value, np.ndarray) else repeated(value, field.type, count)
        arrays.append(value if value.type == field.type else value.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def loaded_bytes(table: pa.Table) -> pa.Buffer:
    """The Parquet file."""
    return parquet_bytes(table, group_rows=FAR_ROW_GROUP_ROWS, repeating=_CONSTANT, plain=_PLAIN)


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column of one value."""
    return pa.array([value], kind).take(pa.array(np.zeros(count, np.int32)))


def _sorted(table: pa.Table) -> pa.Table:
    """By due time; rows with one due time stay in the order in which they came."""
    times = np.asarray(table.column("deliverTimestamp"))
    return table if (times[:-1] <= times[1:]).all() else table.take(pa.array(np.argsort(times, kind="stable")))


def _empty_size(store_host: bytes, flags: int) -> int:
    """Bytes of a far record without body and properties."""
    empty = Record(
        magic=MagicCode.V1, body_crc=0, queue_id=0, flag=0, queue_offset=0, physical_offset=0, sys_flag=flags,
        born_timestamp=0, born_host=LOCAL_HOST, store_timestamp=0, store_host=store_host, reconsume_times=0,
        prepared_transaction_offset=0, body=b"", topic=FAR_TIMER_TOPIC, properties=b"",
    )  # fmt: skip
    return len(encode_record(empty))


def _stored_properties(table: pa.Table, host: Host) -> pa.Array:
    """All properties of each row's record, as stored. Cost: about 1 us a row."""
    due = table.column("deliverTimestamp")
    slots = pc.multiply(pc.divide(pc.subtract(due, 1), host.precision_ms), host.precision_ms)  # slot_time
    due_text = due.cast(pa.string())
    parts: list[Any] = [f"{Property.WAIT}\x01true\x02".encode()]
    for name, column in (
        (Property.UNIQ_KEY, table.column("msgId")),
        (Property.TIMER_DELIVER_MS, due_text),
        (Property.TAGS, table.column("tags")),
        (Property.KEYS, table.column("keys")),
        (Property.SHARDING_KEY, table.column("shardingKey")),
    ):
        parts += _entry(name, column)
    users = table.column("properties")
    if any(maps.offsets[0] != maps.offsets[len(maps)] for maps in users.chunks):
        parts.append(_user_properties(users))
    parts.append(host.own)
    for name, column in (
        (Property.TIMER_OUT_MS, slots.cast(pa.string())),
        (Property.REAL_TOPIC, table.column("topic")),
        (Property.REAL_QID, table.column("queueId").cast(pa.string())),
        (Property.DUE_MS, due_text),
    ):
        parts += _entry(name, column)
    found = pc.binary_join_element_wise(*_merged(parts), b"")
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    longest = pc.max(pc.binary_length(found)).as_py()
    if longest is not None and longest > PROPERTIES_BYTES_MAX:
        raise RecordError(f"a row has {longest} bytes of properties, the limit is {PROPERTIES_BYTES_MAX}")
    return found


def _entry(name: str, column: pa.ChunkedArray) -> list[Any]:
    """What a property of each row is joined of: bytes that all have, and a column. Nothing where a row has none."""
    begin = f"{name}\x01".encode()
    values = column.cast(pa.binary())
    if not column.null_count:
        return [begin, values, b"\x02"]
    if column.null_count == len(column):
        return []
    return [pc.fill_null(pc.binary_join_element_wise(begin, values, b"\x02", b""), b"")]


def _merged(parts: list[Any]) -> list[Any]:
    """The same with neighbouring bytes as one, so that each row is put together once."""
    merged: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _user_properties(column: pa.ChunkedArray) -> pa.ChunkedArray:
    def encoded(maps: pa.MapArray) -> pa.Array:
        offsets = np.asarray(maps.offsets)
        begin, end = int(offsets[0]), int(offsets[len(maps)])
        if begin == end:
            return repeated(b"", pa.binary(), len(maps))
        return encoded_maps(maps.keys.slice(begin, end - begin), maps.items.slice(begin, end - begin), offsets - begin)

    return pa.chunked_array([encoded(chunk) for chunk in column.chunks], pa.binary())
