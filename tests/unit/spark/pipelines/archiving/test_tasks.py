"""Archives against a broker that sends a broken message, or has lost some."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reading"))

from scripted_broker import QUEUE, ScriptedBroker, record

from orbitmq.columns.message_columns import COLUMN_TYPES, PropertiesForm
from orbitmq.columns.schema import arrow_schema
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.frame import Command
from orbitmq.spark.options import read_options
from orbitmq.spark.pipelines.archiving.archive import archive
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, commit
from orbitmq.spark.pipelines.archiving.landing import FileForm
from orbitmq.spark.pipelines.archiving.reached import queue_application
from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun
from orbitmq.spark.pipelines.archiving.tasks import QueueWork, archive_work
from orbitmq.spark.quarantine import Quarantine
from orbitmq.spark.reading.fetching import Fetch
from orbitmq.spark.reading.offsets import Extent
from orbitmq.spark.reading.plan import QueueRange

from .one_process import OneProcess

NAMES = ("topic", "body", "queueOffset", "storeTimestamp")


def fetching(broker: ScriptedBroker, *, fail: bool) -> Fetch:
    given = {"nameserver": broker.address, "topic": QUEUE.topic, "retrytimeoutms": "2000", "failondataloss": str(fail)}
    return Fetch(options=read_options(given, streaming=False), names=NAMES, properties=PropertiesForm.NONE)


def test_a_broken_message_goes_to_the_quarantine_with_its_offset(tmp_path: Path) -> None:
    broken = bytearray(record(3))
    broken[4] ^= 0xFF

    def answer(broker: ScriptedBroker, command: Command) -> Command:
        records = [record(0), record(1), record(2), bytes(broken), record(4)]
        return broker.answer(command, 0, 5, b"".join(records))

    with ScriptedBroker(5, told={0: answer}) as broker:
        work = QueueWork(fetch=fetching(broker, fail=True), ranges=(QueueRange(QUEUE, 0, 5),))
        form = FileForm(columns=("topic", "body", "queueOffset"), compression="zstd", rows_per_file=100)
        done = archive_work(str(tmp_path), form, work)
    assert (done.rows, done.quarantined, done.missing) == (4, 1, 0)
    rows, damage = done.files
    assert rows.path.startswith("day=2023-11-14/")
    assert pq.read_table(tmp_path / rows.path).to_pydict()["queueOffset"] == [0, 1, 2, 4]
    assert (damage.path.split("/")[0], damage.rows, damage.stats) == ("_quarantine", 1, None)
    line = json.loads((tmp_path / damage.path).read_text())
    assert (line["topic"], line["brokerName"], line["queueId"], line["queueOffset"]) == ("orders", "broker-a", 0, 3)
    assert line["reason"]


def test_a_line_of_the_quarantine_that_is_dropped_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quarantine, "add", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_broken_message_goes_to_the_quarantine_with_its_offset(tmp_path)


def test_what_was_removed_meanwhile_is_counted(tmp_path: Path) -> None:
    with ScriptedBroker(10, low=4) as broker:
        work = QueueWork(fetch=fetching(broker, fail=False), ranges=(QueueRange(QUEUE, 0, 10),))
        form = FileForm(columns=("topic", "queueOffset"), compression="zstd", rows_per_file=100)
        done = archive_work(str(tmp_path), form, work)
    assert (done.rows, done.missing) == (6, 4)
    assert [json.loads(file.stats or "")["minValues"]["queueOffset"] for file in done.files] == [4]


def test_what_an_empty_queue_has_lost_is_counted_by_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no piece of work for it, so no batch that would note the place behind the loss. No Spark is needed then."""
    columns = arrow_schema(COLUMN_TYPES, PropertiesForm.MAP)
    table, snapshot = begun(str(tmp_path), ArchiveForm(source=SourceKind.TOPICS), columns)
    queue = queue_application(QUEUE)
    commit(table, snapshot, ArchiveBatch(token="before", files=(), begins={queue: None}, ends={queue: 4}, columns={}))
    spark: Any = None
    module = "orbitmq.spark.pipelines.archiving.topics"
    monkeypatch.setattr(f"{module}.topics_of", lambda *_: ["orders"])
    monkeypatch.setattr(f"{module}.extents_of", lambda *_: {QUEUE: Extent(10, 10)})
    summaries = [
        archive(spark, to=str(tmp_path), name_server="127.0.0.1:9", topic=["orders"], fail_on_data_loss=False)
        for _ in range(2)
    ]
    assert [summary.rows_skipped for summary in summaries] == [6, 0]


def test_where_since_had_a_queue_begin_the_next_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run dies in its first batch; the second one is not told since when, and might be told another time."""
    session: Any = OneProcess()
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.topics.extents_of", lambda *_: {QUEUE: Extent(0, 10)})
    with ScriptedBroker(10) as broker:
        given = {"to": str(tmp_path / "archive"), "name_server": broker.address, "topic": ["orders"]}
        with monkeypatch.context() as patch:
            patch.setattr("orbitmq.spark.pipelines.archiving.topics.resolve", lambda *_, **__: {QUEUE: 6})
            patch.setattr("orbitmq.spark.pipelines.archiving.tasks.said_by", failing)
            with pytest.raises(RuntimeError, match="died"):
                archive(session, **given, since_ms=1_700_000_000_000)
        assert archive(session, **given).rows_written == 4
    assert sorted(DeltaTable(given["to"]).to_pyarrow_table()["queueOffset"].to_pylist()) == [6, 7, 8, 9]


def failing(*_: object) -> None:
    raise RuntimeError("died")


def test_a_pattern_that_is_none_is_refused_before_anything_begins(tmp_path: Path) -> None:
    spark: Any = None
    with pytest.raises(ConfigurationError, match=r"option subscribePattern: '\(' is no regular expression"):
        archive(spark, to=str(tmp_path / "archive"), store=[str(tmp_path)], topic_pattern="(")
    assert not (tmp_path / "archive").exists()
