"""The text of metrics, read back by the parsers of Prometheus' own client library."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from orbitmq.histogram import Histogram
from orbitmq.telemetry.exposition import END_OF_OPENMETRICS, Format, chosen_format, lines
from orbitmq.telemetry.metric import Metric, MetricKind, Sample

COUNTER = Metric("orbitmq_things_total", MetricKind.COUNTER, 'Things, with "quotes" and a \\.', ("topic",))
SUMMARY = Metric("orbitmq_took_seconds", MetricKind.SUMMARY, "What it took.", ("quantile",))
GAUGE = Metric("orbitmq_level", MetricKind.GAUGE, "A level.")
HISTOGRAM = Metric("orbitmq_wait_seconds", MetricKind.HISTOGRAM, "A wait.", ("kind",))
CONSTANT = [("cluster", "c1"), ("node_id", "a")]


def text(metric: Metric, samples: list[Sample], form: Format) -> str:
    end = END_OF_OPENMETRICS if form is Format.OPENMETRICS else ""
    return "".join(lines(metric, samples, CONSTANT, form)) + end


def read(metric: Metric, samples: list[Sample], form: Format) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parser = read_openmetrics if form is Format.OPENMETRICS else read_prometheus
    found = {}
    for family in parser(text(metric, samples, form)):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("form", Format)
def test_a_counter_is_read_back(form: Format) -> None:
    found = read(COUNTER, [Sample(("orders",), 7), Sample(("bills",), 2**60)], form)
    labels = (("cluster", "c1"), ("node_id", "a"), ("topic", "orders"))
    assert found["orbitmq_things_total", labels] == 7
    assert found["orbitmq_things_total", (*labels[:2], ("topic", "bills"))] == 2**60


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("value", ['"', "\\", "\n", 'a\\n"b"\n{x="y"} 1', "%RETRY%group", "Größe", "a,b=c"])
def test_label_values_may_hold_anything(form: Format, value: str) -> None:
    found = read(COUNTER, [Sample((value,), 1)], form)
    assert [dict(labels)["topic"] for _, labels in found] == [value]


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("value", [0, -1, 0.1, 1e-9, 123456789.25, math.inf, -math.inf, math.nan])
def test_values_are_read_back(form: Format, value: float) -> None:
    (found,) = read(GAUGE, [Sample((), value)], form).values()
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize("form", Format)
def test_a_summary_is_its_shares(form: Format) -> None:
    found = read(SUMMARY, [Sample(("0.5",), 0.001), Sample(("0.999",), 0.25)], form)
    assert [(dict(labels)["quantile"], value) for (_, labels), value in found.items()] == [
        ("0.5", 0.001),
        ("0.999", 0.25),
    ]
    assert "# TYPE orbitmq_took_seconds summary" in text(SUMMARY, [], form)


@pytest.mark.parametrize("form", Format)
def test_a_histogram_is_cumulative_and_ends_at_infinity(form: Format) -> None:
    histogram = Histogram((1, 10, 100))
    for value in (1, 5, 5, 1_000):
        histogram.observe(value)
    found = read(HISTOGRAM, [Sample(("x",), histogram.buckets().scaled(1e-3))], form)
    by_name = {(name, dict(labels).get("le")): value for (name, labels), value in found.items()}
    assert by_name == {
        ("orbitmq_wait_seconds_bucket", "0.001"): 1,
        ("orbitmq_wait_seconds_bucket", "0.01"): 3,
        ("orbitmq_wait_seconds_bucket", "0.1"): 3,
        ("orbitmq_wait_seconds_bucket", "+Inf"): 4,
        ("orbitmq_wait_seconds_sum", None): pytest.approx(1.011),
        ("orbitmq_wait_seconds_count", None): 4,
    }


def test_the_parser_refuses_what_is_wrong() -> None:
    """The judge catches a planted mistake: a histogram that is not cumulative."""
    wrong = text(HISTOGRAM, [Sample(("x",), Histogram((1,)).buckets())], Format.OPENMETRICS).replace(
        '"1.0"} 0', '"1.0"} 5'
    )
    with pytest.raises(ValueError, match=r"[Bb]ucket|[Hh]istogram"):
        list(read_openmetrics(wrong))


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Format.PROMETHEUS),
        ("*/*", Format.PROMETHEUS),
        ("text/html,application/xhtml+xml", Format.PROMETHEUS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Format.OPENMETRICS,
        ),
        ("application/openmetrics-text;q=0, text/plain", Format.PROMETHEUS),
        ("APPLICATION/OpenMetrics-Text", Format.OPENMETRICS),
        (";;;,,,=", Format.PROMETHEUS),
    ],
)
def test_the_client_chooses_the_format(accept: str, form: Format) -> None:
    assert chosen_format(accept) is form
