"""What has become of every stream and job: counts for metrics, and what stands against readiness.

Rules of this file
1. No clock and no I/O: times come with what is told. Threads of the parts tell, that of the HTTP port reads.
2. A metric is described in this table, in the form of the broker's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from orbitmq.limits.spark import SERVICE_REASON_CHARS_MAX
from orbitmq.telemetry.metric import Family, Fold, Metric, MetricKind, Sample, by_label, one

_PART: Final = ("part",)


def _counter(name: str, text: str) -> Metric:
    return Metric(f"orbitmq_pipeline_{name}_total", MetricKind.COUNTER, text, _PART)


def _gauge(name: str, text: str, labels: tuple[str, ...] = _PART, fold: Fold | None = None) -> Metric:
    return Metric(f"orbitmq_pipeline_{name}", MetricKind.GAUGE, text, labels, fold)


ROWS: Final = _counter("rows", "Rows that were committed to a sink.")
QUARANTINED: Final = _counter("quarantined_rows", "Rows that could not be read, decoded or sent, and were put aside.")
BATCHES: Final = _counter("batches", "Batches of streams, and runs of jobs, that ended well.")
FAILURES: Final = _counter("failures", "Failures of streams and jobs.")
RESTARTS: Final = _counter("restarts", "Times that a stream or job was begun again after a failure.")
FAILING: Final = _gauge("failing", "1 while the last try of a stream or job failed, else 0.")
LAST_SUCCESS: Final = _gauge(
    "last_success_timestamp_seconds",
    "When a batch or run last ended well, idle looks of a stream included; 0 before the first.",
)
BATCH_SECONDS: Final = _gauge("last_batch_seconds", "How long the last batch or run took.")
LAG: Final = _gauge(
    "lag_messages",
    "Messages that a stream has not read yet; `group` is the one under which it publishes how far it is.",
    ("part", "topic", "group"),
    Fold.SUM,
)
SPARK_UP: Final = Metric(
    "orbitmq_pipeline_spark_up", MetricKind.GAUGE, "1 while the Spark session can be used, else 0."
)
LINEAGE_DROPPED: Final = Metric(
    "orbitmq_pipeline_lineage_events_dropped_total", MetricKind.COUNTER, "OpenLineage events that no server took."
)

SERVICE_METRICS: Final = (
    ROWS, QUARANTINED, BATCHES, FAILURES, RESTARTS, FAILING, LAST_SUCCESS, BATCH_SECONDS, LAG, SPARK_UP, LINEAGE_DROPPED,
)  # fmt: skip


class ServiceState(StrEnum):
    """Where the life of a service is."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class BatchDone(NamedTuple):
    """A batch of a stream, or a run of a job, that ended well. lags: messages by topic and group; None where nobody asked."""

    rows: int
    quarantined: int
    seconds: float
    lags: Mapping[tuple[str, str], int] | None = None


@dataclass
class _PartFigures:
    rows: int = 0
    quarantined: int = 0
    batches: int = 0
    failures: int = 0
    restarts: int = 0
    reason: str | None = None
    """Of the last failure, until something ends well."""
    last_success_ms: int = 0
    seconds: float = 0.0
    lags: Mapping[tuple[str, str], int] = field(default_factory=dict)


class ServiceFigures:
    """Of one service. Every method may be called by any thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._parts = {name: _PartFigures() for name in names}
        self.state = ServiceState.STARTING
        self.spark_up = False
        self.lineage_dropped = 0

    def done(self, name: str, batch: BatchDone, now_ms: int) -> None:
        with self._lock:
            part = self._parts[name]
            part.batches += 1
            part.rows += batch.rows
            part.quarantined += batch.quarantined
            part.seconds = batch.seconds
            part.last_success_ms = now_ms
            part.reason = None
            if batch.lags is not None:
                part.lags = batch.lags

    def idle(self, name: str, now_ms: int) -> None:
        """Nothing was new, and nothing failed."""
        with self._lock:
            self._parts[name].last_success_ms = now_ms
            self._parts[name].reason = None

    def failed(self, name: str, reason: str) -> None:
        with self._lock:
            self._parts[name].failures += 1
            self._parts[name].reason = reason[:SERVICE_REASON_CHARS_MAX]

    def restarted(self, name: str) -> None:
        with self._lock:
            self._parts[name].restarts += 1

    def families(self) -> Iterator[Family]:
        """For a registry of metrics."""
        with self._lock:
            parts = [(name, _copy(part)) for name, part in self._parts.items()]
        yield by_label(ROWS, [(name, part.rows) for name, part in parts])
        yield by_label(QUARANTINED, [(name, part.quarantined) for name, part in parts])
        yield by_label(BATCHES, [(name, part.batches) for name, part in parts])
        yield by_label(FAILURES, [(name, part.failures) for name, part in parts])
        yield by_label(RESTARTS, [(name, part.restarts) for name, part in parts])
        yield by_label(FAILING, [(name, int(part.reason is not None)) for name, part in parts])
        yield by_label(LAST_SUCCESS, [(name, part.last_success_ms / 1000) for name, part in parts])
        yield by_label(BATCH_SECONDS, [(name, part.seconds) for name, part in parts])
        lags = [Sample((name, *where), count) for name, part in parts for where, count in sorted(part.lags.items())]
        yield Family(LAG, lags)
        yield one(SPARK_UP, int(self.spark_up))
        yield one(LINEAGE_DROPPED, self.lineage_dropped)

    def reasons(self) -> dict[str, str]:
        """Why parts fail, by their names."""
        with self._lock:
            return {name: part.reason for name, part in self._parts.items() if part.reason is not None}

    def readiness(self) -> tuple[bool, dict[str, object]]:
        """Whether the service does its work: Spark is up, and some part does not fail. What `/readyz` says."""
        failing = self.reasons()
        ready = self.state is ServiceState.SERVING and self.spark_up and len(failing) < len(self._parts)
        facts: dict[str, object] = {"status": "ready" if ready else "not ready", "service": self.state.value}
        if failing:
            facts["failing"] = failing
        return ready, facts


def _copy(part: _PartFigures) -> _PartFigures:
    return _PartFigures(**vars(part))
