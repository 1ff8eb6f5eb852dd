"""The judge of the columns: rows made one record at a time with the plain decoders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.columns.records import examine, layout_batch
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.ids import encode_offset_id, host_text
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import compression_of


def record_batch(data: bytes, starts: Any, names: Sequence[str], broker_name: str | None, form: PropertiesForm) -> Any:
    """The records that begin there, all of them sound, as one batch of columns."""
    found = examine(data, starts)
    assert not found.damaged
    return layout_batch(data, found.layout, names, broker_name=broker_name, properties=form)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or abs(milliseconds) > (2**63 - 1) // 1000:
        return None
    return milliseconds * 1000


def deliver_ms(properties: Mapping[str, str]) -> int | None:
    def number(name: str) -> int | None:
        text = properties.get(name, "")
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,15}", text, re.ASCII) else None

    stated = number("TIMER_DELIVER_MS")
    if "TIMER_DELAY_SEC" in properties or "TIMER_DELAY_MS" in properties:
        stated = None
    for value in (number("ORBITMQ_DUE_MS"), stated, number("TIMER_OUT_MS")):
        if value is not None:
            return value
    return None


def plain_row(record: Record, broker_name: str | None, properties: PropertiesForm) -> dict[str, Any]:
    """Times as microseconds, a map as a dictionary."""
    values = decode_properties(record.properties)
    compression = compression_of(record.sys_flag)
    shown: Any = {
        PropertiesForm.MAP: values,
        PropertiesForm.JSON: json.dumps(values, ensure_ascii=False, separators=(",", ":")),
        PropertiesForm.NONE: None,
    }[properties]
    return {
        "topic": record.topic,
        "flag": record.flag,
        "body": record.body if compression is None else decompress(record.body, compression),
        "properties": shown,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "bornTimestamp": microseconds(record.born_timestamp),
        "storeTimestamp": microseconds(record.store_timestamp),
        "msgId": values.get("UNIQ_KEY") or encode_offset_id(record.store_host, record.physical_offset),
        "tags": values.get("TAGS"),
        "keys": values.get("KEYS"),
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag,
        "commitLogOffset": record.physical_offset,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "deliverTimestamp": microseconds(deliver_ms(values)),
    }


def plain_rows(
    data: bytes, starts: Sequence[int], names: Sequence[str], broker_name: str | None, properties: PropertiesForm
) -> list[dict[str, Any]]:
    rows = []
    for start in starts:
        row = plain_row(decode_record(data, start), broker_name, properties)
        rows.append({name: row[name] for name in names})
    return rows


def batch_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, in the form of `plain_rows`. A name that a map has twice is an error here."""
    batch.validate(full=True)
    columns: dict[str, list[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            column = column.view(pa.int64())
        values = column.to_pylist()
        if pa.types.is_map(field.type):
            for pairs in values:
                assert len({name for name, _ in pairs}) == len(pairs), "a name stands twice in a map"
            values = [dict(pairs) for pairs in values]
        columns[field.name] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
