"""The longer works of the index, each in steps of about a millisecond: making runs, making them fewer, finding what is missing.

Rules of this file
1. A work changes nothing but new files until its last step; whoever ends it early loses only its labour.
2. One work at a time. They raise OSError, and StoreDamagedError for a run that contradicts itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.index.entries import IndexEntry
from orbitmq.timing.index.gathering import NUMBER_BITS, NUMBER_MASK, Gathering, Order
from orbitmq.timing.index.parts import Gathered, Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.run_writing import write_run
from orbitmq.timing.timers.facts import TimerFacts
from orbitmq.timing.timers.pending import PendingTimers

logger = logging.getLogger("orbitmq.timing")

TOGETHER_MIN: Final = 4
"""Fewest small runs that are put together: each entry is then copied seldom."""

ENTRIES_PER_STEP: Final = 2_048
"""Entries looked at in one step."""

RECORDS_PER_STEP: Final = 64
"""Records read, or entries gathered, in one step."""

Steps = Generator[None, None, None]


def seal(parts: Parts, files: Files, gathered: Gathered) -> Steps:
    """Make the oldest closed gathering a run."""
    path = yield from _write(parts, files, gathered.gathering)
    parts.sealed(gathered, path)


def _write(parts: Parts, files: Files, gathering: Gathering) -> Generator[None, None, Path]:
    path = parts.new_run_path()
    try:
        yield from write_run(files, path, gathering)
    except (OSError, GeneratorExit):
        parts.drop_file(path)
        raise
    return path


def tidy(parts: Parts, files: Files, pending: PendingTimers) -> Steps:
    """Look what of the runs is over. Drop those that are, and put together those of which little is left.

    Every entry is looked at once in its life, when those that are due before it are over.
    """
    small: list[Run] = []
    room = parts.shape.capacity
    for run in sorted(parts.runs, key=lambda run: run.base_offset):
        while run.skip_gone(pending.is_pending, ENTRIES_PER_STEP):
            yield
        left = run.left_count
        if run not in parts.runs or left > min(parts.shape.small, room):
            continue
        if left:
            small.append(run)
            room -= left
        else:
            parts.drop_run(run)
    if len(small) >= TOGETHER_MIN:
        yield from _put_together(parts, files, small, pending)


def _put_together(parts: Parts, files: Files, runs: Sequence[Run], pending: PendingTimers) -> Steps:
    entries: list[IndexEntry] = []
    for run in runs:
        try:
            found = yield from run.entries()
        except StoreDamagedError as error:
            parts.forget_run(run, str(error))
            return
        for low in range(0, len(found), ENTRIES_PER_STEP):
            entries += [
                entry for entry in found[low : low + ENTRIES_PER_STEP] if pending.is_pending(entry.queue_offset)
            ]
            yield
    order: Order[int] = Order()
    for index, entry in enumerate(entries):
        order.fresh.append(entry.queue_offset << NUMBER_BITS | index)
        if not index % ENTRIES_PER_STEP:
            yield
    while order.sort_step():
        yield
    gathering = Gathering()
    for part in order.ordered():
        for value in part:
            gathering.add(entries[value & NUMBER_MASK])
            if not len(gathering) % RECORDS_PER_STEP:
                yield
    path = (yield from _write(parts, files, gathering)) if entries else None
    if all(run in parts.runs for run in runs):
        parts.compacted(runs, path)
    elif path is not None:
        parts.drop_file(path)


FactsAt = Callable[[Sequence[int]], "Sequence[TimerFacts | None]"]
"""What the records at ascending queue offsets say; None for one of which nothing is left."""


def fill(
    parts: Parts,
    files: Files,
    pending: PendingTimers,
    facts_at: FactsAt,
    found: Callable[[Sequence[TimerFacts]], None],
) -> Steps:
    """Collect what is missing from the records of what is pending; `found` hears of all. 15 us a timer."""
    try:
        yield from _fill(parts, files, pending, facts_at, found)
    finally:
        parts.filling = None


def _fill(
    parts: Parts,
    files: Files,
    pending: PendingTimers,
    facts_at: FactsAt,
    found: Callable[[Sequence[TimerFacts]], None],
) -> Steps:
    missing = parts.missing
    ranges, added_count = list(missing), missing.added_count
    logger.info("the timer index collects timers %d to %d from the log", ranges[0][0], ranges[-1][1] - 1)
    gathering = parts.filling = Gathering()
    unreadable_count = 0
    for begin, end in ranges:
        offsets = pending.offsets(begin)
        while piece := _before(end, islice(offsets, min(RECORDS_PER_STEP, parts.shape.capacity - len(gathering)))):
            facts = facts_at([one for one in piece if pending.is_pending(one) and not parts.is_gathered(one)])
            known = [one for one in facts if one is not None]
            unreadable_count += len(facts) - len(known)
            gathering.take([one for one in known if not one.is_cancel])
            found(known)
            path = None
            if parts.is_full(gathering):
                path = yield from _write(parts, files, gathering)
            yield
            if missing.added_count != added_count:
                if path is not None:
                    parts.drop_file(path)
                return
            if path is not None:
                parts.filled(path, piece[-1] + 1)
                parts.spent.append(gathering)
                gathering = parts.filling = Gathering()
    rest = (yield from _write(parts, files, gathering)) if len(gathering) else None
    if missing.added_count != added_count:
        if rest is not None:
            parts.drop_file(rest)
        return
    parts.filled(rest, ranges[-1][1])
    if unreadable_count:
        logger.error(
            "%d pending timers have no record that can be read; they are not in the timer index", unreadable_count
        )


def _before(end: int, queue_offsets: Iterable[int]) -> list[int]:
    return [queue_offset for queue_offset in queue_offsets if queue_offset < end]
