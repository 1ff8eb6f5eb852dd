"""The batch jobs: a table of flights becomes orders, and each order a message that comes back when its time is over.

Rules of this file
1. A due time is a column, `deliverTimestamp`; the broker does the waiting.
2. A job that Spark repeats, or that is started again, schedules nothing twice: `idempotencyKey`.
3. Payments come from a system of somebody else's. Here their messages are timed as well, so that they come when they come.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.order_timeout.orders import LONG_HAUL_MILES, PUNCTUAL_MINUTES
from examples.order_timeout_spark.books import BASE_CENTS, MILE_CENTS
from examples.order_timeout_spark.timetable import (
    ALLOWED_MS,
    IN_TIME_PERCENT,
    MINUTES_A_DAY,
    TOO_LATE_PERCENT,
    Timetable,
)

TIMEOUTS: Final = "order-timeouts"
PAYMENTS: Final = "order-payments"

CLOSING: Final = "closing-time"
"""Tag of the last message of a topic. Watermarks move when rows come, so something has to come after the last order."""


def read_orders(spark: SparkSession, table: str) -> DataFrame:
    """The flights of a CSV file as orders: order, carrier, cents, minute (of the year), allowed_ms, pays_percent (or null)."""
    flights = spark.read.csv(table, header=True, nullValue="NA")
    distance = f.col("distance").cast("double")
    day = f.make_date("year", "month", "day")
    return flights.select(
        f.concat_ws(
            "-", f.concat("carrier", "flight"), f.concat(_two_digits("month"), _two_digits("day")), "origin"
        ).alias("order"),
        f.col("carrier"),
        (f.lit(BASE_CENTS) + distance.cast("long") * MILE_CENTS).alias("cents"),
        (
            f.datediff(day, f.lit("2013-01-01")).cast("long") * MINUTES_A_DAY
            + f.col("hour").cast("long") * 60
            + f.col("minute").cast("long")
        ).alias("minute"),
        _allowed_ms(distance).alias("allowed_ms"),
        # Whoever never departs never pays: no delay, no payment.
        f.when(f.col("dep_delay").cast("double") <= PUNCTUAL_MINUTES, IN_TIME_PERCENT)
        .when(f.col("dep_delay").isNotNull(), TOO_LATE_PERCENT)
        .alias("pays_percent"),
    )


def _two_digits(name: str) -> Column:
    return f.lpad(f.col(name), 2, "0")


def _allowed_ms(distance: Column) -> Column:
    choice = f.when(distance <= LONG_HAUL_MILES[0], ALLOWED_MS[0])
    for longest, allowed in zip(LONG_HAUL_MILES[1:], ALLOWED_MS[1:], strict=False):
        choice = choice.when(distance <= longest, allowed)
    return choice.otherwise(ALLOWED_MS[-1]).cast("long")


class Extent(NamedTuple):
    order_count: int
    first_minute: int
    last_minute: int


def extent(orders: DataFrame) -> Extent:
    """How many orders there are, and from when to when they are due."""
    row = orders.agg(f.count("*"), f.min("minute"), f.max("minute")).first()
    assert row is not None
    return Extent(*row)


def timed(orders: DataFrame, timetable: Timetable) -> DataFrame:
    """Orders with their instants, in milliseconds since 1970: `due_ms`, and `paid_ms` where somebody pays."""
    due = f"{timetable.first_due_ms} + (minute - {timetable.first_minute}) * {timetable.spread_ms} div {timetable.span_minutes}"
    return orders.withColumn("due_ms", f.expr(due)).withColumn(
        "paid_ms", f.expr("due_ms + allowed_ms * (pays_percent - 100) div 100")
    )


def schedule(rows: DataFrame, instant: str, name_server: str, topic: str, job: str) -> None:
    """A timer message for each row, due at the column `instant`. Started again for the same `job` it stores nothing twice."""
    (
        rows.repartition("order")  # a file of this size is one partition, and one core
        .select(
            f.col("order").alias("keys"),
            f.col("carrier").alias("tags"),
            f.to_json(f.struct("order", "cents")).alias("body"),
            f.timestamp_millis(instant).alias("deliverTimestamp"),
        )
        .write.format("orbitmq")
        .option("nameServer", name_server)
        .option("topic", topic)
        .option("idempotencyKey", f"{job}-{topic}")
        .mode("append")
        .save()
    )
