"""Metrics as text: Prometheus' text format 0.0.4 and OpenMetrics 1.0.

Source: Prometheus documentation, exposition formats; OpenMetrics 1.0 specification, text format.

Rules of this file
1. Values in, text out, piece by piece: a large answer is made in slices, so this is a generator.
2. In OpenMetrics a counter's family has no `_total`, its sample has; the answer ends with `# EOF`.
3. Label values may hold anything a client sent: backslash, quote and line feed are escaped, the rest is UTF-8.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final

from orbitmq.histogram import Buckets
from orbitmq.telemetry.metric import Metric, MetricKind, Sample


class Format(enum.Enum):
    """A text format; the value is its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


END_OF_OPENMETRICS: Final = "# EOF\n"


def chosen_format(accept: str) -> Format:
    """The format that the client's Accept header asks for; Prometheus' own when it does not name the other."""
    for part in accept.lower().split(","):
        kind, *parameters = part.replace(" ", "").split(";")
        if kind == "application/openmetrics-text" and "q=0" not in parameters:
            return Format.OPENMETRICS
    return Format.PROMETHEUS


def lines(
    metric: Metric, samples: Iterable[Sample], constant: Iterable[tuple[str, str]], form: Format
) -> Iterator[str]:
    """The lines of one metric, each with its line feed; the two of its head come first, as one piece.

    `constant` labels stand before the metric's own on every sample.
    """
    name = metric.name
    family = name.removesuffix("_total") if form is Format.OPENMETRICS and metric.kind is MetricKind.COUNTER else name
    yield f"# HELP {family} {_escaped_help(metric.help)}\n# TYPE {family} {metric.kind.value}\n"
    head = "".join([f'{label}="{escaped(value)}",' for label, value in constant])
    for sample in samples:
        own = "".join(
            [f'{label}="{escaped(value)}",' for label, value in zip(metric.labels, sample.labels, strict=True)]
        )
        labels = head + own
        if isinstance(sample.value, Buckets):
            yield _histogram(name, labels, sample.value)
        else:
            yield f"{name}{_braces(labels)} {number(sample.value)}\n"


def _histogram(name: str, labels: str, buckets: Buckets) -> str:
    text = []
    below = 0
    for bound, count in zip(buckets.bounds, buckets.counts, strict=False):
        below += count
        text.append(f'{name}_bucket{{{labels}le="{_bound(bound)}"}} {below}\n')
    count = below + buckets.counts[-1]
    text.append(f'{name}_bucket{{{labels}le="+Inf"}} {count}\n')
    text.append(f"{name}_sum{_braces(labels)} {number(buckets.total)}\n")
    text.append(f"{name}_count{_braces(labels)} {count}\n")
    return "".join(text)


def _braces(labels: str) -> str:
    return f"{{{labels[:-1]}}}" if labels else ""


def number(value: float) -> str:
    """A value as both formats read it."""
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _bound(value: float) -> str:
    """A bucket's bound in OpenMetrics' canonical form: always with a fraction, without the noise of a scaled float."""
    return repr(float(f"{value:.12g}"))


def escaped(value: str) -> str:
    """A label value between its quotes. Half characters, which JSON can bring in, become question marks."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
