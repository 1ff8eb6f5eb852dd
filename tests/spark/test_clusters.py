"""A cluster whose workers run another Python than the driver does: source, sink and pipelines, and workers that cannot.

One driver tries everything, in a process of its own, because a process has one session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster_session import ROWS

import orbitmq
from orbitmq.release import VERSION
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 280
LETTERS = 5

pytestmark = pytest.mark.timeout(LIMIT_S + 20)


def python_at(folder: Path, start: str = "") -> str:
    """A Python at another path that finds what this one finds. start: a line that it runs first."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    origin = find_spec("orbitmq").origin  # type: ignore[union-attr]
    places = [str(Path(origin).parents[1]), *(place for place in sys.path if place.endswith("site-packages"))]  # type: ignore[arg-type]
    (site / "everything.pth").write_text("\n".join([*places, start]) + "\n")
    return str(folder / "bin" / "python")


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, in a folder where its workers may write."""
    folder.mkdir()
    for entry in Path(find_spec("pyspark").origin).parent.iterdir():  # type: ignore[union-attr, arg-type]
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


async def fail_all(name_server: str, group: str, topic: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=0)
    failed = 0

    async def fail(message: orbitmq.ReceivedMessage) -> None:
        nonlocal failed
        failed += 1
        if failed == LETTERS:
            consumer.stop()
        raise ValueError("this consumer always fails")

    async with orbitmq.connect(name_server) as mq, mq.consumer(group, topic, options=options) as consumer:
        await consumer.run(fail, concurrency=1)


@pytest.fixture(scope="module")
def outcomes(
    server: Any, _spark: Callable[[], SparkSession], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, Any]]:
    """What the driver printed, by what it tried."""
    import asyncio

    folder = tmp_path_factory.mktemp("cluster")
    name_server, topic, group = f"127.0.0.1:{server.name_port}", "cluster-rows", "cluster-payers"
    server.create_topic(topic, 4)
    server.create_topic("cluster-bills", 1)
    with connect(name_server) as client, client.producer("senders") as producer:
        for number in range(LETTERS):
            producer.send("cluster-bills", f"bill {number}".encode())
    asyncio.run(fail_all(name_server, group, "cluster-bills"))
    pythons = {
        "good": python_at(folder / "good"),
        "bare": python_at(folder / "bare", "import sys; sys.modules['orbitmq'] = None"),
        "old": python_at(folder / "old", "import orbitmq.release; orbitmq.release.VERSION = '0.0.1'"),
        "missing": str(folder / "nowhere" / "python"),
    }
    program = Path(__file__).with_name("cluster_session.py")
    words = [name_server, topic, group, str(folder / "data"), json.dumps(pythons)]
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, str(program), *words],
            cwd=folder,
            env={**os.environ, "SPARK_HOME": str(spark_home(folder / "spark"))},
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=LIMIT_S,
            check=False,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"[")]
    if done.returncode != 0:
        pytest.fail(f"{lines}\n{(folder / 'log').read_text(errors='replace')[-3000:]}")
    return {name: (kind, said) for name, kind, said in lines} | {"pythons": ("ok", pythons)}


def test_workers_run_the_python_that_was_said(outcomes: dict[str, tuple[str, Any]]) -> None:
    assert outcomes["paths"] == ("ok", [outcomes["pythons"][1]["good"]])


@pytest.mark.parametrize(
    ("name", "said"),
    [("sink", None), ("source", ROWS), ("archive", ROWS), ("schedule", ROWS), ("replay", ROWS), ("redrive", LETTERS), ("report", ROWS)],
)  # fmt: skip
def test_source_sink_and_every_pipeline_run_on_it(
    outcomes: dict[str, tuple[str, Any]], name: str, said: object
) -> None:
    assert outcomes[name] == ("ok", said)


@pytest.mark.parametrize(
    ("name", "has"), [("bare", "no orbitmq"), ("old", "orbitmq 0.0.1"), ("missing", "No such file or directory")]
)
def test_a_worker_that_cannot_is_named_with_host_path_and_versions_before_the_first_job(
    outcomes: dict[str, tuple[str, Any]], name: str, has: str
) -> None:
    kind, text = outcomes[f"{name}: archive"]
    assert kind == "SparkWorkerError"
    assert outcomes["pythons"][1][name] in text
    assert has in text
    assert "the worker on " in text
    assert "PYSPARK_PYTHON" in text
    if name != "missing":
        assert f"with orbitmq {VERSION}" in text


def test_a_task_says_it_itself_where_nobody_asked_before(outcomes: dict[str, tuple[str, Any]]) -> None:
    _, text = outcomes["bare: task"]
    assert "orbitmq.errors.SparkWorkerError: the worker on " in text
    assert outcomes["pythons"][1]["bare"] in text
