"""Takes this broker's share of the far table's rows into its own log, as timer messages of its wheel.

What is to be done says the state machine in `promotion`; here it is done: requests go to the owner, rows come out of the files
by a process of their own, and slices of them are given their places in the log between other work.

Rules of this file
1. One step at a time, and beside it one request for further shares. Answers about shares are looked at only while no row is on its
   way into the log, so that what the log says is all there is.
2. While rows are put into the log, the next ones are read. Whether they are wanted is asked when their turn has come.
3. Rows are appended in slices of less than a millisecond, and reported to the owner when the log is synced behind them, whatever
   the flush mode.
4. An owner or a storage that is away is tried again with growing pauses. Nothing else waits for either.
5. A share whose files cannot be read is set aside, and tells why; other shares go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, StoreUnwritableError
from orbitmq.limits.far import (
    FAR_IDLE_MS,
    FAR_PROMOTION_BYTES_MAX,
    FAR_RETRY_MS,
    FAR_RETRY_MS_MAX,
    FAR_TABLE_CLAIM_MS_MIN,
    FAR_TABLE_READ_ROWS,
    FAR_TABLE_SLICE_ROWS,
    FAR_TABLE_SYNC_LOOK_MS,
)
from orbitmq.protocol.far_table import ListedFile, SharesClaimed, TableAnswer, TableVerdict
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import EncodedMessage
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.tier import FarFileDamagedError, FarUnreachableError
from orbitmq.timing.far_table.promoted_rows import PromotedRows
from orbitmq.timing.far_table.promotion import Advance, AskRecalls, Batch, Begin, Promoter, ReadRows, Step
from orbitmq.timing.far_table.requests import AnyRequest
from orbitmq.timing.far_table.table_calls import (
    BucketFacts,
    OpenBucket,
    Place,
    Seen,
    TakenRows,
    TakeRows,
    decode_messages,
)

logger = logging.getLogger("orbitmq.timing")
T = TypeVar("T")

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "far-table promotion"
SLICE: Final = "far-table slice"


class Owner(Protocol):
    """Whoever answers for the catalog, here or at another broker."""

    def ask(self, request: AnyRequest, told: Callable[[TableAnswer | Exception], None]) -> None:
        """Tells on this thread, now or later, exactly once."""
        ...


class Desk(Protocol):
    """What the broker says about topics."""

    def queues(self, topics: Collection[str]) -> dict[str, int | str]:
        """Topic -> its write queues, or why it takes no message here. Topics are created as by a send."""
        ...


class BucketFiles(Protocol):
    """What promotion asks of the storage; every call blocks and may raise FarTierError."""

    def look(self) -> Seen: ...

    def open_bucket(self, request: OpenBucket) -> BucketFacts: ...

    def take_rows(self, request: TakeRows) -> tuple[TakenRows, list[bytes]]: ...

    def stop(self) -> None: ...


class _Rows:
    """Rows on their way into the log."""

    def __init__(self, batch: Batch, slices: list[bytes]) -> None:
        self.batch = batch
        self.slices = deque(slices)
        self.kept = set(batch.places)
        self.at = 0
        """Place in the batch of the next slice's first row."""
        self.left: list[EncodedMessage] = []


class _Ahead:
    """Rows that are read before somebody asks for them.

    `read` and `taken` are jobs of one worker, in this order: it does one after the other, so the second finds what the first has read.
    """

    def __init__(self, files: BucketFiles, request: TakeRows) -> None:
        self._files = files
        self.request = request
        self._rows: tuple[TakenRows, list[bytes]] | None = None

    def read(self) -> None:
        try:
            self._rows = self._files.take_rows(self.request)
        except OrbitError:
            self._rows = None  # it is tried again when the rows are asked for, and told then

    def taken(self) -> tuple[TakenRows, list[bytes]]:
        return self._files.take_rows(self.request) if self._rows is None else self._rows


class _Undurable(NamedTuple):
    batch: Batch
    end_offset: int


