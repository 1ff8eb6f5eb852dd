"""The service as a process: begun by the words of its systemd unit, then by those of its manifest, and stopped as supervisors stop it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "deploy"))

from supervisors import manifest, unit
from watched_metrics import alert_expressions, dashboard_expressions, names_in

from orbitmq.spark.java import find_java
from orbitmq.sync import connect

if TYPE_CHECKING:
    from server_process import ServedProcess

ROOT = Path(__file__).resolve().parents[3]
START_LIMIT_S = 240
FILE = "/etc/orbitmq/pipeline.toml"


class Served:
    """A running service. Its log lines are JSON."""

    def __init__(self, words: list[str], log: Path, **variables: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                words,
                cwd=log.parent,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def lines(self) -> list[dict[str, Any]]:
        """Those of the service; what Java says goes between them."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def get(self, path: str) -> tuple[int, str]:
        """0 while nothing listens."""
        found = re.search(r"health on 127\.0\.0\.1:(\d+)", self._log.read_text())
        if found is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def value(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return -1

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + START_LIMIT_S
        while not true():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"exit code {self.process.poll()}:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.2)

    def end(self, within_s: float) -> int:
        """SIGTERM to the one process that a supervisor knows; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end within {within_s} s:\n{self._log.read_text()[-4000:]}")

    def goes(self) -> bool:
        """Whether all of its processes end within a while: a Java ends when its Python has."""
        end = time.monotonic() + 30
        while self.left() and time.monotonic() < end:
            time.sleep(0.1)
        return not self.left()

    def left(self) -> list[int]:
        """Processes of its session, Javas and Pythons."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if os.getsid(int(folder.name)) == self.process.pid:
                        found.append(int(folder.name))
                except ProcessLookupError:
                    pass
        return found

    def kill(self) -> None:
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


def send(name_server: str, first: int, count: int) -> None:
    with connect(name_server) as client, client.producer("senders") as producer:
        for number in range(first, first + count):
            producer.send("orders", f"order {number}".encode(), key=f"k{number}")


def of_the_unit(file: Path) -> list[str]:
    program, *words = shlex.split(unit()["ExecStart"])
    assert program == "/opt/orbitmq/bin/orbitmq"
    return [str(Path(sys.executable).with_name("orbitmq")), *(str(file) if word == FILE else word for word in words)]


def of_the_manifest(file: Path) -> list[str]:
    import pyspark

    (container,) = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"]
    (line,) = container["args"]
    spark = Path(pyspark.__file__).parent
    for theirs, ours in (("/opt/spark", str(spark)), ("local[*]", "local[2]"), (FILE, str(file))):
        assert theirs in line
        line = line.replace(theirs, ours)
    return [*container["command"], line]


@pytest.mark.timeout(900)
def test_a_service_ends_in_order_and_its_next_start_goes_on(
    serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    server = serve()
    server.create_topic("orders", 4)
    name_server = f"127.0.0.1:{server.name_port}"
    place = "/var/lib/orbitmq-pipeline"
    text = manifest()["ConfigMap"]["data"]["pipeline.toml"]
    for theirs, ours in (
        (place, str(tmp_path)),
        ("0.0.0.0:9404", "127.0.0.1:0"),
        ("orbitmq:9876", name_server),
        ('"10s"', '"1s"'),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    paths = {
        "JAVA_HOME": str(find_java(os.environ)),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for life, (words, exit_code) in enumerate(((of_the_unit(file), 0), (of_the_manifest(file), 128 + signal.SIGTERM))):
        send(name_server, 40 * life, 40)
        service = Served(words, tmp_path / f"service-{life}.log", **paths)
        try:
            lives(service, exit_code)
        finally:
            service.kill()
        found = DeltaTable(tmp_path / "archive").to_pyarrow_table(columns=["keys"]).column("keys").to_pylist()
        assert sorted(found) == sorted(f"k{number}" for number in range(40 * (life + 1)))
    server.stop()


def lives(service: Served, exit_code: int) -> None:
    """From its start over a batch of 40 new rows to its end."""
    rows = "orbitmq_pipeline_rows_total"
    service.until(lambda: service.get("/readyz")[0] == 200)
    service.until(lambda: service.value(rows, part="orders") >= 40)
    assert service.value(rows, part="orders") == 40, "a start goes on where the one before ended"
    assert service.value("orbitmq_pipeline_lag_messages", part="orders", topic="orders") == 0
    assert asked_metrics() - shown_metrics(service.get("/metrics")[1]) == set()
    assert service.get("/livez")[0] == 200
    assert service.end(within_s=60) == exit_code
    assert service.goes()
    assert "stopped in order" in [line["message"] for line in service.lines()]


def asked_metrics() -> set[str]:
    """What dashboard and alerts ask of a service."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "orbitmq.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    expressions = (*dashboard_expressions(dashboard), *alert_expressions(rules))
    names = {name for expression in expressions for name in names_in(expression).metrics}
    found = {name for name in names if name.startswith("orbitmq_pipeline_")}
    assert len(found) > 7
    return found


def shown_metrics(text: str) -> set[str]:
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
