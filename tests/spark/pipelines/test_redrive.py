"""Dead letters through Spark and by the command in turn: the same letters, the same place, nothing twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from stored_messages import bodies, stored

import orbitmq
from orbitmq.client.redrive import ORIGIN_PROPERTY, DeadLetters
from orbitmq.errors import ConfigurationError, NotFoundError, StoreError
from orbitmq.limits import spark as limits
from orbitmq.spark.pipelines import archive, dead_letters
from orbitmq.spark.pipelines.redriving import letter_sources
from orbitmq.spark.pipelines.redriving import redrive as pipeline
from orbitmq.spark.pipelines.redriving.redrive import redrive
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 40


async def fail_all(name_server: str, group: str, topic: str) -> None:
    """A member that fails on every message, which its group may not retry: all become dead letters."""
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=0)
    failed = 0

    async def fail(message: orbitmq.ReceivedMessage) -> None:
        nonlocal failed
        failed += 1
        if failed == COUNT:
            consumer.stop()
        raise ValueError("this consumer always fails")

    async with orbitmq.connect(name_server) as mq, mq.consumer(group, topic, options=options) as consumer:
        await consumer.run(fail, concurrency=4)


@pytest.fixture
def group(name_server: str, topic: str) -> str:
    """A group that failed on every message of `topic`; half of them in the order of three keys."""
    name = f"{topic}-payers"
    with connect(name_server) as client, client.producer("senders") as producer:
        for number in range(COUNT):
            producer.send(
                topic, f"bill {number}".encode(), tag="odd" if number % 2 else "even", properties={"number": str(number)},
                ordering_key=f"customer-{number % 3}" if number % 2 else None,
            )  # fmt: skip
    asyncio.run(fail_all(name_server, name, topic))
    end = time.monotonic() + 120
    while _count(name_server, f"%DLQ%{name}") < COUNT:
        assert time.monotonic() < end, "not all of them became dead letters"
        time.sleep(0.2)
    return name


def _count(name_server: str, topic: str) -> int:
    with connect(name_server) as client:
        if topic not in client.admin.topics():
            return 0
    return len(stored(name_server, topic))


def redriven(name_server: str, topic: str) -> Counter[bytes]:
    return Counter(
        bytes(message.body) for message in stored(name_server, topic) if ORIGIN_PROPERTY in message.properties
    )


def bills(odd: bool | None = None) -> Counter[bytes]:
    return Counter(f"bill {number}".encode() for number in range(COUNT) if odd is None or number % 2 == odd)


@pytest.mark.timeout(900)
def test_letters_are_counted_and_chosen_in_an_archive(
    spark: SparkSession, name_server: str, topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, more = tmp_path / "archive", {"group": group, "name_server": name_server}
    archive(spark, to=str(place), name_server=name_server, topic=[f"%DLQ%{group}"])
    counted = dead_letters(
        spark, archive=str(place), reason="number", per_ms=365 * 86_400_000, to=str(tmp_path / "counts")
    )
    assert (counted.rows_read, counted.details["counts"]) == (COUNT, COUNT)
    lines = [json.loads(line) for line in (tmp_path / "counts" / "dead-letters.jsonl").read_text().splitlines()]
    assert {(line["group"], line["topic"]) for line in lines} == {(group, topic)}
    assert {line["reason"] for line in lines} == {str(number) for number in range(COUNT)}

    began_ms = int(time.time() * 1000)
    chosen = {"archive": str(place), "where": "tags = 'odd'", "checkpoint": str(tmp_path / "odd"), **more}
    chosen["since_ms"] = began_ms - 3_600_000
    monkeypatch.setattr(letter_sources, "replace_content", _killed)
    with pytest.raises(StoreError, match="killed"):
        redrive(spark, **chosen)
    monkeypatch.undo()
    assert redrive(spark, **chosen).rows_written == COUNT // 2, "again, and the brokers recognise them"
    assert redrive(spark, **{**chosen, "since_ms": began_ms - 3_000_000}).rows_read == 0, "the place is kept"
    with pytest.raises(ConfigurationError, match=r"of letters since .*: older ones were passed over"):
        redrive(spark, **{**chosen, "since_ms": None})
    assert redriven(name_server, topic) == bills(odd=True)
    for where in ("tags = 'even'", "(" * 3_000 + "true" + ")" * 3_000, "exists (select"):
        with pytest.raises(ConfigurationError, match=r"another choice of letters|cannot be asked of dead letters"):
            redrive(spark, **{**chosen, "where": where})
    of_a_log = DeltaTable(place).to_pyarrow_table()  # which has no name
    at = of_a_log.schema.get_field_index("brokerName")
    of_a_log = of_a_log.set_column(at, "brokerName", pa.nulls(len(of_a_log), pa.string()))
    at = of_a_log.schema.get_field_index("storeHost")  # which the archive got later than the even ones
    hosts = pc.if_else(pc.equal(of_a_log["tags"], "odd"), of_a_log["storeHost"], None)
    of_a_log = of_a_log.set_column(at, "storeHost", hosts)
    write_deltalake(tmp_path / "other", of_a_log, partition_by=["day"])
    chosen["archive"] = str(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="of the archive with the id"):
        redrive(spark, **chosen)
    dry = redrive(spark, **{**chosen, "checkpoint": str(tmp_path / "dry"), "dry_run": True})
    assert dry.details[f"would go to {topic}"] == COUNT // 2
    with pytest.raises(ConfigurationError, match=f"^{COUNT // 2} dead letters of archive .* lack one of "):
        redrive(spark, **{**chosen, "checkpoint": str(tmp_path / "dry"), "where": None})
    assert redrive(spark, **more).rows_written == COUNT, (
        "from the topic: all have the names that they have in the archive"
    )
    assert redriven(name_server, topic) == bills()


def _killed(*given: object) -> None:
    raise StoreError("killed")


def test_command_and_pipeline_in_turn(
    spark: SparkSession, name_server: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "REDRIVE_SLICE_LETTERS", 15)
    given: dict[str, Any] = {"group": group, "name_server": name_server}

    dry = redrive(spark, **given, tag=["odd"], dry_run=True)
    assert (dry.rows_read, dry.rows_written, dry.details[f"would go to {topic}"]) == (COUNT, 0, COUNT // 2)
    assert not redriven(name_server, topic)

    odd = redrive(spark, **given, tag=["odd"])
    assert (odd.rows_written, odd.rows_skipped, odd.details[f"went to {topic}"]) == (20, 20, 20)
    assert redriven(name_server, topic) == bills(odd=True)
    message = next(one for one in stored(name_server, topic) if ORIGIN_PROPERTY in one.properties)
    assert message.tag == "odd"
    assert message.reconsume_times == 0
    assert message.properties["number"] == bytes(message.body).split()[1].decode()

    with connect(name_server) as client:
        assert client.admin.redrive(group, DeadLetters(tags=frozenset(["odd"]))).looked_at == 0  # it goes on behind
        first = client.admin.redrive(group, max_count=12)  # another filter, which begins at the oldest letter
        assert (first.redriven, first.complete) == (12, False)
    rest = redrive(spark, **given)
    assert rest.rows_read == COUNT - first.looked_at
    assert redriven(name_server, topic) == bills()  # the odd ones the broker knew already
    assert redrive(spark, **given).rows_read == 0


def test_a_run_that_was_killed_is_gone_on_with_by_the_command(
    spark: SparkSession, name_server: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had sent a slice and not noted it. What is left is sent by the pipeline, one by one and no more than asked for."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "REDRIVE_SLICE_LETTERS", 15)
        patch.setattr(letter_sources.TopicLetters, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            redrive(spark, group=group, name_server=name_server)
    assert redriven(name_server, topic).total() == 15
    with connect(name_server) as client:
        assert client.admin.redrive(group, max_count=20).redriven == 20  # 15 of them are known
    assert redriven(name_server, topic).total() == 20
    began = time.monotonic()
    assert redrive(spark, group=group, name_server=name_server, count=5, rate=5).rows_written == 5
    assert time.monotonic() - began >= 1
    assert redriven(name_server, topic).total() == 25
    assert redrive(spark, group=group, name_server=name_server, again=True, to=topic, count=3).rows_written == 3
    assert redriven(name_server, topic).total() == 28


def test_letters_that_cannot_be_sent_are_counted_and_stay(
    spark: SparkSession, name_server: str, topic: str, group: str
) -> None:
    with connect(name_server) as client, client.producer("strangers") as producer:
        producer.send(f"%DLQ%{group}", b"from nowhere")
    there = bodies(name_server, f"%DLQ%{group}")
    summary = redrive(spark, group=group, name_server=name_server)
    assert (summary.rows_written, summary.rows_skipped, summary.failed) == (COUNT, 1, True)
    assert summary.details["refused"] == 1
    [why] = [text for name, text in summary.details.items() if name.startswith("not sent broker-a/")]
    assert "does not say which topic it came from" in str(why)
    assert redriven(name_server, topic) == bills()
    assert bodies(name_server, f"%DLQ%{group}") == there
    by_key: dict[str, list[int]] = {}
    for message in stored(name_server, topic):
        if ORIGIN_PROPERTY in message.properties and message.ordering_key is not None:
            by_key.setdefault(message.ordering_key, []).append(int(message.properties["number"]))
    dead: dict[str, list[int]] = {}
    for message in stored(name_server, f"%DLQ%{group}"):
        if message.ordering_key is not None:
            dead.setdefault(message.ordering_key, []).append(int(message.properties["number"]))
    assert by_key == dead

    before = bodies(name_server, topic)
    assert redrive(spark, group=group, name_server=name_server, only_group=True).rows_written == COUNT
    assert bodies(name_server, topic) == before


def test_mistakes_are_named(spark: SparkSession, name_server: str) -> None:
    with pytest.raises(NotFoundError, match="group 'nobody' has no dead letters"):
        redrive(spark, group="nobody", name_server=name_server)
    with pytest.raises(ConfigurationError, match="only_group and to_topic name two places"):
        redrive(spark, group="nobody", name_server=name_server, to="orders", only_group=True)
    with pytest.raises(ConfigurationError, match="which cluster is meant"):
        redrive(spark, group="nobody")
    with pytest.raises(ConfigurationError, match=f"rate is 0; it has to be {limits.SPARK_TASK_ROWS_PER_SECOND_MIN} to"):
        redrive(spark, group="nobody", name_server=name_server, rate=0)
