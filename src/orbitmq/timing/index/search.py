"""What falls due next, and questions to the index, answered from all of its parts.

Every source answers in order, so a page is the beginning of a merge. A cursor is the place of the last entry that was looked
at; it stays good whatever comes or goes meanwhile. What falls due is read in slices, and never the same message twice.

Rules of this file
1. What is not pending is left out of pages. How much of it is looked at for one page is bounded; the page is then short, and has a cursor.
2. A candidate looks like what was asked for. Who asked compares the record: ids and long keys are not kept whole.
3. A slice ends at a place (due time, queue offset), and the next one begins behind it. A message that arrives later and belongs before
   that place is not found by further slices: `Timers` adds it to `SoonTimers` itself.
4. Of each part little is read at a time, so that a slice over hundreds of parts stays a slice.
"""

from __future__ import annotations

import binascii
import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_SCAN_MAX
from orbitmq.timing.index.entries import Candidate, key_bytes
from orbitmq.timing.index.gathering import Due, Found, FoundKey, Source
from orbitmq.timing.index.run import Run

SHARE_MIN: Final = 16
"""Entries read of one part at a time, however many parts there are."""


class DueSlice(NamedTuple):
    """Some messages in order."""

    entries: Sequence[Due]
    """Those that are over already among them."""
    end: Found
    """Everything up to here was read."""
    next_ms: int | None
    """A time at or before the due time of the first one behind them; None when there is none."""


class DamagedPartError(Exception):
    """A part that contradicts itself."""

    def __init__(self, part: Run, problem: str) -> None:
        super().__init__(problem)
        self.part = part


