"""Where the messages of a report come from: an archive, store directories, or the topics of a cluster.

Rules of this file
1. Only the columns that are counted are read.
2. Names and times narrow what is read as early as the source allows, and exactly in the end.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.columns.message_columns import ddl
from orbitmq.spark.archives import archive, kinds_of
from orbitmq.spark.pipelines.condition import stored_between
from orbitmq.spark.pipelines.reporting.cells import COLUMNS
from orbitmq.spark.pipelines.reporting.settings import ReportSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def messages_of(spark: SparkSession, settings: ReportSettings) -> tuple[DataFrame, str]:
    """The messages, with columns that `cells_of` takes, and in words where they come from. Nothing is read yet."""
    names = (*COLUMNS, "body") if settings.sizes else COLUMNS
    schema = ddl(names)
    if settings.archive is not None:
        frame, words = archive(settings.archive, spark=spark), f"The archive {settings.archive}"
        kinds_of(frame, settings.archive, names, "such a report")
        frame = frame.select(*names)
    elif settings.store:
        frames = []
        for path in settings.store:
            reader = spark.read.format("orbitmq-log").schema(schema).option("path", path)
            frames.append(_narrowed(reader, settings.topic, settings.since_ms, settings.until_ms).load())
        frame, words = (
            functools.reduce(lambda one, other: one.unionAll(other), frames),
            f"Stored in {', '.join(settings.store)}",
        )
    else:
        assert settings.name_server is not None
        reader = spark.read.format("orbitmq").schema(schema).options(**settings.connect_options)
        reader = reader.option("nameServer", settings.name_server)
        if not settings.topic:
            reader = reader.option("subscribePattern", ".+")
        begin = {} if settings.since_ms is None else {"startingOffsetsByTimestampStrategy": "latest"}
        frame = _narrowed(reader, settings.topic, settings.since_ms, settings.until_ms, **begin).load()
        words = f"The cluster of {settings.name_server}"
    if settings.topic:
        frame = frame.where(frame["topic"].isin(*settings.topic))
        words += f", {'topic' if len(settings.topic) == 1 else 'topics'} {', '.join(settings.topic)}"
    return stored_between(frame, settings.since_ms, settings.until_ms), words


def _narrowed(reader: Any, topic: Sequence[str], since_ms: int | None, until_ms: int | None, **options: str) -> Any:
    if topic:
        reader = reader.option("subscribe", ",".join(topic))
    if since_ms is not None:
        reader = reader.option("startingTimestamp", str(since_ms))
    if until_ms is not None:
        reader = reader.option("endingTimestamp", str(until_ms))
    return reader.options(**options)
