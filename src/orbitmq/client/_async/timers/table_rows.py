"""Rows of the far table as timer messages: what is meant, what waits, recalling it.

A row is with no broker until its bucket comes near. Then it is handed over: a broker stores it, and answers for it from then on.

Rules of this file
1. Asked for only where a broker has said that its cluster has a far table: elsewhere nothing is sent.
2. A row that is handed over is its broker's to answer for. Only when no broker knows it yet, it is `TOO_LATE` here.
3. A due time in a file stands. A reschedule of such a row is refused before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client._async.runtime import log
from orbitmq.client.timers import Meant, TimerMatch, TimerVerdict, TimerView
from orbitmq.errors import ClientError
from orbitmq.limits.timers import TIMER_CHANGES_PER_REQUEST_MAX
from orbitmq.protocol.far_table import RecalledRow, RowStanding, RowVerdict, TableRow
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.timer_bodies import TIER_TABLE, TimerQuery

if TYPE_CHECKING:
    from orbitmq.client._async.timers.far_table import FarTable

_VERDICTS: Final = {
    RowVerdict.RECALLED: TimerVerdict.RECALLED,
    RowVerdict.ALREADY_RECALLED: TimerVerdict.ALREADY_RECALLED,
    RowVerdict.HANDED_OVER: TimerVerdict.TOO_LATE,
    RowVerdict.TOO_MANY: TimerVerdict.PENDING,
}


class MeantRows(NamedTuple):
    """Rows that are meant, and whether there are further ones."""

    rows: Sequence[TableRow] = ()
    more: bool = False

    @property
    def pending(self) -> list[TableRow]:
        return [row for row in self.rows if row.standing is RowStanding.PENDING]

    @property
    def handed_over(self) -> list[TableRow]:
        return [row for row in self.rows if row.standing is RowStanding.HANDED_OVER]


def view_of(row: TableRow) -> TimerView:
    """A row as a timer message that no broker has."""
    return TimerView(
        row.message_id,
        MessageQueue(row.topic, "", row.queue_id),
        tuple(row.keys.split()),
        row.due_ms or 0,
        row.born_ms,
        0,
        TIER_TABLE,
    )


def match_of(row: TableRow) -> TimerMatch:
    """What is to be said of a row that no broker has."""
    verdict = {
        RowStanding.PENDING: TimerVerdict.PENDING,
        RowStanding.RECALLED: TimerVerdict.ALREADY_RECALLED,
        RowStanding.HANDED_OVER: TimerVerdict.TOO_LATE,
    }[row.standing]
    return TimerMatch(verdict, view_of(row))


class TableRows:
    """What `Timers` asks the far table."""

    def __init__(self, table: FarTable) -> None:
        self._table = table

    async def find(self, wanted: Meant) -> MeantRows:
        """The rows that are meant, at most `TIMER_CHANGES_PER_REQUEST_MAX` of them."""
        rows: list[TableRow] = []
        selector, cursor = wanted.selector, None
        while True:
            page = await self._table.find(
                topic=wanted.topic,
                message_id=selector.message_id,
                key=selector.key,
                start=wanted.due_ms,
                end=None if wanted.due_ms is None else wanted.due_ms + 1,
                page_count=TIMER_CHANGES_PER_REQUEST_MAX,
                cursor=cursor,
            )
            rows += page.rows
            cursor = page.cursor
            if cursor is None or (rows and selector.message_id is not None):
                return MeantRows(rows)
            if len(rows) >= TIMER_CHANGES_PER_REQUEST_MAX:
                return MeantRows(rows, True)

    async def recall(self, wanted: Meant, rows: Sequence[TableRow]) -> list[TimerMatch]:
        """Recall rows that were found pending; all that have the key when there are several."""
        views = {row.message_id: view_of(row) for row in rows}
        if len(rows) == 1:
            (row,) = rows
            told = await self._table.recall(wanted.topic, message_id=row.message_id, due=row.due_ms)
        else:
            told = await self._table.recall(wanted.topic, key=wanted.selector.key)
        told = tuple(row for row in told if row.message_id in views or row.verdict is RowVerdict.RECALLED)
        _check_room(wanted, told)
        return [
            TimerMatch(_VERDICTS[row.verdict], views.get(row.message_id) or _recalled_view(wanted, row))
            for row in told
            if row.verdict in _VERDICTS
        ]

    async def waiting(self, query: TimerQuery) -> tuple[list[TimerView], str | None]:
        """A page of what waits in the table, earliest due first, and the cursor of the next one."""
        page = await self._table.find(
            topic=query.topic,
            key=query.key,
            key_prefix=query.key_prefix,
            start=query.from_ms,
            end=query.until_ms,
            is_waiting=True,
            page_count=query.limit,
            cursor=query.cursor,
        )
        return [view_of(row) for row in page.rows], page.cursor

    async def count(self) -> int:
        """Rows of all its files that brokers have not taken, recalled ones among them."""
        return (await self._table.status()).rows


def refuse_reschedule(wanted: Meant, rows: Sequence[TableRow]) -> None:
    """Raises ClientError when some of these wait in the table."""
    waiting = [row for row in rows if row.standing is RowStanding.PENDING]
    if waiting:
        raise ClientError(
            f"{len(waiting)} of the {wanted.text} wait in the cluster's far table, where due times stand; the first is "
            f"{waiting[0].message_id}, due at {waiting[0].due_ms}. Nothing was rescheduled",
            remedy="recall it and send it again with the new due time, or wait until a broker has it, some hours before it is due",
        )


def refuse_reading(wanted: Meant, rows: Sequence[TableRow]) -> None:
    """Raises ClientError when one of these waits in the table."""
    waiting = [row for row in rows if row.standing is RowStanding.PENDING]
    if waiting:
        raise ClientError(
            f"{wanted.text}: message {waiting[0].message_id}, due at {waiting[0].due_ms}, waits in the cluster's far table and no "
            "broker has its content",
            remedy="status() and list() tell of it; its content is the row with this msgId in the files of mq.far_table.files()",
        )


def _check_room(wanted: Meant, told: Sequence[RecalledRow]) -> None:
    full = sum(row.verdict is RowVerdict.TOO_MANY for row in told)
    if full == 0:
        return
    problem = f"{full} of the {wanted.text} were not recalled: the far table holds as many recalls as it can"
    if full == len(told):
        raise ClientError(
            problem, remedy="compact it with recalls applied (orbitmq pipeline compact), then recall again"
        )
    log.warning("%s", problem)


def _recalled_view(wanted: Meant, row: RecalledRow) -> TimerView:
    return view_of(TableRow(RowStanding.RECALLED, wanted.topic, row.message_id, row.due_ms, row.keys))
