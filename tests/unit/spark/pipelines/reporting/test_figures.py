"""Figures are sums of cells: nothing early or overdue is hidden in a percentile, and failures belong to groups."""

from __future__ import annotations

from orbitmq.spark.pipelines.reporting.cells import Cell, MessageClass
from orbitmq.spark.pipelines.reporting.figures import Figures, figures

HOUR = 3_600_000


def timed(topic: str, late_ms: int, *, slot: int = 0, rows: int = 1) -> Cell:
    return Cell(topic, slot * HOUR, MessageClass.TIMED, late_ms, rows, 10 * rows, late_ms, 0)


def of(*cells: Cell) -> Figures:
    return figures(cells, HOUR)


def test_percentiles_of_all_topics_come_from_all_counts() -> None:
    found = of(timed("a", 1, rows=98), timed("b", 50, slot=1), timed("b", 200, slot=1))
    assert (found.overall.timed, found.overall.p50_ms, found.overall.p99_ms, found.overall.max_ms) == (100, 1, 50, 200)
    assert [(row.topic, row.timed, row.p50_ms) for row in found.by_topic] == [("a", 98, 1), ("b", 2, 50)]
    assert [(row.slot_ms, row.p99_ms) for row in found.by_slot] == [(0, 1), (HOUR, 200)]
    assert [(row.topic, row.slot_ms) for row in found.by_topic_and_slot] == [("a", 0), ("b", HOUR)]
    assert found.distribution == ((1, 98), (50, 1), (200, 1))


def test_what_was_early_or_sent_too_late_is_counted_apart() -> None:
    early = Cell("a", 0, MessageClass.EARLY, 0, 3, 0, -7, 0)
    overdue = Cell("a", 0, MessageClass.OVERDUE, 0, 4, 0, 99_999, 0)
    found = of(timed("a", 2), early, overdue).overall
    assert (found.timed, found.max_ms, found.early, found.earliest_ms, found.overdue) == (1, 2, 3, -7, 4)


def test_where_nothing_was_timed_there_is_no_percentile() -> None:
    found = of(Cell("a", 0, MessageClass.PLAIN, 0, 5, 50, 0, 0))
    assert found.overall.p50_ms is None
    assert found.overall.max_ms is None
    assert found.by_topic == ()
    assert [(row.topic, row.messages, row.size_bytes) for row in found.traffic] == [("a", 5, 50)]


def test_retries_and_dead_letters_belong_to_groups_and_not_to_the_traffic() -> None:
    found = of(
        Cell("%RETRY%billing", 0, MessageClass.RETRY, 0, 5, 0, 0, 2),
        Cell("%RETRY%billing", 0, MessageClass.RETRY, 0, 1, 0, 0, 9),
        Cell("%DLQ%billing", HOUR, MessageClass.DEAD, 0, 1, 0, 0, 16),
    )
    assert found.traffic == ()
    assert [(row.group, row.slot_ms, row.messages, row.attempts) for row in found.retries] == [("billing", 0, 6, 9)]
    assert [(row.group, row.slot_ms, row.messages) for row in found.dead_letters] == [("billing", HOUR, 1)]
    assert (found.from_ms, found.until_ms) == (0, 2 * HOUR)


def test_messages_without_a_time_are_counted_and_in_no_table() -> None:
    found = of(Cell("a", 0, MessageClass.UNDATED, 0, 2, 0, 0, 0))
    assert (found.messages, found.undated, found.from_ms, found.traffic) == (2, 2, None, ())
