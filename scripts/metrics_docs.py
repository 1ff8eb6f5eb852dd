"""Write docs/metrics.md from the table of metrics; with --check only compare.

Run from the repository's root: `python scripts/metrics_docs.py [--check]`. Exit code 1 when the file is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from generated_pages import write_or_compare

from orbitmq.limits.server import METRIC_SERIES_MAX
from orbitmq.spark.pipelines.serving.figures import SERVICE_METRICS
from orbitmq.telemetry.catalogue import ALL, CONSTANT_LABELS
from orbitmq.telemetry.metric import OTHERS, Metric

TARGET = Path(__file__).parent.parent / "docs" / "metrics.md"

INTRODUCTION = f"""\
# Metrics

This file is generated from the table of metrics by `python scripts/metrics_docs.py`. The table is
[catalogue.py](../src/orbitmq/telemetry/catalogue.py). How to read them: [operations.md](operations.md#watching-it).

`GET /metrics` answers them in Prometheus' text format, or in OpenMetrics when the client asks for it. Every sample carries
{", ".join(f"`{label}`" for label in CONSTANT_LABELS)}, and the labels given by `metricsLabel`. `node_type` is `broker` in a
process that is one, and `nameserver` in a name server that runs alone; there `cluster` is that of the brokers that are registered,
and empty where there never was one since its start, or there are several.

A metric whose labels hold topics or groups has at most {METRIC_SERIES_MAX:,} series of its own, those seen first; further ones are
added up in one series with `{OTHERS}` in every such label (of ages the highest counts). `orbitmq_folded_series` tells how many.
"""

SECTIONS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    (
        "RocketMQ's metrics",
        "RocketMQ 5's names, labels and units: dashboards made for it work. Retry and dead-letter topics do not count as"
        " messages in or out. `message_type` is `delay` for a delayed message, else the topic's declared type or `normal`."
        " Its other metrics belong to what is not built here, apart from `rocketmq_rpc_latency`: timing every request would"
        " cost each of them; `orbitmq_put_latency_seconds` is sampled instead.",
        lambda name: name.startswith("rocketmq_"),
    ),
    ("Our own", "In seconds and bytes.", lambda name: name.startswith("orbitmq_")),
    ("The process", "Prometheus' own names.", lambda name: name.startswith("process_")),
)

SERVICE = (
    "Those of `orbitmq pipeline serve`, on a port of its own, with the label `service` on every sample. `part` is a stream or a job of its"
    " file. The table is [figures.py](../src/orbitmq/spark/pipelines/serving/figures.py)."
)


def render() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for title, text, belongs in SECTIONS:
        parts.append(f"\n## {title}\n\n{text}\n\n{_table([metric for metric in ALL if belongs(metric.name)])}")
    parts.append(f"\n## The service of pipelines\n\n{SERVICE}\n\n{_table(list(SERVICE_METRICS))}")
    return "".join(parts)


def _table(metrics: list[Metric]) -> str:
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_compare({TARGET: render()}, sys.argv[1:], __file__))
