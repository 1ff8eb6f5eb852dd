"""How far streams are behind: read from a query's progress, and kept up to date for Prometheus by a listener.

Rules of this file
1. Figures are those of the progress: the ends of the queues when its batch was made, and where the batch ended.
2. A queue counts from where the stream stands; from its oldest message on where the stream stands before that, or has not entered it.
   Progress names these (`first`), so figures of queues add up to those of all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.reading.offsets import from_checkpoint, from_json
from orbitmq.spark.reading.stream_reader import BEHIND_LATEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SourceLag(NamedTuple):
    """Messages that were there and not read: of the queue with the fewest, on average, of the one with the most, together, and of each."""

    min: int
    avg: float
    max: int
    messages: int
    queues: Mapping[MessageQueue, int]


def lag(progress: Any) -> list[SourceLag | None]:
    """One for each source of a query, in its order; None for a source that is not ours or did not say.

    progress: `query.lastProgress`, the progress of an event of a listener, or the same as a dictionary. None, as a query has it before its
    first batch, is of no source.

        behind = orbitmq.spark.lag(query.lastProgress)[0]
    """
    if progress is None:
        return []
    sources = progress["sources"] if isinstance(progress, Mapping) else progress.sources
    return [_source_lag(_field(source, "latestOffset"), _field(source, "endOffset")) for source in sources]


def _field(source: Any, name: str) -> Any:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    try:
        return json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    except ValueError:  # the text of another source
        return value


def _source_lag(latest: Any, end: Any) -> SourceLag | None:
    if not isinstance(latest, dict) or not isinstance(latest.get(BEHIND_LATEST), dict):
        return None
    figures = latest[BEHIND_LATEST]
    if figures.keys() - {"first"} != {"min", "avg", "max", "messages"}:
        return None
    try:
        highs = from_json({topic: rest for topic, rest in latest.items() if topic != BEHIND_LATEST})
        first = from_json(figures.get("first", {}))
        position = from_checkpoint(end) if isinstance(end, dict) else {}
    except ConfigurationError:
        return None
    queues = {queue: max(high - max(position.get(queue, 0), first.get(queue, 0)), 0) for queue, high in highs.items()}
    return SourceLag(figures["min"], figures["avg"], figures["max"], figures["messages"], queues)


class LagMetrics(StreamingQueryListener):
    """Keeps the last lag of each running query. `text` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, tuple[str, list[SourceLag | None]]] = {}

    def text(self) -> str:
        """The lag of each queue in the text form of Prometheus, for a page or a file that it reads."""
        name = "orbitmq_spark_behind_latest_messages"
        lines = [f"# HELP {name} Messages that a stream of Spark has not read yet.", f"# TYPE {name} gauge"]
        with self._lock:
            for query, found in self._lags.values():
                for number, source in enumerate(found):
                    for queue, count in source.queues.items() if source is not None else ():
                        labels = {
                            "query": query, "source": number, "topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id,
                        }  # fmt: skip
                        text = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in labels.items())
                        lines.append(f"{name}{{{text}}} {count}")
        return "\n".join(lines) + "\n"

    # --- Spark calls

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        found = lag(progress)
        with self._lock:
            self._lags[str(progress.runId)] = progress.name or str(progress.id), found

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            self._lags.pop(str(event.runId), None)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def lag_metrics(spark: SparkSession) -> LagMetrics:
    """A listener of all streams of the session, added to it.

    metrics = orbitmq.spark.lag_metrics(spark)
    metrics.text()
    """
    metrics = LagMetrics()
    spark.streams.addListener(metrics)
    return metrics
