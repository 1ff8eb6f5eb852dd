"""A far table without a cluster: the catalog's own rules over a directory, with a clock that tests set.

Rules of this file
1. What an owner would do with its log is done at once; answers are those of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from orbitmq.protocol.far_table import (
    AddFiles,
    FilesChanged,
    FilesQuery,
    JobOpened,
    ListedFile,
    OpenJob,
    Recall,
    RecallRows,
    RecallsQuery,
    ReplaceFiles,
    RowsRecalled,
    TableFile,
    TableStatus,
)
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table import jobs, recalls
from orbitmq.timing.far_table.catalog import MANIFEST_FILE, Catalog, Decided, Rules
from orbitmq.timing.far_table.changes import Closed, Created, RowName
from orbitmq.timing.far_table.table_file import TABLE_FILE, TableHead, encode_head

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RULES = Rules(horizon_ms=2 * DAY_MS, margin_ms=HOUR_MS, lease_ms=60_000, grant_rows=10_000)


class MemoryCatalog:
    """Answers what the owner would answer. `before_add` and `before_replace` let something happen in between."""

    def __init__(self, directory: Path, now_ms: int, *, bucket_ms: int = HOUR_MS) -> None:
        self.directory = directory
        self.now_ms = now_ms
        self.state = Catalog()
        self.table = "table-1"
        self.calls: list[str] = []
        self.before_add: Callable[[], None] = lambda: None
        self.before_replace: Callable[[], None] = lambda: None
        self.after_add: Callable[[], None] = lambda: None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / TABLE_FILE).write_bytes(encode_head(TableHead(table=self.table, bucket_ms=bucket_ms)))
        self._take(Decided(FilesChanged(verdict="ok"), (Created(self.table, bucket_ms),)))  # type: ignore[arg-type]

    @property
    def storage(self) -> Storage:
        return Storage.at(str(self.directory))

    def _take(self, decided: Decided) -> object:
        if decided.changes:
            self.state.apply_record(self.state.record(decided.changes))
        return decided.answer

    # --- what jobs ask --------------------------------------------------------------------------------------------------

    def status(self) -> TableStatus:
        return recalls.table_status(self.state, self.now_ms, RULES, str(self.directory))

    def open_job(self, job: str, epoch: int) -> JobOpened:
        self.calls.append("open")
        return cast(
            JobOpened, self._take(jobs.open_job(self.state, OpenJob(self.table, job, epoch), self.now_ms, RULES))
        )

    def add(self, job: str, epoch: int, attempt: int, files: Sequence[TableFile]) -> FilesChanged:
        self.calls.append("add")
        self.before_add()
        request = AddFiles(self.table, job, epoch, attempt, list(files))
        answer = self._take(jobs.add_files(self.state, request, self.now_ms, set(self.names())))
        self.after_add()
        return cast(FilesChanged, answer)

    def replace(
        self,
        job: str,
        epoch: int,
        attempt: int,
        old_names: Sequence[str],
        new_files: Sequence[TableFile],
        from_ms: int,
    ) -> FilesChanged:
        self.calls.append("replace")
        self.before_replace()
        request = ReplaceFiles(self.table, job, epoch, attempt, list(old_names), list(new_files), from_ms)
        decided = jobs.replace_files(self.state, request, self.now_ms, set(self.names()))
        return cast(FilesChanged, self._take(decided))

    def files(self) -> list[ListedFile]:
        return recalls.files_page(self.state, FilesQuery(self.table)).files

    def recalls(self, from_ms: int, until_ms: int) -> list[Recall]:
        return recalls.recalls_page(self.state, RecallsQuery(self.table, from_ms, until_ms)).recalls

    # --- what others do meanwhile ---------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of the files on the storage."""
        return [*self.storage.names("landing"), *self.storage.names("buckets")]

    def close_until(self, until_ms: int) -> None:
        """Every bucket before this time is closed, as if brokers had come for them."""
        bucket_ms = self.state.bucket_ms
        while (start := self.state.next_bucket()) is not None and start < until_ms:
            self._take(Decided(self.status(), (Closed(start),)))
        last = until_ms // bucket_ms * bucket_ms - bucket_ms
        if self.state.frontier_ms is None or self.state.frontier_ms <= last:
            self._take(Decided(self.status(), (Closed(last),)))

    def recall(self, topic: str, message_id: str, due_ms: int) -> RowsRecalled:
        request = RecallRows(self.table, topic, message_id=message_id, due_ms=due_ms)
        decided = recalls.recall_rows(self.state, request, [RowName(due_ms, topic, message_id)])
        return cast(RowsRecalled, self._take(decided))

    def remove_garbage(self) -> None:
        names = list(self.state.garbage)
        for name in names:
            self.storage.remove(name)
        self._take(Decided(self.status(), jobs.deleted(self.state, names)))

    def publish(self) -> None:
        self.storage.write(MANIFEST_FILE, self.state.to_bytes())
