"""`redrive`: dead letters of a group go back to their topics, in bulk.

    redrive(spark, group="billing", name_server="localhost:9876", reason="timeout")

The same as `orbitmq message redrive`, with the sending divided among the tasks of Spark: the same choice, the same messages, the same place
kept under the same group, and repeats recognised by the same names.

Rules of this file
1. A slice of letters is one job. Its place is committed when all its letters are settled, and never passes one that is not.
2. A letter that cannot be sent is counted, named and passed; whatever else fails ends the run, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from orbitmq.client.addresses import parse_addresses
from orbitmq.client.redrive import RedriveOrder, RedriveResult
from orbitmq.clock import SystemClock
from orbitmq.limits.spark import REDRIVE_SLICE_LETTERS, REDRIVE_TASKS
from orbitmq.protocol.properties import Property
from orbitmq.spark.carrying import ArrowTask
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.queue_slices import rows_of_slice, slices_of
from orbitmq.spark.pipelines.redriving.dead_letters import (
    ACCOUNT_SCHEMA,
    Account,
    settle_batches,
    together,
)
from orbitmq.spark.pipelines.redriving.letter_sources import ArchivedLetters, LetterSource, TopicLetters
from orbitmq.spark.pipelines.redriving.settings import RedriveSettings
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REFUSALS_TOLD: Final = 10
"""Letters that a summary names; the others are counted."""


@pipeline(RedriveSettings)
def redrive(spark: SparkSession, *, settings: RedriveSettings, run: Run = ALONE) -> Summary:
    """Send the dead letters of a group again, as new messages to the topics they came from.

    All groups of these topics get them, unless `only_group` is given. A run goes on where the last one with the same filter and target
    ended, also one of `orbitmq message redrive`, and covers what is there when it starts. Letters that cannot be sent are counted as
    skipped and make the run fail in the end; they stay in the dead-letter topic, as all do until retention takes them. With `archive` they
    are chosen there, by a condition in SQL, also those that retention has taken.
    """
    order = settings.order(SystemClock().now_ms())
    source: LetterSource = (
        TopicLetters(spark, settings, order) if settings.archive is None else ArchivedLetters(spark, settings, order)
    )
    with source.held():
        result, stopped = _redriven(settings, order, source, run)
    return Summary(
        rows_read=result.looked_at,
        rows_written=0 if settings.dry_run else result.redriven,
        rows_skipped=result.looked_at - (0 if settings.dry_run else result.redriven),
        stopped=stopped,
        failed=bool(result.refused),
        details=_details(result),
    )


def _redriven(
    settings: RedriveSettings, order: RedriveOrder, source: LetterSource, run: Run
) -> tuple[RedriveResult, bool]:
    """What became of the letters, and whether a stop request ended the run."""
    ranges = source.ranges()
    result = RedriveResult(
        group=settings.group, dry_run=settings.dry_run, total=sum(one.end - one.begin for one in ranges)
    )
    with run.progress.stage(f"dead letters of {settings.group}", result.total) as stage:
        for piece in slices_of(ranges, rows_of_slice(REDRIVE_SLICE_LETTERS, settings.rate)):
            left = None if settings.count is None else settings.count - result.redriven
            if left == 0:
                break
            if run.stop.requested:
                return result, True
            before = result.looked_at
            with job_errors(f"redriving dead letters of group {settings.group!r}"):
                parts = _settled(settings, replace(order, max_count=left), source.rows(piece))
            places = together(result, parts)
            came_back = any(part.came_back for part in parts)
            ends = places if settings.count is not None or came_back else {one.queue: one.end for one in piece}
            source.keep(ends)
            stage.advance(result.looked_at - before)
            if came_back:
                break
    return result, False


def _settled(settings: RedriveSettings, order: RedriveOrder, rows: DataFrame) -> list[Account]:
    name_servers, connect = parse_addresses(settings.name_server or ""), settings.connect

    def settle(batches: Iterator[Any]) -> Iterator[Any]:
        return settle_batches(name_servers, connect, order, batches)

    is_one = order.rate is not None or order.max_count is not None or order.only_group
    divided = _divided(rows, 1 if is_one else REDRIVE_TASKS)
    found = divided.mapInArrow(ArrowTask(settle), ACCOUNT_SCHEMA).collect()
    return [msgspec.json.decode(row["account"], type=Account) for row in found]


def _divided(rows: DataFrame, tasks: int) -> DataFrame:
    """Letters with the same ordering key in one task and in their order."""
    from pyspark.sql import functions as F

    place = [F.col("brokerName"), F.col("queueId"), F.col("queueOffset")]
    ordering = F.element_at("properties", F.lit(str(Property.SHARDING_KEY)))
    return rows.repartition(tasks, F.coalesce(ordering, F.concat_ws("/", *place))).sortWithinPartitions(*place)


def _details(result: RedriveResult) -> dict[str, int | float | str | bool]:
    details: dict[str, int | float | str | bool] = {
        "group": result.group,
        "total": result.total,
        "passed_over": result.passed_over,
        "refused": result.refused,
        "dry_run": result.dry_run,
    }
    what = "would go to" if result.dry_run else "went to"
    details.update({f"{what} {topic}": count for topic, count in sorted(result.topics.items())})
    for refusal in result.refusals[:REFUSALS_TOLD]:
        queue = refusal.queue
        details[f"not sent {queue.broker_name}/{queue.queue_id}@{refusal.queue_offset}"] = refusal.why
    return details
