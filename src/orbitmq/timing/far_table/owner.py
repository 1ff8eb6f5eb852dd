"""The owner of the far table: answers every request about its catalog, and looks after `table.json`, `manifest.json` and garbage.

Rules of this file
1. One decision at a time: the next is made when the log has given back the record of the one before, so every decision sees what
   holds. A decision that changes nothing is answered at once, one that does when its record is as durable as the flush mode says.
2. What takes long (looking for rows, asking the storage) happens before the decision and elsewhere; the decision is made of the
   state that holds then.
3. Nothing is answered before a start has compared the log with what lies at the URL: an owner that was restored from a backup, or
   is not the owner, would give away what was given. Later, while the storage is away, requests that do not need it are answered.
4. Garbage goes when the saved catalog does not speak of it any more and its copy lies beside the table, not before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.far import (
    FAR_RETRY_MS,
    FAR_RETRY_MS_MAX,
    FAR_TABLE_PAGE_ITEMS,
    FAR_TABLE_RECALL_ROWS_MAX,
    FAR_TABLE_REQUESTS_MAX,
    FAR_TABLE_SEARCH_ROWS_MAX,
    FAR_TABLE_SNAPSHOT_MS,
)
from orbitmq.protocol.far_table import (
    AddFiles,
    AdvanceShare,
    BeginShare,
    ClaimShare,
    FilesQuery,
    FindRows,
    OpenJob,
    RecallRows,
    RecallsQuery,
    ReleaseShare,
    ReplaceFiles,
    RowsRecalled,
    StatusQuery,
    TableAnswer,
    TableVerdict,
)
from orbitmq.protocol.names import FAR_TABLE_TOPIC
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.tier import FarBusyError, FarFileDamagedError, FarTierError, FarUnreachableError
from orbitmq.timing.far_table.catalog import Decided, Rules
from orbitmq.timing.far_table.catalog_log import CatalogLog
from orbitmq.timing.far_table.changes import AnyChange, Created, RowName, encode_changes
from orbitmq.timing.far_table.finding import page_to_read, rows_found, too_many_rows
from orbitmq.timing.far_table.jobs import add_files, deleted, open_job, replace_files
from orbitmq.timing.far_table.recalls import files_page, files_to_search, recall_rows, recalls_page, table_status
from orbitmq.timing.far_table.requests import AnyRequest
from orbitmq.timing.far_table.shares import Leases, advance_share, begin_share, claim_share, release_share
from orbitmq.timing.far_table.table_calls import Find, FoundRow, ReadPage, RowPage, Seen
from orbitmq.timing.far_table.table_file import TableHead

logger = logging.getLogger("orbitmq.timing")
T = TypeVar("T")

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "far-table owner"
NEXT: Final = "far-table decision"
SEARCHES_MAX: Final = 3
"""How often rows are looked for when files go away while they are read."""

Told = Callable[[TableAnswer | Exception], None]


class UndecidedError(FarTierError):
    """A decision was made and its record is not durable, or not in the log: ask again."""


class OwnerFiles(Protocol):
    """What the owner asks of the storage; every call blocks and may raise FarTierError."""

    def look(self) -> Seen: ...

    def create(self, head: TableHead) -> TableHead: ...

    def publish(self, manifest: bytes) -> None: ...

    def remove(self, names: list[str]) -> None: ...

    def missing(self, names: list[str]) -> list[str]: ...

    def find(self, request: Find) -> list[FoundRow]: ...

    def read_page(self, request: ReadPage) -> RowPage: ...

    def stop(self) -> None: ...


class _Waiting(NamedTuple):
    decide: Callable[[], Decided]
    told: Told


class TableOwner:
    """Answers for the table at one URL. `attach` the store, then `ask`."""

    def __init__(
        self,
        log: CatalogLog,
        clock: Clock,
        files: OwnerFiles,
        worker: Worker,
        *,
        url: str,
        rules: Rules,
        bucket_ms: int,
        new_table: Callable[[], str],
    ) -> None:
        """`bucket_ms` and `new_table()` count when the table is created. `worker` belongs to `files` alone."""
        self.log = log
        self._clock = clock
        self._files = files
        self._worker = worker
        self._url = url
        self._rules = rules
        self._bucket_ms = bucket_ms
        self._new_table = new_table
        self._leases = Leases(self._steady_ms())
        self._store: MessageStore | None = None
        self._waiting: deque[_Waiting] = deque()
        self._deciding: int | None = None
        """Log position behind the record that has to come back before the next decision."""
        self._early: deque[tuple[AnyRequest, Told]] = deque()
        """Requests that came before the storage was looked at."""
        self._questions = 0
        self._busy = False
        self._opened = False
        self._closed = False
        self._retry_ns = 0
        self._pause_ms = 0
        self._published = -1
        self._unsaved_ns: int | None = None
        self.trouble: str | None = None
        """Why the storage does not work at the moment."""
        self.failure_count = 0
        self.decision_count = 0
        """Records written since the start of the process."""
        log.applied = self._applied

    def attach(self, store: MessageStore) -> None:
        self._store = store
        store.deadlines.define(WAKEUP, self._look)
        store.deadlines.define(NEXT, self._next)
        self._wake(0)

    def close(self) -> None:
        """End what runs. Its results are not looked at any more."""
        self._closed = True
        self._files.stop()
        self._worker.close()
        self._files.stop()

    def _steady_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """Why no request can be answered."""
        if self.log.damage is not None:
            return f"the catalog of the far table is damaged: {self.log.damage}"
        if not self._opened:
            return f"the far table at {self._url} is not open: {self.trouble or 'it is being looked at'}"
        return None

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, request: AnyRequest, told: Told) -> None:
        """Answer a request, now or later, on this thread. Told FarUnreachableError where there is no table, FarBusyError where too
        many wait, UndecidedError where the answer is not certain: all of them mean to ask again later."""
        if len(self._waiting) + len(self._early) + self._questions >= FAR_TABLE_REQUESTS_MAX:
            told(FarBusyError(f"{FAR_TABLE_REQUESTS_MAX} requests about the far table wait already"))
            return
        if (unready := self.unready) is not None:
            if self.log.damage is None and self.trouble is None:
                self._early.append((request, told))
            else:
                told(FarUnreachableError(unready))
            return
        catalog, rules = self.log.catalog, self._rules
        match request:
            case AddFiles():
                names = [file.name for file in request.files]
                self._with_present(names, told, lambda has: add_files(catalog, request, self._clock.now_ms(), has))
            case ReplaceFiles():
                names = [file.name for file in request.new_files]
                self._with_present(names, told, lambda has: replace_files(catalog, request, self._clock.now_ms(), has))
            case RecallRows():
                self._recall(request, told)
            case FindRows():
                self._find(request, told)
            case OpenJob():
                self._decide(lambda: open_job(catalog, request, self._clock.now_ms(), rules), told)
            case ClaimShare():
                self._decide(
                    lambda: claim_share(catalog, self._leases, request, self._clock.now_ms(), self._steady_ms(), rules),
                    told,
                )
            case AdvanceShare():  # before BeginShare, of which it is one
                self._decide(lambda: advance_share(catalog, request, rules), told)
            case BeginShare():
                self._decide(lambda: begin_share(catalog, self._leases, request, rules), told)
            case ReleaseShare():
                self._decide(lambda: release_share(catalog, request), told)
            case FilesQuery():
                self._decide(lambda: Decided(files_page(catalog, request)), told)
            case RecallsQuery():
                self._decide(lambda: Decided(recalls_page(catalog, request)), told)
            case StatusQuery():
                self._decide(lambda: Decided(table_status(catalog, self._clock.now_ms(), rules, self._url)), told)
            case _:
                raise TypeError(f"{type(request).__name__} is no request about the far table")

    def _with_present(self, names: list[str], told: Told, decide: Callable[[set[str]], Decided]) -> None:
        """Decide with the names of those files that the storage has."""

        def asked(missing: list[str]) -> None:
            present = set(names).difference(missing)
            self._decide(lambda: decide(present), told)

        if names:
            self._question(lambda: self._files.missing(names), asked, told)
        else:
            asked([])

    def _recall(self, request: RecallRows, told: Told) -> None:
        catalog = self.log.catalog

        def search() -> Callable[[], list[FoundRow]] | TableAnswer:
            files = [] if request.table != catalog.table else files_to_search(catalog, request)
            rows = sum(file.rows for file in files)
            if request.due_ms is None and rows > FAR_TABLE_SEARCH_ROWS_MAX:
                return RowsRecalled(TableVerdict.TOO_MANY, catalog.version, too_many_rows(rows))
            start = None if request.due_ms is None else catalog.start_of(request.due_ms)
            find = Find(
                files,
                request.topic,
                message_id=request.message_id,
                key=request.key,
                from_ms=start,
                until_ms=None if start is None else start + catalog.bucket_ms,
                limit=FAR_TABLE_RECALL_ROWS_MAX + 1,
            )
            return lambda: self._files.find(find) if files else []

        def found(hits: list[FoundRow]) -> Decided:
            if len(hits) > FAR_TABLE_RECALL_ROWS_MAX:
                reason = f"more than {FAR_TABLE_RECALL_ROWS_MAX} rows have this key; nothing was recalled"
                return Decided(RowsRecalled(TableVerdict.TOO_MANY, catalog.version, reason))
            names = [RowName(hit.due_ms, request.topic, hit.message_id, hit.keys) for hit in hits]
            return recall_rows(catalog, request, names)

        self._search(search, found, told, 1)

    def _find(self, request: FindRows, told: Told) -> None:
        catalog = self.log.catalog

        def search() -> Callable[[], RowPage] | TableAnswer:
            page = page_to_read(catalog, request)
            return page if isinstance(page, TableAnswer) else lambda: self._files.read_page(page)

        self._search(search, lambda page: Decided(rows_found(catalog, request, page)), told, 1)

    def _search(
        self,
        search: Callable[[], Callable[[], T] | TableAnswer],
        found: Callable[[T], Decided],
        told: Told,
        attempt: int,
    ) -> None:
        """Decide about rows that are read from files now; once more when a file was replaced meanwhile."""

        def failed(error: TableAnswer | Exception) -> None:
            is_gone = isinstance(error, FarFileDamagedError) and error.name not in self.log.catalog.files
            if is_gone and attempt < SEARCHES_MAX:
                self._search(search, found, told, attempt + 1)
            else:
                told(error)

        job = search()
        if isinstance(job, TableAnswer):
            told(job)
        else:
            self._question(job, lambda hits: self._decide(lambda: found(hits), told), failed)

    def _question(self, job: Callable[[], T], done: Callable[[T], None], told: Told) -> None:
        """Ask the storage, then go on with what it says, or tell why it said nothing."""
        self._questions += 1

        def answered(result: Any) -> None:
            self._questions -= 1
            if self._closed:
                return
            if isinstance(result, BaseException):
                told(result if isinstance(result, Exception) else FarTierError(str(result)))
            else:
                done(result)
            self._commit()

        self._worker.submit(job, answered)

    def _commit(self) -> None:
        if self._store is not None:
            self._store.commit()

    # --- decisions --------------------------------------------------------------------------------------------------

    def _decide(self, decide: Callable[[], Decided], told: Told) -> None:
        self._waiting.append(_Waiting(decide, told))
        self._next()

    def _next(self) -> None:
        """Make decisions until one has to wait for the log."""
        while self._waiting and self._deciding is None and not self._closed:
            waiting = self._waiting.popleft()
            decided = waiting.decide()
            if decided.changes:
                self._append(decided, waiting.told)
            else:
                waiting.told(decided.answer)

    def _append(self, decided: Decided, told: Told) -> None:
        store = self._store
        assert store is not None
        body = encode_changes(self.log.catalog.record(decided.changes))
        try:
            entry = store.append(
                NewMessage(FAR_TABLE_TOPIC, 0, body, b"", born_timestamp=self._clock.now_ms()), accepted=True
            )
        except StoreUnwritableError as error:
            told(UndecidedError(f"the far table's owner cannot write its log: {error}"))
            return
        self._deciding = end = entry.end_offset
        self.decision_count += 1

        def written(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                told(decided.answer)
                return
            if status is PutStatus.SERVICE_NOT_AVAILABLE and self._deciding == end:
                self._deciding = None
                self._arm_next()
            told(UndecidedError(f"the record of the decision is not durable ({status.value}); ask again"))

        store.wait_durable(end, True, written)

    def _applied(self, position: int) -> None:
        """The log was applied up to a position."""
        if self._unsaved_ns is None:
            self._unsaved_ns = self._clock.monotonic_ns()
        if self._deciding is not None and position >= self._deciding:
            self._deciding = None
            self._arm_next()
        if self._store is not None:
            self._wake(FAR_TABLE_SNAPSHOT_MS)

    def _arm_next(self) -> None:
        if self._waiting and self._store is not None:
            self._store.deadlines.arm(NEXT, self._clock.monotonic_ns())

    # --- the storage ------------------------------------------------------------------------------------------------

    def _wake(self, wait_ms: int) -> None:
        assert self._store is not None
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    def _look(self) -> None:
        """Begin what is to be done at the storage, one thing at a time."""
        store = self._store
        if store is None or self._busy or self._closed or self.log.damage is not None:
            return
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._retry_ns:
            self._wake((self._retry_ns - now_ns) // NS_PER_MS + 1)
            return
        log = self.log
        if not self._opened:
            self._call(self._files.look, self._seen)
            return
        if log.is_saved:
            self._unsaved_ns = None
        elif self._unsaved_ns is not None and now_ns - self._unsaved_ns >= FAR_TABLE_SNAPSHOT_MS * NS_PER_MS:
            log.want_save()
            store.save_durably(lambda _: self._wake(0))
            self._unsaved_ns = now_ns
        if log.saved is not None and log.saved_version > self._published:
            manifest, version = log.saved, log.saved_version
            self._call(lambda: self._files.publish(manifest), lambda _: self._was_published(version))
            return
        names = [name for name in log.saved_garbage if name in log.catalog.garbage][:FAR_TABLE_PAGE_ITEMS]
        if names and log.saved_version == self._published:
            self._call(lambda: self._files.remove(names), lambda _: self._removed(names))
        elif not log.is_saved:
            self._wake(FAR_TABLE_SNAPSHOT_MS)

    def _was_published(self, version: int) -> None:
        self._published = version

    def _removed(self, names: list[str]) -> None:
        def told(answer: TableAnswer | Exception) -> None:
            if isinstance(answer, Exception):
                logger.warning("that %d files of the far table were removed is noted later: %s", len(names), answer)

        catalog = self.log.catalog
        self._decide(lambda: Decided(TableAnswer(TableVerdict.OK, catalog.version), deleted(catalog, names)), told)

    def _seen(self, seen: Seen) -> None:
        """What lies at the URL, compared with what the log says."""
        catalog = self.log.catalog
        if seen.head is None:
            if catalog.table:
                raise FarUnreachableError(f"the far table {catalog.table} is not at {self._url}: table.json is gone")
            head = TableHead(table=self._new_table(), bucket_ms=self._bucket_ms)
            self._call(lambda: self._files.create(head), self._created)
            return
        if catalog.table and seen.head.table != catalog.table:
            raise FarUnreachableError(
                f"at {self._url} lies the far table {seen.head.table}; this broker owns {catalog.table}",
                remedy="one of the two keys farTableUrl and farTableOwner names another place or broker than before",
            )
        if (seen.version or 0) > catalog.version:
            raise FarUnreachableError(
                f"the far table at {self._url} is ahead of this broker's log: its manifest has version {seen.version}, the log "
                f"{catalog.version}",
                remedy="its owner is another broker, or this store comes from a backup or lost its end; when no other broker "
                "owns the table, stop this one and copy manifest.json over orbitmq.far-table in its store directory",
            )
        if catalog.table:
            self._open()
        else:
            self._created(seen.head)

    def _open(self) -> None:
        self._opened = True
        self._answer_early()

    def _answer_early(self) -> None:
        early, self._early = self._early, deque()
        for request, told in early:
            self.ask(request, told)

    def _created(self, head: TableHead) -> None:
        changes: tuple[AnyChange, ...] = (Created(head.table, head.bucket_ms),)

        def told(answer: TableAnswer | Exception) -> None:
            if isinstance(answer, Exception):
                self._failed(answer)
            else:
                logger.info("this broker owns the far table %s at %s", head.table, self._url)
                self._open()
            self._wake(0)

        def decide() -> Decided:
            catalog = self.log.catalog
            return Decided(TableAnswer(TableVerdict.OK, catalog.version), () if catalog.table else changes)

        self._decide(decide, told)

    def _call(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        self._busy = True

        def called(result: Any) -> None:
            self._busy = False
            if self._closed:
                return
            try:
                if isinstance(result, Exception):
                    raise result
                done(result)
            except FarTierError as error:
                self._failed(error)
            else:
                self._pause_ms = 0
                self.trouble = None
            self._wake(0)
            self._commit()

        self._worker.submit(job, called)

    def _failed(self, error: Exception) -> None:
        self.failure_count += 1
        self._pause_ms = min(max(self._pause_ms * 2, FAR_RETRY_MS), FAR_RETRY_MS_MAX)
        self._retry_ns = self._clock.monotonic_ns() + self._pause_ms * NS_PER_MS
        self.trouble = str(error)
        logger.error("the far table's storage does not work, trying again in %d ms: %s", self._pause_ms, error)
        self._answer_early()
