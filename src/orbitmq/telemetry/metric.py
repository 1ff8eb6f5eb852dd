"""What a metric is: its name and meaning, its samples, and how many of them may leave the process.

Rules of this file
1. A metric is described once (`catalogue`); whoever collects hands over label values and numbers, never names.
2. Labels whose values come from users (topics, groups) are bounded: the first ones seen keep series of their own, the
   rest share one series called `(others)`. What was folded is counted and shown.
3. Collecting reads what exists already. A collector takes snapshots of tables before it yields: the scrape goes on in
   slices, and between two of them the tables change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from orbitmq.histogram import Buckets
from orbitmq.limits.server import METRIC_SERIES_MAX

OTHERS: Final = "(others)"
"""Value of every bounded label of the series that stands for all that have none of their own."""

Number = int | float
Value = Number | Buckets


class MetricKind(enum.Enum):
    """The type of a metric; the values are the words of the exposition formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """Shares of what was measured, by the label `quantile`; ours have neither sum nor count."""


class Fold(enum.Enum):
    """How the samples beyond the bound become one."""

    SUM = "sum"
    MAX = "max"
    """For gauges that tell an age: the worst one counts."""


class Metric(msgspec.Struct, frozen=True):
    """One metric. `name` is the name as scraped; a counter's ends in `_total`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    fold: Fold | None = None
    """Set for metrics whose labels hold names given by users."""


class Sample(NamedTuple):
    """One value with its label values, in the order of the metric's labels."""

    labels: tuple[str, ...]
    value: Value


class Family(NamedTuple):
    """A metric with its present samples."""

    metric: Metric
    samples: Iterable[Sample]


Collector = Callable[[], Iterator[Family]]
"""Gives the families of one part. Called on the thread that owns the part."""


def one(metric: Metric, value: Value) -> Family:
    """A family with a single sample without labels."""
    return Family(metric, [Sample((), value)])


def by_label(metric: Metric, values: Iterable[tuple[str, Value]]) -> Family:
    """A family with one label."""
    return Family(metric, [Sample((label,), value) for label, value in values])


class Bounded:
    """Bounds the series of metrics and knows how many were folded, per metric, in the last scrape."""

    def __init__(self, series_max: int = METRIC_SERIES_MAX) -> None:
        self._series_max = series_max
        self.folded: dict[str, int] = {}

    def samples(self, family: Family) -> Iterator[Sample]:
        """The samples of a family, at most the bound and one more."""
        metric = family.metric
        if metric.fold is None:
            yield from family.samples
            return
        given = 0
        folded = 0
        rest: Value = 0
        for sample in family.samples:
            if given < self._series_max:
                given += 1
                yield sample
            else:
                rest = sample.value if not folded else _joined(metric.fold, rest, sample.value)
                folded += 1
        self.folded[metric.name] = folded
        if folded:
            yield Sample((OTHERS,) * len(metric.labels), rest)


def _joined(fold: Fold, one: Value, other: Value) -> Value:
    if isinstance(one, Buckets) and isinstance(other, Buckets):
        return one.plus(other)
    assert not isinstance(one, Buckets)
    assert not isinstance(other, Buckets)
    return max(one, other) if fold is Fold.MAX else one + other
