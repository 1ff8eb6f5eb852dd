"""What a broker does with its shares of the far table: begin, read, store, report.

The shell around this state machine asks `next_step`, does that step (a request to the owner, or reading rows of files), and
reports the outcome. It also reports every record of the broker's own log that names a row of the table; at a start those that
recovery finds. Behind the highest row number that the log has of a bucket, promotion goes on.

Rules of this file
1. Pure: no time, no file, no network. One step is in hand at a time; shares are worked off one by one, the earliest first.
2. A row is stored only when its share is begun, its number is allowed, and the recalls of its bucket are known.
3. Rows are reported to the owner when they are durable, and not before.
4. An answer that is older than one that was acted upon is not acted upon: it may speak of shares that are finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import RecordError
from orbitmq.protocol.far_table import (
    AdvanceShare,
    BeginShare,
    ClaimShare,
    ListedFile,
    RecallsPage,
    RecallsQuery,
    ShareChanged,
    SharesClaimed,
    ShareView,
    TableAnswer,
    TableVerdict,
)

WAITING_SHARES: Final = 2
"""Shares at hand with which a broker wants no further one: the one it stores, and the next."""


class RowMark(NamedTuple):
    """What the property ORBITMQ_FAR_TABLE of a promoted message says: `table,bucket,row`."""

    table: str
    bucket_ms: int
    row: int

    def text(self) -> str:
        return f"{self.table},{self.bucket_ms},{self.row}"

    @classmethod
    def parse(cls, text: str) -> RowMark:
        """Raises RecordError."""
        table, bucket, row = [*text.split(","), "", ""][:3]
        digits = bucket.removeprefix("-")
        if text.count(",") != 2 or not table or not _is_number(digits) or not _is_number(row):
            raise RecordError(f"{text!r} does not name a row of a far table")
        return cls(table, int(bucket), int(row))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


class Begin(NamedTuple):
    """Send this; then `began`. Open the files first: `set_aside` when one cannot be read, so that another broker may."""

    request: BeginShare
    files: list[ListedFile]


class AskRecalls(NamedTuple):
    """Send this; then `recalls_arrived`."""

    request: RecallsQuery


class ReadRows(NamedTuple):
    """Read rows `start` to before `stop` of the bucket, or fewer, at least one unless there are no more; then `rows_read`."""

    bucket_ms: int
    first: int
    files: list[ListedFile]
    start: int
    stop: int


class Batch(NamedTuple):
    """Rows to append to the log now, each with its RowMark, in this order; then `durable` or `not_appended`, also when there are
    none. Rows from `start` to before `upto` of the bucket were looked at; those with number `start` + place are to be stored."""

    bucket_ms: int
    first: int
    start: int
    upto: int
    places: list[int]


class Advance(NamedTuple):
    """Send this; then `advanced`."""

    request: AdvanceShare


Step = Begin | AskRecalls | ReadRows | Advance
Key = tuple[int, int]
"""A bucket and the first row of a share of it."""


class _Work(msgspec.Struct):
    """A share of this broker."""

    view: ShareView
    position: int
    """Every row before it is in the log or recalled."""
    durable: int
    """Every row before it is in the log durably, or recalled."""
    is_ended: bool = False
    """There are no rows from `position` on."""
    recalled: set[tuple[str, str]] | None = None
    """Topic and unique key of recalled rows of the bucket; None until all of them are known."""
    arrived: set[tuple[str, str]] = msgspec.field(default_factory=set)
    after_number: int = -1

    @property
    def limit(self) -> int:
        end = self.view.end
        return self.view.allowed if end is None else min(self.view.allowed, end)


class Promoter:
    """The promotion of one broker from one table."""

    def __init__(self, table: str, broker: str, store: str) -> None:
        self._table = table
        self._broker = broker
        self._store = store
        self._marks: dict[int, int] = {}
        """Bucket -> the row number behind the highest one in the log."""
        self._work: dict[Key, _Work] = {}
        self._aside: set[Key] = set()
        self._version = 0
        self._in_hand: Step | None = None
        self.stored_count = 0
        self.recalled_count = 0

    # --- the log ----------------------------------------------------------------------------------------------------

    def seen(self, mark: RowMark) -> None:
        """A record of the log names a row. In any order, and repeatedly; before the first `claimed` of a start, all there are since
        the log position of the marks that were restored, and durable."""
        if mark.table == self._table:
            self._marks[mark.bucket_ms] = max(self._marks.get(mark.bucket_ms, 0), mark.row + 1)

    @property
    def marks(self) -> dict[int, int]:
        """To be saved with the log position up to which records were reported."""
        return dict(self._marks)

    def restore(self, marks: dict[int, int]) -> None:
        self._marks = dict(marks)

    # --- talking to the owner ---------------------------------------------------------------------------------------

    def claim_request(self, *, is_able: bool = True) -> ClaimShare:
        """To be sent again and again, at any time. `is_able` False: this broker takes nothing for now, say for want of room."""
        at_hand = [work for key, work in self._work.items() if key not in self._aside]
        has_unreadable = any(not self._work[key].view.is_begun for key in self._aside)
        keeps = is_able and not has_unreadable
        return ClaimShare(self._table, self._broker, self._store, keeps and len(at_hand) < WAITING_SHARES, keeps)

    def claimed(self, answer: SharesClaimed) -> None:
        """What is listed is to be done; what is not listed any more is not."""
        if self._is_old(answer) or answer.verdict is not TableVerdict.OK:
            return
        listed: dict[Key, _Work] = {}
        for view in answer.shares:
            key = view.bucket_ms, view.first
            work = self._work.get(key)
            if work is None or work.view.epoch != view.epoch:
                position = max(view.first, self._marks.get(view.bucket_ms, 0))
                work = _Work(view, position, position)
            work.view = view
            listed[key] = work
        self._work = listed
        self._aside &= set(listed)

    def began(self, step: Begin, answer: ShareChanged) -> None:
        work = self._answered(step, answer, (step.request.bucket_ms, step.request.first))
        if work is not None:
            work.view = msgspec.structs.replace(
                work.view, is_begun=True, allowed=answer.allowed, end=answer.end, recall_count=answer.recall_count
            )

    def advanced(self, step: Advance, answer: ShareChanged) -> None:
        key = step.request.bucket_ms, step.request.first
        work = self._answered(step, answer, key)
        if work is None:
            return
        is_finished = step.request.is_done or (answer.end is not None and step.request.stored >= answer.end)
        if is_finished:
            self._drop(key)
        else:
            work.view = msgspec.structs.replace(
                work.view, allowed=answer.allowed, end=answer.end, stored=step.request.stored
            )

    def recalls_arrived(self, step: AskRecalls, page: RecallsPage) -> None:
        bucket_ms = step.request.bucket_ms
        work = next((work for (start, _), work in self._work.items() if start == bucket_ms), None)
        if self._in_hand is step:
            self._in_hand = None
        if work is None or self._is_old(page):
            return
        if page.verdict is not TableVerdict.OK:
            self._drop((work.view.bucket_ms, work.view.first))
            return
        work.arrived.update((recall.topic, recall.message_id) for recall in page.recalls)
        if page.next_after is None:
            work.recalled = work.arrived
        else:
            work.after_number = page.next_after

    def failed(self, step: Step) -> None:
        """The step could not be done; it is given again."""
        if self._in_hand is step:
            self._in_hand = None

    def set_aside(self, step: Begin | ReadRows) -> None:
        """A file of this share cannot be read now. Others go before it, until `try_again`."""
        self.failed(step)
        key = (step.request.bucket_ms, step.request.first) if isinstance(step, Begin) else (step.bucket_ms, step.first)
        if key in self._work:
            self._aside.add(key)

    def try_again(self) -> None:
        self._aside.clear()

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows_read(self, step: ReadRows, names: Sequence[tuple[str, str]], *, is_end: bool) -> Batch | None:
        """Rows from `step.start` on, as topic and unique key. `is_end`: there are no further ones in the bucket.

        None when the share is not this broker's any more: the rows are to be forgotten.
        """
        self.failed(step)
        work = self._work.get((step.bucket_ms, step.first))
        if work is None or work.position != step.start or work.recalled is None:
            return None
        count = min(len(names), work.limit - step.start)
        places = [place for place in range(count) if names[place] not in work.recalled]
        work.position = step.start + count
        work.is_ended = is_end and count == len(names)
        return Batch(step.bucket_ms, step.first, step.start, work.position, places)

    def not_appended(self, batch: Batch) -> None:
        """The log took none, or not all, of these rows: promotion goes on behind those that `seen` was told of."""
        work = self._work.get((batch.bucket_ms, batch.first))
        if work is not None:
            work.position = max(batch.start, self._marks.get(batch.bucket_ms, 0))
            work.is_ended = False

    def durable(self, batch: Batch) -> None:
        """The rows of this batch and of all before it are durable. `seen` was told of them."""
        self.stored_count += len(batch.places)
        self.recalled_count += batch.upto - batch.start - len(batch.places)
        work = self._work.get((batch.bucket_ms, batch.first))
        if work is not None:
            work.durable = max(work.durable, batch.upto)

    # --- what to do -------------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """None while a step is in hand, while there is nothing to do, and while rows are not durable yet."""
        if self._in_hand is None:
            for key in sorted(self._work):
                if key not in self._aside:
                    self._in_hand = self._step(self._work[key])
                    return self._in_hand
        return None

    def _step(self, work: _Work) -> Step | None:
        view = work.view
        if not view.is_begun:
            return Begin(
                BeginShare(self._table, self._broker, self._store, view.bucket_ms, view.first, view.epoch), view.files
            )
        if work.recalled is None:
            if view.recall_count:
                return AskRecalls(RecallsQuery(self._table, bucket_ms=view.bucket_ms, after_number=work.after_number))
            work.recalled = set()
        is_finished = work.is_ended or (view.end is not None and work.position >= view.end)
        if not is_finished and work.position < work.limit:
            return ReadRows(view.bucket_ms, view.first, view.files, work.position, work.limit)
        if work.durable < work.position:
            return None
        if is_finished or work.durable > view.stored:
            return Advance(
                AdvanceShare(
                    self._table,
                    self._broker,
                    self._store,
                    view.bucket_ms,
                    view.first,
                    view.epoch,
                    work.durable,
                    is_finished,
                )
            )
        return None

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, step: Begin | Advance, answer: ShareChanged, key: Key) -> _Work | None:
        """The share that this answer is about, if it is this broker's still."""
        if self._in_hand is step:
            self._in_hand = None
        work = self._work.get(key)
        if work is None or work.view.epoch != step.request.epoch or self._is_old(answer):
            return None
        if answer.verdict in (TableVerdict.OK, TableVerdict.REPEATED):
            return work
        self._drop(key)
        return None

    def _is_old(self, answer: TableAnswer) -> bool:
        is_old = answer.version < self._version
        self._version = max(self._version, answer.version)
        return is_old

    def _drop(self, key: Key) -> None:
        self._work.pop(key, None)
        self._aside.discard(key)
        if all(bucket_ms != key[0] for bucket_ms, _ in self._work):
            self._marks.pop(key[0], None)

    @property
    def unfinished(self) -> Iterable[Key]:
        """Shares at hand."""
        return self._work.keys()
