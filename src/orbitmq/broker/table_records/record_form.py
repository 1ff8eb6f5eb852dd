"""Records of tables: what is written when a table changes, and reading it.

A record is JSON of version 1 in the topic `orbitmq_sys_tables`:

* `{"version": 1, "kind": "changed", "table": ..., "tableVersion": [counter, state, timestamp], "put": {key: value}, "deleted": [key]}`:
  the last word on some keys of a table.
* `{"version": 1, "kind": "dropped", "table": ...}`: what was recorded of a table counts no more; its file does.
* `{"version": 1, "kind": "ended", "topic": ...}`: a topic was deleted; what was sent to it before has no place in a queue any more.
  The name stands in a property as well, so that consume queues know without reading the record.

Rules of this file
1. A record has a bounded size, or one key.
2. How versions follow each other, and what becomes of a record that cannot be read: `versioned_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits.broker import TABLE_RECORD_BYTES_MAX
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.protocol.versioned_json import decode_versioned

VERSION: Final = 1


def record_bytes_max(log_file_bytes: int) -> int:
    """Where log files are small, several records fit one."""
    return min(TABLE_RECORD_BYTES_MAX, log_file_bytes // 4)


class Changed(msgspec.Struct, frozen=True, tag_field="kind", tag="changed", rename="camel"):
    version: int
    table: str
    put: dict[str, msgspec.Raw] = {}
    deleted: Sequence[str] = ()
    table_version: tuple[int, int, int] | None = None

    def values(self) -> dict[str, bytes | None]:
        """What each key says; None: nothing."""
        found: dict[str, bytes | None] = {key: bytes(value) for key, value in self.put.items()}
        found.update(dict.fromkeys(self.deleted))
        return found

    def data_version(self) -> DataVersion | None:
        if self.table_version is None:
            return None
        counter, state, timestamp = self.table_version
        return DataVersion(counter=counter, state_version=state, timestamp=timestamp)


class Dropped(msgspec.Struct, frozen=True, tag_field="kind", tag="dropped"):
    version: int
    table: str


class Ended(msgspec.Struct, frozen=True, tag_field="kind", tag="ended"):
    version: int
    topic: str


Record = Changed | Dropped | Ended


_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


class ChangePart(NamedTuple):
    """One record about some keys."""

    put: list[str]
    """Keys that have a value."""
    deleted: list[str]
    body: bytes


def change_parts(
    table: str, version: DataVersion, values: Iterable[tuple[str, bytes | None]], bytes_max: int
) -> Iterator[ChangePart]:
    """The records that say so of these keys, each of at most about `bytes_max` bytes, or with one key. The next is made when it is asked
    for."""
    put: dict[str, msgspec.Raw] = {}
    deleted: list[str] = []
    size = 0

    def part() -> ChangePart:
        stamp = (version.counter, version.state_version, version.timestamp)
        return ChangePart([*put], deleted, msgspec.json.encode(Changed(VERSION, table, put, deleted, stamp)))

    for key, value in values:
        added = len(key) + 8 + (0 if value is None else len(value))
        if (put or deleted) and size + added > bytes_max:
            yield part()
            put, deleted, size = {}, [], 0
        size += added
        if value is None:
            deleted.append(key)
        else:
            put[key] = msgspec.Raw(value)
    if put or deleted:
        yield part()


def encode_dropped(table: str) -> bytes:
    return msgspec.json.encode(Dropped(VERSION, table))


def encode_ended(topic: str) -> tuple[bytes, bytes]:
    """Body and properties of the record that a topic was deleted."""
    return msgspec.json.encode(Ended(VERSION, topic)), encode_properties({Property.ENDED_TOPIC: topic})


def decode(data: bytes, where: str) -> Record:
    """The record of a stored form. RecordError, which says `where` it was, when it is none or of a newer version."""
    remedy = "look at the table that misses something, and change it again; the record stays as it is"
    return decode_versioned(data, _DECODER, VERSION, what="a table", where=where, remedy=remedy)
