"""Orders written, read and timed with Spark, step by step; each `# %%` is a cell for editors that know notebooks.

orbitmq serve --data /tmp/orbitmq &
python examples/spark/first_steps.py [name-server]
"""

# %% A session. Spark finds the format "orbitmq" by itself.
from __future__ import annotations

import sys

from pyspark.sql import functions as f

import orbitmq.spark

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"

spark = orbitmq.spark.session(app_name="first-steps")
orders = spark.range(1_000).select(
    f.concat(f.lit("order-"), "id").alias("order"),
    f.when(f.col("id") % 4 == 0, "express").otherwise("normal").alias("shipping"),
    (f.col("id") % 90 + 10).alias("amount"),
    (f.col("id") % 10 != 0).alias("paid"),
)

# %% Each row becomes a message. Run again with the same idempotencyKey it stores nothing twice.
(
    orders.select(
        f.col("order").alias("keys"),
        f.col("shipping").alias("tags"),
        f.to_json(f.struct("order", "amount")).alias("body"),
    )
    .write.format("orbitmq")
    .option("nameServer", NAME_SERVER)
    .option("topic", "Orders")
    .option("idempotencyKey", "first-steps-orders")
    .mode("append")
    .save()
)

# %% What is in the topic. The schema names the columns that are wanted; nothing else is read.
written = (
    spark.read.format("orbitmq")
    .schema("tags string, body binary")
    .option("nameServer", NAME_SERVER)
    .option("topic", "Orders")
    .load()
    .select("tags", f.from_json(f.col("body").cast("string"), "order string, amount long").alias("row"))
)
totals = written.groupBy("tags").agg(f.count("*").alias("orders"), f.sum("row.amount").alias("amount")).orderBy("tags")
totals.show()

# %% A message per unpaid order that falls due in three seconds: a column with the time is all it takes.
(
    orders.where("not paid")
    .select(
        f.col("order").alias("body"), (f.current_timestamp() + f.expr("interval 3 seconds")).alias("deliverTimestamp")
    )
    .write.format("orbitmq")
    .option("nameServer", NAME_SERVER)
    .option("topic", "PaymentTimeouts")
    .option("idempotencyKey", "first-steps-timeouts")
    .mode("append")
    .save()
)

# %% A stream sees each of them when it is due.
timeouts = (
    spark.readStream.format("orbitmq")
    .schema("body binary, storeTimestamp timestamp, deliverTimestamp timestamp")
    .option("nameServer", NAME_SERVER)
    .option("topic", "PaymentTimeouts")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("cast(body as string) as order", "storeTimestamp >= deliverTimestamp as in_time")
)
query = timeouts.writeStream.format("memory").queryName("due").trigger(processingTime="1 second").start()
while spark.table("due").count() < 100:
    if query.awaitTermination(1):
        raise SystemExit("the stream ended by itself")
query.stop()

# %% None of them came early.
early = spark.table("due").where("not in_time").count()
print(f"{spark.table('due').count()} orders timed out, {early} of them early")
