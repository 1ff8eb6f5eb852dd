"""Pipelines as processes: the command with a file of steps, spark-submit, and runs that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "spark" / "log_files"))

from archive_readers import places
from process_family import descendants, end_process, python_workers
from test_archive import consumed, fill, little_log, wanted_of

from orbitmq.spark.java import find_java
from orbitmq.spark.pipelines import archive, pipeline_file, run_file, submit
from orbitmq.spark.pipelines.archiving import logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORBITMQ = [sys.executable, "-m", "orbitmq.cli.main"]
LIMIT_S = 280
"""For one process that starts a Java; nothing of it is measured."""


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ORBITMQ, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def steps(tmp_path: Path, name_server: str, topic: str) -> Path:
    path = tmp_path / "nightly.toml"
    path.write_text(
        f"""
[spark]
master = "local[2]"
sql.shuffle.partitions = 2

[defaults]
name-server = "{name_server}"

[[step]]
pipeline = "archive"
to = "{tmp_path}/archive"
topic = "{topic}"

[[step]]
pipeline = "archive"
to = "{tmp_path}/logs"
store = "{tmp_path}/store"
"""
    )
    little_log(tmp_path / "store", 40).write()
    return path


def test_a_file_with_two_steps_as_a_command(name_server: str, topic: str, tmp_path: Path) -> None:
    fill(name_server, topic, 0, 60)
    done = ran("pipeline", "run", steps(tmp_path, name_server, topic))
    assert done.returncode == 0, done.stderr[-3000:]
    summaries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(summary["pipeline"], summary["rows_written"]) for summary in summaries] == [
        ("archive", 60),
        ("archive", 40),
    ]
    progress = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"stage"')]
    assert (progress[-1]["rows"], progress[-1]["done"]) == (40, True)
    assert places(tmp_path / "archive") == consumed(name_server, topic)
    assert sum(places(tmp_path / "logs").values()) == 40


def test_a_file_in_a_session_that_runs(spark: SparkSession, name_server: str, topic: str, tmp_path: Path) -> None:
    fill(name_server, topic, 0, 20)
    summaries = run_file(spark, steps(tmp_path, name_server, topic))
    assert [summary.rows_written for summary in summaries] == [20, 40]
    assert pipeline_file.read_file(tmp_path / "nightly.toml").master == "local[2]"


def test_mistakes_are_found_without_spark(tmp_path: Path) -> None:
    done = ran("pipeline", "archive", "--to", tmp_path / "archive", "--store", tmp_path, "--every", "often")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == "error: --every 'often' is no span of time such as 500ms, 30s, 10m, 2h or 7d"


def test_what_a_task_says_is_what_the_command_says(tmp_path: Path) -> None:
    """Also where the command starts Spark without a session."""
    log = little_log(tmp_path / "store", 30)
    log.write()
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "day=2023-11-14").write_text("no directory")
    done = ran("pipeline", "archive", "--to", tmp_path / "archive", "--store", log.root, "--master", "local[1]")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: a batch of the archive {tmp_path / 'archive'} failed: ")
    assert "day=2023-11-14" in line
    assert "look whether the storage can be reached" in line


def test_spark_submit(tmp_path: Path) -> None:
    import pyspark

    log = little_log(tmp_path / "store", 80)
    log.write()
    script = ran("pipeline", "submit-script").stdout.strip()
    assert script == submit.__file__
    java = find_java(os.environ)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if java is not None:
        environment["JAVA_HOME"] = str(java)
    words = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    done = subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / "spark-submit", *words, script, "archive", "--to", tmp_path / "archive",
         "--store", f"broker-a={log.root}"],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    [summary] = [line for line in said if "pipeline" in line]  # spark-submit brings progress and results on one stream
    assert summary["rows_written"] == 80
    assert places(tmp_path / "archive") == wanted_of(log, 80)


def test_over_connect(connect_server: str, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 30)
    log.write()
    done = ran("pipeline", "archive", "--to", tmp_path / "archive", "--store", log.root, "--remote", connect_server)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["rows_written"] == 30
    assert places(tmp_path / "archive") == wanted_of(log, 30)


SLOW = """
import sys, time
from pathlib import Path
from orbitmq.spark import session
from orbitmq.spark.pipelines import archive
from orbitmq.spark.pipelines.archiving import logs, tasks

class Slow(tasks.ArchiveTasks):
    def __call__(self, batches):
        for batch in super().__call__(batches):
            time.sleep(0.2)
            yield batch

logs.ARCHIVE_RANGE_BYTES = 4_000
tasks.ArchiveTasks = Slow
spark = session("local[2]")
summary = archive(spark, to=sys.argv[1], store=[sys.argv[2]], tasks_per_batch=2)
print("archived", summary.rows_written, flush=True)
"""


def kill_driver(driver: subprocess.Popen[str]) -> None:
    below = descendants(driver.pid)
    driver.kill()
    for pid in below:
        end_process(pid)


def kill_worker(driver: subprocess.Popen[str]) -> None:
    """Until one of them had a task, which ends the run: a local master tries none again."""
    while driver.poll() is None:
        for pid in python_workers(driver.pid)[0]:
            end_process(pid)
        time.sleep(0.02)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kill", [kill_driver, kill_worker])
def test_killed_in_the_middle_and_run_again(
    spark: SparkSession,
    tmp_path: Path,
    kill: Callable[[subprocess.Popen[str]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After any kill what readers see is committed, and after one more run everything is there once."""
    log = little_log(tmp_path / "store", 400)
    log.write()
    place = tmp_path / "archive"
    command = [sys.executable, "-c", SLOW, str(place), str(log.root)]
    with (tmp_path / "log").open("w") as errors:
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path)
        try:
            while driver.poll() is None and not (place / "_delta_log" / f"{2:020d}.json").exists():
                time.sleep(0.02)
            kill(driver)
            driver.wait(LIMIT_S)
        finally:
            kill_driver(driver)
            driver.communicate()
    seen = places(place)
    assert 0 < sum(seen.values()) < 400, (tmp_path / "log").read_text()[-3000:]
    assert seen <= wanted_of(log, 400)
    monkeypatch.setattr(logs, "ARCHIVE_RANGE_BYTES", 4_000)
    archive(spark, to=str(place), store=[str(log.root)], tasks_per_batch=2)
    assert places(place) == wanted_of(log, 400)
