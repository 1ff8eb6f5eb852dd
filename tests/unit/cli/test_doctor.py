"""The checks of doctor, one by one, and the command as a whole."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran, ScriptedServer
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq import leaf
from orbitmq.cli.doctor import doctor_checks
from orbitmq.cli.doctor.doctor_checks import Level
from orbitmq.protocol.http2.settings import Http2Limits
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.replication.kept_state import REPLICATION_FILE, Demoted, KeptState
from orbitmq.replication.settings import BrokerKind
from orbitmq.store.files import DiskUsage, OsFiles
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.rocketmq.fence import raise_fence

Run = Callable[..., Ran]
NOW_MS = 1_800_000_000_000


@pytest.fixture
def free_port() -> int:
    return ports_in_a_row(1)[0]


def test_python() -> None:
    assert doctor_checks.python_version((3, 10)).level is Level.FAIL
    assert doctor_checks.python_version((3, 11)).level is Level.OK


def test_how_to_compile_the_innermost_loops_depends_on_how_they_were_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(leaf, "IS_COMPILED", False)
    assert "make leaf" in doctor_checks.innermost_loops().remedy
    monkeypatch.setattr(leaf, "__file__", str(tmp_path / "python3.11" / "site-packages" / "orbitmq" / "leaf" / "x.py"))
    assert "pip install" in doctor_checks.innermost_loops().remedy
    monkeypatch.setenv(leaf.SWITCH, "off")
    assert "unset ORBITMQ_LEAF" in doctor_checks.innermost_loops().remedy


@pytest.mark.parametrize(
    ("hard", "level"),
    [(256, Level.FAIL), (4096, Level.WARN), (1_000_000, Level.OK), (resource.RLIM_INFINITY, Level.OK)],
)
def test_open_files(hard: int, level: Level) -> None:
    """A server raises the soft limit, so the hard one counts."""
    found = doctor_checks.open_files(256, hard, 65_530)
    assert [result.level for result in found] == [level, Level.OK]


def test_what_the_limits_allow_is_told() -> None:
    files, mappings = doctor_checks.open_files(3_000, 3_000, 65_530)
    assert files.found == "3000: 2250 connections, and 515 open and 171 mapped files of the store"
    assert "raises" in doctor_checks.open_files(1_024, 3_000, 65_530)[0].found
    assert mappings.found == "65530"
    (_, few) = doctor_checks.open_files(1_000_000, 1_000_000, 10_000)
    assert (few.level, few.remedy) == (Level.WARN, "sysctl -w vm.max_map_count=12288")


@pytest.mark.parametrize(
    ("now_ms", "newest_ms", "level"),
    [(1_000, 0, Level.FAIL), (NOW_MS, 0, Level.OK), (NOW_MS, NOW_MS + 60_000, Level.WARN), (NOW_MS, 1, Level.OK)],
)
def test_clock(now_ms: int, newest_ms: int, level: Level) -> None:
    assert doctor_checks.wall_clock(now_ms, newest_ms).level is level


def test_data_directory(tmp_path: Path) -> None:
    results = {result.check: result for result in doctor_checks.data_directory(tmp_path / "a" / "b")}
    assert "will be made" in results["data directory"].found
    assert {"disk space", "sparse files", "preallocation"} < results.keys()
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


@pytest.mark.parametrize(
    ("used", "set_ratio", "level", "said"),
    [
        (91, None, Level.OK, "sends are refused above 90 % used while less than 2048 MiB are free"),
        (91, 90, Level.FAIL, "free some: sends are refused above 90 % used"),
        (99, None, Level.FAIL, "free some: sends are refused above 90 % used while less than 2048 MiB are free"),
    ],
)
def test_of_the_disk_is_said_what_a_broker_does(used: int, set_ratio: int | None, level: Level, said: str) -> None:
    usage = DiskUsage(100 << 30, used << 30, (100 - used) << 30)
    result = doctor_checks.disk_space(usage, StoreSettings(disk_space_warning_level_ratio=set_ratio))
    assert result.level is level
    assert (result.remedy or result.found).endswith(said)
    assert f"{used} % used" in result.found


def test_the_limits_of_a_configuration_file_count(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("diskSpaceWarningLevelRatio=60", encoding="ascii")
    assert doctor_checks.store_settings(file).disk_space_warning_level_ratio == 60
    file.write_text("diskSpaceWarningLevelRatio=6000", encoding="ascii")
    assert doctor_checks.store_settings(file) == doctor_checks.store_settings(None) == StoreSettings()


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    (result,) = doctor_checks.data_directory(tmp_path / "file")
    assert result.level is Level.FAIL


def test_a_free_port(free_port: int) -> None:
    assert "is free" in doctor_checks.port("broker", "127.0.0.1", free_port).found


def test_a_port_with_a_server_that_answers(server: ScriptedServer) -> None:
    server.on(RequestCode.GET_BROKER_CONFIG, b"brokerName=a\n")
    result = doctor_checks.port("broker", "127.0.0.1", int(server.address.rpartition(":")[2]))
    assert (result.level, "a server that answers (V" in result.found) == (Level.OK, True)


def test_a_port_held_by_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "DOCTOR_ANSWER_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = doctor_checks.port("broker", "127.0.0.1", listener.getsockname()[1])
    assert result.level is Level.FAIL
    assert result.remedy


def test_the_command_fails_when_a_check_does(
    orbitmq: Run, tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("doctor", "--data", tmp_path, "--nameserver-port", free_port, "--broker-port", free_port, "-o", "json")
    rows = json.loads(orbitmq(*arguments).out)
    assert {row["level"] for row in rows} <= {"ok", "warn", "fail"}
    assert all(row["remedy"] for row in rows if row["level"] != "ok")
    monkeypatch.setattr(doctor_checks, "PYTHON_MIN", (4, 0))
    assert orbitmq(*arguments).code == 1


def answering(content: bytes) -> tuple[socket.socket, int]:
    """A listener that gives every connection `content` and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(10_000)
                    connection.sendall(content)

    threading.Thread(target=serve, daemon=True).start()
    return listener, int(listener.getsockname()[1])


