"""`schedule` on real Spark: rows become timer messages in a broker, each of them once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq.sync
from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, MessageIllegalError, RouteNotFoundError, SparkJobError
from orbitmq.spark.pipelines.run import Run, Summary
from orbitmq.spark.pipelines.scheduling.job import schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from server_process import ServedProcess

DAY_MS = 86_400_000
FAR_COUNT = 300
PAST_COUNT = 40


@pytest.fixture
def now_ms() -> int:
    return SystemClock().now_ms()


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
def run_schedule(spark: SparkSession, topic: str, name_server: str) -> Callable[..., Summary]:
    def run(frame: DataFrame | None, **settings: Any) -> Summary:
        given = {
            "topic": topic,
            "name_server": name_server,
            "idempotency_key": topic,
            "near_partitions": 2,
            **settings,
        }
        return schedule(spark, frame, **given)

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


def waiting(topic: str, name_server: str) -> list[str]:
    """Keys of the messages that wait for their time."""
    with orbitmq.sync.connect(name_server) as client:
        return sorted(timer.keys[0] for timer in client.timers.list(topic=topic))


def past_keys() -> list[str]:
    return sorted(f"past-{number}" for number in range(PAST_COUNT))


def far_keys() -> list[str]:
    return sorted(f"far-{number}" for number in range(FAR_COUNT))


def check_all_is_there_once(spark: SparkSession, topic: str, name_server: str) -> None:
    assert waiting(topic, name_server) == far_keys()
    assert delivered(spark, topic, name_server, PAST_COUNT) == past_keys()


def test_every_row_is_stored_once_however_often_the_job_runs(
    spark: SparkSession, rows: DataFrame, run_schedule: Callable[..., Summary], topic: str, name_server: str
) -> None:
    for _ in range(2):
        summary = run_schedule(rows)
        assert (summary.rows_read, summary.rows_written, summary.rows_skipped) == (PAST_COUNT + FAR_COUNT,) * 2 + (0,)
        check_all_is_there_once(spark, topic, name_server)
    with orbitmq.sync.connect(name_server) as client:
        message = client.timers.get(topic=topic, key="far-7")
    assert message is not None
    assert (message.body, message.user_properties) == (b"far-7", {"of": "far-7"})


def test_a_worker_that_is_killed_fails_the_job_and_the_next_run_stores_every_row_once(
    spark: SparkSession,
    rows: DataFrame,
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
    run_schedule(rows.mapInArrow(kill_once, rows.schema))
    check_all_is_there_once(spark, topic, name_server)


BROKEN = [
    ("2040-05-01T12:00:00Z", "fine"),
    ("tomorrow", "no time"),
    (None, "null time"),
    ("1700000000", "seconds"),
    ("2041-05-01", None),
    ("2240000000000", "fine"),
]


def test_a_broken_row_ends_the_job_and_is_named(spark: SparkSession, run_schedule: Callable[..., Summary]) -> None:
    frame = spark.createDataFrame(BROKEN[:2], "due string, body string").coalesce(1)
    with pytest.raises(MessageIllegalError, match=r"has 'tomorrow' in column due, which is no time"):
        run_schedule(frame, due_column="due")


def test_broken_rows_go_to_the_quarantine_file_and_are_counted(
    spark: SparkSession, run_schedule: Callable[..., Summary], topic: str, name_server: str, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(BROKEN, "due string, body string").coalesce(1)
    put_aside = tmp_path / "aside" / "rows.jsonl"
    settings: dict[str, Any] = {"due_column": "due", "on_error": "quarantine", "quarantine": str(put_aside)}
    # A later run looks at near rows only: seconds since 1970 are such.
    for expected in ((6, 2, 4, 0), (3, 2, 1, 0)):
        summary = run_schedule(frame, near_partitions=1, **settings)
        counts = summary.rows_read, summary.rows_written, summary.rows_quarantined, summary.rows_skipped
        assert counts == expected
        lines = [json.loads(line) for line in put_aside.read_text().splitlines()]
        assert sorted(line["reason"].partition(" (")[0].split(" part 0 ")[1] for line in lines) == [
            "has 'tomorrow' in column due, which is no time",
            "has no body",
            "has no due time: its column due is null",
            "has the due time 1700000000 in column due, which is 1970-01-20T16:13:20.000Z",
        ]
    with orbitmq.sync.connect(name_server) as client:
        assert client.timers.counts(topic=topic).pending == 2


def test_rows_are_sent_where_files_cannot_be_loaded_in_every_run_of_the_job(
    spark: SparkSession, rows: DataFrame, run_schedule: Callable[..., Summary], topic: str, name_server: str
) -> None:
    for bulk, reason in ((False, "the setting bulk is false"), (True, "an earlier run of the job found")):
        summary = run_schedule(rows, bulk=bulk)
        assert summary.details["loaded"] == 0
        assert summary.details["sent"] == summary.rows_written == PAST_COUNT + FAR_COUNT
        assert reason in str(summary.details["sent_because"])
        check_all_is_there_once(spark, topic, name_server)


def test_far_rows_are_loaded_and_can_be_recalled_by_key(
    rows: DataFrame, run_schedule: Callable[..., Summary], topic: str, name_server: str
) -> None:
    summary = run_schedule(rows, file_bytes=1 << 16)
    assert (summary.details["loaded"], summary.details["sent"]) == (FAR_COUNT, PAST_COUNT)
    assert int(summary.details["files"]) > 1
    with orbitmq.sync.connect(name_server) as client:
        assert client.timers.recall(topic=topic, key="far-9").changed_count == 1
        assert client.timers.counts(topic=topic).pending == FAR_COUNT - 1
    run_schedule(rows)
    with orbitmq.sync.connect(name_server) as client:
        assert client.timers.counts(topic=topic).pending == FAR_COUNT - 1


def test_a_topic_that_is_not_there_ends_the_job(
    spark: SparkSession, run_schedule: Callable[..., Summary], now_ms: int, serve: Callable[..., ServedProcess]
) -> None:
    strict = serve("strict", settings={"autoCreateTopicEnable": False})
    columns = f"{now_ms} + {9 * DAY_MS} as deliverTimestamp", "'b' as body", "'no-such' as topic"
    with pytest.raises(RouteNotFoundError, match="no-such"):
        run_schedule(spark.range(3).selectExpr(*columns), topic=None, name_server=f"127.0.0.1:{strict.name_port}")


def test_a_stop_request_before_the_job_sends_nothing_and_says_so(
    rows: DataFrame, run_schedule: Callable[..., Summary], topic: str, name_server: str
) -> None:
    run = Run()
    run.stop.request()
    summary = run_schedule(rows, run=run)
    assert (summary.stopped, summary.rows_written) == (True, 0)
    assert waiting(topic, name_server) == []


def test_rows_are_read_from_files(
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
    spark: SparkSession,
    rows: DataFrame,
    run_schedule: Callable[..., Summary],
    topic: str,
    name_server: str,
    tmp_path: Path,
) -> None:
    """By JDBC, from the database whose driver comes with PySpark; the table has names and types as databases have them."""
    database = {"url": f"jdbc:derby:{tmp_path}/database;create=true", "dbtable": "orders"}
    rows.selectExpr("deliverTimestamp as DUE", "keys as ORDER_ID", "upper(keys) as NOTE").write.format("jdbc").options(
        **database
    ).save()
    summary = run_schedule(
        None,
        format="jdbc",
        option=database,
        due_column="due",
        column={"keys": "order_id", "body": "note"},
        row_key="order_id",
    )
    assert summary.rows_written == PAST_COUNT + FAR_COUNT
    check_all_is_there_once(spark, topic, name_server)
    due = rows.where("keys = 'far-7'").first()["deliverTimestamp"]
    with orbitmq.sync.connect(name_server) as client:
        message = client.timers.get(topic=topic, key="far-7")
    assert message is not None
    assert (message.body, message.timer.deliver_ms) == (b"FAR-7", round(due.timestamp() * 1000))


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
