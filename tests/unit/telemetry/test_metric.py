"""The bound of series, and what becomes of those beyond it."""

from __future__ import annotations

from orbitmq.histogram import Histogram
from orbitmq.telemetry.metric import OTHERS, Bounded, Family, Fold, Metric, MetricKind, Sample


def metric(fold: Fold | None, kind: MetricKind = MetricKind.GAUGE) -> Metric:
    return Metric("m", kind, "M.", ("topic", "group"), fold)


def numbers(count: int) -> list[Sample]:
    return [Sample((f"t{number}", "g"), number) for number in range(count)]


def test_up_to_the_bound_every_series_is_given() -> None:
    bounded = Bounded(series_max=3)
    assert list(bounded.samples(Family(metric(Fold.SUM), numbers(3)))) == numbers(3)
    assert bounded.folded == {"m": 0}


def test_beyond_the_bound_the_rest_is_one_series() -> None:
    bounded = Bounded(series_max=3)
    given = list(bounded.samples(Family(metric(Fold.SUM), numbers(6))))
    assert given == [*numbers(3), Sample((OTHERS, OTHERS), 3 + 4 + 5)]
    assert bounded.folded == {"m": 3}


def test_of_ages_the_worst_one_stands_for_the_rest() -> None:
    given = list(Bounded(series_max=1).samples(Family(metric(Fold.MAX), numbers(6))))
    assert given[-1] == Sample((OTHERS, OTHERS), 5)


def test_histograms_are_added() -> None:
    samples = []
    for number in range(4):
        histogram = Histogram((1, 2))
        histogram.observe(number)
        samples.append(Sample((f"t{number}", "g"), histogram.buckets()))
    given = list(Bounded(series_max=1).samples(Family(metric(Fold.SUM, MetricKind.HISTOGRAM), samples)))
    rest = given[-1].value
    assert not isinstance(rest, int | float)
    assert (rest.counts, rest.total) == ((1, 1, 1), 6)


def test_what_is_bounded_by_nature_is_not_folded() -> None:
    bounded = Bounded(series_max=1)
    assert len(list(bounded.samples(Family(metric(None), numbers(6))))) == 6
    assert bounded.folded == {}
