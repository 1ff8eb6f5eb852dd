"""Changes of a Delta table to a topic: each once, wherever a run is broken off, and a second run adds only what is new."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from stored_messages import stored

from orbitmq.errors import ConfigurationError, StoreError
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


def _broken_at(monkeypatch: pytest.MonkeyPatch, step: Any, *, after: bool) -> None:
    def broken(*given: Any) -> Any:
        if after:
            step(*given)
        raise StoreError("killed")

    monkeypatch.setattr(publish, step.__name__, broken)
