"""A topic becomes a Delta table, and DuckDB and pandas ask it questions; each `# %%` is a cell.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/archive_and_query.py [name-server]

The same as `orbitmq pipeline archive --to FOLDER --topic ShopOrders`. DuckDB is one of many readers: `pip install duckdb`.
"""

# %% A day of orders.
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb
from deltalake import DeltaTable

import orbitmq.spark
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
TOPIC = "ShopOrders"

spark = orbitmq.spark.session(app_name="archive-and-query")
folder = Path(tempfile.mkdtemp()) / "archive"


def take_orders(first: int, count: int) -> None:
    orders = spark.range(first, first + count).selectExpr(
        "concat('order-', id) as keys",
        "if(id % 4 = 0, 'express', 'normal') as tags",
        "to_json(struct(id as number, id % 90 + 10 as amount)) as body",
    )
    options = {"nameServer": NAME_SERVER, "topic": TOPIC, "idempotencyKey": f"archive-and-query-{first}"}
    orders.write.format("orbitmq").options(**options).mode("append").save()


take_orders(0, 1_000)

# %% Everything that is there goes to a Delta table, each message once.
first = pipelines.archive(spark, to=str(folder), name_server=NAME_SERVER, topic=[TOPIC])
print(f"{first.rows_written} messages in {first.details['files']} files")

# %% The next run takes what is new.
take_orders(1_000, 200)
second = pipelines.archive(spark, to=str(folder), name_server=NAME_SERVER, topic=[TOPIC])
print(f"{second.rows_written} more")

# %% DuckDB over the table; the body is JSON. With its extension `delta` it is `from delta_scan('...')`.
archived = DeltaTable(folder).to_pyarrow_dataset()
sales = duckdb.sql(
    """
    select topic, tags, count(*) as orders, sum((decode(body)::json->>'amount')::int) as amount
    from archived group by all order by tags
    """
)
print(sales)

# %% pandas, with the columns that are needed.
table = DeltaTable(folder).to_pandas(columns=["keys", "queueId", "queueOffset", "storeTimestamp"])
print(
    len(table), "orders,", table["keys"].nunique(), "different; the first was stored at", table["storeTimestamp"].min()
)
