"""The work of each row, done in a Spark session: on Kafka by Spark's own source and sink, on orbitmq by ours.

Rules of this file
1. It runs in the process that `spark_job.py` starts. A load returns what it did, as figures; who measures checks the counts.
2. Both sides get the same rows: bodies of 1 KB (`BODIES`), a key, two properties (Kafka: headers).
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from row_floor import FloorSource, Stamp, count_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BODY_BYTES: Final = 1024
TIMER_BYTES: Final = 200
DIGITS: Final = 12
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
STREAM_START_S: Final = 60.0
LATENCY_WARM_S: Final = 4.0
"""Of a stream before its rows count: the first batches compile."""
EIGHT: Final = (
    "body binary, keys string, topic string, queueId int, queueOffset bigint, storeTimestamp timestamp, sysFlag int, "
    "properties map<string,string>"
)
"""What answers to the eight columns of Spark's source for Kafka with headers."""
THREE: Final = "body binary, queueId int, queueOffset bigint"
MD5_DIGITS: Final = 32
ORDER: Final = (
    (
        '{"order":"',
        '","customer":"c-',
        '","token":"',
        '","lines":[{"sku":"A-4711","n":2,"price":9.25}],"invoice":"',
        '","note":"',
    ),
    "Please leave the parcel with the neighbours on the second floor. ",
    '"}',
)
"""A body: what stands around the number, the number again, its MD5 and the number; sentences of its text; its end."""

PROTOBUF_LINES: Final = 16

Figures = dict[str, float]


def json_order(number: Column, size: int) -> Column:
    """An order as JSON, which has the number in three of its fields, its MD5 in one, and a text."""
    from pyspark.sql import functions as f

    token = f.md5(number)
    before, filler, end = ORDER
    fields = (before[0], number, before[1], number, before[2], token, before[3], number, before[4])
    given = [f.lit(part) if isinstance(part, str) else part for part in fields]
    length = sum(map(len, before)) + 3 * DIGITS + MD5_DIGITS + len(end)
    return f.concat(*given, f.lit(_text(filler, size - length) + end)).cast("binary")


