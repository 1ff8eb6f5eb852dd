"""What stands in the files of a store, as plain dictionaries for the command line and for tests.

Rules of this file
1. Values are as stored; times are milliseconds, offsets bytes, and names follow RocketMQ's spelling.
2. Everything is a generator: a gigabyte of log is dumped in the memory of one record.
3. Damage is part of the output (`"kind": "damage"`), never skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from orbitmq.errors import StoreError
from orbitmq.protocol.ids import encode_offset_id, host_text
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.files import Files
from orbitmq.store.inspection import (
    LogItemKind,
    StoredQueue,
    find_index_shape,
    open_index_files,
    read_queues,
    read_sequence,
    walk_log,
)
from orbitmq.store.mark import MarkFile


def dump_records(
    files: Files,
    root: Path,
    *,
    start: int = 0,
    topic: str | None = None,
    queue_id: int | None = None,
    commit_log: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Items of the commit log from physical offset `start` on: records, fillers, damage, and the end of the log.

    `topic` and `queue_id` pick records; the other kinds always come. Keys of a record: see `record_fields`.
    """
    log = read_sequence(files, commit_log or root / "commitlog")
    log = log._replace(files=[file for file in log.files if file.end > start])
    queues = {(queue.topic, queue.queue_id): queue for queue in read_queues(files, root)}

    def confirm(record: Record) -> bool:
        queue = queues.get((record.topic, record.queue_id))
        unit = queue.unit(record.queue_offset) if queue is not None else None
        return unit is not None and unit.physical_offset == record.physical_offset

    for item in walk_log(files, log, confirm=confirm, body=True):
        if item.physical_offset < start:
            continue
        if item.record is None:
            values: dict[str, Any] = {
                "kind": item.kind.value,
                "physicalOffset": item.physical_offset,
                "size": item.size,
            }
            if item.problem:
                values["problem"] = item.problem
            yield values
        elif (topic is None or item.record.topic == topic) and queue_id in (None, item.record.queue_id):
            yield record_fields(item.record)


def record_fields(record: Record) -> dict[str, Any]:
    """One record: its fields, the offset message id, properties as a dictionary, the body as stored (bytes)."""
    return {
        "kind": LogItemKind.RECORD.value,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.total_size,
        "storeTimestamp": record.store_timestamp,
        "bornTimestamp": record.born_timestamp,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "msgId": encode_offset_id(record.store_host, record.physical_offset),
        "properties": decode_properties(record.properties),
        "bodyCRC": record.body_crc,
        "body": record.body,
    }


def dump_units(
    files: Files, root: Path, topic: str, queue_id: int, *, first: int = 0, end: int | None = None
) -> Iterator[dict[str, int]]:
    """Units of one consume queue from queue offset `first` to before `end`."""
    queue = StoredQueue(files, root / "consumequeue" / topic / str(queue_id), topic, queue_id)
    for unit in queue.units(first, end):
        yield {
            "queueOffset": unit.queue_offset,
            "physicalOffset": unit.physical_offset,
            "size": unit.size,
            "tagsCode": unit.tags_code,
        }


def dump_index(files: Files, root: Path) -> Iterator[dict[str, Any]]:
    """Header and entries of every index file, oldest first. `StoreError` when their shape cannot be told."""
    shape = find_index_shape(files, root)
    if shape is None:
        if files.list_dir(root / "index"):
            raise StoreError(
                f"the numbers of slots and entries of the index files in {root / 'index'} cannot be told from the files"
            )
        return
    opened = open_index_files(files, root, shape)
    try:
        for file in opened:
            yield {
                "kind": "file",
                "file": file.path.name,
                "beginTimestamp": file.begin_timestamp,
                "endTimestamp": file.end_timestamp,
                "beginPhyOffset": file.begin_offset,
                "endPhyOffset": file.end_offset,
                "hashSlotCount": file.slots_used,
                "indexCount": file.count,
            }
            for number, entry in file.entries():
                yield {
                    "kind": "entry",
                    "file": file.path.name,
                    "number": number,
                    "keyHash": entry.key_hash,
                    "physicalOffset": entry.physical_offset,
                    "timeDiff": entry.time_diff_s,
                    "previous": entry.previous,
                }
    finally:
        for file in opened:
            file.close()


def dump_checkpoint(files: Files, root: Path) -> dict[str, int]:
    """Fields of the checkpoint page under RocketMQ's names; empty when there is none."""
    checkpoint = read_checkpoint(files, root / "checkpoint")
    if checkpoint is None:
        return {}
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
        "masterFlushedOffset": checkpoint.master_flushed_offset,
        "confirmPhyOffset": checkpoint.confirm_phy_offset,
    }


def dump_mark(files: Files, root: Path) -> dict[str, Any] | None:
    """The newest synced recovery mark of orbitmq; None when there is none."""
    mark = MarkFile(files, root).load("")
    return None if mark is None else msgspec.to_builtins(mark)
