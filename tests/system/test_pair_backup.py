"""A backup from a slave, step by step as docs/howto/back-up-from-a-slave.md says, and what is found when one goes back to it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from server_process import ServedProcess, send_fields, until
from test_pair import Pair, bodies, send, sent_until_copied

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

DUE_S = 6


def test_the_copy_is_whole_and_its_slave_catches_up(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        pair.master.create_topic("orders")
        with pair.master.client() as client:
            sent_until_copied(client, b"first")
            for number in range(20):
                assert send(client, b"%d" % number) == ResponseCode.SUCCESS
            due_ms = int(time.time() * 1000) + DUE_S * 1000
            fields = send_fields("orders", {"TIMER_DELIVER_MS": str(due_ms)})
            assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"later").code == ResponseCode.SUCCESS
            pair.slave.stop(signal.SIGTERM)
            backup = tmp_path / "backup"
            shutil.copytree(pair.slave.data, backup / "data")
            assert send(client, b"after the backup") == ResponseCode.SLAVE_NOT_AVAILABLE
            pair.start_slave()
            sent_until_copied(client, b"together")
        until(lambda: bodies(pair.slave)[-1:] == [b"together"], what="the slave having caught up")
        checked = subprocess.run(
            [sys.executable, "-m", "orbitmq", "store", "check", str(backup / "data")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
    finally:
        pair.end()

    alone = ServedProcess(backup, settings={"brokerName": "pair", "brokerRole": "ASYNC_MASTER", "brokerId": 0})
    try:
        found = [body for body in bodies(alone) if body not in (b"first", b"later")]
        assert found == [b"%d" % number for number in range(20)]
        with alone.client() as client:
            assert send(client, b"goes on") == ResponseCode.SUCCESS
        until(lambda: b"later" in bodies(alone), 30, what="the timer message of the backup")
        assert time.time() * 1000 >= due_ms
        assert b"after the backup" not in bodies(alone)
    finally:
        alone.kill()
