"""`orbitmq serve` as scripts use it: one line, commands work, orderly end with exit code 0."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request
from orbitmq.server.configuration.settings import Overrides, Role, load_settings


class Served(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    namesrv: str
    data: Path
    line: str


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ORBITMQ_", "NAMESRV_"))}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=60,
    )


def free_ports() -> tuple[int, int]:
    """Of the name server and the broker; the one below the second by two is served as well."""
    name_port, _, _, port = ports_in_a_row(4)
    return name_port, port


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    name_port, port = free_ports()
    data = tmp_path / "data"
    arguments = ["serve", "--data", data, "--nameserver-port", name_port, "--broker-port", port]
    arguments += ["--set", "mappedFileSizeCommitLog=1048576", "--set", "sendMessageThreadPoolNums=4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("w"),
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    yield Served(process, f"127.0.0.1:{name_port}", data, line)
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_life_of_a_server(served: Served, tmp_path: Path) -> None:
    assert served.line.startswith("orbitmq serves ")
    assert served.namesrv in served.line
    assert "sendMessageThreadPoolNums has no effect" in (tmp_path / "log").read_text()

    assert command("topic", "create", "orders", "-n", served.namesrv).returncode == 0
    sent = command("send", "orders", "hello", "--key", "k1", "-n", served.namesrv, "-o", "json")
    assert json.loads(sent.stdout)[0]["status"] == "SEND_OK"
    shown = command("message", "show", "orders", "--key", "k1", "-n", served.namesrv, "-o", "json")
    assert json.loads(shown.stdout)[0]["body"] == "hello"
    tail = command("tail", "orders", "--from-beginning", "--stop-at-end", "-n", served.namesrv)
    assert tail.stdout.endswith("hello\n")

    second = command("serve", "--data", served.data, "--nameserver-port", 0, "--broker-port", free_ports()[1])
    assert second.returncode == 6, second.stderr

    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(30) == 0
    checked = command("store", "check", served.data)
    assert checked.returncode == 0, checked.stderr


WORKERS = """
import orbitmq

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)

@orbitmq.handler("orders", group="charging", retry_delays=(0.1,), options=FIRST)
async def charge(message):
    if message.body == b"later" and not message.reconsume_times:
        raise orbitmq.Retry("the bank sleeps")
    if message.body == b"poison":
        raise orbitmq.Reject("no order")
    print("charged", message.body.decode(), flush=True)

@orbitmq.handler("orders", group="packing", options=FIRST)
def pack(message):
    print(f"packed {message.body.decode()}\\n", end="", flush=True)  # threads print at once: a line is one write

both = [charge, pack]
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("charge", {"charged order", "charged later"}),
        ("pack", {"packed order", "packed later", "packed poison"}),
    ],
)
def test_a_worker_runs_handlers_and_stops_in_order(served: Served, tmp_path: Path, name: str, lines: set[str]) -> None:
    (tmp_path / "shop.py").write_text(WORKERS)
    assert command("topic", "create", "orders", "-n", served.namesrv).returncode == 0
    for body in ("order", "later", "poison"):
        assert command("send", "orders", body, "-n", served.namesrv).returncode == 0
    ready = tmp_path / "ready"
    words = ["worker", f"shop:{name}", "-n", served.namesrv, "--ready-file", ready, "--log-format", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        printed = {process.stdout.readline().strip() for _ in lines}
        was_ready = ready.exists()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert printed == lines
    assert was_ready
    assert process.returncode == 0
    assert not ready.exists()
    told = [json.loads(line)["message"] for line in log.splitlines()]
    assert told[-1] == "the worker has stopped in order"
    assert any("rejects" in line and "no order" in line for line in told) is (name == "charge")
    lag = command("group", "lag", "charging" if name == "charge" else "packing", "-n", served.namesrv, "-o", "json")
    assert lag.returncode == 0, lag.stderr


def test_ctrl_c_is_an_orderly_end_too(served: Served) -> None:
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(30) == 0
    assert not (served.data / "abort").exists()


def test_a_change_by_request_lasts_over_a_restart(served: Served) -> None:
    address = served.line.partition("broker broker-a ")[2].partition(",")[0]
    host, _, port = address.rpartition(":")
    assert ask(host, int(port), RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=24\n").code == 0
    assert b"\nfileReservedTime=24\n" in bytes(ask(host, int(port), RequestCode.GET_BROKER_CONFIG).body)
    shown = command("broker", "config", "get", "broker-a", "fileReservedTime", "-n", served.namesrv)
    assert "fileReservedTime = 24 was changed while running; without that it is 72 (the default)" in shown.stderr
    assert ask(host, int(port), RequestCode.UPDATE_BROKER_CONFIG, b"rocketmqHome=x\n").code == 16
    assert ask(host, int(port), RequestCode.UPDATE_BROKER_CONFIG, b"listenPort=1\n").code == 1
    assert (
        load_settings(roles=[Role.BROKER], overrides=Overrides(data=served.data)).store.file_reserved_time_hours == 24
    )
    unset = command("broker", "config", "unset", "broker-a", "fileReservedTime", "-n", served.namesrv)
    assert unset.stderr == "fileReservedTime = 72: counts at broker broker-a\n"
    assert not load_settings(roles=[Role.BROKER], overrides=Overrides(data=served.data)).changed_while_running


def test_a_change_of_the_name_servers_can_be_unset(served: Served) -> None:
    def nameserver(*words: str) -> subprocess.CompletedProcess[str]:
        return command("nameserver", "config", *words, "-n", served.namesrv)

    assert nameserver("set", "waitSecondsForService=5").returncode == 0
    shown = nameserver("get")
    told = f"waitSecondsForService = 5 was changed at {served.namesrv} while running; without that it is 45 (the default)\n"
    assert shown.stderr == told
    assert "orbitmqChanged" not in shown.stdout
    unset = nameserver("unset", "waitSecondsForService", "waitSecondsForService")
    assert unset.stderr == f"waitSecondsForService = 45: counts at {served.namesrv}\n"
    again = nameserver("unset", "waitSecondsForService")
    assert (again.returncode, "no name server has waitSecondsForService changed" in again.stderr) == (2, True)
    for wrong, said in (
        (["waitSecondForService=1"], "did you mean waitSecondsForService?"),
        (["waitSecondsForService=1", "waitSecondsForService=2"], "waitSecondsForService is given twice, '1' and '2'"),
    ):
        refused = nameserver("set", *wrong)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert nameserver("get").stderr == ""


def ask(host: str, port: int, code: RequestCode, body: bytes = b"") -> Command:
    """One request and its answer over a socket."""
    frames = Connection()
    with socket.create_connection((host, port), timeout=30) as stream:
        stream.sendall(encode(request(code, None, body)))
        while True:
            for answer in frames.receive_data(stream.recv(65_536)):
                return answer
