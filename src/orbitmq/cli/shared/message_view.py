"""A stored record as a person or a script wants to see it.

Rules of this file
1. Bodies are decompressed within the usual bound; one that is not text is shown in base64 and says so.
2. Times are given as the record has them (milliseconds) in JSON and as UTC text in tables.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitmq.cli.shared.instants import instant

if TYPE_CHECKING:
    from orbitmq.protocol.records import Record

COLUMNS = ("store_time", "topic", "queue", "queue_offset", "tag", "keys", "body")
BODY_CHARS_IN_TABLE = 200


def message_view(record: Record, *, body: bool = True) -> dict[str, object]:
    """All of a record, with its body as text or base64."""
    from orbitmq.protocol.ids import encode_offset_id, host_text
    from orbitmq.protocol.properties import Property, decode_properties

    properties = decode_properties(record.properties)
    view: dict[str, object] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.total_size,
        "offset_message_id": encode_offset_id(record.store_host, record.physical_offset),
        "unique_key": properties.get(Property.UNIQ_KEY),
        "tag": properties.get(Property.TAGS),
        "keys": properties.get(Property.KEYS),
        "store_timestamp": record.store_timestamp,
        "store_time": instant(record.store_timestamp),
        "born_timestamp": record.born_timestamp,
        "born_time": instant(record.born_timestamp),
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "body_crc": record.body_crc,
        "properties": properties,
    }
    if body:
        view.update(_body_view(record))
    return view


def table_view(view: dict[str, object]) -> dict[str, object]:
    """The same for a table: a long body is cut and says how long it is."""
    text = str(view.get("body", ""))
    if len(text) > BODY_CHARS_IN_TABLE:
        text = f"{text[:BODY_CHARS_IN_TABLE]}... ({view.get('body_bytes')} bytes)"
    return {**view, "body": text}


def with_contents(
    row: dict[str, object], tag: str | None, properties: Mapping[str, str], body: bytes
) -> dict[str, object]:
    """What is known of a message that waits, and what it holds."""
    text, encoding = body_text(body)
    contents = {"body_bytes": len(body), "body": text, "body_encoding": encoding}
    return {**row, "tag": tag, "properties": dict(properties), **contents}


def body_of(record: Record) -> bytes:
    """The body as it was sent. `ProtocolError` when it cannot be decompressed."""
    from orbitmq.protocol.compression import decompress
    from orbitmq.protocol.sysflag import compression_of

    data = bytes(record.body)
    compression = compression_of(record.sys_flag)
    return data if compression is None else decompress(data, compression)


def _body_view(record: Record) -> dict[str, object]:
    from orbitmq.errors import ProtocolError

    data = bytes(record.body)
    view: dict[str, object] = {"body_bytes": len(data)}
    try:
        restored = body_of(record)
        if restored != data:
            view["body_bytes_uncompressed"] = len(restored)
        data = restored
    except ProtocolError as error:
        view["body_problem"] = str(error)
    text, encoding = body_text(data)
    return {**view, "body": text, "body_encoding": encoding}


def body_text(data: bytes) -> tuple[str, str]:
    """A body as text and the word `utf-8`, or as base64 and the word `base64` when it is no printable text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    if all(char.isprintable() or char in "\r\n\t" for char in text):
        return text, "utf-8"
    return base64.b64encode(data).decode(), "base64"
