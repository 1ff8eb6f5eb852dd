"""What a broker asks the process that works on the far table's files: requests, answers, and the calls that carry them.

Frames are those of the far tier's helper (`timing/far/frames`). A blob of messages is a list of slices; each one is MessagePack of
encoded messages and taken apart when its turn comes, so that no slice holds the event loop for long.

Rules of this file
1. Every call can be repeated: what was done twice looks as if done once.
2. Failures are those of `timing/far/tier`: out of reach, a damaged file, the process ended.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.protocol.far_table import ListedFile
from orbitmq.store.message import EncodedMessage
from orbitmq.timing.far.helper_process import HelperProcess
from orbitmq.timing.far_table.table_file import TableHead

MODULE: Final = "orbitmq.timing.far_table.table_server"


class Look(msgspec.Struct, tag="look"):
    """What lies at the URL: answers `Seen`."""


class Create(msgspec.Struct, tag="create"):
    """Write table.json where there is none: answers the `TableHead` that is there."""

    head: TableHead


class Publish(msgspec.Struct, tag="publish"):
    """Replace manifest.json; the blob holds it."""


class Remove(msgspec.Struct, tag="remove"):
    """Remove files that may be there."""

    names: list[str]


class Missing(msgspec.Struct, tag="missing"):
    """Which of these files the storage does not have."""

    names: list[str]


class Find(msgspec.Struct, tag="find"):
    """Rows of `topic` with this message id, or this key, due from `from_ms` to before `until_ms`: answers a list of `FoundRow`, at
    most `limit`, by due time."""

    files: list[ListedFile]
    topic: str
    message_id: str | None = None
    key: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    limit: int = 1


class ReadPage(msgspec.Struct, tag="page"):
    """Rows due from `from_ms` to before `until_ms` that meet every condition, by due time and message id, behind `after`, at most
    `limit`: answers `RowPage`."""

    files: list[ListedFile]
    topic: str | None = None
    message_id: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    from_ms: int = 0
    until_ms: int | None = None
    after: tuple[int, str] | None = None
    limit: int = 100


class FoundRow(msgspec.Struct):
    """A row without its body."""

    due_ms: int
    topic: str
    message_id: str
    keys: str = ""
    queue_id: int = -1
    born_ms: int = 0


class RowPage(msgspec.Struct):
    rows: list[FoundRow]
    after: tuple[int, str] | None = None
    """Where the next page begins; None on the last one."""
    is_too_wide: bool = False
    """More files than `FAR_TABLE_PAGE_FILES_MAX` would have to be opened for one page: there are no rows."""


class Place(msgspec.Struct):
    """What messages of this broker get, and where they may go."""

    precision_ms: int
    own: bytes
    store_host: bytes
    body_bytes_max: int
    queues: dict[str, int | str] = {}
    """Topic -> how many write queues it has here, or why it takes no message here."""


class OpenBucket(msgspec.Struct, tag="bucket"):
    """Read the order of a bucket's rows: answers `BucketFacts`. The rows are taken with `TakeRows` then."""

    table: str
    bucket_ms: int
    until_ms: int
    files: list[ListedFile]


class BucketFacts(msgspec.Struct):
    rows: int
    topics: dict[str, int]
    """Rows by topic."""


class TakeRows(msgspec.Struct, tag="take"):
    """Rows of the bucket that was opened last, from `start` to before `end`, as many as the bounds allow: answers their
    `TakenRows`, with the slices as blob. FarUnreachableError when another bucket is open."""

    bucket_ms: int
    start: int
    end: int
    bytes_max: int
    slice_rows: int
    place: Place


class TakenRows(msgspec.Struct):
    end: int
    """Number of the row behind them."""
    names: list[tuple[str, str]]
    """Topic and unique key of each."""


TableCall = Look | Create | Publish | Remove | Missing | Find | ReadPage | OpenBucket | TakeRows


class Seen(msgspec.Struct):
    """What the storage holds. `version` is that of the manifest, None where there is none."""

    head: TableHead | None
    version: int | None


_slices: Final = msgspec.msgpack.Decoder(list[bytes])
_messages: Final = msgspec.msgpack.Decoder(list[EncodedMessage])
_encoder: Final = msgspec.msgpack.Encoder()


def encode_slices(messages: list[EncodedMessage], slice_rows: int) -> bytes:
    return _encoder.encode(
        [_encoder.encode(messages[at : at + slice_rows]) for at in range(0, len(messages), slice_rows)]
    )


def decode_slices(blob: bytes) -> list[bytes]:
    return _slices.decode(blob)


def decode_messages(data: bytes) -> list[EncodedMessage]:
    """The messages of a slice. Cost: 0.4 us each."""
    return _messages.decode(data)


class TableFiles(HelperProcess):
    """The files of a far table, worked on by a process of its own. Every call blocks and may raise FarTierError."""

    def __init__(self, clock: Clock, url: str) -> None:
        super().__init__(clock, url, MODULE)

    def look(self) -> Seen:
        return self.ask(Look(), Seen)[0]

    def create(self, head: TableHead) -> TableHead:
        return self.ask(Create(head), TableHead)[0]

    def publish(self, manifest: bytes) -> None:
        self.ask(Publish(), type(None), manifest)

    def remove(self, names: list[str]) -> None:
        self.ask(Remove(names), type(None))

    def missing(self, names: list[str]) -> list[str]:
        return self.ask(Missing(names), list[str])[0]

    def find(self, request: Find) -> list[FoundRow]:
        return self.ask(request, list[FoundRow])[0]

    def read_page(self, request: ReadPage) -> RowPage:
        return self.ask(request, RowPage)[0]

    def open_bucket(self, request: OpenBucket) -> BucketFacts:
        return self.ask(request, BucketFacts)[0]

    def take_rows(self, request: TakeRows) -> tuple[TakenRows, list[bytes]]:
        """What was taken, and slices for `decode_messages`."""
        taken, blob = self.ask(request, TakenRows)
        return taken, decode_slices(blob)
