"""Programs as users of Kafka's source and sink write them: one text each, which takes the format's name and the address.

Each says what came out of its input, as plain data, and has a plain computation beside it. Topics of a run begin with `prefix`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Order = dict[str, Any]

BEGIN: Final = datetime(2026, 11, 28, 10)
ORDER: Final = "id long, user string, amount long, at timestamp"


def order(number: int) -> Order:
    at = BEGIN + timedelta(seconds=2 * number)
    return {"id": number, "user": f"u{number % 7}", "amount": number % 11, "at": at.isoformat()}


ORDERS: Final = [order(number) for number in range(300)]
MORE_ORDERS: Final = [order(number) for number in range(300, 400)]
TWICE: Final = [one for one in ORDERS for _ in range(1 + (one["id"] % 5 == 0))]
PAYMENTS: Final = [
    {"id": one["id"], "paid": (datetime.fromisoformat(one["at"]) + timedelta(seconds=one["id"] % 90)).isoformat()}
    for one in ORDERS
    if one["id"] % 3
]


class Place(NamedTuple):
    """What differs between two runs of a program."""

    format: str
    address: str
    prefix: str
    folder: Path


def send(spark: SparkSession, at: Place, topic: str, rows: list[Order], key: str) -> None:
    frame = spark.createDataFrame([(str(one[key]), json.dumps(one)) for one in rows], "key string, value string")
    writer = frame.coalesce(1).write.format(at.format).option("kafka.bootstrap.servers", at.address)
    writer.option("topic", at.prefix + topic).mode("append").save()


def windows(spark: SparkSession, at: Place) -> Counter[Any]:
    """Counts by ten seconds of event time, those that are final."""
    from pyspark.sql import functions as f

    send(spark, at, "orders", ORDERS, "user")
    orders = (
        spark.readStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribe", at.prefix + "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
        .select("o.*")
    )
    counts = (
        orders.withWatermark("at", "20 seconds").groupBy(f.window("at", "10 seconds")).agg(f.sum("amount").alias("sum"))
    )
    query = (
        counts.select(f.col("window.start").cast("string"), "sum")
        .writeStream.format("parquet")
        .option("path", str(at.folder / "windows"))
        .option("checkpointLocation", str(at.folder / "windows-checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Counter(map(tuple, spark.read.parquet(str(at.folder / "windows")).collect()))


def windows_by_hand() -> Counter[Any]:
    found: defaultdict[datetime, int] = defaultdict(int)
    for one in ORDERS:
        moment = datetime.fromisoformat(one["at"])
        found[moment.replace(second=moment.second // 10 * 10)] += one["amount"]
    final = max(datetime.fromisoformat(one["at"]) for one in ORDERS) - timedelta(seconds=20)
    return Counter((str(begin), total) for begin, total in found.items() if begin + timedelta(seconds=10) <= final)


def join(spark: SparkSession, at: Place) -> Counter[Any]:
    """Orders with payments that came within a minute."""
    from pyspark.sql import functions as f

    def stream(topic: str, schema: str) -> DataFrame:
        return (
            spark.readStream.format(at.format)
            .option("kafka.bootstrap.servers", at.address)
            .option("subscribe", at.prefix + topic)
            .option("startingOffsets", "earliest")
            .load()
            .select(f.from_json(f.col("value").cast("string"), schema).alias("o"))
            .select("o.*")
        )

    send(spark, at, "orders", ORDERS, "id")
    send(spark, at, "payments", PAYMENTS, "id")
    orders = stream("orders", ORDER).withWatermark("at", "2 minutes").alias("a")
    payments = stream("payments", "id long, paid timestamp").withWatermark("paid", "2 minutes").alias("b")
    joined = orders.join(payments, f.expr("a.id = b.id AND paid >= at AND paid <= at + interval 1 minute"))
    query = (
        joined.select("a.id", f.col("paid").cast("string"))
        .writeStream.format("parquet")
        .option("path", str(at.folder / "join"))
        .option("checkpointLocation", str(at.folder / "join-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Counter(map(tuple, spark.read.parquet(str(at.folder / "join")).collect()))


def join_by_hand() -> Counter[Any]:
    paid = ((one["id"], datetime.fromisoformat(one["paid"])) for one in PAYMENTS)
    return Counter((number, str(when)) for number, when in paid if number % 90 <= 60)


def deduplication(spark: SparkSession, at: Place) -> Counter[Any]:
    """Orders that were sent twice, once."""
    from pyspark.sql import functions as f

    send(spark, at, "orders", TWICE, "id")
    orders = (
        spark.readStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribePattern", at.prefix + "ord.*")
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
        .select("o.*")
    )
    query = (
        orders.withWatermark("at", "10 minutes")
        .dropDuplicatesWithinWatermark(["id"])
        .select("id", "user")
        .writeStream.format("parquet")
        .option("path", str(at.folder / "deduplication"))
        .option("checkpointLocation", str(at.folder / "deduplication-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Counter(map(tuple, spark.read.parquet(str(at.folder / "deduplication")).collect()))


def deduplication_by_hand() -> Counter[Any]:
    return Counter((one["id"], one["user"]) for one in ORDERS)


def upsert(spark: SparkSession, at: Place) -> Counter[Any]:
    """The last order of each user, kept in a table; its position says which is the last."""
    import sqlite3

    from pyspark.sql import functions as f

    send(spark, at, "orders", ORDERS, "user")
    table = str(at.folder / "users.db")
    with sqlite3.connect(table) as made:
        made.execute("CREATE TABLE users (user TEXT PRIMARY KEY, id INTEGER)")

    def merge(batch: DataFrame, batch_id: int) -> None:
        last = batch.groupBy("user").agg(f.max_by("id", "offset").alias("id"))
        with sqlite3.connect(table) as open_table:
            open_table.executemany(
                "INSERT INTO users VALUES (?, ?) ON CONFLICT (user) DO UPDATE SET id = excluded.id",
                [tuple(row) for row in last.collect()],
            )

    query = (
        spark.readStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribe", at.prefix + "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
        .select(
            "offset",
            f.col("key").cast("string").alias("user"),
            f.get_json_object(f.col("value").cast("string"), "$.id").cast("long").alias("id"),
        )
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", str(at.folder / "upsert-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with sqlite3.connect(table) as read:
        return Counter(read.execute("SELECT user, id FROM users").fetchall())


def upsert_by_hand() -> Counter[Any]:
    return Counter({one["user"]: one["id"] for one in ORDERS}.items())


def available_now(spark: SparkSession, at: Place) -> Counter[Any]:
    """A stream that is run twice, from topic to topic; what came in between is added."""
    from pyspark.sql import functions as f

    for rows in (ORDERS, MORE_ORDERS):
        send(spark, at, "orders", rows, "id")
        query = (
            spark.readStream.format(at.format)
            .option("kafka.bootstrap.servers", at.address)
            .option("subscribe", at.prefix + "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "120")
            .load()
            .filter(f.get_json_object(f.col("value").cast("string"), "$.amount").cast("long") > 5)
            .select("key", "value")
            .writeStream.format(at.format)
            .option("kafka.bootstrap.servers", at.address)
            .option("topic", at.prefix + "large")
            .option("checkpointLocation", str(at.folder / "available-now-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return messages(spark, at, "large")


def available_now_by_hand() -> Counter[Any]:
    return Counter((str(one["id"]), json.dumps(one)) for one in (*ORDERS, *MORE_ORDERS) if one["amount"] > 5)


def messages(spark: SparkSession, at: Place, topic: str) -> Counter[Any]:
    """Keys and values of a topic, by a batch read."""
    rows = (
        spark.read.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribe", at.prefix + topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    )
    return Counter(map(tuple, rows.collect()))


def complete(spark: SparkSession, at: Place) -> Counter[Any]:
    """Sums by user, all of them after the only batch."""
    from pyspark.sql import functions as f

    send(spark, at, "orders", ORDERS, "user")
    query = (
        spark.readStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribe", at.prefix + "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
        .groupBy(f.col("o.user").alias("key"))
        .agg(f.sum("o.amount").cast("string").alias("value"))
        .writeStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("topic", at.prefix + "sums")
        .option("checkpointLocation", str(at.folder / "complete-checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return messages(spark, at, "sums")


def sums_by_hand() -> Counter[Any]:
    sums: Counter[str] = Counter()
    for one in ORDERS:
        sums[one["user"]] += one["amount"]
    return Counter((user, str(total)) for user, total in sums.items())


def update(spark: SparkSession, at: Place) -> Counter[Any]:
    """Sums by user that changed in a batch, written in `foreachBatch`; the largest of each user is the last."""
    from pyspark.sql import functions as f

    send(spark, at, "orders", ORDERS, "user")

    def write(batch: DataFrame, batch_id: int) -> None:
        (
            batch.write.format(at.format)
            .option("kafka.bootstrap.servers", at.address)
            .option("topic", at.prefix + "sums")
            .mode("append")
            .save()
        )

    query = (
        spark.readStream.format(at.format)
        .option("kafka.bootstrap.servers", at.address)
        .option("subscribe", at.prefix + "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
        .select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
        .groupBy(f.col("o.user").alias("key"))
        .agg(f.sum("o.amount").cast("string").alias("value"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(at.folder / "update-checkpoint"))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    largest: dict[str, int] = {}
    for user, total in messages(spark, at, "sums"):
        largest[user] = max(int(total), largest.get(user, 0))
    return Counter((user, str(total)) for user, total in largest.items())


class Program(NamedTuple):
    """A program, what comes out of it by hand, and the topics that it writes to."""

    run: Callable[[SparkSession, Place], Counter[Any]]
    by_hand: Callable[[], Counter[Any]]
    topics: tuple[str, ...]


PROGRAMS: Final = {
    "windows": Program(windows, windows_by_hand, ("orders",)),
    "stream-stream join": Program(join, join_by_hand, ("orders", "payments")),
    "deduplication": Program(deduplication, deduplication_by_hand, ("orders",)),
    "upsert by foreachBatch": Program(upsert, upsert_by_hand, ("orders",)),
    "availableNow": Program(available_now, available_now_by_hand, ("orders", "large")),
    "complete mode": Program(complete, sums_by_hand, ("orders", "sums")),
    "update through foreachBatch": Program(update, sums_by_hand, ("orders", "sums")),
}
