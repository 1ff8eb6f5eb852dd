"""A stream that was killed again and again has the rows that a batch has, each once and with the same content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from killed_reads import TOPICS, KilledReads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KILLS = 3
"""One at each moment that makes a restart do something else."""


@pytest.mark.timeout(3_000)
def test_a_stream_that_was_killed_equals_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    run = KilledReads(tmp_path, 1)
    try:
        assert run.kill_often(KILLS) == KILLS, run.log()[-3000:]
        run.finish()
        stream = spark.read.parquet(str(tmp_path / "rows"))
        batch = spark.read.format("orbitmq").option("nameServer", run.name_server).option("subscribe", ",".join(TOPICS))
        stored = comparable(batch.load()).localCheckpoint()
    finally:
        run.close()
    found = comparable(stream).localCheckpoint()
    assert stored.count() == 2 * 400 * KILLS
    assert (stored.exceptAll(found).count(), found.exceptAll(stored).count()) == (0, 0)
    # A client sends to the queues in an order of its own: some may be empty.
    taken = found.where("queueOffset = 7").count()
    lacking = found.where("queueOffset <> 7")
    assert stored.exceptAll(lacking).count() == taken > 0, "the comparison finds rows that are missing"


def comparable(rows: DataFrame) -> DataFrame:
    """Every column, the properties in an order: maps cannot be compared."""
    return rows.selectExpr("* EXCEPT (properties)", "array_sort(map_entries(properties)) AS properties")
