"""The declarative pipelines project of the examples: a run goes on where the last one ended, also into a topic."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from server_process import ServedProcess
from stored_messages import stored

from orbitmq.client import Message
from orbitmq.spark.java import find_java
from orbitmq.sync import connect

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "spark" / "declarative"
LIMIT_S = 600
"""For one run, which takes half a minute on an idle machine."""

SHOPS = ("north", "south", "west")


def send_orders(name_server: str, numbers: range) -> None:
    with connect(name_server) as client, client.producer("shops") as producer:
        producer.send_batch(
            "PipelineOrders",
            [
                Message(f'{{"shop": "{SHOPS[number % 3]}", "amount": {number % 100}}}'.encode(), key=f"o{number}")
                for number in numbers
            ],
        )


def run(folder: Path) -> None:
    programs = Path(sys.executable).parent
    environment = {
        **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(find_java()),
    }  # fmt: skip
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes its time to start a worker
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [programs / "spark-pipelines", *options, "run"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def totals(folder: Path) -> dict[str, tuple[int, int]]:
    import pyarrow.dataset as dataset

    table = dataset.dataset(
        sorted((folder / "spark-warehouse" / "totals").glob("*.parquet")), format="parquet"
    ).to_table()
    return {row["shop"]: (row["orders"], row["amount"]) for row in table.to_pylist()}


@pytest.mark.timeout(2 * LIMIT_S + 60)
@pytest.mark.usefixtures("spark")  # what a machine lacks is said once
def test_two_runs_take_every_order_once(serve: object, tmp_path: Path) -> None:
    server: ServedProcess = serve()  # type: ignore[operator]
    address = f"127.0.0.1:{server.name_port}"
    for topic in ("PipelineOrders", "PipelineLargeOrders"):
        server.create_topic(topic, 2)
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    text = (
        spec.read_text()
        .replace("localhost:9876", address)
        .replace("/tmp/orbitmq-declarative", str(tmp_path / "storage"))
    )
    spec.write_text(text)

    for first, end in ((0, 300), (300, 450)):
        send_orders(address, range(first, end))
        run(project)
        wanted = {
            shop: (
                sum(number % 3 == place for number in range(end)),
                sum(number % 100 for number in range(end) if number % 3 == place),
            )
            for place, shop in enumerate(SHOPS)
        }
        assert totals(project) == wanted
        large = Counter(message.keys[0] for message in stored(address, "PipelineLargeOrders"))
        assert large == Counter(f"o{number}" for number in range(end) if number % 100 >= 80)
