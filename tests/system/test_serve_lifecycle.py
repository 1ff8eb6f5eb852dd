"""`orbitmq serve` from the first line to the exit code: starts, stops, what survives, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from server_process import (
    ClosedByServer,
    RawClient,
    ServedProcess,
    clean_environment,
    free_ports,
    pull_fields,
    send_fields,
    until,
)

from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.protocol.remoting.timer_bodies import TimerPage, TimerQuery
from orbitmq.store.reserve import RESERVE_FILE

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, words)],
        capture_output=True, text=True, env=clean_environment(), timeout=240, check=False,
    )  # fmt: skip


def bodies(client: RawClient, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while True:
        answer = client.call(PULL, pull_fields(topic, queue_id, at))
        if answer.code != 0:
            return found
        found += [bytes(record.body) for record in iter_records(bytes(answer.body))]
        at = int(answer.fields["nextBeginOffset"])


def unique_keys(client: RawClient, topic: str) -> set[str]:
    """Of every message in the topic."""
    found: set[str] = set()
    queue_id, at = 0, 0
    while True:
        answer = client.call(PULL, pull_fields(topic, queue_id, at))
        if answer.code == ResponseCode.SUCCESS:
            for record in iter_records(bytes(answer.body)):
                found.add(decode_properties(record.properties)[Property.UNIQ_KEY])
            at = int(answer.fields["nextBeginOffset"])
        elif answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            queue_id, at = queue_id + 1, 0
        else:
            return found


def route(port: int, topic: str) -> int:
    with RawClient(port) as client:
        return client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code


def disk_bytes(directory: Path) -> int:
    """That its files take; of a server that runs, so a file may go while it is looked at."""
    total = 0
    for path in directory.rglob("*"):
        if path.name != RESERVE_FILE:  # which is meant to take space
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
    return total


# --- start --------------------------------------------------------------------------------------------------------------


def test_an_empty_store_serves_in_a_moment(serve: Callable[..., ServedProcess], figure: Callable[[str], None]) -> None:
    first_line, first_ok, used = [], [], 0
    for number in range(3):
        server = serve(f"start-{number}", settings={"mappedFileSizeCommitLog": 1 << 30, "maxIndexNum": 20_000_000})
        used = disk_bytes(server.data)
        with server.client() as client:
            assert client.call(SEND, send_fields("orders"), b"x").code == 0
        first_line.append(server.start_s)
        first_ok.append(time.monotonic() - server.began)
        server.stop()
    figure(
        f"empty store: the line after {min(first_line):.2f} s, SEND_OK to a new topic after {min(first_ok):.2f} s; "
        f"{used / 1024:.0f} KB on disk"
    )
    assert used < 1_000_000, "files are sparse"


def test_one_line_on_standard_output(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    assert str(server.name_port) in server.line
    assert str(server.port) in server.line
    stdout = server._popen.stdout
    assert stdout is not None
    server.send_signal(signal.SIGTERM)
    assert stdout.read() == b"", "nothing follows"
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_orderly_end(
    serve: Callable[..., ServedProcess], number: signal.Signals, figure: Callable[[str], None]
) -> None:
    server = serve()
    server.create_topic("orders")
    with server.client() as client:
        for index in range(50):
            assert client.call(SEND, send_fields(), b"%d" % index).code == 0
        fields = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "17"}
        assert client.call(PULL, pull_fields()).code == 0
        assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    took = server.stop(number)
    figure(f"orderly stop after {number.name}: {took:.2f} s")
    assert not (server.data / "abort").exists()
    assert command("store", "check", server.data).returncode == 0
    again = serve()
    with again.client() as client:
        assert bodies(client) == [b"%d" % index for index in range(50)]
        ask = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
        assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, ask).fields["offset"] == "17"
    again.stop()


def test_signals_read_files_anew_and_a_stop_tells_its_story_in_json_from_the_first_line(
    serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.write_text("accounts:\n- accessKey: someone-one\n  secretKey: Sesame-Sesame\n")
    log = tmp_path / "server.log"
    settings = {"logFile": log, "logFormat": "json", "aclEnable": "true", "aclConfigPath": accounts.parent}
    server = serve(settings={**settings, "sendMessageThreadPoolNums": 4})
    first = json.loads(log.read_text().splitlines()[0])
    assert (first["event"], "sendMessageThreadPoolNums" in first["message"]) == ("configuration", True)

    log.rename(tmp_path / "server.log.1")
    server.send_signal(signal.SIGUSR1)
    until(lambda: log.exists() and "SIGUSR1: opened anew" in log.read_text(), what="a new log file")

    accounts.write_text("accounts: [")
    server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP: 1 of 2 are read anew" in log.read_text(), what="a reload")
    accounts.write_text("accounts:\n- accessKey: someone-two\n  secretKey: Sesame-Sesame\n")
    server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP: 2 of 2 are read anew" in log.read_text(), what="the next reload")
    assert server.running
    server.stop()
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    assert any("what was in force stays: the accounts" in line for line in said)
    assert "reloaded the accounts: 1 access keys of " + str(accounts.parent) + " are in force" in said
    end = [line for line in said if line.startswith(("stopping", "stopped"))]
    assert end[0] == "stopping: SIGTERM"
    assert "stopping: saving tables and timers, syncing and closing the store" in end
    assert end[-1].startswith("stopped in order after ")
    assert server.log() == "", "nothing went past the log file"


def test_a_name_server_lives_through_both_signals(serve: Callable[..., ServedProcess]) -> None:
    server = serve(command="nameserver")
    server.send_signal(signal.SIGHUP)
    server.send_signal(signal.SIGUSR1)
    until(lambda: "SIGUSR1: the log goes to standard error" in server.log(), what="the answer to SIGUSR1")
    until(lambda: "SIGHUP: nothing here can be read anew" in server.log(), what="the answer to SIGHUP")
    server.stop()
    assert "stopped in order after" in server.log()


def test_a_start_that_fails_is_a_line_of_json_too(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerNam=x\n")
    done = command("serve", "--config", tmp_path / "broker.conf", "--log-format", "json")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "brokerNam" in json.loads(line)["message"]


def test_a_data_directory_that_cannot_be_made_is_named_with_why_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ports = ["--nameserver-port=0", "--broker-port=0", "--http-port=0", "--grpc-port=0"]
    for options, start in (
        ([], "the data directory /sys/orbitmq-data (nothing names another one) cannot be made: "),
        (["--data", tmp_path / "file" / "data"], f"the data directory {tmp_path}/file/data cannot be made: Not a dir"),
    ):
        words = [sys.executable, "-m", "orbitmq.cli.main", "serve", *ports, *map(str, options)]
        done = subprocess.run(
            words, cwd="/sys", capture_output=True, text=True, env=clean_environment(), timeout=240, check=False
        )  # nobody may make a directory there, not even root
        assert (done.returncode, done.stdout) == (2, "")
        assert start in done.stderr
        assert "--data DIRECTORY, ORBITMQ_DATA, or the key storePathRootDir" in done.stderr
        assert "Traceback" not in done.stderr


def test_delayed_messages_survive_a_stop_and_come_exactly_once(serve: Callable[..., ServedProcess]) -> None:
    server = serve(settings={"messageDelayLevel": "1s 2s 4s"})
    server.create_topic("orders")
    due: dict[bytes, float] = {}
    with server.client() as client:
        for number in range(60):
            level = number % 3 + 1
            body = b"%d" % number
            before = time.time()
            answer = client.call(
                SEND, send_fields(properties={"UNIQ_KEY": f"{number:032d}", "DELAY": str(level)}), body
            )
            assert answer.code == 0, answer.remark
            due[body] = before + (1, 2, 4)[level - 1]
        time.sleep(1.3)  # the first level fires before the stop, the second while nobody runs, the third afterwards
    server.stop()
    time.sleep(0.8)
    again = serve(settings={"messageDelayLevel": "1s 2s 4s"})
    with again.client() as client:
        until(lambda: len(bodies(client)) >= 60, what="all delayed messages")
        time.sleep(0.3)
        found = bodies(client)
        assert sorted(found) == sorted(due), "each exactly once"
        for offset in range(60):
            answer = client.call(PULL, pull_fields(offset=offset, maxMsgNums=1))
            record = next(iter(iter_records(bytes(answer.body))))
            assert record.store_timestamp >= due[bytes(record.body)] * 1000 - 1, "never early"
    again.stop()


def test_a_stop_under_load_loses_nothing_acknowledged(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    server.create_topic("orders")
    acknowledged: list[list[bytes]] = [[] for _ in range(4)]

    def produce(lane: int) -> None:
        sent: dict[int, bytes] = {}
        try:
            with RawClient(server.port) as client:
                for number in range(100_000):
                    body = b"%d-%d" % (lane, number)
                    opaque = number + 1
                    client.write(encode(request(SEND, send_fields(), body, opaque=opaque)))
                    sent[opaque] = body
                    if number % 16 == 15:
                        for _ in range(16):
                            answer = client.read()
                            assert answer.code == 0, answer.remark
                            acknowledged[lane].append(sent.pop(answer.opaque))
        except (ClosedByServer, OSError):
            return

    lanes = [threading.Thread(target=produce, args=(lane,)) for lane in range(4)]
    for thread in lanes:
        thread.start()
    until(lambda: sum(map(len, acknowledged)) > 2_000, what="some load")
    server.stop()
    for thread in lanes:
        thread.join()
    again = serve()
    with again.client() as client:
        found = set(bodies(client))
    missing = [body for lane in acknowledged for body in lane if body not in found]
    assert missing == []
    again.stop()


def test_held_pulls_are_answered_at_the_end(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    server.create_topic("orders")
    client = RawClient(server.port)
    client.write(encode(request(PULL, pull_fields(sysFlag=6, suspendTimeoutMillis=60_000), opaque=5)))
    until(lambda: server.runtime()["pullThreadPoolQueueSize"] == "1", what="a held pull")
    server.stop()
    assert client.read().code == ResponseCode.PULL_NOT_FOUND
    assert client.is_ended()
    client.close()


# --- refusals -----------------------------------------------------------------------------------------------------------


def refused(arguments: list[object], code: int, *words: str) -> None:
    """A start that fails: its exit code, one `error:` line with all of `words`, no traceback, nothing on stdout."""
    done = command(*arguments)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def start_of(data: Path, *more: object) -> list[object]:
    name_port, port = free_ports()
    return ["serve", "--data", data, "--nameserver-port", name_port, "--broker-port", port, *more]


def test_a_second_server_on_the_same_directory(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    refused(start_of(server.data), 6, str(server.data))
    with server.client() as client:
        assert client.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
    server.stop()


@pytest.mark.parametrize("which", ["broker", "name server"])
def test_a_port_that_is_taken(tmp_path: Path, which: str) -> None:
    name_port, port = free_ports()
    with socket.create_server(("127.0.0.1", port if which == "broker" else name_port)):
        refused(
            ["serve", "--data", tmp_path / "d", "--nameserver-port", name_port, "--broker-port", port],
            6, which, str(port if which == "broker" else name_port), "choose another port",
        )  # fmt: skip
    assert not (tmp_path / "d" / "abort").exists(), "the store was closed in order"


def test_a_port_for_grpc_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        refused(start_of(tmp_path / "d", "--grpc-port", taken), 6, "gRPC", str(taken), "--no-grpc")
    assert not (tmp_path / "d" / "abort").exists(), "the store was closed in order"


def test_a_second_port_that_is_taken_is_only_told(serve: Callable[..., ServedProcess]) -> None:
    name_port, port = free_ports()
    with socket.create_server(("127.0.0.1", port - 2)):
        server = serve(ports=(name_port, port))
        assert len(server.log_lines("vipChannelEnabled")) == 1
        server.stop()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    if os.getuid() == 0:
        # Permissions do not bind root; a file in the way does.
        (tmp_path / "file").write_text("in the way")
        assert command(*start_of(tmp_path / "file")).returncode == 2
        refused(start_of(tmp_path / "file" / "below"), 2, str(tmp_path / "file"))
        refused(start_of(Path("/proc/orbitmq")), 2, "/proc/orbitmq")
    else:
        (tmp_path / "locked").mkdir(mode=0o500)
        refused(start_of(tmp_path / "locked" / "data"), 2, str(tmp_path / "locked"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broker.conf", "brokerNam=x\n", ["brokerNam", "brokerName"]),
        ("broker.conf", "flushDiskType=SOMETIMES\n", ["flushDiskType", "SOMETIMES"]),
        ("broker.conf", "brokerRole=SLAVE\n", ["brokerRole"]),
        ("broker.conf", "aclEnable=true\n", ["aclEnable"]),
        ("broker.conf", "messageDelayLevel=1s soon\n", ["messageDelayLevel"]),
        ("broker.conf", "listenPort=notaport\n", ["listenPort"]),
        ("broker.toml", "[broker\n", ["broker.toml"]),
        ("broker.toml", "[broker]\nbrokerName = 3\nunheardOf = 1\n", ["unheardOf"]),
        ("broker.conf", "\\u12", ["broker.conf"]),
    ],
)
def test_a_broken_configuration(tmp_path: Path, name: str, text: str, words: list[str]) -> None:
    (tmp_path / name).write_text(text)
    refused(start_of(tmp_path / "d", "--config", tmp_path / name), 2, *words)
    assert not (tmp_path / "d").exists() or not any((tmp_path / "d").rglob("commitlog"))


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    refused(start_of(tmp_path / "d", "--config", tmp_path / "no.conf"), 2, "no.conf")


@pytest.mark.parametrize("table", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"])
def test_a_damaged_table_is_refused_and_left_alone(serve: Callable[..., ServedProcess], table: str) -> None:
    server = serve()
    server.create_topic("orders")
    with server.client() as client:
        assert client.call(SEND, send_fields(properties={"UNIQ_KEY": "u", "DELAY": "18"}), b"x").code == 0
        client.call(PULL, pull_fields())
    server.stop()
    damaged = server.data / "config" / table
    for path in (damaged, damaged.with_name(table + ".bak")):
        path.write_text('{"this is not')
    refused(start_of(server.data, "--set", "mappedFileSizeCommitLog=67108864", "--set", "maxIndexNum=200000"), 1, table)
    assert damaged.read_text() == '{"this is not'


@pytest.mark.parametrize("name", ["timer-clean", "timer-crash", "timer-far"])
def test_pending_timers_of_a_rocketmq_store_are_taken_over(
    golden_store: Callable[[str], Any], name: str, tmp_path: Path
) -> None:
    """Whatever the date is: each of them is delivered when it is overdue, and waits when it is not. What was recalled never comes."""
    store = golden_store(name)
    pending = {timer["uniqKey"] for timer in store.expected["pendingTimers"]}
    cancelled = {timer["uniqKey"] for timer in store.expected.get("cancelledTimers", [])} - pending
    past_ms = time.time() * 1_000 - 5_000
    overdue = {timer["uniqKey"] for timer in store.expected["pendingTimers"] if timer["slotMs"] < past_ms}
    (tmp_path / "taken").mkdir()
    store.root.rename(tmp_path / "taken" / "data")
    server = ServedProcess(
        tmp_path / "taken", settings=dict(line.split("=", 1) for line in store.expected["brokerConf"])
    )
    try:
        with server.client() as client:

            def waiting() -> set[str]:
                answer = client.call(RequestCode.LIST_TIMERS, {}, TimerQuery(limit=1_000).encode())
                return {timer.message_id for timer in TimerPage.decode(answer.body).timers}

            def delivered() -> set[str]:
                return {key for topic in ("VecA", "VecT") for key in unique_keys(client, topic)}

            until(lambda: pending <= delivered() | waiting(), what="every pending timer is accounted for")
            until(lambda: overdue <= delivered(), what="every overdue timer is delivered")
            assert not cancelled & delivered()
        server.stop()
    finally:
        server.kill()
    checked = command("store", "check", server.data)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- roles apart --------------------------------------------------------------------------------------------------------


def test_name_server_and_broker_as_processes_of_their_own(serve: Callable[..., ServedProcess]) -> None:
    names = serve("names", command="nameserver")
    broker = serve("broker", command="broker", options=["--namesrv", f"127.0.0.1:{names.name_port}"])
    broker.create_topic("orders", 4)
    until(lambda: route(names.name_port, "orders") == 0, what="the route of a new topic")
    broker.stop()
    until(lambda: route(names.name_port, "orders") == ResponseCode.TOPIC_NOT_EXIST, 60, "the broker said farewell")
    names.stop()


def test_a_broker_runs_without_its_name_server_and_finds_it_later(serve: Callable[..., ServedProcess]) -> None:
    ports = free_ports()
    broker = serve("broker", command="broker", options=["--namesrv", f"127.0.0.1:{ports[0]}"])
    broker.create_topic("orders", 4)
    with broker.client() as client:
        assert client.call(SEND, send_fields(), b"x").code == 0
    assert len(broker.log_lines("registration at name server")) == 1, "one line for all attempts"
    names = serve("names", command="nameserver", ports=ports)
    until(lambda: route(names.name_port, "orders") == 0, 25, "the registration")
    names.kill()
    with broker.client() as client:
        assert client.call(SEND, send_fields(), b"x").code == 0
    names = serve("names again", command="nameserver", ports=ports)
    until(lambda: route(names.name_port, "orders") == 0, 25, "the registration after a restart")
    broker.stop()
    names.stop()


def test_a_kill_is_recovered_from(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    server.create_topic("orders")
    with server.client() as client:
        for index in range(200):
            assert client.call(SEND, send_fields(), b"%d" % index).code == 0
    server.kill()
    again = serve()
    with again.client() as client:
        assert bodies(client) == [b"%d" % index for index in range(200)]
    again.stop()