READY = b'{"status":"ready"}'
NOT_READY = b'{"status":"not ready","reasons":[{"reason":"store_unwritable","text":"the disk is full"}]}'


@pytest.mark.parametrize(
    ("content", "level", "found"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(READY) + READY, Level.OK, "is ready"),
        (
            b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n" % len(NOT_READY) + NOT_READY,
            Level.FAIL,
            "not ready: the disk is full",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Level.WARN, "no orbitmq answers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Level.WARN, "no orbitmq answers"),
        (b"", Level.WARN, "no orbitmq answers"),
    ],
)
def test_readiness_is_asked_for(content: bytes, level: Level, found: str) -> None:
    listener, number = answering(content)
    with listener:
        [result] = doctor_checks.readiness(number)
    assert result.level is level
    assert found in result.found


@pytest.mark.parametrize(
    ("content", "level", "found"),
    [
        (Http2Limits().announcement(), Level.OK, "a server that speaks HTTP/2 without TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Level.WARN, "no HTTP/2 is spoken there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Level.WARN, "no HTTP/2 is spoken there"),
        (b"\x00\x00", Level.WARN, "no HTTP/2 is spoken there"),
        (b"", Level.WARN, "no HTTP/2 is spoken there"),
    ],
)
def test_the_port_for_grpc_is_tried(content: bytes, level: Level, found: str) -> None:
    listener, number = answering(content)
    with listener:
        result = doctor_checks.grpc_port("127.0.0.1", number)
    assert result.level is level
    assert found in result.found
    assert bool(result.remedy) is (level is not Level.OK)


def test_a_port_for_grpc_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "DOCTOR_ANSWER_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = doctor_checks.grpc_port("127.0.0.1", listener.getsockname()[1])
    assert (result.level, "timed out" in result.found) == (Level.WARN, True)


def test_without_a_server_the_port_for_grpc_is_free(free_port: int) -> None:
    assert doctor_checks.grpc_port("127.0.0.1", free_port) == (
        Level.OK, "grpc port", f"127.0.0.1:{free_port} is free", "",
    )  # fmt: skip