class Promotion:
    """The promotion of one broker. Hand `rows` to `open_store`, then `attach` the store."""

    def __init__(
        self,
        rows: PromotedRows,
        clock: Clock,
        files: BucketFiles,
        worker: Worker,
        owner: Owner,
        desk: Desk,
        place: Place,
        *,
        broker: str,
    ) -> None:
        """`worker` belongs to `files` alone. `place`: what messages of this broker get; its queues are filled in here."""
        self.rows = rows
        self._clock = clock
        self._files = files
        self._worker = worker
        self._owner = owner
        self._desk = desk
        self._place = place
        self._broker = broker
        self._store: MessageStore | None = None
        self._table = ""
        self._bucket_width_ms = 0
        self._promoter: Promoter | None = None
        self._closed = False
        self._busy = False
        """Whether a step or a look is under way."""
        self._claiming = False
        self._claimed: SharesClaimed | None = None
        """An answer that waits until no row is on its way."""
        self._claim_ns = 0
        self._claim_pause_ms = 0
        self._retry_ns = 0
        self._pause_ms = 0
        self._open: tuple[int, BucketFacts] | None = None
        """The bucket that the helper has open."""
        self._rows: _Rows | None = None
        self._ahead: _Ahead | None = None
        """The rows behind those."""
        self._given_up: Batch | None = None
        self._appended = 0
        """Log position behind the last row that was appended."""
        self._undurable: deque[_Undurable] = deque()
        self._in_use = False
        self._used_ns = 0
        self.frontier_ms = 0
        self.owner_trouble: str | None = None
        """Why the owner does not answer at the moment."""
        self.trouble: str | None = None
        """Why the storage does not work, or a file cannot be read, at the moment."""
        self.failure_count = 0
        self._is_aside = False
        """Whether shares are set aside until the pause is over."""
        self.paused = False
        """While true no step is begun and no share is asked for. For maintenance and tests."""

    # --- life -------------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin. Blocks for a sync the first time in the life of a store. Raises OSError."""
        self.rows.ensure_store_id()
        self._store = store
        store.deadlines.define(WAKEUP, self._look)
        store.deadlines.define(SLICE, self._slice)
        self.rows.applied = lambda: self._wake(0)
        self._wake(0)

    def close(self) -> None:
        """End what runs. What it was doing is done again after the next start."""
        self._closed = True
        self._files.stop()
        self._worker.close()
        self._files.stop()

    @property
    def table(self) -> str:
        """Empty while it is not known."""
        return self._table

    @property
    def shares_at_hand(self) -> int:
        return 0 if self._promoter is None else len(list(self._promoter.unfinished))

    @property
    def oldest_bucket_ms(self) -> int | None:
        """The earliest bucket at hand."""
        return None if self._promoter is None else min((start for start, _ in self._promoter.unfinished), default=None)

    @property
    def recalled_count(self) -> int:
        """Rows that were left out because they had been recalled, since the start of the process."""
        return 0 if self._promoter is None else self._promoter.recalled_count

    # --- what next --------------------------------------------------------------------------------------------------

    def _wake(self, wait_ms: int) -> None:
        if self._store is not None and not self._closed:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    def _look(self) -> None:
        store = self._store
        if store is None or self._closed or self.paused:
            return
        now_ns = self._clock.monotonic_ns()
        self._note_durable(store)
        is_pausing = now_ns < self._retry_ns
        if is_pausing:
            self._wake((self._retry_ns - now_ns) // NS_PER_MS + 1)
        promoter = self._promoter
        if promoter is None:
            if not is_pausing and not self._busy:
                self._call(self._files.look, self._seen)
            return
        self._take_answer(promoter)
        self._ask_for_shares(promoter, now_ns)  # also in a pause: what was claimed has to be asked for again and again
        if not store.writes_accepted:
            self._wake(FAR_RETRY_MS)
        elif not is_pausing:
            if self._is_aside:
                self._is_aside = False
                promoter.try_again()
            self._begin_step(store, promoter)
        self._rest(now_ns)

    def _seen(self, seen: Seen) -> None:
        if seen.head is None:
            raise FarUnreachableError("the far table is not there yet: its owner has not created it")
        self._table, self._bucket_width_ms = seen.head.table, seen.head.bucket_ms
        self._promoter = Promoter(self._table, self._broker, self.rows.store_id)
        self._promoter.restore(self.rows.behind(self._table))

    @property
    def _is_appending(self) -> bool:
        """Whether rows are on their way into the log that it has not given back."""
        return self._rows is not None or self.rows.position < self._appended

    def _take_answer(self, promoter: Promoter) -> None:
        if self._is_appending:
            return
        if self._given_up is not None:
            batch, self._given_up = self._given_up, None
            promoter.restore(self.rows.behind(self._table))
            promoter.not_appended(batch)
        if self._claimed is not None:
            answer, self._claimed = self._claimed, None
            promoter.restore(self.rows.behind(self._table))
            promoter.claimed(answer)
            self.rows.keep_only(self._table, {start for start, _ in promoter.unfinished})

    def _ask_for_shares(self, promoter: Promoter, now_ns: int) -> None:
        if self._claiming or self._claimed is not None or now_ns < self._claim_ns:
            return
        self._claiming = True
        assert self._store is not None
        self._owner.ask(promoter.claim_request(is_able=self._store.writable), self._shares_told)

    def _shares_told(self, answer: TableAnswer | Exception) -> None:
        self._claiming = False
        if self._closed:
            return
        if isinstance(answer, SharesClaimed) and answer.verdict is TableVerdict.OK:
            self._claimed = answer
            self.frontier_ms = answer.frontier_ms
            self._claim_pause_ms = 0
            self.owner_trouble = None
            pause_ms = max(answer.pause_ms, FAR_TABLE_CLAIM_MS_MIN)
        else:
            problem = str(answer) if isinstance(answer, Exception) else answer.reason
            if self.owner_trouble is None:
                logger.warning("the owner of the far table gives no shares, asking again: %s", problem)
            self.owner_trouble = problem
            self.failure_count += 1
            pause_ms = self._claim_pause_ms = min(max(self._claim_pause_ms * 2, FAR_RETRY_MS), FAR_RETRY_MS_MAX)
        self._claim_ns = self._clock.monotonic_ns() + pause_ms * NS_PER_MS
        self._wake(0)

    def _rest(self, now_ns: int) -> None:
        """Wake when there may be something to do, and let an idle process go."""
        if self._in_use and not self._busy and now_ns - self._used_ns >= FAR_IDLE_MS * NS_PER_MS:
            self._in_use, self._open = False, None
            self._worker.submit(self._files.stop, _report_failure)
        if self._undurable:
            self._wake(FAR_TABLE_SYNC_LOOK_MS)
        if self._promoter is not None and not self._claiming and self._claimed is None:
            self._wake(max((self._claim_ns - now_ns) // NS_PER_MS + 1, 1))

    # --- steps ------------------------------------------------------------------------------------------------------

    def _begin_step(self, store: MessageStore, promoter: Promoter) -> None:
        if self._busy or self._is_appending:
            return
        step = promoter.next_step()
        if step is None:
            return
        self._busy = True
        match step:
            case Begin():
                self._with_bucket(step, step.request.bucket_ms, step.files, lambda _: self._begin_share(promoter, step))
            case AskRecalls():
                self._owner.ask(step.request, lambda answer: self._answered(step, answer, promoter.recalls_arrived))
            case ReadRows():
                self._with_bucket(step, step.bucket_ms, step.files, lambda facts: self._read(promoter, step, facts))
            case Advance():
                self._owner.ask(step.request, lambda answer: self._answered(step, answer, promoter.advanced))

    def _begin_share(self, promoter: Promoter, step: Begin) -> None:
        self._busy = True
        self._owner.ask(step.request, lambda answer: self._answered(step, answer, promoter.began))

    def _answered(self, step: Any, answer: TableAnswer | Exception, tell: Callable[[Any, Any], None]) -> None:
        """The owner's answer to a step."""
        self._busy = False
        if self._closed or self._promoter is None:
            return
        if isinstance(answer, Exception):
            self._promoter.failed(step)
            self._back_off(str(answer), is_owner=True)
        else:
            self._pause_ms, self.owner_trouble = 0, None
            tell(step, answer)
            if isinstance(step, Advance) and step.request.is_done:
                self._claim_ns = 0  # there may be another share
        self._wake(0)

    def _with_bucket(
        self, step: Begin | ReadRows, bucket_ms: int, files: list[ListedFile], done: Callable[[BucketFacts], None]
    ) -> None:
        """`done`, with the bucket open in the helper."""
        if self._open is not None and self._open[0] == bucket_ms:
            self._busy = False
            done(self._open[1])
            return
        request = OpenBucket(self._table, bucket_ms, bucket_ms + self._bucket_width_ms, files)
        self._open = None

        def opened(facts: BucketFacts) -> None:
            self._open = bucket_ms, facts
            done(facts)

        self._call(lambda: self._files.open_bucket(request), opened, step)

    def _read(self, promoter: Promoter, step: ReadRows, facts: BucketFacts) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is None or (ahead.request.bucket_ms, ahead.request.start) != (step.bucket_ms, step.start):
            ahead = self._rows_at(step, facts, step.start)

        def taken(result: tuple[TakenRows, list[bytes]]) -> None:
            rows, slices = result
            batch = promoter.rows_read(step, rows.names, is_end=rows.end >= facts.rows)
            if batch is not None:
                self._rows = _Rows(batch, slices)
                if rows.end < min(step.stop, facts.rows):
                    self._ahead = self._rows_at(step, facts, rows.end)
                    self._worker.submit(self._ahead.read, _report_failure)
                self._slice()

        self._call(ahead.taken, taken, step)

    def _rows_at(self, step: ReadRows, facts: BucketFacts, start: int) -> _Ahead:
        place = Place(
            self._place.precision_ms,
            self._place.own,
            self._place.store_host,
            self._place.body_bytes_max,
            self._desk.queues(facts.topics),
        )
        end = min(step.stop, start + FAR_TABLE_READ_ROWS)
        request = TakeRows(step.bucket_ms, start, end, FAR_PROMOTION_BYTES_MAX, FAR_TABLE_SLICE_ROWS, place)
        return _Ahead(self._files, request)

    def _slice(self) -> None:
        """Append the next rows; a turn has time for one slice."""
        store, rows = self._store, self._rows
        if store is None or rows is None or self._closed:
            return
        if not rows.left and rows.slices:
            messages = decode_messages(rows.slices.popleft())
            rows.left = [message for at, message in enumerate(messages, rows.at) if at in rows.kept]
            rows.at += len(messages)
        if not rows.left:
            self._next_slice(store, rows)
            return
        before = self._appended
        try:
            placed = store.append_encoded(rows.left)
        except StoreUnwritableError as error:
            logger.warning("promotion from the far table waits: %s", error)
            self._give_up(rows)
            return
        del rows.left[: len(placed)]
        self._appended = placed[-1].end_offset

        def committed(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                self._appended = before
                self._give_up(rows)
            elif self._rows is rows:
                self._next_slice(store, rows)

        store.wait_durable(self._appended, False, committed)

    def _next_slice(self, store: MessageStore, rows: _Rows) -> None:
        if rows.left or rows.slices:
            store.deadlines.arm(SLICE, self._clock.monotonic_ns())
            return
        self._rows = None
        self._undurable.append(_Undurable(rows.batch, self._appended))
        self._wake(0)

    def _give_up(self, rows: _Rows) -> None:
        """The log takes no rows now: go on behind those that it has, later."""
        self._rows = None
        self._given_up = rows.batch
        self._retry_ns = self._clock.monotonic_ns() + FAR_RETRY_MS * NS_PER_MS
        self._wake(FAR_RETRY_MS)

    def _note_durable(self, store: MessageStore) -> None:
        synced = store.log.synced_end
        while self._undurable and self._undurable[0].end_offset <= min(synced, self.rows.position):
            batch = self._undurable.popleft().batch
            if self._promoter is not None:
                self._promoter.durable(batch)

    # --- the storage ------------------------------------------------------------------------------------------------

    def _call(self, job: Callable[[], T], done: Callable[[T], None], step: Begin | ReadRows | None = None) -> None:
        """Run `job`, a call to the storage, elsewhere, then `done` with what it gave."""
        self._busy = self._in_use = True

        def called(result: Any) -> None:
            self._busy = False
            self._used_ns = self._clock.monotonic_ns()
            if self._closed:
                return
            try:
                if isinstance(result, Exception):
                    raise result
                done(result)
            except OrbitError as error:
                self._call_failed(error, step)
            else:
                self._pause_ms, self.trouble = 0, None
            self._wake(0)
            if self._store is not None:
                self._store.commit()

        self._worker.submit(job, called)

    def _call_failed(self, error: OrbitError, step: Step | None) -> None:
        self._open = None
        promoter = self._promoter
        if promoter is not None and isinstance(step, Begin | ReadRows):
            if isinstance(error, FarFileDamagedError):
                promoter.set_aside(step)
                self._is_aside = True
            else:
                promoter.failed(step)
        self._back_off(str(error), is_owner=False)

    def _back_off(self, problem: str, *, is_owner: bool) -> None:
        self.failure_count += 1
        self._pause_ms = min(max(self._pause_ms * 2, FAR_RETRY_MS), FAR_RETRY_MS_MAX)
        self._retry_ns = self._clock.monotonic_ns() + self._pause_ms * NS_PER_MS
        if is_owner:
            self.owner_trouble = problem
        else:
            self.trouble = problem
        logger.warning("promotion from the far table waits, trying again in %d ms: %s", self._pause_ms, problem)


def _report_failure(result: object) -> None:
    if isinstance(result, OrbitError):
        logger.error("a process for the far table could not be tidied up: %s", result)