def due_slice(parts: Sequence[Source], after: Found, until_ms: int, limit: int) -> DueSlice:
    """At most `limit` entries behind `after` that are due before `until_ms`. 0.5 us an entry, 4 us a part. Raises DamagedPartError."""
    share = min(max(limit // max(len(parts), 1) * 2, SHARE_MIN), limit)
    found: list[Due] = []
    end, next_ms = (until_ms, -1), None
    for part in parts:
        try:
            entries, part_next_ms = part.due_after(after, until_ms, share)
        except StoreDamagedError as error:
            raise DamagedPartError(_run(part), str(error)) from error
        if entries and not after < entries[0][:2] <= entries[-1][:2]:
            raise DamagedPartError(_run(part), "its due times are not in order")
        found += entries
        if part_next_ms is not None:
            next_ms = part_next_ms if next_ms is None else min(next_ms, part_next_ms)
            if part_next_ms < until_ms:  # there is more of it in the range
                if not entries:
                    raise DamagedPartError(_run(part), "its due times are not in order")
                end = min(end, entries[-1][:2])
    if len(parts) > 1:
        found.sort()
    if len(found) > limit:
        end = min(end, found[limit - 1][:2])
    if end[0] < until_ms:
        found = [entry for entry in found if entry[:2] <= end]
        next_ms = end[0]
    return DueSlice(found, end, next_ms)


def _run(part: Source) -> Run:
    assert isinstance(part, Run), "what is in memory is not damaged"
    return part


IsPending = Callable[[int], bool]
"""Whether the timer with a queue offset is pending still. Less than a microsecond."""


class IndexQuery(NamedTuple):
    """Which pending timers, in pages.

    With `key` or `key_prefix`, which need a topic, the order is (key, due time, arrival), and a message comes once for each of
    its keys that fits; otherwise it is (due time, arrival). `from_ms` is included, `until_ms` is not.
    """

    topic: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    key_prefix: str | None = None
    limit: int = 50
    cursor: str | None = None


class IndexPage(NamedTuple):
    candidates: list[Candidate]
    cursor: str | None
    """For the next page; None when this is the last one. A page may be short, even empty, and have one."""
    keys: Sequence[bytes] = ()
    """In a page by key, the key under which each candidate was found, as `key_bytes` makes them."""


class _DueCursor(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    due_ms: int
    queue_offset: int


class _KeyCursor(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    key: bytes
    due_ms: int
    queue_offset: int


def _encode_cursor(cursor: _DueCursor | _KeyCursor) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).rstrip(b"=").decode()


def _decode_cursor(text: str) -> _DueCursor | _KeyCursor:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.msgpack.decode(raw, type=_DueCursor | _KeyCursor)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise ValueError("the cursor is not one of a page of timers") from error


def find_id(sources: Iterable[Source], is_pending: IsPending, wanted: int, limit: int) -> list[Candidate]:
    """Pending timers with this hash of topic and message id; at most `limit`, earliest due first."""
    found: list[Found] = []
    for source in sources:
        found += [one for one in islice(source.by_id(wanted), TIMER_SCAN_MAX) if is_pending(one[1])]
    return _earliest(found, limit)


def find_key(sources: Iterable[Source], is_pending: IsPending, topic: str, key: bytes, limit: int) -> list[Candidate]:
    """Pending timers of a topic one of whose keys, as `key_bytes` makes them, may be this; at most `limit`, earliest due first."""
    several: list[Iterator[FoundKey]] = []
    for source in sources:
        matches = source.by_key(topic, key, None, exact=True)
        first = next(matches, None)
        if first is not None:
            several.append(chain((first,), matches))
    found: list[Found] = []
    for _, due_ms, queue_offset in islice(several[0] if len(several) == 1 else heapq.merge(*several), TIMER_SCAN_MAX):
        if len(found) >= limit:
            break
        if is_pending(queue_offset):
            found.append((due_ms, queue_offset))
    return _earliest(found, limit)


def _earliest(found: list[Found], limit: int) -> list[Candidate]:
    if len(found) > 1:
        found.sort()
    return [Candidate(queue_offset, due_ms) for due_ms, queue_offset in found[:limit]]


def page(sources: Sequence[Source], is_pending: IsPending, query: IndexQuery) -> IndexPage:
    """One page. For an exact key sources that cannot have it may be left out.

    Raises ValueError for a cursor of something else, or a key without a topic.
    """
    from_ms = query.from_ms or 0
    cursor = _decode_cursor(query.cursor) if query.cursor is not None else None
    text = query.key if query.key is not None else query.key_prefix
    if text is None:
        if isinstance(cursor, _KeyCursor):
            raise ValueError("the cursor belongs to a page by key")
        behind = (cursor.due_ms, cursor.queue_offset) if cursor is not None else None
        begin_ms = max(from_ms, behind[0] if behind is not None else 0)
        for source in sources:
            source.will_search(query.topic, begin_ms)
        dues = heapq.merge(*(source.by_due(query.topic, from_ms, behind) for source in sources))
        return _page_by_due(dues, is_pending, query)
    if query.topic is None:
        raise ValueError("a page by key needs a topic")
    if isinstance(cursor, _DueCursor):
        raise ValueError("the cursor belongs to a page by due time")
    after = (cursor.key, cursor.due_ms, cursor.queue_offset) if cursor is not None else None
    key, exact, topic = key_bytes(text), query.key is not None, query.topic
    keyed = heapq.merge(*(source.by_key(topic, key, after, exact=exact) for source in sources))
    return _page_by_key(keyed, is_pending, query, from_ms)


def _page_by_due(found: Iterator[Found], is_pending: IsPending, query: IndexQuery) -> IndexPage:
    candidates: list[Candidate] = []
    until_ms = query.until_ms
    for looked_at, (due_ms, queue_offset) in enumerate(found, 1):
        if until_ms is not None and due_ms >= until_ms:
            break
        if is_pending(queue_offset):
            candidates.append(Candidate(queue_offset, due_ms))
        if len(candidates) >= query.limit or looked_at >= TIMER_SCAN_MAX:
            return IndexPage(candidates, _encode_cursor(_DueCursor(due_ms, queue_offset)))
    return IndexPage(candidates, None)


def _page_by_key(found: Iterator[FoundKey], is_pending: IsPending, query: IndexQuery, from_ms: int) -> IndexPage:
    candidates: list[Candidate] = []
    keys: list[bytes] = []
    until_ms = query.until_ms
    for looked_at, (key, due_ms, queue_offset) in enumerate(found, 1):
        if due_ms >= from_ms and (until_ms is None or due_ms < until_ms) and is_pending(queue_offset):
            candidates.append(Candidate(queue_offset, due_ms))
            keys.append(key)
        if len(candidates) >= query.limit or looked_at >= TIMER_SCAN_MAX:
            return IndexPage(candidates, _encode_cursor(_KeyCursor(key, due_ms, queue_offset)), keys)
    return IndexPage(candidates, None, keys)
