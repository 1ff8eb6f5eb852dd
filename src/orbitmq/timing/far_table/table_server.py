"""The process that works on the files of a far table for a broker: reads requests from standard input, answers on standard output.

    python -m orbitmq.timing.far_table.table_server URL

Rules of this file
1. As in `timing/far/helper_loop`. pyarrow is imported here and nowhere in the broker's process.
2. Files of a table are never changed, so one that is open may stay open.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import msgspec

from orbitmq.errors import ProtocolError, StoreDamagedError
from orbitmq.protocol.far_table import ListedFile
from orbitmq.timing.far.helper_loop import run
from orbitmq.timing.far.open_files import OpenFiles
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far_table.bucket_rows import BucketRows, FilePart
from orbitmq.timing.far_table.catalog import MANIFEST_FILE, Catalog
from orbitmq.timing.far_table.row_pages import NAMES, RowPages, found_rows
from orbitmq.timing.far_table.rows import FarName, named_rows, rows_between
from orbitmq.timing.far_table.stamping import Stamp, stamped
from orbitmq.timing.far_table.table_calls import (
    BucketFacts,
    Create,
    Find,
    FoundRow,
    Look,
    Missing,
    OpenBucket,
    Publish,
    ReadPage,
    Remove,
    RowPage,
    Seen,
    TableCall,
    TakenRows,
    TakeRows,
    encode_slices,
)
from orbitmq.timing.far_table.table_file import TABLE_FILE, TableHead, decode_head, encode_head

OPEN_FILES_MAX: Final = 200
"""Files that are kept open with their footers."""
PLACES: Final = ("landing", "buckets")
END_OF_TIME_MS: Final = 1 << 62


class TableServer:
    """The files of the table at a URL or in a local directory."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        self._url = url
        self._given = storage
        self._storage: Storage | None = None
        self._open = OpenFiles(lambda: self.storage, "the far table", OPEN_FILES_MAX)
        self._bucket: tuple[OpenBucket, BucketRows] | None = None

    @property
    def storage(self) -> Storage:
        if self._storage is None:
            self._storage = self._given or Storage.at(self._url)
        return self._storage

    def perform(self, head: bytes, blob: bytes) -> tuple[object, bytes]:
        try:
            call: TableCall = msgspec.json.decode(head, type=TableCall)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a request about the far table's files cannot be read: {error}") from error
        match call:
            case Look():
                return self.look(), b""
            case Create():
                return self.create(call.head), b""
            case Publish():
                self.storage.write(MANIFEST_FILE, blob)
                return None, b""
            case Remove():
                self.remove(call.names)
                return None, b""
            case Missing():
                return self.missing(call.names), b""
            case Find():
                return self.find(call), b""
            case ReadPage():
                return self.read_page(call), b""
            case OpenBucket():
                return self.open_bucket(call), b""
            case TakeRows():
                return self.take_rows(call)

    # --- the table ----------------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        content = self.storage.read(TABLE_FILE)
        manifest = self.storage.read(MANIFEST_FILE)
        try:
            head = None if content is None else decode_head(content)
            version = None if manifest is None else Catalog.from_bytes(manifest).version
        except StoreDamagedError as error:
            raise FarUnreachableError(f"the far table at {self._url} is damaged: {error}") from error
        return Seen(head, version)

    def create(self, head: TableHead) -> TableHead:
        content = self.storage.read(TABLE_FILE)
        if content is None:
            for directory in PLACES:
                self.storage.make_directory(directory)
            self.storage.write(TABLE_FILE, encode_head(head))
            return head
        return decode_head(content)

    def missing(self, names: list[str]) -> list[str]:
        """Those that are not below the directories of a table: a listing of each, however many names there are."""
        there = {name for place in PLACES for name in self.storage.names(place)}
        return [name for name in names if name not in there]

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._open.forget(name)
            self.storage.remove(name)

    # --- rows -----------------------------------------------------------------------------------------------------------

    def find(self, call: Find) -> list[FoundRow]:
        wanted = [FarName(call.topic, call.message_id or call.key or "", call.message_id is not None)]
        found: list[FoundRow] = []
        for file in call.files:
            found += self._open.guarded(file.name, partial(self._find_in, file, call, wanted))
        found.sort(key=lambda row: (row.due_ms, row.message_id))
        return found[: call.limit]

    def _find_in(self, file: ListedFile, call: Find, wanted: list[FarName]) -> list[FoundRow]:
        part = part_of(file, call.from_ms, call.until_ms)
        found: list[FoundRow] = []
        for _, table in rows_between(self._open.get(file.name), part.from_ms, part.until_ms, NAMES):
            found += found_rows(table.filter(named_rows(table, wanted)))
        return found

    def read_page(self, call: ReadPage) -> RowPage:
        return RowPages(
            call,
            [part_of(file, call.from_ms, call.until_ms) for file in call.files],
            lambda number: self._open.get(call.files[number].name),
            lambda number, use: self._open.guarded(call.files[number].name, use),
        ).page()

    def open_bucket(self, call: OpenBucket) -> BucketFacts:
        self._bucket = None
        files = sorted(call.files, key=lambda file: file.name)
        rows = BucketRows(
            lambda number: self._open.get(files[number].name),
            [part_of(file, call.bucket_ms, call.until_ms) for file in files],
            guard=lambda number, use: self._open.guarded(files[number].name, use),
        )
        self._bucket = call, rows
        return BucketFacts(rows.count, dict(rows.topics))

    def take_rows(self, call: TakeRows) -> tuple[TakenRows, bytes]:
        if self._bucket is None or self._bucket[0].bucket_ms != call.bucket_ms:
            raise FarUnreachableError(f"the bucket {call.bucket_ms} is not open")
        opened, rows = self._bucket
        place = call.place
        stamp = Stamp(
            table=opened.table,
            bucket_ms=call.bucket_ms,
            precision_ms=place.precision_ms,
            own=place.own,
            store_host=place.store_host,
            body_bytes_max=place.body_bytes_max,
            queues=place.queues,
        )
        end, taken = rows.take(call.start, call.end - call.start, call.bytes_max)
        names = [(row.message.topic, row.message.message_id) for row in taken]
        messages = [stamped(row.row, row.message, stamp, row.problem) for row in taken]
        return TakenRows(end, names), encode_slices(messages, call.slice_rows)


def part_of(file: ListedFile, from_ms: int | None, until_ms: int | None) -> FilePart:
    """The rows of a file that count and are due from `from_ms` to before `until_ms`."""
    starts = [at for at in (from_ms, file.from_ms) if at is not None]
    ends = [at for at in (until_ms, file.until_ms) if at is not None]
    return FilePart(max(starts, default=0), min(ends, default=END_OF_TIME_MS))


def main(arguments: list[str]) -> None:
    (url,) = arguments
    run(TableServer(url).perform)


if __name__ == "__main__":
    main(sys.argv[1:])
