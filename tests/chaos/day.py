"""What a platform engineer has: servers under systemd, and a Prometheus of their own with the alert rules that are shipped.

Rules of this file
1. A server is started by the command line of its unit, each with a directory and ports of its own that it keeps; only processes started
   here are signalled.
2. Prometheus looks every second, and what has to last before a rule fires lasts `FOR_S`, which is longer than a restart. One of the bounds
   is another: `UNREAD_MS` in place of five minutes. Nothing else of the rules is changed.
3. Nothing is judged here.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml
from server_process import clean_environment, free_ports
from supervised import Supervised
from tests.interop.rig.toolchain import debian_promtool
from tests.unit.deploy.supervisors import DEPLOY

NAME_SERVERS: Final = ("names-1", "names-2")
BROKERS: Final = ("broker-a", "broker-b", "broker-c")
CRAMPED: Final = "broker-c"
"""The one with a small disk of its own."""

SMALL: Final = {
    "mappedFileSizeCommitLog": 64 << 20, "maxIndexNum": 200_000, "waitTimeMillsInSendQueue": 60_000,
    "cleanFileForciblyEnable": "false",
}  # fmt: skip
"""Nothing is removed early."""
SMALLER: Final = {
    "mappedFileSizeCommitLog": 16 << 20, "maxIndexNum": 2_000, "maxHashSlotNum": 500, "cleanResourceInterval": 1_000,
}  # fmt: skip
"""It looks at its disk every second."""

FOR_S: Final = 10
UNREAD_MS: Final = 5_000
APART_S: Final = 8.0
"""Evaluations of a rule that are further apart than this are two alerts."""
RULES: Final = DEPLOY / "prometheus" / "alerts.yml"


class Site:
    """Two name servers and three brokers. `brokers`, `directory` and `restart` are what a restart one by one asks for."""

    brokers: Final = BROKERS

    def __init__(self, directory: Path, disk: Path) -> None:
        """disk: where the cramped broker has its store."""
        self.directory = directory
        self.ports: dict[str, tuple[int, int]] = {}
        """Of each server those for HTTP and for clients."""
        self._servers: dict[str, Supervised] = {}
        (directory / CRAMPED).mkdir()
        self.store_of(CRAMPED).symlink_to(disk)

    @property
    def address(self) -> str:
        """Of the name servers."""
        return ";".join(f"127.0.0.1:{self.ports[name][1]}" for name in NAME_SERVERS)

    def store_of(self, broker: str) -> Path:
        return self.directory / broker / "orbitmq-broker"

    def start(self, *names: str) -> None:
        """One after the other, each until it says that it is ready."""
        for name in names:
            self._start(name)

    def _start(self, name: str) -> None:
        if name not in self.ports:
            self.ports[name] = free_ports()
        http_port, port = self.ports[name]
        settings: dict[str, object] = {"listenPort": port, "metricsPromExporterPort": http_port}
        kind = "nameserver"
        if name in BROKERS:
            kind = "broker"
            settings |= {"namesrvAddr": self.address, "brokerName": name, "grpcServerPort": 0, **SMALL}
            settings |= SMALLER if name == CRAMPED else {}
        server = self._servers[name] = Supervised(kind, self.directory / name, settings)
        assert server.heard()[0] == "READY=1", server.output()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._servers[name].close()

    def stop(self, name: str) -> None:
        server = self._servers[name]
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(120)
        server.close()
        assert code == 0, server.output()
        assert "Traceback" not in server.output(), server.output()

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class Prometheus:
    """The program, with the shipped configuration and rules."""

    def __init__(self, directory: Path, ports: Mapping[str, int]) -> None:
        """ports: where to look, by the name that alerts call it. Raises `Missing` where there is no such program."""
        program = shutil.which("prometheus") or debian_promtool().with_name("prometheus")
        directory.mkdir()
        configuration = yaml.safe_load(RULES.with_name("prometheus.yml").read_text(encoding="utf-8"))
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = (each for each in configuration["scrape_configs"] if each["job_name"] == "orbitmq")
        job["static_configs"] = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in ports.items()
        ]
        configuration["scrape_configs"] = [job]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
        (directory / RULES.name).write_text(hurried(RULES.read_text(encoding="utf-8")), encoding="utf-8")
        self._port, _ = free_ports()
        words = [
            str(program),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(words, env=clean_environment(), stdout=log, stderr=log)

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        try:
            return get(self._port, "/-/ready")[0] == 200
        except OSError:
            return False

    def _ask(self, path: str) -> Any:
        status, body = get(self._port, f"/api/v1/{path}")
        assert status == 200, body
        return json.loads(body)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """Names of alerts, and of whom they tell."""
        alerts = self._ask("alerts")["alerts"]
        return {_named(alert["labels"]) for alert in alerts if alert["state"] == "firing"}

    def fired(self) -> Counter[tuple[str, str]]:
        """How often each alert has fired."""
        asked = urlencode({"query": 'ALERTS{alertstate="firing"}[12h]'})
        found: Counter[tuple[str, str]] = Counter()
        for series in self._ask(f"query?{asked}")["result"]:
            found[_named(series["metric"])] += firings([at for at, _ in series["values"]])
        return found

    def least(self, metric: str) -> float:
        """Over all of its series, of which there is one."""
        (series,) = self._ask(f"query?{urlencode({'query': f'min({metric})'})}")["result"]
        return float(series["value"][1])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def hurried(rules: str) -> str:
    """The rules of somebody with little time."""
    unread = 'online="false"} > '
    assert f"{unread}300000\n" in rules
    rules = rules.replace(f"{unread}300000\n", f"{unread}{UNREAD_MS}\n")
    return re.sub(r"(?m)^( +for:) \w+$", rf"\1 {FOR_S}s", rules)


def firings(times_s: Sequence[float]) -> int:
    """How often an alert began that was seen firing at these times."""
    return 1 + sum(later - at > APART_S for at, later in pairwise(times_s))


def alert_names() -> set[str]:
    return set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))


def _named(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels["alertname"], labels.get("instance") or labels["node_id"]


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