def protobuf_order(number: Column, size: int) -> Column:
    """An order as Protobuf: number, customer, the MD5 as bytes, lines of an article, a quantity and a price, and a text.

    Of JSON it lacks the names and the digits that say little, so half of it compresses worse.
    """
    from pyspark.sql import functions as f

    def raw(*data: int) -> Column:
        return f.lit(bytes(data))

    parts = [raw(0x0A, DIGITS), number.cast("binary"), raw(0x12, DIGITS), number.cast("binary")]
    parts += [raw(0x1A, MD5_DIGITS // 2), f.unhex(f.md5(number))]
    length = 2 * (2 + DIGITS) + 2 + MD5_DIGITS // 2
    for line in range(PROTOBUF_LINES):
        article = f.lpad(f.pmod(f.col("id") * 31 + line * 7, f.lit(977)).cast("string"), 4, "0")
        price = f.lpad(f.hex(f.pmod(f.col("id") * 7919 + line * 104_729, f.lit(1 << 24))), 8, "0")
        parts += [raw(0x22, 13, 0x0A, 4), article.cast("binary"), raw(0x10, 1 + line % 4, 0x1D), f.unhex(price)]
        length += 15
    left = size - length - 3
    note = _text(ORDER[1], left).encode()
    return f.concat(*parts, raw(0x2A, left & 0x7F | 0x80, left >> 7), f.lit(note))


def random_bytes(number: Column, size: int) -> Column:
    """What no compression makes smaller: zeros, encrypted by AES in a chain that begins with the number's MD5."""
    from pyspark.sql import functions as f

    block = MD5_DIGITS // 2
    zeros = f.lit(
        bytes(size - block - 1)
    )  # the beginning of the chain goes before, and the filling of the last block behind
    return f.aes_encrypt(zeros, f.lit(bytes(block)), f.lit("CBC"), f.lit("PKCS"), f.unhex(f.md5(number)))


def _text(filler: str, length: int) -> str:
    return (filler * (length // len(filler) + 1))[:length]


BODIES: Final[dict[str, Callable[[Column, int], Column]]] = {
    "json": json_order,
    "protobuf": protobuf_order,
    "random": random_bytes,
}
"""Kinds of bodies by their names; each takes the number of a row as text, and gives so many bytes."""


class Place(NamedTuple):
    """Where the work is done."""

    address: str
    topic: str
    folder: Path
    partitions: int
    store: str = ""
    """The store directory of the broker, where there is one to be read."""
    bodies: str = "json"


class Load:
    """What both sides do alike. `kind`: who holds the messages."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self.spark, self.place = spark, place

    # --- of each side

    def fill(self, count: int) -> Figures:
        """Put the rows that are read into the topic."""
        raise NotImplementedError

    def messages(self) -> DataFrame:
        """All rows of the topic, with their properties."""
        raise NotImplementedError

    def three(self) -> DataFrame:
        raise NotImplementedError

    def stream(self) -> DataFrame:
        """The bodies of a topic of its own as a stream, from now on."""
        raise NotImplementedError

    def write(self, count: int) -> Figures:
        raise NotImplementedError

    # --- of both

    def read(self, count: int) -> Figures:
        _noop(self.messages())
        return {"rows": count}

    def read_three(self, count: int) -> Figures:
        _noop(self.three())
        return {"rows": count}

    def read_arrow(self, count: int) -> Figures:
        counts = self.three().mapInArrow(count_rows, "rows bigint").collect()
        return {"rows": sum(row.rows for row in counts)}

    def parquet(self, count: int) -> Figures:
        target = self.place.folder / "parquet"
        self.messages().write.mode("overwrite").option("compression", "zstd").parquet(str(target))
        return {"rows": parquet_rows(target)}

    def stream_begin(self, count: int) -> Figures:
        """Start a stream that runs on when this returns, `count` seconds later."""
        self._query = self._started(self.stream())
        time.sleep(count)
        return {}

    def stream_end(self, count: int) -> Figures:
        self._query.stop()
        return {}

    def latency(self, count: int) -> Figures:
        """Row latency over `count` seconds while somebody sends."""
        return self._latency(self.stream(), count)

    def _latency(self, rows: DataFrame, seconds: int) -> Figures:
        notes = self.place.folder / "latency"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir(parents=True)
        query = self._started(rows.mapInArrow(Stamp(str(notes)), "body binary"))
        try:
            end = time.monotonic() + STREAM_START_S
            while not any(notes.iterdir()) and time.monotonic() < end and query.isActive:
                time.sleep(0.1)
            time.sleep(LATENCY_WARM_S)
            begun = {note: note.stat().st_size for note in notes.iterdir()}
            time.sleep(seconds)
        finally:
            query.stop()
        late = [float(line) for note in notes.iterdir() for line in note.read_text()[begun.get(note, 0) :].splitlines()]
        if not late:
            raise RuntimeError(f"no row came through the stream; its state: {query.exception()}")
        late.sort()
        return {"rows": len(late), "p50_ms": statistics.median(late), "p99_ms": late[len(late) * 99 // 100]}

    def _started(self, rows: DataFrame) -> StreamingQuery:
        checkpoint = self.place.folder / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()

    def frame(self, count: int, size: int = 0) -> DataFrame:
        """Numbered rows with a key and a body of the kind that is measured; where a size is given, an order as JSON of so many bytes."""
        from pyspark.sql import functions as f

        number = f.lpad(f.col("id").cast("string"), DIGITS, "0")
        body = json_order(number, size) if size else BODIES[self.place.bodies](number, BODY_BYTES)
        return self.spark.range(0, count, 1, self.place.partitions).select(
            "id", body.alias("body"), number.alias("keys")
        )


class KafkaLoad(Load):
    """Spark's own source and sink."""

    def fill(self, count: int) -> Figures:
        from pyspark.sql import functions as f

        headers = f.array(
            f.struct(f.lit("origin").alias("key"), f.lit("benchmark").cast("binary").alias("value")),
            f.struct(f.lit("number").alias("key"), f.col("key").alias("value")),
        )
        self._written(self.frame(count), self.place.topic, headers=headers)
        self._written(self.frame(1), f"{self.place.topic}-stream")
        return {"rows": self.messages().count()}

    def messages(self) -> DataFrame:
        return self._reader().option("includeHeaders", "true").load()

    def three(self) -> DataFrame:
        return self._reader().load().select("value", "partition", "offset")

    def stream(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.place.address, "subscribe": f"{self.place.topic}-stream"}
        rows = self.spark.readStream.format("kafka").options(**options).option("startingOffsets", "latest").load()
        return rows.selectExpr("value as body")

    def write(self, count: int) -> Figures:
        self._written(self.frame(count), f"{self.place.topic}-written")
        return {"rows": count}

    def _reader(self) -> Any:
        options = {"kafka.bootstrap.servers": self.place.address, "subscribe": self.place.topic}
        return self.spark.read.format("kafka").options(**options)

    def _written(self, rows: DataFrame, topic: str, headers: Any = None) -> None:
        named = rows.selectExpr("cast(keys as binary) as key", "body as value")
        if headers is not None:
            named = named.withColumn("headers", headers)
        options = {"kafka.bootstrap.servers": self.place.address, "topic": topic}
        if headers is not None:
            options["includeHeaders"] = "true"
        named.write.format("kafka").options(**options).save()


class OrbitmqLoad(Load):
    """Our source and sink."""

    def fill(self, count: int) -> Figures:
        from pyspark.sql import functions as f

        properties = f.create_map(f.lit("origin"), f.lit("benchmark"), f.lit("number"), f.col("keys"))
        rows = self.frame(count).select("body", "keys", properties.alias("properties"))
        self._written(rows, self.place.topic, dedup="none")
        return {"rows": self.messages().count()}

    def messages(self) -> DataFrame:
        return self._reader().schema(EIGHT).load()

    def read_all(self, count: int) -> Figures:
        _noop(self._reader().load())
        return {"rows": count}

    def three(self) -> DataFrame:
        return self._reader().schema(THREE).load()

    def stream(self) -> DataFrame:
        options = {"nameServer": self.place.address, "topic": f"{self.place.topic}-stream", "startingOffsets": "latest"}
        return self.spark.readStream.format("orbitmq").schema("body binary").options(**options).load()

    def write(self, count: int) -> Figures:
        self._written(self.frame(count).drop("id"), f"{self.place.topic}-written")
        return {"rows": count}

    def write_none(self, count: int) -> Figures:
        self._written(self.frame(count).drop("id"), f"{self.place.topic}-written", dedup="none")
        return {"rows": count}

    def archive(self, count: int) -> Figures:
        """The log of the broker, which goes on meanwhile, into a new archive."""
        from orbitmq.spark.pipelines.archiving.archive import archive

        target = self.place.folder / "archive"
        shutil.rmtree(target, ignore_errors=True)
        columns = field_names(EIGHT)
        done = archive(self.spark, to=str(target), store=[self.place.store], topic=[self.place.topic], columns=columns)
        return {"rows": done.rows_written}

    def wheel(self, count: int) -> Figures:
        """Timers that are due within a day, from an hour on, into the broker."""
        return self._scheduled(self._timers(count, HOUR_S, DAY_S))

    def far(self, count: int) -> Figures:
        """Timers that are due within a year, from a month on, into the broker's far tier."""
        return self._scheduled(self._timers(count, 30 * DAY_S, 365 * DAY_S))

    def _scheduled(self, rows: DataFrame) -> Figures:
        from orbitmq.spark.pipelines.scheduling.job import schedule

        topic = f"{self.place.topic}-timers"
        return {"rows": schedule(self.spark, rows, name_server=self.place.address, topic=topic).rows_written}

    def floor(self, count: int) -> Figures:
        """Latency of a source that has its rows in memory, at the rate at which others are sent messages."""
        self.spark.dataSource.register(FloorSource)
        rows = self.spark.readStream.format(FloorSource.name()).option("rate", "100").load()
        return self._latency(rows, count)

    def _timers(self, count: int, from_s: int, spread_s: int) -> DataFrame:
        from pyspark.sql import functions as f

        due = f.timestamp_seconds(f.lit(int(time.time()) + from_s) + f.col("id") * 7919 % spread_s)
        return self.frame(count, TIMER_BYTES).withColumn("deliverTimestamp", due).drop("id")

    def _reader(self) -> Any:
        return self.spark.read.format("orbitmq").options(nameServer=self.place.address, topic=self.place.topic)

    def _written(self, rows: DataFrame, topic: str, **options: str) -> None:
        writer = rows.write.format("orbitmq").mode("append")
        writer.options(nameServer=self.place.address, topic=topic, **options).save()


KINDS: Final[dict[str, type[Load]]] = {"kafka": KafkaLoad, "orbitmq": OrbitmqLoad}


def load_of(load: Load, name: str) -> Callable[[int], Figures]:
    """The work of that name. Raises AttributeError for one that this side does not do."""
    found: Callable[[int], Figures] = getattr(load, name)
    return found


def field_names(schema: str) -> list[str]:
    return [field.split()[0] for field in schema.replace("map<string,string>", "map").split(", ")]


def parquet_rows(folder: Path) -> int:
    """Rows of all Parquet files below a folder, from their footers."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))


def _noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
