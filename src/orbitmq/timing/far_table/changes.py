"""What can happen to the catalog of the far table, as records of its owner's log.

A decision has one record, whose body is a line of JSON: the table, the version that the catalog has afterwards, and the changes.
One record, so that a torn end of the log never leaves half a decision.

Rules of this file
1. A change says everything that applying it needs beside the state itself; whether it is allowed was decided before.
2. Members are never taken away or given another meaning: logs are read by later programs.
"""

from __future__ import annotations

import msgspec

from orbitmq.errors import RecordError
from orbitmq.protocol.far_table import TableFile


class Change(msgspec.Struct, tag_field="change", omit_defaults=True):
    """Base of all changes."""


class Created(Change, tag="created"):
    table: str
    bucket_ms: int


class Opened(Change, tag="opened"):
    """A job is begun, or begun again. `forgets` is a job that is not remembered any more in its favour."""

    job: str
    epoch: int
    attempt: int
    split_ms: int
    at_ms: int
    forgets: str = ""


class Added(Change, tag="added"):
    job: str
    files: list[TableFile]
    at_ms: int


class Replaced(Change, tag="replaced"):
    job: str
    old_names: list[str]
    new_files: list[TableFile]
    from_ms: int
    at_ms: int


class Closed(Change, tag="closed"):
    """The bucket that begins at `bucket_ms`, and with it every one before: the open files that overlap it are its files."""

    bucket_ms: int


class Claimed(Change, tag="claimed"):
    bucket_ms: int
    first: int
    epoch: int
    broker: str
    store: str


class Begun(Change, tag="begun"):
    bucket_ms: int
    first: int
    allowed: int


class Advanced(Change, tag="advanced"):
    bucket_ms: int
    first: int
    stored: int
    allowed: int
    is_done: bool = False


class Released(Change, tag="released"):
    """The share ends at what was allowed; the rows behind are a share of their own. `gives_up`: it counts as finished."""

    bucket_ms: int
    first: int
    gives_up: bool = False


class RowName(msgspec.Struct, frozen=True, omit_defaults=True):
    """What names a row of the table wherever it lies: when it is due, its topic, its unique key. `keys`: its keys, by which
    somebody may ask for it again."""

    due_ms: int
    topic: str
    message_id: str
    keys: str = ""


class Recalled(Change, tag="recalled"):
    rows: list[RowName]


class Deleted(Change, tag="deleted"):
    """Files that the storage does not have any more."""

    names: list[str]


AnyChange = Created | Opened | Added | Replaced | Closed | Claimed | Begun | Advanced | Released | Recalled | Deleted


class ChangeRecord(msgspec.Struct):
    """Body of one record. `version` is the catalog's after all of these changes."""

    table: str
    version: int
    changes: list[AnyChange]


def encode_changes(record: ChangeRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_changes(body: bytes) -> ChangeRecord:
    """Raises RecordError for a body that is no record of the catalog."""
    try:
        return msgspec.json.decode(body, type=ChangeRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError(f"the body of a record of the far table's catalog cannot be read: {error}") from error
