"""Rows of many files as one list by due time, page by page.

The files of a table overlap: each holds rows of days, or years. Row groups are read in the order in which they begin, and a page is
full when no row group that was not read can hold a row before its end.

Rules of this file
1. Bodies are not read.
2. What one page reads is bounded. A page that reaches the bound ends where its rows are certain, with fewer than asked for, maybe none.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.limits.far import FAR_TABLE_PAGE_FILES_MAX, FAR_TABLE_PAGE_READ_ROWS
from orbitmq.timing.far_table.bucket_rows import FilePart
from orbitmq.timing.far_table.rows import ANY_QUEUE, FarName, Group, groups_between, named_rows, rows_due
from orbitmq.timing.far_table.table_calls import FoundRow, ReadPage, RowPage

NAMES: Final = ("deliverTimestamp", "topic", "queueId", "keys", "msgId", "bornTimestamp")
"""Columns that tell what a row is, without its content."""

FOOTER_ROWS: Final = 10_000
"""Opening a file costs as much as looking through so many rows."""

Open = Callable[[int], pq.ParquetFile]
Guard = Callable[[int, Callable[[], pa.Table]], pa.Table]


def found_rows(table: pa.Table) -> Iterator[FoundRow]:
    """Rows out of the columns `NAMES`."""
    return map(
        FoundRow,
        table.column("deliverTimestamp").cast(pa.int64()).to_pylist(),
        table.column("topic").to_pylist(),
        table.column("msgId").to_pylist(),
        pc.fill_null(table.column("keys"), "").to_pylist(),
        pc.fill_null(table.column("queueId"), ANY_QUEUE).to_pylist(),
        table.column("bornTimestamp").cast(pa.int64()).to_pylist(),
    )


class RowPages:
    """The rows that one request asks for."""

    def __init__(self, call: ReadPage, parts: list[FilePart], open_file: Open, guard: Guard) -> None:
        """`parts`: of each file of the call what counts, within the times asked for."""
        self._call = call
        self._parts = parts
        self._open = open_file
        self._guard = guard

    def page(self) -> RowPage:
        call = self._call
        heap: list[tuple[int, int, int, Group | None]] = []
        """(no row is earlier, file, row group or -1, the row group or None for a file that was not opened)"""
        after_ms = call.from_ms if call.after is None else call.after[0]
        for number, (file, part) in enumerate(zip(call.files, self._parts, strict=True)):
            low_ms = max(file.min_due_ms, part.from_ms, after_ms)
            if low_ms < part.until_ms and file.max_due_ms >= low_ms:
                heap.append((low_ms, number, -1, None))
        heapq.heapify(heap)
        best = pa.table([])
        looked = opened = 0
        while heap:
            low_ms, number, _, group = heap[0]
            is_certain = best.num_rows == call.limit and _last_ms(best) < low_ms
            if is_certain or (looked >= FAR_TABLE_PAGE_READ_ROWS and low_ms > after_ms):
                break
            heapq.heappop(heap)
            if group is None:
                opened += 1
                looked += FOOTER_ROWS
                if opened > FAR_TABLE_PAGE_FILES_MAX:
                    return RowPage([], is_too_wide=True)
                for each in self._groups(number, after_ms):
                    heapq.heappush(heap, (max(each.min_due_ms, low_ms), number, each.number, each))
            else:
                looked += group.rows
                best = self._merged(best, self._matching(number, group))
        if not heap:
            is_full = best.num_rows == call.limit
            rows = list(found_rows(best)) if best.num_rows else []
            return RowPage(rows, (rows[-1].due_ms, rows[-1].message_id) if is_full else None)
        until_ms = heap[0][0]
        rows = [row for row in found_rows(best) if row.due_ms < until_ms] if best.num_rows else []
        is_full = len(rows) == call.limit
        return RowPage(rows, (rows[-1].due_ms, rows[-1].message_id) if is_full else (until_ms, ""))

    def _groups(self, number: int, after_ms: int) -> list[Group]:
        part = self._parts[number]
        found: list[Group] = []

        def read() -> pa.Table:
            found.extend(groups_between(self._open(number), max(part.from_ms, after_ms), part.until_ms))
            return pa.table([])

        self._guard(number, read)
        return found

    def _matching(self, number: int, group: Group) -> pa.Table:
        call, part = self._call, self._parts[number]

        def read() -> pa.Table:
            table = self._open(number).read_row_group(group.number, columns=list(NAMES))
            return rows_due(table, part.from_ms, part.until_ms)

        table = self._guard(number, read)
        if call.message_id is not None or call.key is not None:
            name = FarName(call.topic or "", call.message_id or call.key or "", call.message_id is not None)
            table = table.filter(named_rows(table, [name]))
        elif call.topic is not None:
            table = table.filter(pc.equal(table.column("topic"), call.topic))
        if call.key_prefix is not None:
            keys = table.column("keys")
            begins = pc.or_(pc.starts_with(keys, call.key_prefix), pc.match_substring(keys, " " + call.key_prefix))
            table = table.filter(pc.fill_null(begins, False))
        if call.after is not None:
            due_ms, message_id = call.after
            times = table.column("deliverTimestamp").cast(pa.int64())
            behind = pc.and_(pc.equal(times, due_ms), pc.greater(table.column("msgId"), message_id))
            table = table.filter(pc.or_(pc.greater(times, due_ms), behind))
        return table

    def _merged(self, best: pa.Table, further: pa.Table) -> pa.Table:
        """The first `limit` of both."""
        if not further.num_rows:
            return best
        both = pa.concat_tables([best, further]) if best.num_rows else further
        order = both.sort_by([("deliverTimestamp", "ascending"), ("msgId", "ascending")])
        return order.slice(0, self._call.limit)


def _last_ms(table: pa.Table) -> int:
    return int(table.column("deliverTimestamp").cast(pa.int64())[table.num_rows - 1].as_py())
