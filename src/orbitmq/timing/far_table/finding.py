"""Looking at rows of the far table without changing anything: which files a question is about, and where a row stands.

As with recalls, the files are read first, which takes time; then the rows that were found are told as the catalog has them at that
moment.

Rules of this file
1. Pure.
2. A row stands on one page, whatever is recalled or compacted between two pages: pages follow due time and unique key.
"""

from __future__ import annotations

from orbitmq.limits.far import FAR_TABLE_PAGE_ITEMS, FAR_TABLE_SEARCH_ROWS_MAX
from orbitmq.protocol.far_table import FindRows, ListedFile, RowsFound, RowStanding, TableRow, TableVerdict
from orbitmq.timing.far_table.catalog import Catalog
from orbitmq.timing.far_table.table_calls import FoundRow, ReadPage, RowPage


def page_to_read(catalog: Catalog, request: FindRows) -> ReadPage | RowsFound:
    """What to read from the files; the answer where nothing is to be read."""
    if request.table != catalog.table:
        reason = f"this broker owns the catalog of far table {catalog.table}, not of {request.table}"
        return RowsFound(TableVerdict.WRONG_TABLE, reason=reason)
    from_ms = max(request.from_ms or 0, _earliest_ms(catalog, request))
    files = _files_between(catalog, request, from_ms)
    is_named = request.message_id is not None or request.key is not None or request.key_prefix is not None
    rows = sum(file.rows for file in files)
    if is_named and rows > FAR_TABLE_SEARCH_ROWS_MAX and (request.from_ms is None or request.until_ms is None):
        return RowsFound(TableVerdict.TOO_MANY, catalog.version, too_many_rows(rows))
    if not files:
        return rows_found(catalog, request, RowPage([]))
    after = None
    if request.cursor is not None:
        due, _, message_id = request.cursor.partition(":")
        after = int(due) if due.isascii() and due.isdigit() and len(due) <= 18 else 0, message_id
    return ReadPage(
        files,
        topic=request.topic,
        message_id=request.message_id,
        key=request.key,
        key_prefix=request.key_prefix,
        from_ms=from_ms,
        until_ms=request.until_ms,
        after=after,
        limit=min(max(request.limit, 1), FAR_TABLE_PAGE_ITEMS),
    )


def too_many_rows(rows: int) -> str:
    return (
        f"{rows} rows would have to be looked through, at most FAR_TABLE_SEARCH_ROWS_MAX = {FAR_TABLE_SEARCH_ROWS_MAX} are; "
        "say when the message is due: then only the files of that time are"
    )


def _earliest_ms(catalog: Catalog, request: FindRows) -> int:
    """No row that is asked for is due earlier."""
    starts = [start for start, bucket in catalog.buckets.items() if not (request.is_waiting and bucket.is_begun)]
    return min(starts, default=catalog.frontier_ms or 0)


def _files_between(catalog: Catalog, request: FindRows, from_ms: int) -> list[ListedFile]:
    until_ms = request.until_ms
    found = {file.name: file for file in catalog.open_files()}
    for bucket in catalog.buckets.values():
        if not (request.is_waiting and bucket.is_begun):
            found.update((name, catalog.files[name]) for name in bucket.files)
    return [
        file
        for file in found.values()
        if file.max_due_ms >= from_ms and (until_ms is None or file.min_due_ms < until_ms)
    ]


def rows_found(catalog: Catalog, request: FindRows, page: RowPage) -> RowsFound:
    """What the files hold, as the catalog sees it now. On the last page also recalled rows that no file holds any more."""
    if page.is_too_wide:
        reason = "too many files have rows of one time; compact the far table, or ask for a short time"
        return RowsFound(TableVerdict.TOO_MANY, catalog.version, reason)
    rows = [_row(catalog, row) for row in page.rows]
    if request.is_waiting:
        rows = [row for row in rows if row.standing is RowStanding.PENDING]
    elif page.after is None and request.topic is not None:
        known = {row.message_id for row in rows}
        if request.key is not None:
            past = catalog.recalled_with(request.topic, request.key, None)
            rows += [
                TableRow(RowStanding.RECALLED, each.topic, each.message_id, each.due_ms, each.keys)
                for each in past
                if each.message_id not in known
            ]
        elif request.message_id not in (None, *known) and catalog.is_recalled(request.topic, request.message_id or ""):
            rows.append(TableRow(RowStanding.RECALLED, request.topic, request.message_id or ""))
    cursor = None if page.after is None else f"{page.after[0]}:{page.after[1]}"
    return RowsFound(TableVerdict.OK, catalog.version, rows=rows, cursor=cursor)


def _row(catalog: Catalog, row: FoundRow) -> TableRow:
    start = catalog.start_of(row.due_ms)
    name = row.topic, row.message_id
    holders = catalog.holders(start)
    standing = RowStanding.PENDING if holders is None else RowStanding.HANDED_OVER
    if name in catalog.recalls.get(start, ()) or name in catalog.past_recalls:
        standing = RowStanding.RECALLED
    return TableRow(
        standing, row.topic, row.message_id, row.due_ms, row.keys, row.queue_id, row.born_ms, brokers=holders or []
    )
