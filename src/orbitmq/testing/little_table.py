"""One broker that owns a far table and promotes from it, for tests: a small store, files read in this process, time and work
that move when told to.

Rules of this file
1. Nothing sleeps and nothing runs in the background: `turn` and `advance` are all that happens.
2. `kill` ends the store as the kernel ends a killed process.
3. Importing it needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from orbitmq.clock import ManualClock
from orbitmq.protocol.far_table import (
    AddFiles,
    FilesChanged,
    JobOpened,
    OpenJob,
    StatusQuery,
    TableAnswer,
    TableFile,
    TableStatus,
)
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.testing.little_store import SMALL, SteppedWorker, close_as_killed
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far_table.catalog import Rules
from orbitmq.timing.far_table.catalog_log import CatalogLog
from orbitmq.timing.far_table.owner import TableOwner
from orbitmq.timing.far_table.promoted_rows import PromotedRows
from orbitmq.timing.far_table.promoting import Promotion
from orbitmq.timing.far_table.requests import AnyRequest
from orbitmq.timing.far_table.rows import facts_of, file_bytes, table_of
from orbitmq.timing.far_table.table_calls import (
    BucketFacts,
    Find,
    FoundRow,
    OpenBucket,
    Place,
    ReadPage,
    RowPage,
    Seen,
    TakenRows,
    TakeRows,
    decode_slices,
)
from orbitmq.timing.far_table.table_file import TableHead
from orbitmq.timing.far_table.table_server import TableServer

BUCKET_MS = 10_000
ROUNDS_MAX = 3_000
"""Turns after which a request must have been answered."""


class LocalFiles:
    """The helper's work, done here. While `is_away` every call fails."""

    def __init__(self, url: Path) -> None:
        self.server = TableServer(str(url))
        self.is_away = False

    def _there(self) -> TableServer:
        if self.is_away:
            raise FarUnreachableError("the storage is away")
        return self.server

    def look(self) -> Seen:
        return self._there().look()

    def create(self, head: TableHead) -> TableHead:
        return self._there().create(head)

    def publish(self, manifest: bytes) -> None:
        self._there().storage.write("manifest.json", manifest)

    def remove(self, names: list[str]) -> None:
        self._there().remove(names)

    def missing(self, names: list[str]) -> list[str]:
        return self._there().missing(names)

    def find(self, request: Find) -> list[FoundRow]:
        return self._there().find(request)

    def read_page(self, request: ReadPage) -> RowPage:
        return self._there().read_page(request)

    def open_bucket(self, request: OpenBucket) -> BucketFacts:
        return self._there().open_bucket(request)

    def take_rows(self, request: TakeRows) -> tuple[TakenRows, list[bytes]]:
        taken, blob = self._there().take_rows(request)
        return taken, decode_slices(blob)

    def stop(self) -> None:
        return None


class Desk:
    """Every topic has four queues, but one."""

    def queues(self, topics: Collection[str]) -> dict[str, int | str]:
        return {topic: "no topic is made for it" if topic == "forbidden" else 4 for topic in topics}


class LittleTable:
    """An open store with the table beside it."""

    def __init__(self, root: Path, clock: ManualClock, url: Path | None = None, **settings: Any) -> None:
        self.url = url or root / "table"
        self.clock = clock
        self.worker, self.owner_worker, self.far_worker = SteppedWorker(), SteppedWorker(), SteppedWorker()
        self.files = LocalFiles(self.url)
        self.log = CatalogLog(OsFiles(), root / "store")
        self.rows = PromotedRows(OsFiles(), root / "store", clock)
        self.store = open_store(
            root / "store",
            msgspec.structs.replace(SMALL, mapped_file_size_commit_log=256 * 1024, **settings),
            OsFiles(),
            clock,
            notify=lambda call: call(),
            derived=[self.log, self.rows],
            worker=self.worker,
        )
        self.owner = TableOwner(
            self.log,
            clock,
            self.files,
            self.owner_worker,
            url=str(self.url),
            rules=Rules(horizon_ms=30_000, margin_ms=5_000, lease_ms=6_000, grant_rows=50),
            bucket_ms=BUCKET_MS,
            new_table=lambda: "table-1",
        )
        place = Place(1_000, b"CLUSTER\x01c\x02", bytes(8), 4_096)
        self.promotion = Promotion(
            self.rows, clock, self.files, self.far_worker, self.owner, Desk(), place, broker="broker-a"
        )
        self.owner.attach(self.store)
        self.promotion.attach(self.store)

    def turn(self) -> bool:
        """One turn and one job of each thread; False when there was nothing to do."""
        self.store.deadlines.run_due(self.clock.monotonic_ns())
        self.store.commit()
        worked = [worker.step() for worker in (self.worker, self.owner_worker, self.far_worker)]
        self.store.commit()
        return any(worked)

    def advance(self, ms: int) -> None:
        """Let time pass, ten milliseconds at a time, and do what there is to do."""
        for _ in range(ms // 10):
            self.clock.advance(10)
            while self.turn():
                pass

    def ask(self, request: AnyRequest) -> Any:
        """The owner's answer. Raises what it tells."""
        told: list[TableAnswer | Exception] = []
        self.owner.ask(request, told.append)
        for _ in range(ROUNDS_MAX):
            if told:
                break
            self.turn()
            self.clock.advance(1)
        (answer,) = told
        if isinstance(answer, Exception):
            raise answer
        return answer

    def status(self) -> TableStatus:
        status: TableStatus = self.ask(StatusQuery())
        return status

    def write(self, name: str, rows: list[dict[str, Any]]) -> TableFile:
        table = table_of(rows)
        content = file_bytes(table).to_pybytes()
        path = self.url / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        facts = facts_of(table)
        return TableFile(name, facts.rows, len(content), facts.min_due_ms, facts.max_due_ms)

    def open(self, job: str = "job", epoch: int = 0) -> JobOpened:
        opened: JobOpened = self.ask(OpenJob("table-1", job, epoch))
        return opened

    def add(self, opened: JobOpened, *files: TableFile, job: str = "job", epoch: int = 0) -> FilesChanged:
        changed: FilesChanged = self.ask(AddFiles("table-1", job, epoch, opened.attempt, list(files)))
        return changed

    def records(self, topic: str = TIMER_TOPIC) -> list[Record]:
        queue = self.store.queues.get(topic, 0)
        if queue is None:
            return []
        views = [self.store.record_at(unit[0]) for unit in queue.scan(queue.min_offset, queue.max_offset)]
        return [decode_record(bytes(view)) for view in views if view is not None]

    def stored(self) -> list[str]:
        """Unique keys of the rows in the wheel's topic."""
        return [decode_properties(record.properties)["UNIQ_KEY"] for record in self.records()]

    def quarantined(self) -> list[str]:
        """Why rows are in quarantine."""
        return [
            decode_properties(record.properties)["ORBITMQ_QUARANTINE_REASON"]
            for record in self.records(QUARANTINE_TOPIC)
        ]

    def close(self) -> None:
        self.promotion.close()
        self.owner.close()
        self.store.close()

    def kill(self) -> None:
        """Nothing that waits is done any more."""
        close_as_killed(self.store)


def table_rows(start_ms: int, count: int, step_ms: int = 100, part: str = "m") -> list[dict[str, Any]]:
    """Messages, so many milliseconds apart."""
    return [
        {
            "deliverTimestamp": start_ms + number * step_ms,
            "topic": "Topic",
            "body": b"body %d" % number,
            "msgId": f"{part}{number}",
            "keys": f"key-{number % 3}",
        }
        for number in range(count)
    ]
