"""Servers as systemd would run them: by the words of their units, with what it hears and what it asks; and the rotation of their logs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server_process import RawClient, clean_environment, free_ports, until
from supervised import Supervised
from tests.unit.deploy.supervisors import DEPLOY, documents, logrotate

from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

SMALL = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxIndexNum": 200_000}

Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Supervised] = []

    def begin(name: str, **settings: object) -> Supervised:
        made = Supervised(name, tmp_path / name, {"metricsPromExporterPort": 0, **settings})
        started.append(made)
        return made

    yield begin
    for one in started:
        one.close()


def drain(name_port: int) -> subprocess.CompletedProcess[str]:
    """What Kubernetes has a pod do before its broker is stopped, without the wait."""
    (broker,) = (
        one
        for one in documents("orbitmq.yaml")
        if one["metadata"]["name"] == "orbitmq-broker" and "template" in one["spec"]
    )
    (container,) = broker["spec"]["template"]["spec"]["containers"]
    *_, source = container["lifecycle"]["preStop"]["exec"]["command"]
    pod = clean_environment() | {"POD_NAME": "broker-a", "ORBITMQ_NAMESRV": f"127.0.0.1:{name_port}"}
    words = [sys.executable, "-c", source.replace("time.sleep(30)", "")]
    return subprocess.run(words, env=pod, capture_output=True, text=True, timeout=120, check=False)


def test_the_units_tell_what_their_processes_do(start: Start) -> None:
    name_port, port = free_ports()
    names = start("nameserver", listenPort=name_port)
    assert names.heard() == ["READY=1", f"STATUS={names.output().splitlines()[-1]}"]
    broker = start("broker", listenPort=port, namesrvAddr=f"127.0.0.1:{name_port}", grpcServerPort=0, **SMALL)
    first, status = broker.heard()
    with RawClient(name_port) as client:  # at once: it is ready when its clients find it
        route = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert (first, route.code) == ("READY=1", ResponseCode.SUCCESS)
    assert status.startswith(f"STATUS=orbitmq serves broker broker-a 127.0.0.1:{port}")

    second = broker.again()
    assert second.returncode == ExitCode.IN_USE
    assert str(second.returncode) in broker.service["RestartPreventExitStatus"].split()
    assert "is in use by another broker" in second.stderr
    assert "Traceback" not in second.stderr

    drained = drain(name_port)
    assert "topics of broker-a are not writable any more" in drained.stderr

    for one in (broker, names):
        one.reload()
        reloading, since = one.heard()
        assert (reloading, since.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
        assert one.heard() == ["READY=1"]
        one.process.send_signal(signal.SIGTERM)
        assert one.heard() == ["STOPPING=1", "STATUS=stopping: SIGTERM"]
        assert one.process.wait(60) == 0


def test_logs_are_rotated_by_the_file_for_logrotate(start: Start, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    log = logs / "namesrv.log"
    names = start("nameserver", listenPort=free_ports()[0], logFile=log)
    names.heard()
    with log.open("a", encoding="utf-8") as file:
        file.write("a line\n")
    before = log.read_text(encoding="utf-8")

    text = (DEPLOY / "logrotate" / "orbitmq").read_text(encoding="utf-8")
    head, brace, rest = text.partition(" {\n")
    first, _, last = rest.partition("        systemctl kill --signal=SIGUSR1")
    ours = f"{logs}/*.log{brace}{first}        kill -USR1 {names.process.pid}\n{last.partition('|| true')[2]}"
    assert "/var/log" in head
    rules = tmp_path / "orbitmq"
    rules.write_text(ours, encoding="utf-8")
    rules.chmod(0o644)
    done = logrotate("--force", "--state", tmp_path / "state", rules)
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: log.exists() and "SIGUSR1: opened anew" in log.read_text(), what="a new log file")
    assert (logs / "namesrv.log.1").read_text(encoding="utf-8") == before
    names.process.send_signal(signal.SIGTERM)
    assert names.process.wait(60) == 0
    assert "stopped in order" in log.read_text()
