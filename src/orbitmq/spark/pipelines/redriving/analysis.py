"""`dead-letters`: how many dead letters an archive has, by group, topic, reason and time.

    dead_letters(spark, archive="/data/archive", reason="error", per_ms=3_600_000)

Nothing in the protocol says why a message failed; a program that wants to know puts it into a property, which `reason` names.

Rules of this file
1. Letters are counted, never sent. `redrive` with the same archive and a condition sends them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from orbitmq.errors import ConfigurationError
from orbitmq.instants import instant
from orbitmq.limits.spark import DEAD_LETTER_COUNTS_MAX
from orbitmq.protocol.names import DLQ_PREFIX, dlq_topic
from orbitmq.protocol.properties import Property
from orbitmq.spark.durable import make_directory, replace_content
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.condition import stored_between
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Setting, TimeKind, pipeline
from orbitmq.units import DAY_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLD: Final = 20
"""Counts that a summary shows, the largest; `to` has all."""
_FILE: Final = "dead-letters.jsonl"
_NEEDED: Final = ("topic", "properties", "storeTimestamp")


@dataclass(frozen=True, kw_only=True)
class DeadLetterSettings:
    """What `dead-letters` is told."""

    archive: Annotated[str, Setting("Directory or URL of an archive that has dead-letter topics.", metavar="URL")]
    group: Annotated[Sequence[str], Setting("Only of these consumer groups.", metavar="GROUP")] = ()
    since_ms: Annotated[int | None, Setting("Only dead since this time.", kind=TimeKind.INSTANT)] = None
    until_ms: Annotated[int | None, Setting("Only dead before this time.", kind=TimeKind.INSTANT)] = None
    reason: Annotated[
        str | None, Setting("The property in which programs say why a message failed.", metavar="PROPERTY")
    ] = None
    per_ms: Annotated[int, Setting("Counted together.", kind=TimeKind.SPAN, minimum=1_000)] = DAY_MS
    to: Annotated[str | None, Setting("Directory or URL for all counts as lines of JSON.", metavar="URL")] = None


@pipeline(DeadLetterSettings)
def dead_letters(spark: SparkSession, *, settings: DeadLetterSettings, run: Run = ALONE) -> Summary:
    """Count the dead letters of an archive by group, topic, reason and time.

    Archive them with the topic pattern `%DLQ%.*`. The summary has the largest counts, and a directory `to` all of them. Without a `reason`
    letters are counted by group, topic and time.
    """
    with job_errors(f"counting dead letters of archive {settings.archive}"):
        found = [row.asDict() for row in _counts(spark, settings).limit(DEAD_LETTER_COUNTS_MAX + 1).collect()]
    if len(found) > DEAD_LETTER_COUNTS_MAX:
        raise ConfigurationError(
            f"there are more than {DEAD_LETTER_COUNTS_MAX} counts",
            remedy="count a longer time together: per; or fewer groups",
        )
    found.sort(key=lambda row: (-row["letters"], row["group"], -1 if row["at_ms"] is None else row["at_ms"]))
    if settings.to is not None:
        folder = place_at(settings.to)
        make_directory(folder)
        replace_content(folder.under(_FILE), "".join(f"{json.dumps(row)}\n" for row in found).encode())
    total = sum(row["letters"] for row in found)
    return Summary(
        rows_read=total,
        rows_written=0,
        rows_skipped=total,
        details={"archive": settings.archive, "counts": len(found), **dict(map(_told, found[:TOLD]))},
    )


def _counts(spark: SparkSession, settings: DeadLetterSettings) -> DataFrame:
    from pyspark.sql import functions as F

    from orbitmq.spark.pipelines.redriving.letter_sources import archived_letters

    frame = archived_letters(spark, settings.archive, _NEEDED, "counting dead letters")
    topics = [dlq_topic(group) for group in settings.group]
    letters = frame.where(F.col("topic").isin(topics) if topics else F.col("topic").startswith(DLQ_PREFIX))
    letters = stored_between(letters, settings.since_ms, settings.until_ms)

    def said(name: str) -> Any:
        return F.element_at("properties", F.lit(name))

    origin = F.coalesce(said(str(Property.RETRY_TOPIC)), said(str(Property.DLQ_ORIGIN_TOPIC)), F.lit(""))
    reason = F.lit("") if settings.reason is None else F.coalesce(said(settings.reason), F.lit(""))
    at_ms = F.floor(F.unix_millis("storeTimestamp") / settings.per_ms) * settings.per_ms
    return letters.groupBy(
        F.substring("topic", len(DLQ_PREFIX) + 1, 1_000).alias("group"),
        origin.alias("topic"),
        reason.alias("reason"),
        at_ms.cast("bigint").alias("at_ms"),
    ).agg(F.count("*").alias("letters"))


def _told(row: dict[str, Any]) -> tuple[str, int]:
    at = "" if row["at_ms"] is None else instant(row["at_ms"])
    return " / ".join(text for text in (row["group"], row["topic"], row["reason"], at) if text), row["letters"]
