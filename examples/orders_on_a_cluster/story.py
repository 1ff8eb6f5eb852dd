"""Orders through a Spark cluster while executors are killed, and into a table that everybody reads.

A standalone cluster of two workers is started, whose Python is an environment made from wheels and lies elsewhere than this program's.
A stream reads orders as JSON; what cannot be decoded lands in a table of its own, what can is joined with the customers and written
back, each order once, while executors are killed. Everything is archived into a Delta table, which DuckDB, pandas and Spark read. Then more
orders come, and a second run of all of it adds only these. What is found is compared with what was computed without Spark.

    python -m examples.orders_on_a_cluster.story [--orders 20000] [--keep DIRECTORY]

Exits with 1 when anything differs, with 2 when a stage could not be carried out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

import orbitmq.spark
import orbitmq.sync
from examples.order_timeout.server import own_server
from examples.order_timeout_spark.running import patiently, standard_error_to
from examples.order_timeout_spark.stages import StageError, Stages, why
from examples.orders_on_a_cluster.orders import CUSTOMERS, Priced, body_of, discount_percent, is_bad, priced
from examples.orders_on_a_cluster.python import workers_python
from examples.orders_on_a_cluster.standalone import StandaloneCluster, end_all, executors_of
from orbitmq.spark.pipelines import archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEFAULT_ORDERS: Final = 20_000
ORDERS: Final = "orders"
PRICED: Final = "orders-priced"
QUEUES: Final = 4
BATCHES: Final = 8
"""Of the first run, so that executors die in some of them."""
KILLS: Final = 3
BETWEEN_KILLS_S: Final = 6.0
RESTARTS_MAX: Final = 10
SCHEMA: Final = "number long, customer long, cents long"


class Story:
    """`directory` gets the tables and checkpoints."""

    def __init__(self, spark: SparkSession, name_server: str, directory: Path, stages: Stages) -> None:
        self._spark = spark
        self._name_server = name_server
        self._directory = directory
        self._stages = stages
        self.lake = str(directory / "lake")
        self.quarantine = str(directory / "quarantine")
        conf = spark.sparkContext.getConf()
        self._driver = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
        self.kills = 0

    def send(self, numbers: Sequence[int]) -> None:
        with (
            self._stages.stage(f"{len(numbers):,} orders sent") as stage,
            orbitmq.sync.connect(self._name_server) as mq,
        ):
            for topic in (ORDERS, PRICED):
                mq.admin.create_topic(topic, queues_count=QUEUES)
            with mq.producer("shop") as shop:
                for number in numbers:
                    shop.send(ORDERS, body_of(number), key=str(number))
                    stage.advance(1)

    def stream(self, per_batch: int, kills: int = 0) -> None:
        """Both streams up to the end of the topic, while so many executors are killed."""
        with self._stages.stage("orders priced, executors killed" if kills else "orders priced") as stage:
            queries = {name: start(per_batch) for name, start in self._streams().items()}
            starts = Counter[str]()
            killed_at = time.monotonic()
            while any(query.isActive or query.exception() for query in queries.values()):
                for name, query in queries.items():
                    problem = None if query.isActive else query.exception()
                    if problem is not None:  # a task may fail four times; then the query goes on from its checkpoint
                        starts[name] += 1
                        if starts[name] == RESTARTS_MAX:
                            raise problem
                        stage.tell(f"the stream {name!r} is started again: {why(problem)}")
                        queries[name] = self._streams()[name](per_batch)
                if self.kills < kills and time.monotonic() - killed_at > BETWEEN_KILLS_S:
                    if executors := executors_of(self._driver):
                        end_all([random.choice(executors)])
                        self.kills += 1
                    killed_at = time.monotonic()
                    stage.tell(f"{self.kills} executors killed")
                time.sleep(0.2)

    def _streams(self) -> dict[str, Callable[[int], StreamingQuery]]:
        return {"priced": self._start_priced, "quarantine": self._start_quarantine}

    def _orders(self, per_batch: int) -> DataFrame:
        return (
            self._spark.readStream.format("orbitmq")
            .option("nameServer", self._name_server)
            .option("topic", ORDERS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", per_batch)
            .option("payload", "json")
            .option("payloadSchema", SCHEMA)
            .load()
        )

    def _start_priced(self, per_batch: int) -> StreamingQuery:
        rows = [(number, discount_percent(number)) for number in range(CUSTOMERS)]
        customers = self._spark.createDataFrame(rows, "customer long, percent int")
        good = self._orders(per_batch).where("payloadError IS NULL").select("payload.*").join(customers, "customer")
        body = "to_json(struct(number, customer, cents * (100 - percent) div 100 AS cents)) AS body"
        return (
            good.selectExpr(body, "cast(number AS string) AS keys")
            .writeStream.format("orbitmq")
            .option("nameServer", self._name_server)
            .option("topic", PRICED)
            .option("checkpointLocation", str(self._directory / "checkpoints" / "priced"))
            .trigger(availableNow=True)
            .start()
        )

    def _start_quarantine(self, per_batch: int) -> StreamingQuery:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import TableNotFoundError

        def store(batch: DataFrame, batch_id: int) -> None:
            """Each batch once, also when Spark gives it again: the table keeps the number of the last one."""
            try:
                last = DeltaTable(self.quarantine).transaction_version("orders")
            except TableNotFoundError:
                last = None
            if last is None or batch_id > last:
                rows = batch.select("topic", "queueId", "queueOffset", "payloadError", "corruptBody").toArrow()
                done = CommitProperties(app_transactions=[Transaction("orders", batch_id)])
                write_deltalake(self.quarantine, rows, mode="append", commit_properties=done)

        return (
            self._orders(per_batch)
            .where("payloadError IS NOT NULL")
            .writeStream.foreachBatch(store)
            .option("checkpointLocation", str(self._directory / "checkpoints" / "quarantine"))
            .trigger(availableNow=True)
            .start()
        )

    def archive(self) -> int:
        """How many rows were new."""
        with self._stages.stage("archived") as stage:
            topics = (ORDERS, PRICED)
            done = patiently(
                lambda: archive(self._spark, to=self.lake, name_server=self._name_server, topic=topics), stage.tell
            )
            stage.reach(done.rows_written)
            return done.rows_written

    def found(self) -> dict[str, tuple[list[Priced], Counter[bytes]]]:
        """Priced orders, and bodies of all orders, as each reader of the table has them."""
        import duckdb
        from deltalake import DeltaTable

        with self._stages.stage("read by DuckDB, pandas and Spark"):
            table = DeltaTable(self.lake)
            by_duckdb = duckdb.from_arrow(table.to_pyarrow_dataset()).project("topic, body").fetchall()
            frame = table.to_pandas(columns=["topic", "body"])
            by_spark = orbitmq.spark.archive(self.lake).select("topic", "body").collect()
        return {
            "DuckDB": _sorted(by_duckdb),
            "pandas": _sorted(zip(frame.topic, frame.body, strict=True)),
            "Spark": _sorted(by_spark),
        }

    def bad(self) -> Counter[bytes]:
        from deltalake import DeltaTable

        column = DeltaTable(self.quarantine).to_pyarrow_table(columns=["corruptBody"]).column(0)
        return Counter(column.to_pylist())


def _sorted(rows: Any) -> tuple[list[Priced], Counter[bytes]]:
    told, orders = [], Counter[bytes]()
    for topic, body in rows:
        if topic == PRICED:
            told.append(Priced(**json.loads(bytes(body))))
        else:
            orders[bytes(body)] += 1
    return sorted(told), orders


def play(
    directory: Path, count: int, stages: Stages, cluster: str | None = None, python: Path | None = None
) -> tuple[list[tuple[str, str, bool]], int]:
    """Everything; gives what was looked at, what was found and whether it is as computed, and the executors killed.

    cluster, python: one of this machine that runs already, and the path of its workers' Python; by default its own.
    """
    more = count // 20
    numbers, later = range(count), range(count, count + more)
    looked: list[tuple[str, str, bool]] = []
    with ExitStack() as running:
        (directory / "server").mkdir()
        if python is None:
            with stages.stage("a Python for the workers, from wheels"):
                python = workers_python(directory / "python", "spark-worker")
        server = running.enter_context(own_server(stages.console, directory / "server"))
        if cluster is None:
            with stages.stage("a master and two workers"):
                own = running.enter_context(StandaloneCluster(directory / "spark"))
            os.environ["JAVA_HOME"] = own.environment["JAVA_HOME"]
            cluster = own.address
        settings = {
            "spark.pyspark.python": str(python),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.local.dir": str(directory / "local"),
        }
        with stages.stage("a session on the cluster"), standard_error_to(directory / "spark.log"):
            spark = orbitmq.spark.session(cluster, app_name="orders", **settings)
        running.callback(spark.stop)
        story = Story(spark, server, directory, stages)
        story.send(numbers)
        story.stream(max(1, count // BATCHES), KILLS)
        looked += compare(story, numbers, story.archive(), len(numbers))
        story.send(later)
        story.stream(len(later))
        looked += compare(story, range(count + more), story.archive(), len(later))
    return looked, story.kills


def compare(story: Story, numbers: Sequence[int], new_rows: int, new_orders: int) -> list[tuple[str, str, bool]]:
    expected = sorted(priced(numbers))
    orders = Counter(body_of(number) for number in numbers)
    bad = Counter(body_of(number) for number in numbers if is_bad(number))
    new = sum(not is_bad(number) for number in numbers[-new_orders:]) + new_orders
    looked = [("rows that this run archived", f"{new_rows:,}", new_rows == new)]
    for reader, (told, all_orders) in story.found().items():
        cents = sum(order.cents for order in told)
        looked.append((f"priced orders, by {reader}", f"{len(told):,} for {cents / 100:,.2f}", told == expected))
        looked.append((f"all orders, by {reader}", f"{all_orders.total():,}", all_orders == orders))
    quarantined = story.bad()
    looked.append(("orders in quarantine", f"{quarantined.total():,}", quarantined == bad))
    return looked


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=DEFAULT_ORDERS)
    parser.add_argument("--keep", type=Path, help="a directory that keeps everything")
    parser.add_argument("--cluster", metavar="spark://HOST:PORT", help="a cluster of this machine that runs already")
    parser.add_argument("--python", type=Path, help="the path of its workers' Python")
    options = parser.parse_args(arguments)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="orbitmq-cluster-", ignore_cleanup_errors=True) as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with Stages(console) as stages:
                looked, kills = play(directory, options.orders, stages, options.cluster, options.python)
        except StageError as error:
            console.print(f"[red]{error}[/red]")
            return 2
    table = Table(title="First run, then a second one with more orders", title_justify="left")
    for heading in ("looked at", "found", "as computed"):
        table.add_column(heading)
    for what, found, is_right in looked:
        table.add_row(what, found, "yes" if is_right else "[red]DIFFERENT[/red]")
    console.print(table)
    right = all(is_right for _, _, is_right in looked)
    spent = sum(stages.seconds.values())
    verdict = "every order once, every bad one in quarantine" if right else "[red]DIFFERENT from the computation[/red]"
    console.print(f"{verdict}; {kills} executors killed; {spent:.0f} s")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
