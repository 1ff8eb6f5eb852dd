"""From cells to figures: lateness by topic and span, throughput, retries, dead letters.

Rules of this file
1. Pure: cells in, figures out.
2. A percentile is at most 1/128 too large and never too small; the largest value is exact. What was due before it was sent, and what
   was stored too early, is counted apart and in no percentile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.spark.pipelines.reporting.buckets import percentile
from orbitmq.spark.pipelines.reporting.cells import Cell, MessageClass

ALL_TOPICS: Final = ""
"""Stands for all topics together."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How late messages were, in ms after their due times; the percentiles are None where nothing was timed."""

    topic: str
    slot_ms: int | None
    """Begin of the span in which they were delivered; None for all spans together."""
    timed: int
    p50_ms: int | None
    p90_ms: int | None
    p99_ms: int | None
    p999_ms: int | None
    max_ms: int | None
    early: int
    earliest_ms: int
    """By how much the earliest was too early, as a negative number; 0 when none was."""
    overdue: int


class TopicTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Messages stored in one span, those of retry and dead-letter topics left out."""

    topic: str
    slot_ms: int
    messages: int
    size_bytes: int


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Retries or dead letters of one group in one span."""

    group: str
    slot_ms: int
    messages: int
    attempts: int
    """The largest number of attempts that had failed before."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the messages themselves say. Lists are in order of topic (group), then span."""

    width_ms: int
    messages: int
    """All that were read, of all kinds."""
    undated: int
    from_ms: int | None
    """Begin of the first span with a message."""
    until_ms: int | None
    """End of the last one."""
    overall: Lateness
    by_topic: tuple[Lateness, ...]
    by_slot: tuple[Lateness, ...]
    """All topics together, by span; only spans in which something was timed."""
    by_topic_and_slot: tuple[Lateness, ...]
    distribution: tuple[tuple[int, int], ...]
    """All topics together: begin of a lateness bucket in ms, and its count; rising."""
    traffic: tuple[TopicTraffic, ...]
    retries: tuple[Failures, ...]
    dead_letters: tuple[Failures, ...]


class _Tally:
    """Lateness that is being added up."""

    __slots__ = ("counts", "earliest_ms", "early", "latest_ms", "overdue")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.latest_ms = 0
        self.early = 0
        self.earliest_ms = 0
        self.overdue = 0

    def add(self, cell: Cell) -> None:
        if cell.kind is MessageClass.TIMED:
            self.counts[cell.low_ms] += cell.rows
            self.latest_ms = max(self.latest_ms, cell.latest_ms)
        elif cell.kind is MessageClass.EARLY:
            self.early += cell.rows
            self.earliest_ms = min(self.earliest_ms, cell.latest_ms)
        else:
            self.overdue += cell.rows

    def lateness(self, topic: str, slot_ms: int | None) -> Lateness:
        def at(share: float) -> int | None:
            return percentile(self.counts, share, self.latest_ms)

        return Lateness(
            topic=topic, slot_ms=slot_ms, timed=self.counts.total(), p50_ms=at(0.5), p90_ms=at(0.9), p99_ms=at(0.99), p999_ms=at(0.999),
            max_ms=self.latest_ms if self.counts else None, early=self.early, earliest_ms=self.earliest_ms, overdue=self.overdue,
        )  # fmt: skip


def figures(cells: Iterable[Cell], width_ms: int) -> Figures:
    """Add up `cells`, whose spans are `width_ms` wide."""
    overall = _Tally()
    by_topic: defaultdict[str, _Tally] = defaultdict(_Tally)
    by_slot: defaultdict[int, _Tally] = defaultdict(_Tally)
    by_both: defaultdict[tuple[str, int], _Tally] = defaultdict(_Tally)
    traffic: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    failures: dict[MessageClass, defaultdict[tuple[str, int], list[int]]] = {
        kind: defaultdict(lambda: [0, 0]) for kind in (MessageClass.RETRY, MessageClass.DEAD)
    }
    messages = undated = 0
    slots: set[int] = set()
    for cell in cells:
        messages += cell.rows
        if cell.kind is MessageClass.UNDATED:
            undated += cell.rows
            continue
        slots.add(cell.slot_ms)
        if cell.kind in failures:
            prefix = RETRY_PREFIX if cell.kind is MessageClass.RETRY else DLQ_PREFIX
            failure = failures[cell.kind][cell.topic.removeprefix(prefix), cell.slot_ms]
            failure[0] += cell.rows
            failure[1] = max(failure[1], cell.attempts)
            continue
        stored = traffic[cell.topic, cell.slot_ms]
        stored[0] += cell.rows
        stored[1] += cell.size_bytes
        if cell.kind is not MessageClass.PLAIN:
            both = by_both[cell.topic, cell.slot_ms]
            for tally in (overall, by_topic[cell.topic], by_slot[cell.slot_ms], both):
                tally.add(cell)
    return Figures(
        width_ms=width_ms,
        messages=messages,
        undated=undated,
        from_ms=min(slots, default=None),
        until_ms=max(slots) + width_ms if slots else None,
        overall=overall.lateness(ALL_TOPICS, None),
        by_topic=tuple([tally.lateness(topic, None) for topic, tally in sorted(by_topic.items())]),
        by_slot=tuple([tally.lateness(ALL_TOPICS, slot) for slot, tally in sorted(by_slot.items())]),
        by_topic_and_slot=tuple([tally.lateness(*key) for key, tally in sorted(by_both.items())]),
        distribution=tuple(sorted(overall.counts.items())),
        traffic=tuple(
            [
                TopicTraffic(topic=topic, slot_ms=slot, messages=count, size_bytes=size)
                for (topic, slot), (count, size) in sorted(traffic.items())
            ]
        ),
        retries=_failures(failures[MessageClass.RETRY]),
        dead_letters=_failures(failures[MessageClass.DEAD]),
    )


def _failures(found: defaultdict[tuple[str, int], list[int]]) -> tuple[Failures, ...]:
    return tuple(
        [
            Failures(group=group, slot_ms=slot, messages=count, attempts=attempts)
            for (group, slot), (count, attempts) in sorted(found.items())
        ]
    )
