"""A session of `orbitmq.spark.session` on real Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import orbitmq.spark
from orbitmq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_second_call_gives_the_session_that_runs(spark: SparkSession) -> None:
    assert orbitmq.spark.session() is spark
    assert orbitmq.spark.session("local[2]") is spark


def test_it_listens_on_this_machine_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    def of_worker(batches):  # type: ignore[no-untyped-def]
        import sys

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    assert {row.python for row in spark.range(3).mapInArrow(of_worker, "python string").collect()} == {sys.executable}


def test_settings_of_a_running_session_are_changed_where_they_can_be(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before == "2"
    try:
        orbitmq.spark.session(**{"spark.sql.shuffle.partitions": 5})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize("wanted", [{"spark.driver.memory": "3g"}, {"master": "local[7]"}])
def test_what_comes_too_late_is_an_error(spark: SparkSession, wanted: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot change spark\.(driver\.memory=3g|master=local\[7\])"):
        orbitmq.spark.session(**wanted)


def test_a_checkpoint_on_this_machine_starts_no_processes(spark: SparkSession) -> None:
    name = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert spark._jvm.Class.forName(name).getSimpleName() == "FileSystemBasedCheckpointFileManager"
