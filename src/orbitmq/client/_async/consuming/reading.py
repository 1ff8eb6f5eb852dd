"""Messages out of the bytes of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.client._async.runtime import offload
from orbitmq.limits.wire import DECOMPRESSED_BYTES_MAX
from orbitmq.protocol.batches import unwrap_inner_batch
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.filtering.tags import TagFilter
from orbitmq.protocol.properties import Property, find_property
from orbitmq.protocol.records import Record, decode_records
from orbitmq.protocol.remoting.frame import Buffer
from orbitmq.protocol.sysflag import SysFlag, compression_of

_TAGS = Property.TAGS.encode()
_INNER_BATCH = SysFlag.INNER_BATCH.value | SysFlag.NEEDS_UNWRAP.value


def records_of(body: Buffer) -> list[Record]:
    """All records, inner batches as their messages. `RecordError` where the bytes are no record."""
    records = decode_records(bytes(body))
    if any(record.sys_flag & _INNER_BATCH == _INNER_BATCH for record in records):
        return [inner for record in records for inner in _messages_of(record)]
    return records


def wanted_records(body: Buffer, tag_filter: TagFilter, offset_delta: int = 0) -> list[Record]:
    """Records with a wanted tag, compared by text; `offset_delta` is added to their queue offsets (a queue of a static topic)."""
    records = records_of(body)
    if not tag_filter.accepts_all:
        records = [record for record in records if is_wanted(record, tag_filter)]
    if offset_delta:
        for record in records:
            record.queue_offset += offset_delta
    return records


def is_wanted(record: Record, tag_filter: TagFilter) -> bool:
    """Whether a record has a wanted tag, compared by text."""
    return tag_filter.accepts_all or tag_filter.accepts_tag(find_property(record.properties, _TAGS))


def _messages_of(record: Record) -> Iterator[Record]:
    if record.sys_flag & _INNER_BATCH == _INNER_BATCH:
        yield from unwrap_inner_batch(record)
    else:
        yield record


async def restore_body(record: Record) -> bytes:
    """The body as it was sent. Large compressed ones are restored on a thread.

    `RecordError` when it is damaged or grows beyond `DECOMPRESSED_BYTES_MAX`, `ProtocolError` for an unknown codec.
    """
    compression = compression_of(record.sys_flag)
    if compression is None:
        return record.body
    return await offload(len(record.body), decompress, record.body, compression, DECOMPRESSED_BYTES_MAX)
