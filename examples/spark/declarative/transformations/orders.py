"""Orders out of a topic, totals of them in a table, and the large ones to another topic."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
NAME_SERVER = spark.conf.get("orders.nameServer")
LARGE = 80


@dp.table
def orders() -> DataFrame:
    """What the topic has, read on in every run."""
    rows = (
        spark.readStream.format("orbitmq")
        .schema("keys string, body binary, storeTimestamp timestamp")
        .option("nameServer", NAME_SERVER)
        .option("topic", "PipelineOrders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), "shop string, amount bigint").alias("order")
    return rows.select(F.col("keys").alias("number"), order, "storeTimestamp").select(
        "number", "order.*", "storeTimestamp"
    )


@dp.materialized_view
def totals() -> DataFrame:
    """Reckoned anew in every run."""
    return spark.read.table("orders").groupBy("shop").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


dp.create_sink("large_orders", "orbitmq", {"nameServer": NAME_SERVER, "topic": "PipelineLargeOrders"})


@dp.append_flow(target="large_orders")
def find_large_orders() -> DataFrame:
    """Each large order is a message once, however often the pipeline runs."""
    large = spark.readStream.table("orders").where(F.col("amount") >= LARGE)
    return large.select(F.col("number").alias("keys"), F.to_json(F.struct("shop", "amount")).alias("body"))
