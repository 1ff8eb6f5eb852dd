"""The streaming jobs: what becomes of an order is decided when its time is over, and the totals run along.

Rules of this file
1. Instants in the rows decide, never the order in which rows arrive: a payment counts if its instant is not after the due time.
2. State is bounded: by the watermark, and by the longest time that an order may wait for its payment.
3. A message that comes twice counts once: time-outs and payments by their order, decisions because each is written once.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.order_timeout_spark.books import CANCELLED, PAID, REFUNDED
from examples.order_timeout_spark.scheduling import PAYMENTS, TIMEOUTS
from examples.order_timeout_spark.timetable import LONGEST_ALLOWED_MS

DECISIONS: Final = "order-decisions"

ROWS_A_BATCH_MAX: Final = 50_000
"""Of each topic: what a batch takes of the memory is known, whatever has piled up."""


def events(spark: SparkSession, name_server: str, topic: str, instant: str, tolerance_ms: int) -> DataFrame:
    """Timer messages as they fall due: order, cents, and the time they were due as `instant`; each order once."""
    return (
        spark.readStream.format("orbitmq")
        .schema("body binary, deliverTimestamp timestamp")  # nothing else is read
        .option("nameServer", name_server)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_A_BATCH_MAX)
        .load()
        .select(
            f.from_json(f.col("body").cast("string"), "order string, cents long").alias("row"),
            f.col("deliverTimestamp").alias(instant),
        )
        .select("row.order", "row.cents", instant)
        .withWatermark(instant, f"{tolerance_ms} milliseconds")
        .dropDuplicatesWithinWatermark(["order"])
    )


def decisions(timeouts: DataFrame, payments: DataFrame) -> DataFrame:
    """order, decision, cents and the instant `at` that it is about.

    A full outer join says it all: an order with its payment is paid; an order that is left over when the watermark has passed its
    due time is cancelled; a payment that is left over came too late and goes back.
    """
    both = timeouts.alias("t").join(
        payments.alias("p"),
        f.expr(
            f"t.order = p.order AND p.paid_at <= t.due_at "
            f"AND p.paid_at >= t.due_at - INTERVAL {LONGEST_ALLOWED_MS} MILLISECONDS"
        ),
        "full_outer",
    )
    return both.select(
        f.coalesce("t.order", "p.order").alias("order"),
        f.when(f.col("p.order").isNull(), CANCELLED)
        .when(f.col("t.order").isNull(), REFUNDED)
        .otherwise(PAID)
        .alias("decision"),
        f.coalesce("t.cents", "p.cents").alias("cents"),
        f.coalesce("t.due_at", "p.paid_at").alias("at"),
    )


def decide(spark: SparkSession, name_server: str, tolerance_ms: int, checkpoint: str) -> DataStreamWriter:
    """The job that writes a message for each decision.

    tolerance_ms: how much later than others a message may arrive and still count. It is how long a cancellation waits.
    """
    timeouts = events(spark, name_server, TIMEOUTS, "due_at", tolerance_ms)
    payments = events(spark, name_server, PAYMENTS, "paid_at", tolerance_ms)
    return (
        decisions(timeouts, payments)
        .select(
            f.col("order").alias("keys"),
            f.col("decision").alias("tags"),
            f.to_json(f.struct("order", "cents", f.unix_millis("at").alias("at_ms"))).alias("body"),
            f.concat_ws(" ", "order", "decision").alias("name"),
        )
        .writeStream.format("orbitmq")
        .option("nameServer", name_server)
        .option("topic", DECISIONS)
        .option(
            "rowKey", "name"
        )  # behind a join a repeat may divide the rows otherwise: their names say which they are
        .option("checkpointLocation", checkpoint)
        .queryName("decisions")
        .trigger(processingTime="1 second")
    )


def keep_totals(spark: SparkSession, name_server: str, checkpoint: str) -> DataStreamWriter:
    """The job that keeps the running totals, in the table `totals`: decision, orders, cents."""
    made = (
        spark.readStream.format("orbitmq")
        .schema("tags string, body binary")
        .option("nameServer", name_server)
        .option("topic", DECISIONS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_A_BATCH_MAX)
        .load()
    )
    return (
        made.select(
            f.col("tags").alias("decision"),
            f.get_json_object(f.col("body").cast("string"), "$.cents").cast("long").alias("cents"),
        )
        .groupBy("decision")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .writeStream.format("memory")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .queryName("totals")
        .trigger(processingTime="1 second")
    )
