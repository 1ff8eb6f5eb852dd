"""What a replayed message is made of: which rows are taken, and what of them is written.

Rules of this file
1. Expressions over data frames only; nothing is looked up or run.
2. A replayed message is a new message. What its program gave it stays: body, flag, tag, keys, ordering key and user properties. What
   the protocol, a broker or a client added goes: ids, counters of attempts, names of retry and dead-letter topics, marks of transactions,
   traces and pops, due times of waiting records, and scope, epoch and key of an idempotent send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from orbitmq.client.consuming.subscription import subscribe
from orbitmq.protocol.properties import OUR_PREFIX, RESERVED, TRANSIENT_PREFIX, Property
from orbitmq.spark.pipelines.condition import rows_where, stored_between

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITION: Final = "position"
"""The column that names a row."""


def place_of(position: str) -> dict[str, int | str | None]:
    """Where a row came from; a log that nobody named has no broker."""
    topic, _, rest = position.partition("/")
    *broker, queue_id, offset = rest.rsplit("/", 2)
    return {
        "topic": topic,
        "brokerName": "/".join(broker) or None,
        "queueId": int(queue_id),
        "queueOffset": int(offset),
    }


class DueTimes(StrEnum):
    KEEP = "keep"
    DROP = "drop"


class ReplayQueues(StrEnum):
    NEW = "new"
    KEEP = "keep"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which messages are meant; all that is given must hold. Times are store times, from `since_ms` on and before `until_ms`."""

    expression: str = "*"
    keys: tuple[str, ...] = ()
    where: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def selected(frame: DataFrame, choice: Choice) -> DataFrame:
    """The rows that are meant. `ConfigurationError` for an expression that cannot be."""
    from pyspark.sql import functions as F

    wanted = subscribe("any", choice.expression, 0).filter
    if not wanted.accepts_all:
        frame = frame.where(F.col("tags").isin(sorted(wanted.tags)))
    if choice.keys:
        frame = frame.where(F.arrays_overlap(F.split("keys", r"\s+"), F.array(*(F.lit(key) for key in choice.keys))))
    return rows_where(
        stored_between(frame, choice.since_ms, choice.until_ms),
        choice.where,
        rows="messages",
        remedy="it is a condition in SQL over the columns of a read, such as tags = 'red' AND queueId < 4",
    )


def in_order(frame: DataFrame, tasks: int | None) -> DataFrame:
    """The messages of each queue together and in their order, in so many tasks."""
    from pyspark.sql import functions as F

    queue = [F.col("topic"), F.col("brokerName"), F.col("queueId")]
    divided = frame.repartition(*queue) if tasks is None else frame.repartition(tasks, *queue)
    return divided.sortWithinPartitions(*queue, F.col("queueOffset"))


def messages(frame: DataFrame, *, due_times: DueTimes, shift_due_ms: int, brokers: Mapping[str, str]) -> DataFrame:
    """What is written for each row. brokers: for kept queues, the broker by the one it came from; else empty."""
    from pyspark.sql import functions as F

    def not_blank(value: Column) -> Column:
        return F.when(F.trim(value) != "", value)

    def is_users(name: Column, value: Column) -> Column:
        return (
            ~name.isin(sorted(RESERVED))
            & ~name.startswith(OUR_PREFIX)
            & ~name.startswith(TRANSIENT_PREFIX)
            & (F.trim(name) != "")
            & (F.trim(value) != "")
        )

    columns = [
        F.col("body"),
        not_blank(F.col("tags")).alias("tags"),
        not_blank(F.col("keys")).alias("keys"),
        F.map_filter("properties", is_users).alias("properties"),
        not_blank(F.element_at("properties", F.lit(str(Property.SHARDING_KEY)))).alias("shardingKey"),
        F.col("flag"),
        F.concat_ws("/", "topic", "brokerName", "queueId", "queueOffset").alias(POSITION),
    ]
    if due_times is DueTimes.KEEP:
        due = F.timestamp_millis(F.ceil(F.unix_micros("deliverTimestamp") / 1_000) + F.lit(shift_due_ms))
        columns.append(due.alias("deliverTimestamp"))
    if brokers:
        names = F.create_map(*(F.lit(text) for pair in sorted(brokers.items()) for text in pair))
        columns += [F.col("queueId"), F.element_at(names, F.coalesce("brokerName", F.lit(""))).alias("brokerName")]
    return frame.select(*columns)
