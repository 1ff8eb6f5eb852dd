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
    """Files that may hold a row that is meant: open ones, and those of closed buckets that are not finished."""
    start = None if request.due_ms is None else catalog.start_of(request.due_ms)
    if start is not None and catalog.frontier_ms is not None and start < catalog.frontier_ms:
        bucket = catalog.buckets.get(start)
        return [] if bucket is None else [catalog.files[name] for name in bucket.files]
    found = {file.name: file for file in catalog.open_files() if start is None or catalog.overlaps(file, start)}
    if start is None:
        for bucket in catalog.buckets.values():
            found.update((name, catalog.files[name]) for name in bucket.files)
    return list(found.values())


def recall_rows(catalog: Catalog, request: RecallRows, found: Iterable[RowName]) -> Decided:
    """Answer: RowsRecalled. `found`: the rows that the request means, read completely from every file of `files_to_search`.

    A file that is gone before it was read means to begin again. Rows are those within `from_ms` and `until_ms` of their file.
    """
    if request.table != catalog.table:
        reason = f"this broker owns the catalog of far table {catalog.table}, not of {request.table}"
        return Decided(RowsRecalled(TableVerdict.WRONG_TABLE, reason=reason))
    rows: dict[str, RecalledRow] = {}
    taken: list[RowName] = []
    room = FAR_TABLE_RECALLS_MAX - catalog.recall_count
    for row in dict.fromkeys(found):
        start = catalog.start_of(row.due_ms)
        brokers = catalog.holders(start)
        name = row.topic, row.message_id
        told = RecalledRow(RowVerdict.RECALLED, row.message_id, row.due_ms, keys=row.keys)
        if name in catalog.recalls.get(start, ()) or name in catalog.past_recalls:
            told.verdict = RowVerdict.ALREADY_RECALLED
        elif brokers is not None:
            told.verdict, told.brokers = RowVerdict.HANDED_OVER, brokers
        elif len(taken) >= room:
            told.verdict = RowVerdict.TOO_MANY
        else:
            taken.append(row)
        rows[row.message_id] = told
    for told in _remembered(catalog, request):
        rows.setdefault(told.message_id, told)
    answers = list(rows.values()) or [_not_found(catalog, request)]
    changes = (Recalled(taken),) if taken else ()
    return Decided(RowsRecalled(TableVerdict.OK, catalog.version + len(changes), rows=answers), changes)


def _remembered(catalog: Catalog, request: RecallRows) -> list[RecalledRow]:
    """Recalled rows that are meant, in a file or not: a repeated request may come after its row has gone."""
    if request.key is not None:
        start = None if request.due_ms is None else catalog.start_of(request.due_ms)
        past = catalog.recalled_with(request.topic, request.key, start)
        return [RecalledRow(RowVerdict.ALREADY_RECALLED, each.message_id, each.due_ms, keys=each.keys) for each in past]
    if request.message_id and catalog.is_recalled(request.topic, request.message_id):
        return [RecalledRow(RowVerdict.ALREADY_RECALLED, request.message_id, request.due_ms)]
    return []


def _not_found(catalog: Catalog, request: RecallRows) -> RecalledRow:
    """What is known without having found a row: the files of a finished bucket are gone."""
    message_id = request.message_id or ""
    brokers = None if request.due_ms is None else catalog.finished.get(catalog.start_of(request.due_ms))
    if brokers is None:
        return RecalledRow(RowVerdict.NOT_FOUND, message_id, request.due_ms)
    return RecalledRow(RowVerdict.HANDED_OVER, message_id, request.due_ms, list(brokers))


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
