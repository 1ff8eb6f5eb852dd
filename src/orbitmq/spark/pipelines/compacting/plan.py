"""What a compaction takes, and how its work is divided.

A *round* replaces some files by others in one request. Its rows are cut by due time into *ranges*, of which a task takes one: it reads
what every file of the round has there, and writes files of days. No row goes through a shuffle, because the files are sorted.

Rules of this file
1. Pure: lists of files and the bounds of their row groups in, work out.
2. A row group is read by every task whose range it touches, so a round has few files: then a range takes about a row group of each.
   Many files take several rounds, and their rows reach their day in steps.
3. A range is cut where rows are estimated to be enough, anywhere in a day: a crowded day has several files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from orbitmq.limits.spark import (
    COMPACT_DAY_FILES_MAX,
    COMPACT_RANGE_BYTES,
    COMPACT_ROUND_FILES,
)
from orbitmq.protocol.far_table import ListedFile, Recall

LANDING: Final = "landing/"
BUCKETS: Final = "buckets"
DAY_MS: Final = 86_400_000


class Group(NamedTuple):
    """A row group: due times of its first and last row, and its bytes before compression."""

    min_due_ms: int
    max_due_ms: int
    size_bytes: int


class Range(NamedTuple):
    """Rows due from `from_ms` to before `until_ms`, and the files that may have some: names, and the time from which their rows count."""

    from_ms: int
    until_ms: int
    files: tuple[tuple[str, int], ...]


def day_directory(day: int) -> str:
    """Directory of a day, days since 1970 in UTC."""
    from datetime import date, timedelta

    return f"{BUCKETS}/dueDay={(date(1970, 1, 1) + timedelta(days=day)).isoformat()}"


def is_landing(name: str) -> bool:
    return name.startswith(LANDING)


def start_of_round(files: Sequence[ListedFile], frontier_ms: int, bucket_ms: int) -> int:
    """From where the new files count: the start of the first bucket that is open."""
    lowest = min(lowest_ms(file) for file in files)
    return max(lowest // bucket_ms * bucket_ms, frontier_ms)


def lowest_ms(file: ListedFile) -> int:
    return file.min_due_ms if file.from_ms is None else max(file.min_due_ms, file.from_ms)


def next_round(
    files: Iterable[ListedFile],
    *,
    size_bytes: int,
    recalls: Iterable[Recall] = (),
    files_max: int = COMPACT_ROUND_FILES,
    day_files_max: int = COMPACT_DAY_FILES_MAX,
    small_bytes: int = COMPACT_RANGE_BYTES // 4,
) -> list[ListedFile]:
    """The files of the next round, at most about `size_bytes`; empty when none is worth it. recalls: of rows that are to go now."""
    known = [file for file in files if file.until_ms is None]
    landing = [file for file in known if is_landing(file.name)]
    by_day: dict[str, list[ListedFile]] = {}
    for file in known:
        if not is_landing(file.name) and file.size_bytes <= small_bytes:
            by_day.setdefault(file.name.rpartition("/")[0], []).append(file)
    crowded = [group for _, group in sorted(by_day.items()) if len(group) > day_files_max]
    for group in (
        _widest(landing),
        _many_small(landing, small_bytes, day_files_max),
        *crowded,
        _with_recalled(known, recalls),
    ):
        if group:
            return _bounded(group, size_bytes, files_max)
    return []


def _widest(landing: Sequence[ListedFile]) -> list[ListedFile]:
    """Of the landing files those that cover the longest times, in a run of which each overlaps one before it.

    A round cuts long times into short ones. Files of about the same length are put together, so that a row is written anew about once
    for every factor of thirty between the time that its first file covered and a day, however many files there are.
    """
    by_length: dict[int, list[ListedFile]] = {}
    for file in landing:
        by_length.setdefault(max(file.max_due_ms - lowest_ms(file), DAY_MS).bit_length(), []).append(file)
    for _, group in sorted(by_length.items(), reverse=True):
        run: list[ListedFile] = []
        end_ms = 0
        for file in _in_order(group):
            if run and lowest_ms(file) > end_ms:
                if len(run) > 1:
                    break
                run = []
            run.append(file)
            end_ms = max(end_ms, file.max_due_ms)
        if len(run) > 1:
            return run
    return []


def _many_small(landing: Sequence[ListedFile], small_bytes: int, count_max: int) -> list[ListedFile]:
    """Small landing files that do not overlap, when there are many of them."""
    small = _in_order(file for file in landing if file.size_bytes <= small_bytes // 8)
    return small if len(small) > count_max else []


def _in_order(files: Iterable[ListedFile]) -> list[ListedFile]:
    return sorted(files, key=lambda file: (lowest_ms(file), file.name))


def _bounded(group: Sequence[ListedFile], size_bytes: int, files_max: int) -> list[ListedFile]:
    """The first of these files that are taken together; two at least, because one alone may become what it was."""
    taken: list[ListedFile] = []
    for file in group[:files_max]:
        if len(taken) > 1 and file.size_bytes > size_bytes:
            break
        size_bytes -= file.size_bytes
        taken.append(file)
    return taken


def _with_recalled(files: Iterable[ListedFile], recalls: Iterable[Recall]) -> list[ListedFile]:
    """Files that may hold one of these rows."""
    from bisect import bisect_left

    rows = sorted((recall.due_ms, recall.number) for recall in recalls)
    found = []
    for file in files:
        first, end = bisect_left(rows, (lowest_ms(file), 0)), bisect_left(rows, (file.max_due_ms + 1, 0))
        if any(rows[at][1] >= file.recalls_below for at in range(first, end)):
            found.append(file)
    return found


def ranges_of(
    groups: Sequence[tuple[ListedFile, Sequence[Group]]], from_ms: int, *, range_bytes: int = COMPACT_RANGE_BYTES
) -> list[Range]:
    """Cut the rows of these files that are due at `from_ms` or later into ranges of about `range_bytes` each.

    Rows are taken to be spread evenly within their row group, so a range is larger than wanted by at most what row groups hide.
    Cost: row groups, times a logarithm.
    """
    edges: list[tuple[int, float]] = []
    last_ms = from_ms
    for file, of_file in groups:
        begin = max(from_ms, lowest_ms(file))
        for group in of_file:
            if group.max_due_ms < begin:
                continue
            start, end = max(group.min_due_ms, begin), group.max_due_ms + 1
            density = group.size_bytes / (group.max_due_ms + 1 - group.min_due_ms)
            edges.append((start, density))
            edges.append((end, -density))
            last_ms = max(last_ms, end)
    if not edges:
        return []
    cuts = _cuts(sorted(edges), range_bytes)
    bounds = [from_ms, *cuts, last_ms]
    found = []
    for start, end in pairwise(bounds):
        files = tuple(
            (file.name, max(from_ms, lowest_ms(file)))
            for file, _ in groups
            if lowest_ms(file) < end and file.max_due_ms >= start
        )
        if files and end > start:
            found.append(Range(start, end, files))
    return found


def _cuts(edges: Sequence[tuple[int, float]], range_bytes: int) -> list[int]:
    """Times at which so many bytes have come together, summing up what lies between the edges."""
    cuts: list[int] = []
    density = size = 0.0
    at = edges[0][0]
    for time_ms, change in edges:
        while density > 0 and size + density * (time_ms - at) >= range_bytes:
            step = max(1, int((range_bytes - size) / density))
            if at + step >= time_ms:
                break
            at, size = at + step, 0.0
            cuts.append(at)
        size += density * (time_ms - at)
        at, density = time_ms, density + change
        if size >= range_bytes and time_ms < edges[-1][0]:
            cuts.append(time_ms)
            size = 0.0
    return sorted(set(cuts))
