"""A real broker process under load over sockets, ended by kill -9, started again: every acknowledged message is there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.system.server_process import free_ports

from orbitmq.client import ProducerOptions, SendStatus, connect
from orbitmq.errors import ClientError

ROUNDS = 3
SENDERS = 8
START_WAIT_S = 120.0


class Server:
    """One `orbitmq serve`, with files small enough to roll under the load of a second."""

    def __init__(self, data: Path, ports: tuple[int, int], flush: str) -> None:
        arguments = ["serve", "--data", str(data), "--nameserver-port", str(ports[0]), "--broker-port", str(ports[1])]
        for setting in (
            f"flushDiskType={flush}",
            "mappedFileSizeCommitLog=1048576",
            "messageDelayLevel=1s 2s",
            "grpcServerPort=0",
        ):
            arguments += ["--set", setting]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ORBITMQ_", "NAMESRV_"))}
        self.log = data.with_name("log")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "orbitmq", *arguments], stdout=subprocess.PIPE, stderr=log, text=True, env=clean
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("orbitmq serves "), self.log.read_text()

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


async def load(namesrv: str, seconds: float, prefix: str) -> tuple[set[str], set[str]]:
    """Send plain and delayed messages from several tasks; answers (acknowledged, tried)."""
    acknowledged: set[str] = set()
    tried: set[str] = set()
    end = time.monotonic() + seconds

    async def sender(number: int) -> None:
        count = 0
        while time.monotonic() < end:
            count += 1
            body = f"{prefix}-{number}-{count}"
            tried.add(body)
            level = 1 if count % 5 == 0 else 0
            try:
                receipt = await producer.send("load", body.encode().ljust(500), delay_level=level)
            except ClientError:
                return  # the broker is dead
            if receipt.send_status is SendStatus.SEND_OK:
                acknowledged.add(body)

    async with connect(namesrv) as client:
        producer = client.producer("senders", ProducerOptions(send_timeout_ms=1_000, retries_count=0))
        with contextlib.suppress(ClientError):
            await producer.send("load", b"first".ljust(500))
        await asyncio.gather(*(sender(number) for number in range(SENDERS)))
    return acknowledged, tried


def consume_all(namesrv: str, topic: str = "load") -> Counter[str]:
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "orbitmq",
            "tail",
            topic,
            "--from-beginning",
            "--stop-at-end",
            "-n",
            namesrv,
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return Counter(json.loads(line)["body"].strip() for line in result.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_acknowledged_message_outlives_a_killed_broker(tmp_path: Path, flush: str) -> None:
    data, ports = tmp_path / "data", free_ports()
    namesrv = f"127.0.0.1:{ports[0]}"
    rng = random.Random(flush)
    acknowledged: set[str] = set()
    tried = {"first"}
    for number in range(ROUNDS):
        server = Server(data, ports, flush)
        killer = server.process
        after = rng.uniform(0.6, 1.4)

        async def round_(number: int = number, killer: subprocess.Popen[str] = killer, after: float = after) -> None:
            asyncio.get_running_loop().call_later(after, killer.send_signal, signal.SIGKILL)
            done, sent = await load(namesrv, after + 1, str(number))
            acknowledged.update(done)
            tried.update(sent)

        asyncio.run(round_())
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    assert len(acknowledged) > 100
    server = Server(data, ports, flush)
    found = consume_all(namesrv)
    deadline = time.monotonic() + 120
    while acknowledged - set(found) and time.monotonic() < deadline:  # delayed ones are due within a second
        time.sleep(0.5)
        found = consume_all(namesrv)
    assert acknowledged - set(found) == set()
    assert set(found) <= tried
    twice = {body: count for body, count in found.items() if count > 1 and body != "first"}
    assert twice == {}, "nobody sent twice, and no delivery is repeated"
    assert server.end(signal.SIGTERM) == 0
    check = subprocess.run(
        [sys.executable, "-m", "orbitmq", "store", "check", str(data)], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
