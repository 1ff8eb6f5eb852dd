"""The program whose processes are killed: it writes rows that follow from their numbers, as a stream or as a batch job.

`python killed_driver.py KIND NAME_SERVER ROWS BEGAN_MS FOLDER [PLANT]`; the files with the numbers are in FOLDER/source, the checkpoint
comes to FOLDER/checkpoint. Whoever starts it again goes on where it was killed.

Rules of this file
1. Every attempt makes the same rows out of the same numbers; `expected` says which.
2. Rows come slowly, a few dozen at a time, so that a kill finds tasks that have sent a part of theirs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WRITTEN: Final = "written"
LATER: Final = "later"
"""The topic of rows with a time to wait for."""

DUE_WITHIN_S: Final = 40
"""Due times lie within so much time from the beginning, those of repeated rows in the past."""

PAUSE_S: Final = 0.03
ARROW_ROWS: Final = 50
JOB_PARTS: Final = 40


class Kind(StrEnum):
    MIXED = "mixed"
    """A stream of ordinary, timed and delayed rows to two topics, some of them equal."""
    KEYED = "keyed"
    """A stream of rows with keys, which a repartition brings in another order and division each time."""
    JOB = "job"
    """A batch job with an idempotency key, started again until it ends well."""


class Plant(StrEnum):
    """What goes wrong on purpose."""

    KEYLESS = "keyless"
    """The writer names no row."""
    FORGETFUL = "forgetful"
    """The broker does not know after a start what was sent before it."""
    CARELESS = "careless"
    """The writer takes a connection that broke for an answer."""


def expected(kind: Kind, count: int) -> Counter[tuple[str, bytes]]:
    """Topic and body of every row, and how often each is there."""
    if kind is Kind.KEYED:
        return Counter((WRITTEN, b"row %d" % number) for number in range(count))
    return Counter(
        (
            WRITTEN if number % 2 == 0 or kind is Kind.JOB else LATER,
            b"the same everywhere" if number % 25 == 0 else b"row %d" % number,
        )
        for number in range(count)
    )


def messages(numbers: DataFrame, kind: Kind, began_ms: int) -> DataFrame:
    """What is written for the column `id`."""
    if kind is Kind.KEYED:
        return numbers.repartition(2).selectExpr("concat('row ', id) AS body", "id AS key")
    body = "if(id % 25 = 0, 'the same everywhere', concat('row ', id)) AS body"
    if kind is Kind.JOB:
        return numbers.selectExpr(body)
    return numbers.selectExpr(
        body,
        f"if(id % 2 = 0, '{WRITTEN}', '{LATER}') AS topic",
        f"CASE WHEN id % 6 = 1 THEN timestamp_millis({began_ms} + id % {DUE_WITHIN_S} * 1000) END AS deliverTimestamp",
        "CASE WHEN id % 6 = 3 THEN 1 + id % 5 END AS delaySeconds",
        "CASE WHEN id % 60 = 5 THEN 1 END AS delayLevel",
    )


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import time

    for batch in batches:
        time.sleep(PAUSE_S)
        yield batch


def write(
    spark: SparkSession, kind: Kind, name_server: str, count: int, began_ms: int, folder: Path, dedup: str
) -> None:
    options = {"nameServer": name_server, "dedup": dedup, "batchBytes": "2048"}
    if kind is not Kind.MIXED:
        options["topic"] = WRITTEN
    if kind is Kind.JOB:
        frame = messages(spark.range(0, count, 1, JOB_PARTS), kind, began_ms)
        frame = frame.mapInArrow(slowly, frame.schema)
        if dedup == "on":
            options["idempotencyKey"] = "the job"
        frame.write.format("orbitmq").options(**options).mode("append").save()
        return
    if kind is Kind.KEYED and dedup == "on":
        options["rowKey"] = "key"
    numbers = spark.readStream.option("maxFilesPerTrigger", 2).schema("id long").csv(str(folder / "source"))
    frame = messages(numbers, kind, began_ms)
    frame = frame.mapInArrow(slowly, frame.schema)
    if "rowKey" not in options:
        frame = frame.drop("key")
    writer = frame.writeStream.format("orbitmq").options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def register_careless(spark: SparkSession) -> None:
    """Writers of this session take a connection that broke for an answer."""
    from orbitmq.errors import ConnectionLostError
    from orbitmq.spark.source import OrbitmqSource
    from orbitmq.spark.writing.first_attempts import FirstAttempts
    from orbitmq.spark.writing.sending import TaskSending
    from orbitmq.spark.writing.stream_writer import StreamWriter

    class CarelessWriter(StreamWriter):
        def write(self, iterator):  # type: ignore[no-untyped-def]
            correct = TaskSending._attempt

            async def attempt(sending: TaskSending, frame: object) -> None:
                try:
                    await correct(sending, frame)  # type: ignore[arg-type]
                except ConnectionLostError:
                    return

            lost = FirstAttempts._lost

            def forgotten(*arguments: Any) -> list[Any]:
                lost(*arguments)
                return []

            with (
                mock.patch.object(TaskSending, "_attempt", attempt),
                mock.patch.object(FirstAttempts, "_lost", forgotten),
            ):
                return super().write(iterator)

    class CarelessSource(OrbitmqSource):
        def streamWriter(self, schema, overwrite):  # type: ignore[no-untyped-def]
            writer = super().streamWriter(schema=schema, overwrite=overwrite)
            return CarelessWriter(writer._options, writer._places)

    spark.dataSource.register(CarelessSource)


def main(kind: Kind, name_server: str, count: int, began_ms: int, folder: Path, plant: Plant | None) -> None:
    from orbitmq.spark import session

    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a life is too short for better code
        "spark.ui.showConsoleProgress": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.task.maxFailures": 20,
        "spark.sql.execution.sortBeforeRepartition": False,
        "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS,
    }
    spark = session("local[2,20]", **settings)
    if plant is Plant.CARELESS:
        register_careless(spark)
    write(spark, kind, name_server, count, began_ms, folder, "none" if plant is Plant.KEYLESS else "on")


if __name__ == "__main__":
    kind, name_server, count, began_ms, folder, *plant = sys.argv[1:]
    main(Kind(kind), name_server, int(count), int(began_ms), Path(folder), Plant(plant[0]) if plant else None)
