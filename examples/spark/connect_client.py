"""A client of a Spark Connect server: a pandas table becomes messages, and messages become a pandas table.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/connect_client.py sc://host:15002 [name-server]

This process starts no Java. Spark runs at the server, whose Python has orbitmq installed; the name server is asked from there.
"""

# %% A session at the server.
from __future__ import annotations

import sys

import pandas as pd
from pyspark.sql import functions as f

import orbitmq.spark

REMOTE = sys.argv[1]
NAME_SERVER = sys.argv[2] if len(sys.argv) > 2 else "localhost:9876"

spark = orbitmq.spark.session(remote=REMOTE, app_name="connect-client")

# %% Readings of this process become messages.
readings = pd.DataFrame({"sensor": [f"s{n % 4}" for n in range(200)], "celsius": [15 + n % 10 / 2 for n in range(200)]})
(
    spark.createDataFrame(readings)
    .select(f.col("sensor").alias("keys"), f.to_json(f.struct("sensor", "celsius")).alias("body"))
    .write.format("orbitmq")
    .option("nameServer", NAME_SERVER)
    .option("topic", "Readings")
    .option("idempotencyKey", "connect-client-readings")
    .mode("append")
    .save()
)

# %% The server reckons, and only the result comes back.
rows = (
    spark.read.format("orbitmq")
    .schema("body binary")
    .option("nameServer", NAME_SERVER)
    .option("topic", "Readings")
    .load()
    .select(f.from_json(f.col("body").cast("string"), "sensor string, celsius double").alias("reading"))
)
means = rows.groupBy("reading.sensor").agg(
    f.count("*").alias("readings"), f.round(f.avg("reading.celsius"), 2).alias("mean")
)
table = means.orderBy("sensor").toPandas()
print(table.to_string(index=False))

# %% A stream runs at the server as well.
stream = (
    spark.readStream.format("orbitmq")
    .schema("keys string, body binary")
    .option("nameServer", NAME_SERVER)
    .option("topic", "Readings")
    .option("startingOffsets", "earliest")
    .load()
    .groupBy("keys")
    .count()
)
query = (
    stream.writeStream.format("memory").outputMode("complete").queryName("readings").trigger(availableNow=True).start()
)
query.awaitTermination()
print(spark.table("readings").agg(f.sum("count")).first()[0], "readings went through the stream")
