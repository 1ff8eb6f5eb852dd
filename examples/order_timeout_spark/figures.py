"""Figures of the run, out of the archive: nothing else is asked any more.

Rules of this file
1. Spark counts; what comes here is small, but for the list of orders that the books are compared with.
2. Lateness is what the broker did: the moment a message was there to be read, minus its due time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

import orbitmq.spark
from examples.order_timeout_spark.books import Happened
from examples.order_timeout_spark.deciding import DECISIONS
from examples.order_timeout_spark.scheduling import CLOSING, PAYMENTS, TIMEOUTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATENESS_EDGES_MS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""Where the bars of the lateness drawing begin."""


@dataclass(frozen=True)
class Lateness:
    """In milliseconds, of `count` messages."""

    count: int
    earliest: float
    p50: float
    p99: float
    latest: float


@dataclass(frozen=True)
class Figures:
    by_topic: Mapping[str, Lateness]
    """How late the broker was, for each topic with due times."""
    late_messages: Mapping[int, int]
    """How many messages were late by a number of LATENESS_EDGES_MS or more, and less than the next."""
    decided_after: Mapping[str, Lateness]
    """How long after the instant that it is about each decision was stored."""
    by_second: Mapping[str, Mapping[int, int]]
    """For each decision: how many are about which second since the first due time."""
    busiest_second: int
    """Time-outs that came in the busiest second."""


class Archive:
    """What the archive pipeline wrote, as frames of this story."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        stored = orbitmq.spark.archive(directory, spark=spark).where(f.coalesce("tags", f.lit("")) != CLOSING)
        self.timed: Final = stored.where(f.col("topic").isin(TIMEOUTS, PAYMENTS)).select(
            "topic",
            f.col("keys").alias("order"),
            "storeTimestamp",
            f.unix_millis("deliverTimestamp").alias("due_ms"),
            ((f.unix_micros("storeTimestamp") - f.unix_micros("deliverTimestamp")) / 1000).alias("lateness_ms"),
        )
        made = f.from_json(f.col("body").cast("string"), "cents long, at_ms long").alias("made")
        self.decisions: Final = (
            stored.where(f.col("topic") == DECISIONS)
            .select(f.col("keys").alias("order"), f.col("tags").alias("decision"), made, "storeTimestamp")
            .select("order", "decision", "made.cents", "made.at_ms", "storeTimestamp")
        )


def happened(archive: Archive) -> dict[str, Happened]:
    """What was archived about each order, by its name."""
    orders: dict[str, Happened] = {}
    timeouts = archive.timed.where(f.col("topic") == TIMEOUTS).select("order", "due_ms", "lateness_ms")
    for name, due_ms, lateness_ms in _rows(timeouts):
        order = orders.setdefault(name, Happened())
        order.due_ms.append(due_ms)
        order.lateness_ms.append(lateness_ms)
    for name, decision, cents in _rows(archive.decisions.select("order", "decision", "cents")):
        orders.setdefault(name, Happened()).decisions.append((decision, cents))
    return orders


def _rows(frame: DataFrame) -> zip[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in frame.toArrow().columns), strict=True)


def measure(archive: Archive, first_due_ms: int) -> Figures:
    """Count and measure; takes three passes over a few columns."""
    timed, decisions = archive.timed.cache(), archive.decisions.cache()
    after = (f.unix_micros("storeTimestamp") / 1000 - f.col("at_ms")).alias("after_ms")
    second = f.floor((f.col("at_ms") - first_due_ms) / 1000).alias("second")
    by_second: dict[str, dict[int, int]] = {}
    for decision, number, count in _rows(decisions.groupBy("decision", second).agg(f.count("*"))):
        by_second.setdefault(decision, {})[number] = count
    bars = timed.where(f.col("topic") == TIMEOUTS).groupBy(_edge(f.col("lateness_ms")).alias("edge")).agg(f.count("*"))
    busiest = (
        timed.where(f.col("topic") == TIMEOUTS)
        .groupBy(f.date_trunc("second", "storeTimestamp"))
        .agg(f.count("*").alias("messages"))
        .agg(f.max("messages"))
        .first()
    )
    figures = Figures(
        by_topic=_spread(timed, "topic", f.col("lateness_ms")),
        late_messages=dict(_rows(bars)),
        decided_after=_spread(decisions, "decision", after),
        by_second=by_second,
        busiest_second=0 if busiest is None else busiest[0] or 0,
    )
    timed.unpersist()
    decisions.unpersist()
    return figures


def _spread(frame: DataFrame, by: str, value: Column) -> dict[str, Lateness]:
    measured = frame.select(by, value.alias("ms")).groupBy(by)
    rows = measured.agg(
        f.count("ms"), f.min("ms"), f.percentile("ms", 0.5), f.percentile("ms", 0.99), f.max("ms")
    ).orderBy(by)
    return {name: Lateness(*spread) for name, *spread in _rows(rows)}


def _edge(lateness: Column) -> Column:
    """The last of the edges that is not above; -1 below all of them."""
    choice = f.when(lateness < LATENESS_EDGES_MS[0], -1)
    for edge, following in pairwise(LATENESS_EDGES_MS):
        choice = choice.when(lateness < following, edge)
    return choice.otherwise(LATENESS_EDGES_MS[-1])
