"""Changes of a Delta table to a topic: each once, wherever a run is broken off, and a second run adds only what is new."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from stored_messages import stored

from orbitmq.errors import ConfigurationError, OrbitError, StoreError
from orbitmq.spark.pipelines.publishing import publish
from orbitmq.spark.pipelines.publishing.plan import FEED_PROPERTY
from orbitmq.spark.pipelines.publishing.publish import changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def seen(name_server: str, topic: str) -> Counter[tuple[str, int, str]]:
    return Counter(
        (message.properties["changeType"], json.loads(message.body)["id"], json.loads(message.body)["name"])
        for message in stored(name_server, topic)
    )


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_between_any_two_steps_adds_nothing_twice(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def run() -> int:
        done = changes(
            spark, table=str(place), to=topic, name_server=name_server, checkpoint=str(checkpoint), key_column="name"
        )
        return done.rows_written

    write_deltalake(place, rows(1, 2, 2), configuration={FEED_PROPERTY: "true"})
    write_deltalake(place, rows(3), mode="append")
    DeltaTable(place).update({"name": "'x'"}, predicate="id = 1")
    steps = [publish._write, publish.replace_content]
    for version in range(3):
        for step in steps:
            for after in (False, True):
                _broken_at(monkeypatch, step, after=after)
                with pytest.raises(StoreError, match="killed"):
                    run()
                monkeypatch.undo()
                if step is steps[1] and after:
                    break  # the version is noted: the next one's turn
        assert json.loads((checkpoint / "changes.json").read_text())["next"] == version + 1
    assert run() == 0
    wanted = Counter(
        {("insert", 1, "n1"): 1, ("insert", 2, "n2"): 2, ("insert", 3, "n3"): 1, ("update_postimage", 1, "x"): 1}
    )
    assert seen(name_server, topic) == wanted

    DeltaTable(place).delete("id = 3")
    assert run() == 1
    assert seen(name_server, topic) == wanted + Counter({("delete", 3, "n3"): 1})
    assert {key for message in stored(name_server, topic) for key in message.keys} == {"n1", "n2", "n3", "x"}

    DeltaTable(place).alter.set_table_properties({FEED_PROPERTY: "false"})
    DeltaTable(place).delete("id = 2")
    with pytest.raises(ConfigurationError, match="kept no changes"):
        run()
    assert seen(name_server, topic) == wanted + Counter({("delete", 3, "n3"): 1})


def test_rows_are_what_the_table_has_wherever_and_however_it_is_called(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strange names of place, partitions and columns, and times to the microsecond. The session of the second try is in another zone."""
    place = tmp_path / "Größe #1 {a} 100%"
    texts = ["a/b 100%", "Österreich", None]
    table = pa.table(
        {
            "_json": ["x", "y", "z"], "a`b": [1, 2, 3], "_change_type": ["mine"] * 3, "part": texts,
            "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    write_deltalake(place, table, partition_by=["part"])
    wanted = [{**row, "at": f"1970-01-01T00:00:00.00000{row['a`b']}Z"} for row in table.to_pylist()]

    def run() -> int:
        return changes(
            spark, table=str(place), to=topic, name_server=name_server, checkpoint=str(tmp_path / "checkpoint"), key_column="a`b"
        ).rows_written  # fmt: skip

    _broken_at(monkeypatch, publish.replace_content, after=False)
    with pytest.raises(StoreError, match="killed"):
        run()
    monkeypatch.undo()
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert run() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = sorted((message.keys, json.loads(message.body)) for message in stored(name_server, topic))
    assert found == [((str(row["a`b"]),), row) for row in wanted]


def test_what_cannot_be_read_any_more_is_told_with_where_it_goes_on(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path
) -> None:
    place, given = tmp_path / "table", {"to": topic, "name_server": name_server}
    for number in range(3):
        write_deltalake(place, rows(number), mode="append")
    DeltaTable(place).optimize.compact()
    DeltaTable(place).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(ConfigurationError, match=r"version 0 .* is gone, as after a vacuum .* since-version = 1"):
        changes(spark, table=str(place), checkpoint=str(tmp_path / "a"), **given)
    DeltaTable(place).create_checkpoint()
    (place / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(ConfigurationError, match=r"version 2 of the table .* is not in its log any more"):
        changes(spark, table=str(place), checkpoint=str(tmp_path / "b"), since_version=2, **given)
    last = DeltaTable(place).version()
    with pytest.raises(ConfigurationError, match=rf"has versions up to {last} \(give one up to {last + 1}"):
        changes(spark, table=str(place), checkpoint=str(tmp_path / "c"), since_version=last + 2, **given)
    for number in range(1, last):
        (place / "_delta_log" / f"{number:020d}.json").unlink()
    write_deltalake(place, rows(9), mode="append")
    assert (
        changes(spark, table=str(place), checkpoint=str(tmp_path / "d"), since_version=last, **given).rows_written == 1
    )


def test_a_table_with_another_history_is_refused_however_many_versions_it_has(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path
) -> None:
    place, backup = tmp_path / "table", tmp_path / "backup"

    def run() -> int:
        checkpoint = str(tmp_path / "checkpoint")
        return changes(spark, table=str(place), to=topic, name_server=name_server, checkpoint=checkpoint).rows_written

    write_deltalake(place, rows(1))
    shutil.copytree(place, backup)
    write_deltalake(place, rows(2), mode="append")
    assert run() == 2
    state = tmp_path / "checkpoint" / "changes.json"
    kept = state.read_text()
    state.write_text(json.dumps({name: value for name, value in json.loads(kept).items() if name != "last"}))
    assert run() == 0, "a checkpoint of a release that kept no digest"
    state.write_text(kept)

    shutil.rmtree(place)
    shutil.copytree(backup, place)
    for number in (3, 4):
        write_deltalake(place, rows(number), mode="append")
        with pytest.raises(ConfigurationError, match=r"version 1 of the table .* is not the one that was written"):
            run()
    shutil.rmtree(place)
    for number in (5, 6, 7):
        write_deltalake(place, rows(number), mode="append")
    with pytest.raises(ConfigurationError, match="is of the table with the id"):
        run()
    assert seen(name_server, topic) == Counter({("insert", 1, "n1"): 1, ("insert", 2, "n2"): 1})


def _broken_at(monkeypatch: pytest.MonkeyPatch, step: Any, *, after: bool) -> None:
    def broken(*given: Any) -> Any:
        if after:
            step(*given)
        raise StoreError("killed")

    monkeypatch.setattr(publish, step.__name__, broken)


def test_a_row_that_no_broker_takes_is_put_aside_and_holds_up_no_other(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path
) -> None:
    place, aside = tmp_path / "table", tmp_path / "aside"
    given = {"table": str(place), "to": topic, "name_server": name_server, "body_column": "name"}
    write_deltalake(place, rows(1))
    named = pa.table({"id": [2, 3, 4, 5], "name": ["n2", "x" * (4 << 20) + "y", None, "n5"]})
    write_deltalake(place, named, mode="append")
    write_deltalake(place, rows(6), mode="append")

    with pytest.raises(OrbitError):
        changes(spark, checkpoint=str(tmp_path / "first"), **given)
    assert sorted(message.body for message in stored(name_server, topic)) == [b"n1"]

    done = changes(spark, checkpoint=str(tmp_path / "first"), quarantine=str(aside), **given)
    assert (done.rows_read, done.rows_written, done.rows_quarantined) == (5, 3, 2)
    assert sorted(message.body for message in stored(name_server, topic)) == [b"n1", b"n2", b"n5", b"n6"]
    [file] = aside.iterdir()
    assert file.name == f"{1:020d}.json"
    reasons = sorted(json.loads(line)["reason"] for line in file.read_text().splitlines())
    assert "has no body (null)" in reasons[0]
    assert "has a body of 4194305 bytes" in reasons[1]
