"""Backups of a broker under load, as docs/howto/back-up-and-restore.md says, and a broker on what was restored."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from group_processes import Group
from server_process import RawClient, ServedProcess, send_fields, until
from test_pair import bodies
from tests.worlds.etcd_process import MISSING, etcd_program

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

DUE_S = 20
PENDING = 50
LOG_FILE_BYTES = 1 << 20
SMALL_FILES = {"mappedFileSizeCommitLog": LOG_FILE_BYTES, "maxMessageSize": 1 << 18, "brokerName": "single"}


def orbitmq(*words: object, code: int = 0) -> Any:
    """What a command prints as JSON; of one that fails what it says."""
    command = [sys.executable, "-m", "orbitmq", *map(str, words), "-o", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout) if ran.stdout else ran.stderr


class Load:
    """Messages that are sent one after the other until it is ended."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_over = False
        self.acknowledged: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with RawClient(self._port) as client:
            while not self._is_over:
                body = b"%d " % len(self.acknowledged) + b"x" * 1_000
                properties = {"KEYS": f"key-{len(self.acknowledged)}", "UNIQ_KEY": f"{len(self.acknowledged):032X}"}
                answer = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders", properties), body)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                self.acknowledged.append(body)

    def end(self) -> None:
        self._is_over = True
        self._thread.join()


def test_two_backups_under_load_and_a_restore(tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    served = ServedProcess(tmp_path / "served", settings=SMALL_FILES)
    load = None
    try:
        served.create_topic("orders")
        due_ms = int(time.time() * 1000) + DUE_S * 1000
        with served.client() as client:
            for number in range(PENDING):
                fields = send_fields(
                    "orders", {"TIMER_DELIVER_MS": str(due_ms + number), "UNIQ_KEY": f"timer{number:027X}"}
                )
                answer = client.call(RequestCode.SEND_MESSAGE_V2, fields, b"later %d" % number)
                assert answer.code == ResponseCode.SUCCESS
        load = Load(served.port)
        until(lambda: len(load.acknowledged) > 3_000, what="the log having several files")
        first_has = len(load.acknowledged)
        first = orbitmq("store", "backup", served.data, backup)
        assert first["findings"] == []
        until(lambda: len(load.acknowledged) > first_has + 1_000, what="more messages")
        second_has = len(load.acknowledged)
        second = orbitmq("store", "backup", served.data, backup)
        assert second["findings"] == []
        assert second["log_end"] > first["log_end"]
        assert second["kept_files"] >= first["log_end"] // LOG_FILE_BYTES
        assert second["copied_bytes"] < second["bytes_in_all"]
        assert "a broker serves" in orbitmq("store", "restore", backup, served.data, code=6)
        load.end()
        assert second_has < len(load.acknowledged)
    finally:
        if load is not None:
            load.end()
        served.kill()

    assert orbitmq("store", "verify", backup)["damaged"] == []
    assert orbitmq("store", "restore", backup, restored / "data")["log_end"] == second["log_end"]
    assert orbitmq("store", "check", restored / "data")["findings"] == []
    alone = ServedProcess(restored, settings=SMALL_FILES)
    try:
        found = [body for body in bodies(alone) if not body.startswith(b"later")]
        assert found == load.acknowledged[: len(found)]
        assert len(found) >= second_has
        later = {b"later %d" % number for number in range(PENDING)}
        until(lambda: later <= set(bodies(alone)), 60, what="the timer messages of the backup")
        assert time.time() * 1000 >= due_ms
        with alone.client() as client:
            assert client.call(RequestCode.SEND_MESSAGE_V2, send_fields(), b"goes on").code == ResponseCode.SUCCESS
        assert [body for body in bodies(alone) if body.startswith(b"later")].count(b"later 0") == 1
        alone.stop()
    finally:
        alone.kill()


def test_a_group_that_lost_all_members_goes_on_with_a_backup(tmp_path: Path) -> None:
    if etcd_program() is None:
        pytest.skip(MISSING)
    names = ("a", "b", "c")
    group = Group(tmp_path, *names)
    try:
        leader = group.leader()
        group.members[leader].create_topic("orders")
        sent = [b"%d" % number for number in range(50)]
        assert {group.send(leader, body) for body in sent} == {ResponseCode.SUCCESS}
        orbitmq("store", "backup", group.members[leader].data, tmp_path / "backup")
        assert group.send(leader, b"after the backup") == ResponseCode.SUCCESS
        for name in names:
            group.kill(name)
            (tmp_path / name).rename(tmp_path / f"lost-{name}")
        orbitmq("store", "restore", tmp_path / "backup", tmp_path / leader / "data")
        restored = group.start(leader)
        words = ("replica", "accept-loss", f"127.0.0.1:{restored.port}", "--yes", "--timeout-ms", "60000")
        said = subprocess.run((sys.executable, "-m", "orbitmq", *words), capture_output=True, text=True, check=False)
        assert "this member is the leader now" in said.stdout + said.stderr, "it serves when another one is in sync"
        for name in names:
            if name != leader:
                group.start(name, awaited=False)
        group.until_level(*names)
        assert group.bodies(leader) == sent
        assert group.send(leader, b"goes on") == ResponseCode.SUCCESS
    finally:
        group.end()
