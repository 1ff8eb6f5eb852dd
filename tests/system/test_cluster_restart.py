"""A cluster of two brokers is restarted one by one while a client sends: no send fails, and none is stored twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.system.server_process import ServedProcess, clean_environment

from orbitmq.client import Client, ClientOptions, connect

SENDERS = 4
PAUSE_S = 0.01
LIMIT_S = 110
"""A machine that does much else takes several times as long as the usual quarter of a minute."""
ROUTES_MS = 300
"""How often the client looks at its routes; the command is told a second."""


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name_server = ServedProcess(directory / "ns", command="nameserver")
        self.address = f"127.0.0.1:{self.name_server.name_port}"
        self.brokers = {name: self._started(name, None) for name in ("broker-a", "broker-b")}

    def _started(self, name: str, ports: tuple[int, int] | None) -> ServedProcess:
        return ServedProcess(
            self.directory / name,
            command="broker",
            options=("--namesrv", self.address),
            settings={"brokerName": name},
            ports=ports,
        )

    def restart(self, name: str) -> None:
        before = self.brokers[name]
        before.stop()
        self.brokers[name] = self._started(name, (before.name_port, before.port))

    def started(self) -> Mapping[str, str]:
        return {name: broker.runtime()["bootTimestamp"] for name, broker in self.brokers.items()}

    async def command(self, *options: str) -> asyncio.subprocess.Process:
        """The command, which leaves a file for each broker that it wants restarted."""
        words = ("-m", "orbitmq.cli.main", "cluster", "restart", "--one-by-one", "--yes", "-n", self.address)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            "--restart-command",
            f"touch {self.directory}/{{broker}}.due",
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=clean_environment(),
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for server in (*cluster.brokers.values(), cluster.name_server):
        server.kill()


async def writable(mq: Client) -> dict[str, bool]:
    """Broker -> whether its name server sends clients there."""
    return {data.broker_name: bool(data.perm & 2) for data in (await mq.admin.topic_route("orders")).queue_datas}


async def send_on(mq: Client, stop: asyncio.Event, sent: list[str], failed: list[Exception]) -> None:
    while not stop.is_set():
        try:
            sent.append((await mq.send("orders", b"x" * 200)).message_id)
        except Exception as error:
            failed.append(error)
        await asyncio.sleep(PAUSE_S)


async def obey(cluster: Cluster, ended: asyncio.Future[object]) -> list[str]:
    """Restarts whom the command wants restarted, until it ends; these, in order."""
    restarted = []
    while not ended.done():
        for name in cluster.brokers:
            due = cluster.directory / f"{name}.due"
            if due.exists():
                due.unlink()
                await asyncio.to_thread(cluster.restart, name)
                restarted.append(name)
        await asyncio.wait({ended}, timeout=0.1)
    return restarted


async def test_no_send_fails_and_none_is_stored_twice(cluster: Cluster) -> None:
    sent: list[str] = []
    failed: list[Exception] = []
    stop, before = asyncio.Event(), cluster.started()
    async with connect(cluster.address, options=ClientOptions(route_refresh_ms=ROUTES_MS)) as mq:
        await mq.admin.create_topic("orders", queues_count=4)
        senders = [asyncio.create_task(send_on(mq, stop, sent, failed)) for _ in range(SENDERS)]
        command = await cluster.command("--route-interval", "1s", "--wait", "90s", "--start-wait", "60s")
        told = asyncio.ensure_future(command.communicate())
        async with asyncio.timeout(LIMIT_S):
            restarted = await obey(cluster, told)
            stop.set()
            await asyncio.gather(*senders)
        _, text = told.result()
        assert command.returncode == 0, text.decode()
        assert restarted == ["broker-a", "broker-b"], text.decode()
        assert failed == []
        after = cluster.started()
        assert all(before[name] != after[name] for name in before)
        assert await writable(mq) == {"broker-a": True, "broker-b": True}
        stored = sum(at.max_offset - at.min_offset for at in (await mq.admin.topic_stats("orders")).values())
        assert (stored, len(set(sent))) == (len(sent), len(sent))


async def test_an_interruption_gives_the_write_permission_back(cluster: Cluster) -> None:
    async with connect(cluster.address) as mq:
        await mq.admin.create_topic("orders", queues_count=4)
        command = await cluster.command("--route-interval", "1h", "--wait", "2h")
        told = asyncio.ensure_future(command.communicate())
        async with asyncio.timeout(LIMIT_S):
            while (await writable(mq))["broker-a"]:
                await asyncio.wait({told}, timeout=0.1)
                assert not told.done(), told.result()
            command.send_signal(signal.SIGINT)
            _, text = await told
        assert command.returncode == 130, text.decode()
        assert b"interrupted; 0 restarted, it was the turn of broker-a" in text
        assert await writable(mq) == {"broker-a": True, "broker-b": True}
