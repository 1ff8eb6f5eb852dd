"""The page on clusters, word by word: a standalone master, two workers and a packed Python that nobody else has."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.orders_on_a_cluster.standalone import StandaloneCluster, below, end_all, said_in

from orbitmq.sync import connect

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "howto" / "spark-on-a-cluster.md"
ORDERS = 300
LIMIT_S = 240

pytestmark = pytest.mark.timeout(600)  # the first one waits for wheels, an environment and a cluster


def blocks(kind: str) -> dict[str, str]:
    """Blocks of the page by the heading above them."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if block := re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL):
            found[heading] = block[1]
    return found


class Shell:
    """What a user has: a folder, a shell whose `python3` is that of the driver, and the addresses of the page."""

    def __init__(self, folder: Path, cluster: StandaloneCluster, name_server: str) -> None:
        wheels = folder / "wheels"
        words = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
        plain = {**os.environ, "ORBITMQ_LEAF": "off"}
        subprocess.run([*words, "-w", str(wheels), str(REPOSITORY)], check=True, timeout=LIMIT_S, env=plain)
        self.folder = folder
        self.environment = {
            **cluster.environment,
            "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_PRE": "1",
            "GZIP": "-1",  # the archive is written and read once, on one machine
            "CLUSTER": cluster.address,
            "NAME_SERVER": name_server,
            "LAKE": str(folder / "lake"),
        }

    def run(self, *words: str, **more: str) -> str:
        """What it printed; it has to succeed."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("cluster")
    server.create_topic("orders", 4)
    name_server = f"127.0.0.1:{server.name_port}"
    with connect(name_server) as client, client.producer("senders") as producer:
        for number in range(ORDERS):
            producer.send("orders", f"order {number}".encode())
    with StandaloneCluster(folder / "spark") as cluster:
        user = Shell(folder, cluster, name_server)
        user.run("sh", "-ec", blocks("sh")["Pack the workers' Python"])
        yield user


def test_a_pipeline_by_spark_submit(shell: Shell) -> None:
    printed = shell.run("sh", "-ec", blocks("sh")["A pipeline by spark-submit"])
    assert f'"rows_written": {ORDERS}' in printed


def test_a_program(shell: Shell) -> None:
    (shell.folder / "program.py").write_text(blocks("py")["A program"])
    assert f"orders: {ORDERS}\n" in shell.run("python3", "program.py")


def test_spark_connect_on_the_cluster(shell: Shell) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    block = blocks("sh")["Spark Connect"]
    path = shell.folder / "connect.log"
    with path.open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-ec", block + "\nwait"],
            cwd=shell.folder,
            env={**shell.environment, "CONNECT_PORT": port},
            stdout=log,
            stderr=log,
        )
    try:
        said_in(path, re.compile(rb"Spark Connect server started at"), server)
        words = [
            "archive",
            "--remote",
            f"sc://127.0.0.1:{port}",
            "--to",
            str(shell.folder / "by-connect"),
            "--topic",
            "orders",
        ]
        printed = shell.run("orbitmq", "pipeline", *words, "--name-server", shell.environment["NAME_SERVER"])
        assert f'"rows_written": {ORDERS}' in printed
    finally:
        end_all([*below(server.pid), server.pid])
        server.wait()


def test_the_story_of_the_orders_ends_as_computed_while_executors_are_killed(shell: Shell) -> None:
    python = str(shell.folder / "environment" / "bin" / "python")
    words = ["--orders", "1000", "--cluster", shell.environment["CLUSTER"], "--python", python]
    printed = shell.run("python3", "-m", "examples.orders_on_a_cluster.story", *words, PYTHONPATH=str(REPOSITORY))
    assert re.search(r"every order once, every bad one in quarantine; [1-3] executors killed", printed)
    assert "DIFFERENT" not in printed
