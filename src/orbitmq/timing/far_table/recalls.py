"""Recalling rows of the far table, and the lists that readers of the catalog ask for.

The catalog knows files, not rows. So the owner first looks for the rows in the files of `files_to_search`, which takes time, and then
asks `recall_rows` to decide about those it found, at the state of that moment.

Rules of this file
1. Pure.
2. A row of a bucket that nobody began can be recalled, and is not delivered. Afterwards it is the broker's that began the bucket.
3. Rows are named by due time, topic and unique key, so that it does not matter into which file a compaction puts them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.limits.far import FAR_TABLE_PAGE_ITEMS, FAR_TABLE_RECALLS_MAX
from orbitmq.protocol.far_table import (
    FilesPage,
    FilesQuery,
    ListedFile,
    Recall,
    RecalledRow,
    RecallRows,
    RecallsPage,
    RecallsQuery,
    RowsRecalled,
    RowVerdict,
    ShareState,
    TableStatus,
    TableVerdict,
)
from orbitmq.timing.far_table.catalog import Catalog, Decided, Rules
from orbitmq.timing.far_table.changes import Recalled, RowName


def files_to_search(catalog: Catalog, request: RecallRows) -> list[ListedFile]:
    """Files that may hold a row that can still be recalled, open ones and those of closed buckets that nobody began."""
    start = None if request.due_ms is None else catalog.start_of(request.due_ms)
    if start is not None and catalog.frontier_ms is not None and start < catalog.frontier_ms:
        bucket = catalog.buckets.get(start)
        return [] if bucket is None or bucket.is_begun else [catalog.files[name] for name in bucket.files]
    found = {file.name: file for file in catalog.open_files() if start is None or catalog.overlaps(file, start)}
    if start is None:
        for bucket in catalog.buckets.values():
            if not bucket.is_begun:
                found.update((name, catalog.files[name]) for name in bucket.files)
    return list(found.values())


def recall_rows(catalog: Catalog, request: RecallRows, found: Iterable[RowName]) -> Decided:
    """Answer: RowsRecalled. `found`: the rows that the request means, read completely from every file of `files_to_search`.

    A file that is gone before it was read means to begin again. Rows are those within `from_ms` and `until_ms` of their file.
    """
    if request.table != catalog.table:
        reason = f"this broker owns the catalog of far table {catalog.table}, not of {request.table}"
        return Decided(RowsRecalled(TableVerdict.WRONG_TABLE, reason=reason))
    rows: list[RecalledRow] = []
    taken: list[RowName] = []
    room = FAR_TABLE_RECALLS_MAX - catalog.recall_count
    for row in dict.fromkeys(found):
        start = catalog.start_of(row.due_ms)
        brokers = _brokers(catalog, start)
        name = row.topic, row.message_id
        if name in catalog.recalls.get(start, ()) or name in catalog.past_recalls:
            rows.append(RecalledRow(RowVerdict.ALREADY_RECALLED, row.message_id, row.due_ms))
        elif brokers is not None:
            rows.append(RecalledRow(RowVerdict.HANDED_OVER, row.message_id, row.due_ms, brokers))
        elif len(taken) >= room:
            rows.append(RecalledRow(RowVerdict.TOO_MANY, row.message_id, row.due_ms))
        else:
            taken.append(row)
            rows.append(RecalledRow(RowVerdict.RECALLED, row.message_id, row.due_ms))
    if not rows:
        rows.append(_not_found(catalog, request))
    changes = (Recalled(taken),) if taken else ()
    return Decided(RowsRecalled(TableVerdict.OK, catalog.version + len(changes), rows=rows), changes)


def _not_found(catalog: Catalog, request: RecallRows) -> RecalledRow:
    """What is known without having found a row: a repeated request may come after its row has gone."""
    message_id = request.message_id or ""
    if message_id and catalog.is_recalled(request.topic, message_id):
        return RecalledRow(RowVerdict.ALREADY_RECALLED, message_id, request.due_ms)
    brokers = None if request.due_ms is None else _brokers(catalog, catalog.start_of(request.due_ms))
    if brokers is None:
        return RecalledRow(RowVerdict.NOT_FOUND, message_id, request.due_ms)
    return RecalledRow(RowVerdict.HANDED_OVER, message_id, request.due_ms, brokers)


def _brokers(catalog: Catalog, start_ms: int) -> list[str] | None:
    """Who has, or had, the rows of a bucket; None while nobody began it, or none had any."""
    bucket = catalog.buckets.get(start_ms)
    if bucket is not None:
        return list(bucket.brokers) if bucket.is_begun else None
    return catalog.finished.get(start_ms)


def recalls_page(catalog: Catalog, query: RecallsQuery) -> RecallsPage:
    if query.table != catalog.table:
        return RecallsPage(TableVerdict.WRONG_TABLE)
    if query.bucket_ms is not None:
        if query.bucket_ms not in catalog.buckets:
            return RecallsPage(TableVerdict.GONE, catalog.version, "the bucket is finished, or not closed")
        chosen = catalog.recalls_of(query.bucket_ms)
    else:
        chosen = [
            recall
            for of_bucket in catalog.recalls.values()
            for recall in of_bucket.values()
            if (query.from_ms is None or recall.due_ms >= query.from_ms)
            and (query.until_ms is None or recall.due_ms < query.until_ms)
        ]
    later = sorted((each for each in chosen if each.number > query.after_number), key=_number)
    page = later[:FAR_TABLE_PAGE_ITEMS]
    following = page[-1].number if len(later) > len(page) else None
    return RecallsPage(TableVerdict.OK, catalog.version, recalls=page, next_after=following)


def _number(recall: Recall) -> int:
    return recall.number


def files_page(catalog: Catalog, query: FilesQuery) -> FilesPage:
    if query.table != catalog.table:
        return FilesPage(TableVerdict.WRONG_TABLE)
    names = sorted(
        file.name
        for file in catalog.open_files()
        if file.name > query.after_name
        and (query.from_ms is None or file.max_due_ms >= query.from_ms)
        and (query.until_ms is None or file.min_due_ms < query.until_ms)
    )
    page = names[:FAR_TABLE_PAGE_ITEMS]
    return FilesPage(
        TableVerdict.OK,
        catalog.version,
        files=[catalog.files[name] for name in page],
        next_after=page[-1] if len(names) > len(page) else None,
        frontier_ms=catalog.frontier_ms or 0,
    )


def table_status(catalog: Catalog, now_ms: int, rules: Rules, url: str) -> TableStatus:
    files = list(catalog.open_files())
    shares = list(catalog.shares())
    return TableStatus(
        TableVerdict.OK,
        catalog.version,
        table=catalog.table,
        url=url,
        bucket_ms=catalog.bucket_ms,
        frontier_ms=catalog.frontier_ms or 0,
        split_ms=catalog.split_ms(now_ms, rules),
        now_ms=now_ms,
        file_count=len(files),
        rows=sum(file.rows for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        recall_count=catalog.recall_count,
        garbage_count=len(catalog.garbage),
        job_count=len(catalog.jobs),
        share_count=len(shares),
        shares=[
            ShareState(start, share.first, share.end, share.broker, share.is_begun, share.stored, share.allowed)
            for start, share in shares[:FAR_TABLE_PAGE_ITEMS]
        ],
    )
