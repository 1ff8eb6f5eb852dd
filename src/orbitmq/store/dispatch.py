"""From records to what is derived of them: consume queues, key index, pending delays.

Rules of this file
1. A derived structure is a cache of the log. It says up to which position it is complete, and recovery feeds it the rest.
2. Entries are given in log order, each exactly once per process; a structure must ignore what it already holds.
3. An entry made from a record read back is equal to the one made when the record was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType


class Dispatched(msgspec.Struct, gc=False, frozen=True):
    """One stored record, as derived structures see it."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    unique_key: str | None
    keys: str | None
    sys_flag: int
    prepared_transaction_offset: int
    properties: bytes

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size

    @property
    def has_queue_unit(self) -> bool:
        """Half and rolled-back records of old transactions have no place in a consume queue."""
        return self.sys_flag & TRANSACTION_MASK not in (TransactionType.PREPARED, TransactionType.ROLLBACK)


class Derived(Protocol):
    """A cache of the log that is kept beside it."""

    @property
    def name(self) -> str:
        """Under which the recovery mark keeps its position."""
        ...

    def apply(self, entries: Sequence[Dispatched]) -> None:
        """Take in entries that follow those of the previous call. May raise OSError: the store takes no more
        messages then, and gives the same entries again when the trouble has passed (`is_passing_trouble`)."""
        ...

    def write(self) -> None:
        """Put what waits in memory into files, so that the state survives the end of the process."""
        ...

    def begin_sync(self) -> None:
        """Note what the next `datasync` has to cover: everything written so far. Runs on the owner's thread."""
        ...

    def datasync(self) -> None:
        """Make that durable. Blocks; runs on the flush thread, beside further `apply` and `write` calls.

        Raises OSError."""
        ...

    def state(self) -> object:
        """A small JSON-able value that the recovery mark keeps with the position, or None."""
        ...


DueTime = Callable[[dict[str, str], int], int]
"""(properties, store timestamp) of a record in the schedule topic -> its due time in milliseconds."""


def no_levels(properties: dict[str, str], store_timestamp: int) -> int:
    """`DueTime` for whoever reads records without asking when delayed messages are due."""
    return store_timestamp


def dispatched_from_record(record: Record, physical_offset: int, due_time: DueTime) -> Dispatched:
    """The entry of a record that was read from the log at `physical_offset`."""
    properties = decode_properties(record.properties)
    if record.topic == SCHEDULE_TOPIC and Property.DELAY in properties:
        tags_code = due_time(properties, record.store_timestamp)
    else:
        tags = properties.get(Property.TAGS)
        tags_code = java_hash(tags) if tags else 0
    return Dispatched(
        physical_offset,
        record.total_size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        tags_code,
        record.store_timestamp,
        properties.get(Property.UNIQ_KEY),
        properties.get(Property.KEYS),
        record.sys_flag,
        record.prepared_transaction_offset,
        bytes(record.properties),
    )