def test_without_a_server_the_http_port_is_free(free_port: int) -> None:
    assert [result.level for result in doctor_checks.readiness(free_port)] == [Level.OK]


@pytest.mark.parametrize(
    ("left_s", "level", "found"),
    [
        (30 * 86_400, Level.OK, "expires in 30 days"),
        (6 * 86_400, Level.WARN, "expires in 144 hours"),
        (-7_200, Level.FAIL, "expired 2 hours ago"),
    ],
)
def test_the_end_of_the_certificate_is_told(left_s: int, level: Level, found: str) -> None:
    body = b'{"status":"ready","certificateExpirySeconds":%d}' % left_s
    listener, number = answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with listener:
        ready, certificate = doctor_checks.readiness(number)
    assert (ready.level, certificate.level) == (Level.OK, level)
    assert found in certificate.found


@pytest.mark.parametrize(
    ("ratio", "level", "found"),
    [
        (0.124, Level.OK, "'^orders' has 12% of the memory that it may have"),
        (0.81, Level.WARN, "has 81% of the memory that it may have; at 100% its new keys are refused"),
        (1.0, Level.FAIL, "has 100% of the memory that it may have: its new keys are refused"),
    ],
)
def test_how_full_the_memory_of_keys_is_is_told(ratio: float, level: Level, found: str) -> None:
    body = b'{"status":"ready","onceMemory":{"owner":"^orders","ratio":%f}}' % ratio
    listener, number = answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with listener:
        _, memory = doctor_checks.readiness(number)
    assert (memory.level, memory.check, bool(memory.remedy)) == (level, "once keys", level is not Level.OK)
    assert found in memory.found


def test_doctor_says_whether_rocketmq_may_start(tmp_path: Path) -> None:
    assert doctor_checks.hand_over(tmp_path) == []
    (tmp_path / "timerwheel").write_bytes(bytes(4_096 * 32))
    (result,) = doctor_checks.hand_over(tmp_path)
    assert (result.level, result.found) == (Level.OK, "exact: RocketMQ can go on with it")
    raise_fence(OsFiles(), tmp_path)
    (result,) = doctor_checks.hand_over(tmp_path)
    assert result.level is Level.WARN
    assert f"orbitmq store hand-over {tmp_path}" in result.remedy


@pytest.mark.parametrize(
    ("state", "level", "found"),
    [
        (KeptState("d", slaves={2: "b", 1: "a"}), Level.OK, "slaves 1, 2 have followed"),
        (KeptState("d", promoted=BrokerKind.SYNC_MASTER), Level.WARN, "made SYNC_MASTER by a command"),
        (KeptState("d", demoted=Demoted(3)), Level.WARN, "made slave 3 by a command"),
        (KeptState("d", aside="aside-1"), Level.WARN, "the next start puts the store aside, into aside-1"),
        (KeptState("d", seeding_until=7), Level.OK, "a slave that is being seeded, up to 7"),
    ],
)
def test_doctor_says_what_a_directory_keeps_of_copies(
    tmp_path: Path, state: KeptState, level: Level, found: str
) -> None:
    assert doctor_checks.copies(tmp_path) == []
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / REPLICATION_FILE
    path.write_text(json.dumps(state.table()))
    (result,) = doctor_checks.copies(tmp_path)
    assert result.level is level
    assert found in result.found
    path.write_text("{")
    (result,) = doctor_checks.copies(tmp_path)
    assert result.level is Level.FAIL


@pytest.mark.parametrize(
    ("text", "level", "found"),
    [
        ("brokerName=a\n", Level.OK, "1 keys of"),
        ("brokerName=a\nmapedFileSizeCommitLog=1\n", Level.WARN, "without effect here: mapedFileSizeCommitLog"),
        ("brokerName=a\nbrokerName=b\n", Level.WARN, "count, given again further down: brokerName"),
        ("brokerNam=a\n", Level.FAIL, "unknown key 'brokerNam'"),
    ],
)
def test_doctor_says_what_is_wrong_in_a_configuration_file(tmp_path: Path, text: str, level: Level, found: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    (result,) = doctor_checks.configuration(file)
    assert result.level is level
    assert found in result.found
