"""`schedule` on real Spark: rows become timer messages in a far table and in a broker, each of them once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from memory_catalog import DAY_MS, HOUR_MS, MemoryCatalog

from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError, ConfigurationError, MessageIllegalError, SparkJobError
from orbitmq.spark.pipelines.run import Run, Summary
from orbitmq.spark.pipelines.scheduling.job import schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from server_process import ServedProcess

FAR_COUNT = 300
PAST_COUNT = 40


@pytest.fixture
def now_ms() -> int:
    return SystemClock().now_ms()


@pytest.fixture
def catalog(tmp_path: Path, now_ms: int) -> MemoryCatalog:
    return MemoryCatalog(tmp_path / "far", now_ms)


@pytest.fixture
def rows(spark: SparkSession, now_ms: int) -> DataFrame:
    """Messages due in the past, which a broker delivers at once, and others due in 5 days to 40 years."""
    past = spark.range(PAST_COUNT).selectExpr(
        f"timestamp_millis({now_ms} - 1000 * id) as deliverTimestamp",
        "concat('past-', id) as order",
    )
    far = spark.range(FAR_COUNT).selectExpr(
        f"timestamp_millis({now_ms} + {5 * DAY_MS} + id * {49 * DAY_MS}) as deliverTimestamp",
        "concat('far-', id) as order",
    )
    return past.union(far).selectExpr(
        "deliverTimestamp", "order as keys", "order as body", "map('of', order) as properties"
    )


@pytest.fixture
def run_schedule(spark: SparkSession, catalog: MemoryCatalog, topic: str, name_server: str) -> Callable[..., Summary]:
    def run(frame: DataFrame, **settings: Any) -> Summary:
        given = {
            "topic": topic,
            "name_server": name_server,
            "far_table": str(catalog.directory),
            "idempotency_key": topic,
            "near_partitions": 2,
            **settings,
        }
        return schedule(spark, frame, catalog, **given)

    return run


def delivered(spark: SparkSession, topic: str, name_server: str, count: int) -> list[str]:
    """Keys of the messages in a topic, when there are `count` of them: what falls due is delivered a little later."""
    reader = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", topic)
    found: list[str] = []
    for _ in range(50):
        found = sorted(row["keys"] for row in reader.load().select("keys").collect())
        if len(found) >= count:
            break
    return found


def far_rows(catalog: MemoryCatalog) -> list[dict[str, Any]]:
    """What a reader of the listed files sees; each file is sorted."""
    found: list[dict[str, Any]] = []
    for file in catalog.files():
        table = pq.read_table(catalog.directory / file.name, partitioning=None)
        times = table.column("deliverTimestamp").to_pylist()
        assert times == sorted(times)
        assert (len(times), times[0].timestamp() * 1000) == (file.rows, file.min_due_ms)
        found += table.to_pylist()
    return found


def past_keys() -> list[str]:
    return sorted(f"past-{number}" for number in range(PAST_COUNT))


def far_keys() -> list[str]:
    return sorted(f"far-{number}" for number in range(FAR_COUNT))


def check_all_is_there_once(spark: SparkSession, catalog: MemoryCatalog, topic: str, name_server: str) -> None:
    assert sorted(row["keys"] for row in far_rows(catalog)) == far_keys()
    assert delivered(spark, topic, name_server, PAST_COUNT) == past_keys()


def test_near_rows_go_to_the_broker_and_far_ones_into_the_table_once_however_often_the_job_runs(
    spark: SparkSession,
    rows: DataFrame,
    catalog: MemoryCatalog,
    run_schedule: Callable[..., Summary],
    topic: str,
    name_server: str,
) -> None:
    first = run_schedule(rows)
    assert (first.rows_read, first.rows_written, first.rows_skipped) == (PAST_COUNT + FAR_COUNT,) * 2 + (0,)
    assert (first.details["near"], first.details["far"]) == (PAST_COUNT, FAR_COUNT)
    check_all_is_there_once(spark, catalog, topic, name_server)
    row = next(row for row in far_rows(catalog) if row["keys"] == "far-7")
    assert (row["topic"], row["body"], dict(row["properties"])) == (topic, b"far-7", {"of": "far-7"})
    ids = [row["msgId"] for row in far_rows(catalog)]
    assert len(set(ids)) == len(ids) == FAR_COUNT

    catalog.now_ms += DAY_MS  # other rows would be near by now
    again = run_schedule(rows)
    assert again.details["far_was_scheduled"]
    check_all_is_there_once(spark, catalog, topic, name_server)
    assert len(catalog.names()) == len(catalog.files())  # nothing was left behind


def test_a_job_that_died_between_far_and_near_goes_on_with_the_near_rows(
    spark: SparkSession,
    rows: DataFrame,
    catalog: MemoryCatalog,
    run_schedule: Callable[..., Summary],
    topic: str,
    name_server: str,
) -> None:
    def die() -> None:
        catalog.after_add = lambda: None
        raise KeyboardInterrupt

    catalog.after_add = die  # the answer to the request is lost
    with pytest.raises(KeyboardInterrupt):
        run_schedule(rows)
    run_schedule(rows)
    check_all_is_there_once(spark, catalog, topic, name_server)


def test_a_job_that_died_before_its_files_counted_writes_them_anew(
    spark: SparkSession,
    rows: DataFrame,
    catalog: MemoryCatalog,
    run_schedule: Callable[..., Summary],
    topic: str,
    name_server: str,
) -> None:
    def die() -> None:
        catalog.before_add = lambda: None
        raise KeyboardInterrupt

    catalog.before_add = die
    with pytest.raises(KeyboardInterrupt):
        run_schedule(rows)
    assert catalog.files() == []
    assert catalog.names()  # orphans, which a compaction finds
    run_schedule(rows)
    check_all_is_there_once(spark, catalog, topic, name_server)


def test_rows_that_became_near_while_files_were_written_go_to_the_broker(
    spark: SparkSession, catalog: MemoryCatalog, run_schedule: Callable[..., Summary], now_ms: int
) -> None:
    frame = spark.range(100).selectExpr(f"{now_ms} + {3 * DAY_MS} + id * {HOUR_MS} as deliverTimestamp", "'b' as body")

    def move() -> None:
        catalog.before_add = lambda: None
        catalog.now_ms += HOUR_MS
        catalog.close_until(now_ms + 4 * DAY_MS)

    catalog.before_add = move
    summary = run_schedule(frame)
    frontier = catalog.state.frontier_ms
    assert frontier is not None
    assert all(file.min_due_ms >= frontier for file in catalog.files())
    assert summary.rows_written == 100
    assert summary.details["far"] == sum(file.rows for file in catalog.files()) < 100
    assert catalog.calls == ["open", "add", "open", "add"]
    assert len(catalog.names()) == len(catalog.files())


def test_a_worker_that_is_killed_fails_the_job_and_the_next_run_stores_every_row_once(
    spark: SparkSession,
    rows: DataFrame,
    catalog: MemoryCatalog,
    run_schedule: Callable[..., Summary],
    topic: str,
    name_server: str,
    tmp_path: Path,
) -> None:
    mark = tmp_path / "killed"

    def kill_once(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(SparkJobError, match="writing far rows failed"):
        run_schedule(rows.mapInArrow(kill_once, rows.schema))
    assert catalog.files() == catalog.names() == []
    run_schedule(rows.mapInArrow(kill_once, rows.schema))
    check_all_is_there_once(spark, catalog, topic, name_server)


BROKEN = [
    ("2040-05-01T12:00:00Z", "fine"),
    ("tomorrow", "no time"),
    (None, "null time"),
    ("1700000000", "seconds"),
    ("2041-05-01", None),
    ("2240000000000", "fine"),
]


def test_a_broken_row_ends_the_job_before_anything_counts_and_is_named(
    spark: SparkSession, catalog: MemoryCatalog, run_schedule: Callable[..., Summary]
) -> None:
    frame = spark.createDataFrame(BROKEN, "due string, body string").coalesce(1)
    with pytest.raises(MessageIllegalError, match=r"row 1 of part 0 has 'tomorrow' in column due, which is no time"):
        run_schedule(frame, due_column="due")
    assert catalog.names() == []


def test_broken_rows_go_to_the_quarantine_file_and_are_counted(
    spark: SparkSession, catalog: MemoryCatalog, run_schedule: Callable[..., Summary], tmp_path: Path
) -> None:
    frame = spark.createDataFrame(BROKEN, "due string, body string").coalesce(1)
    put_aside = tmp_path / "aside" / "rows.jsonl"
    summary = run_schedule(frame, due_column="due", on_error="quarantine", quarantine=str(put_aside))
    assert (summary.rows_read, summary.rows_written, summary.rows_quarantined, summary.rows_skipped) == (6, 2, 4, 0)
    lines = [json.loads(line) for line in put_aside.read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4]
    assert [line["reason"].partition(" (")[0] for line in lines] == [
        "row 1 of part 0 has 'tomorrow' in column due, which is no time",
        "row 2 of part 0 has no due time: its column due is null",
        "row 3 of part 0 has the due time 1700000000 in column due, which is 1970-01-20T16:13:20.000Z",
        "row 4 of part 0 has no body",
    ]
    assert [row["body"] for row in far_rows(catalog)] == [b"fine", b"fine"]


def test_a_job_that_died_behind_its_far_rows_has_put_the_broken_ones_aside(
    spark: SparkSession, catalog: MemoryCatalog, run_schedule: Callable[..., Summary], tmp_path: Path
) -> None:
    """The next run looks at near rows only: it would never see a broken row that has no time, and must not replace the file."""
    frame = spark.createDataFrame([*BROKEN, ("1000000000000", "")], "due string, body string").coalesce(1)
    put_aside = tmp_path / "rows.jsonl"
    settings: dict[str, Any] = {"due_column": "due", "on_error": "quarantine", "quarantine": str(put_aside)}

    def die() -> None:
        raise KeyboardInterrupt

    catalog.after_add = die
    with pytest.raises(KeyboardInterrupt):
        run_schedule(frame, **settings)
    assert [json.loads(line)["row"] for line in put_aside.read_text().splitlines()] == [1, 2, 3, 4, 6]
    catalog.after_add = lambda: None
    assert run_schedule(frame, **settings).details["far_was_scheduled"]
    assert [json.loads(line)["row"] for line in put_aside.read_text().splitlines()] == [1, 2, 3, 4, 6]


def test_a_topic_that_is_not_there_ends_the_job_before_anything_counts(
    spark: SparkSession,
    catalog: MemoryCatalog,
    run_schedule: Callable[..., Summary],
    now_ms: int,
    serve: Callable[..., ServedProcess],
) -> None:
    strict = serve("strict", settings={"autoCreateTopicEnable": False})
    columns = f"{now_ms} + {9 * DAY_MS} as deliverTimestamp", "'b' as body", "'no-such' as topic"
    with pytest.raises(ClientError, match="no-such"):
        run_schedule(spark.range(3).selectExpr(*columns), topic=None, name_server=f"127.0.0.1:{strict.name_port}")
    assert catalog.names() == []


def test_a_stop_request_leaves_nothing_of_the_far_rows_and_says_so(
    catalog: MemoryCatalog, rows: DataFrame, run_schedule: Callable[..., Summary]
) -> None:
    run = Run()
    run.stop.request()
    summary = run_schedule(rows, run=run)
    assert (summary.stopped, summary.rows_written) == (True, 0)
    assert catalog.files() == []


def test_without_a_far_table_all_rows_go_to_the_broker_read_from_files(
    spark: SparkSession, now_ms: int, topic: str, name_server: str, tmp_path: Path
) -> None:
    source = tmp_path / "orders.csv"
    lines = [f"{now_ms - number},o-{number},{number % 3}" for number in range(60)]
    source.write_text("\n".join(["due,order,amount", *lines]) + "\n")
    for _ in range(2):
        summary = schedule(
            spark,
            name_server=name_server,
            input=str(source),
            format="csv",
            topic=topic,
            due_column="due",
            column={"keys": "order"},
            body_json=True,
            where="amount < 2",
            idempotency_key=topic,
            row_key="order",
            near_partitions=2,
        )
        assert (summary.rows_read, summary.rows_written) == (40, 40)
    assert delivered(spark, topic, name_server, 40) == sorted(f"o-{number}" for number in range(60) if number % 3 < 2)
    reader = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", topic)
    body = reader.load().where("keys = 'o-4'").first()["body"]
    assert json.loads(body) == {"due": str(now_ms - 4), "order": "o-4", "amount": "1"}


def test_a_table_of_a_database(
    spark: SparkSession, catalog: MemoryCatalog, rows: DataFrame, topic: str, name_server: str, tmp_path: Path
) -> None:
    """By JDBC, from the database whose driver comes with PySpark; the table has names and types as databases have them."""
    database = {"url": f"jdbc:derby:{tmp_path}/database;create=true", "dbtable": "orders"}
    rows.selectExpr("deliverTimestamp as DUE", "keys as ORDER_ID", "upper(keys) as NOTE").write.format("jdbc").options(
        **database
    ).save()
    summary = schedule(
        spark,
        None,
        catalog,
        format="jdbc",
        option=database,
        topic=topic,
        due_column="due",
        column={"keys": "order_id", "body": "note"},
        row_key="order_id",
        name_server=name_server,
        far_table=str(catalog.directory),
        idempotency_key=topic,
        near_partitions=2,
    )
    assert (summary.details["near"], summary.details["far"]) == (PAST_COUNT, FAR_COUNT)
    assert delivered(spark, topic, name_server, PAST_COUNT) == sorted(f"past-{number}" for number in range(PAST_COUNT))
    far = rows.where("keys like 'far-%'").selectExpr("upper(keys) as note", "deliverTimestamp as due").collect()
    assert sorted((row["body"].decode(), row["deliverTimestamp"].timestamp()) for row in far_rows(catalog)) == sorted(
        (row["note"], row["due"].timestamp()) for row in far
    )


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        ("current_date() as deliverTimestamp, 'b' as body", {}, "is of type date"),
        ("'b' as body", {}, "the rows have no such column"),
        ("current_timestamp() as deliverTimestamp", {}, "there is no column body"),
        ("current_timestamp() as deliverTimestamp, 'b' as body, 1 as colour", {}, "column 'colour' is nothing"),
        (
            "current_timestamp() as deliverTimestamp, 'b' as body",
            {"column": {"delayLevel": "body"}},
            "'delayLevel' is nothing",
        ),
        ("current_timestamp() as deliverTimestamp, 1 as body", {}, "column 'body' is of type int"),
        ("current_timestamp() as deliverTimestamp, 'b' as body", {"row_key": "id"}, "row_key names 'id'"),
        ("current_timestamp() as deliverTimestamp, 'b' as body", {"on_error": "quarantine"}, "nothing says where"),
        (
            "current_timestamp() as deliverTimestamp, 'b' as body",
            {"where": "price > 3"},
            "(?s)where='price > 3' cannot be asked of what is read: .*its columns are deliverTimestamp, body",
        ),
        (
            "current_timestamp() as deliverTimestamp, 'b' as body",
            {"where": "price >"},
            "(?s)where='price >' cannot be asked of what is read: .*PARSE_SYNTAX_ERROR",
        ),
    ],
)
def test_a_data_frame_that_cannot_be_scheduled_is_refused_before_it_runs(
    spark: SparkSession, run_schedule: Callable[..., Summary], columns: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        run_schedule(spark.range(1).selectExpr(*columns.split(", ")), **settings)
