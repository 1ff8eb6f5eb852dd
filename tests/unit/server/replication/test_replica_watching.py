"""What a master and a slave show of each other: readiness, metrics, facts of the runtime information. Both run in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.replication.frames import encode_report
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.monitoring.http_front import HttpRequest
from orbitmq.store.message import NewMessage

SMALL = ("mappedFileSizeCommitLog=1048576", "maxIndexNum=2000", "maxHashSlotNum=500", "grpcEnable=false")


def free_port() -> int:
    """One whose lower neighbour is free as well."""
    return ports_in_a_row(2)[-1]


@asynccontextmanager
async def broker(data: Path, *flags: str, port: int | None = None) -> AsyncIterator[ServerProcess]:
    settings = load_settings(
        roles=[Role.BROKER],
        flags=[*SMALL, "httpEnable=false", *flags],
        overrides=Overrides(data=data, nameserver_port=0, broker_port=port or free_port()),
    )
    process = ServerProcess(settings, second_port=False)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def master(data: Path, port: int, role: str = "SYNC_MASTER", *flags: str) -> Any:
    """`port` is that for slaves, the main port the one below."""
    return broker(data / "master", f"brokerRole={role}", f"haListenPort={port}", *flags, port=port - 1)


def slave(data: Path, port: int) -> Any:
    return broker(data / "slave", "brokerRole=SLAVE", "brokerId=1", f"haMasterAddress=127.0.0.1:{port}")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - sockets have no event for it
            await asyncio.sleep(0)


async def ready(process: ServerProcess) -> tuple[int, dict[str, Any]]:
    answer = await process.watch.watching.answer(HttpRequest("/readyz", ""))
    return answer.status, json.loads(answer.body)


async def shown(process: ServerProcess) -> dict[tuple[str, ...], float]:
    """Values of the metrics of copies, by name and own labels."""
    answer = await process.watch.watching.answer(HttpRequest("/metrics", "application/openmetrics-text"))
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name in ("role", "reason", "direction"))): (
            sample.value
        )
        for family in read(answer.body.decode())
        for sample in family.samples
        if sample.name.startswith(("orbitmq_replica", "orbitmq_store_writable"))
    }


def facts(process: ServerProcess) -> dict[str, str]:
    assert process.broker is not None
    return process.broker.replication.facts()


def ha_status(process: ServerProcess) -> HaRuntimeInfo:
    assert process.broker is not None
    return process.broker.replication.status()


def follows(process: ServerProcess) -> bool:
    return facts(process)["orbitmqReplicaConnected"] == "true"


async def test_a_slave_that_follows_nobody_is_not_ready_and_says_why(tmp_path: Path) -> None:
    port = free_port()
    async with slave(tmp_path, port) as process:
        await until(lambda: "connection lost" in facts(process)["orbitmqReplicaTrouble"])
        status, told = await ready(process)
        assert status == 503
        (reason,) = told["reasons"]
        assert reason["reason"] == "not_following"
        assert f"the master at 127.0.0.1:{port} is not followed: connection lost" in reason["text"]
        found = await shown(process)
        assert found["orbitmq_replica_connected",] == 0
        assert found["orbitmq_store_writable",] == 1, "taking no messages of its own is no trouble of a copy"
        assert ("orbitmq_replica_silence_seconds",) not in found, "nothing has come yet"
        assert found["orbitmq_replica_connection_ends_total", "connection lost"] == 0, "there was no connection"
        assert facts(process)["orbitmqReplicaLastReadMillis"] == "0"
        assert process.broker is not None
        process.broker.store.refuse("test", "the disk is full")
        reasons = (await ready(process))[1]["reasons"]
        assert {"reason": "store_unwritable", "text": "the disk is full"} in reasons
        assert facts(process)["orbitmqReplicaTrouble"].startswith("the disk is full; the master at")


async def test_a_master_and_its_slave(tmp_path: Path) -> None:
    port = free_port()
    async with master(tmp_path, port) as one:
        status, told = await ready(one)
        assert (status, told["status"]) == (200, "ready")
        assert told["remarks"] == [
            {
                "reason": "copies_missing",
                "text": "sends are answered with a warning (11 or 12): 1 more slave has to keep up",
            }
        ]
        assert (await shown(one))["orbitmq_replica_copies_missing",] == 1
        async with slave(tmp_path, port) as two:
            await until(lambda: follows(two))
            await until(lambda: facts(one)["orbitmqReplicaCopiesCounted"] == "1")
            for process in (one, two):
                assert (await ready(process)) == (200, {"status": "ready"})
            assert one.broker is not None
            store = one.broker.store
            store.append(NewMessage("orders", 0, b"x", b""))
            one.turn.schedule()
            await until(lambda: json.loads(facts(one)["orbitmqReplicaSlaves"])[0]["position"] == store.log.written_end)
            (known,) = json.loads(facts(one)["orbitmqReplicaSlaves"])
            assert (known["state"], known["behindBytes"], known["behindMillis"], known["whyNot"]) == (
                "counted",
                0,
                0,
                "",
            )
            assert facts(one)["orbitmqReplicaPort"] == f"127.0.0.1:{port}"
            assert facts(two)["orbitmqReplicaLogEnd"] == facts(one)["orbitmqReplicaLogEnd"]
            assert facts(two)["orbitmqReplicaTrouble"] == ""
            found = await shown(one)
            while found["orbitmq_replica_lag_bytes",]:  # tables are recorded as well
                await asyncio.sleep(0)
                found = await shown(one)
            assert found["orbitmq_replica_role", "SYNC_MASTER"] == 1
            assert found["orbitmq_replica_counted",] == 1
            assert found["orbitmq_replica_lag_bytes",] == found["orbitmq_replica_lag_seconds",] == 0
            assert found["orbitmq_replica_acknowledged_offset_bytes",] == store.log.written_end
            assert found["orbitmq_replica_bytes_total", "out"] >= store.log.written_end - store.log.start
            other = await shown(two)
            assert other["orbitmq_replica_role", "SLAVE"] == 1
            assert other["orbitmq_replica_connected",] == 1
            assert other["orbitmq_replica_silence_seconds",] >= 0
            assert other["orbitmq_replica_bytes_total", "in"] == found["orbitmq_replica_bytes_total", "out"]
            assert other["orbitmq_replica_bytes_total", "out"] == found["orbitmq_replica_bytes_total", "in"]
        await until(lambda: facts(one)["orbitmqReplicaCopiesCounted"] == "0")
        (known,) = json.loads(facts(one)["orbitmqReplicaSlaves"])
        assert (known["slave"], known["state"], known["whyNot"]) == ("1", "away", "connection lost")
        assert known["mainAddress"] == f"127.0.0.1:{two.settings.broker_port}"
        assert known["heardMillis"] > 0
        (listed,) = ha_status(one).ha_connection_info
        assert (listed.addr, listed.in_sync, listed.why_not) == (known["mainAddress"], False, "connection lost")
        assert (await ready(one))[1]["remarks"][0]["reason"] == "copies_missing"
        assert (await shown(one))["orbitmq_replica_connection_ends_total", "connection lost"] == 1


async def test_a_slave_that_is_out_is_listed_with_its_trouble(tmp_path: Path) -> None:
    port = free_port()
    async with master(tmp_path, port) as one, slave(tmp_path, port) as two:
        await until(lambda: facts(one)["orbitmqReplicaCopiesCounted"] == "1")
        assert [slave.why_not for slave in ha_status(one).ha_connection_info] == [""]
        store, following = two.broker.store, two.broker.replication.following
        store.refuse("test", "the disk is full")
        following.connect_anew(LinkEnd.APPEND_FAILED)
        await until(lambda: following.is_connected)
        await following.stop()
        await until(lambda: json.loads(facts(one)["orbitmqReplicaSlaves"])[0]["state"] == "away")
        (known,) = json.loads(facts(one)["orbitmqReplicaSlaves"])
        assert known["whyNot"] == "trouble with its store: the disk is full"
        (listed,) = ha_status(one).ha_connection_info
        assert (listed.in_sync, listed.why_not) == (False, known["whyNot"])
        told: list[object] = []
        one.broker.replication.forget(1, told.append)
        await until(lambda: told == [True])
        assert facts(one)["orbitmqReplicaSlaves"] == "[]"


async def test_a_slave_that_was_removed_while_it_followed_is_removed_again_when_it_is_away(tmp_path: Path) -> None:
    port = free_port()
    async with master(tmp_path, port) as one:
        told: list[object] = []
        async with slave(tmp_path, port):
            await until(lambda: facts(one)["orbitmqReplicaCopiesCounted"] == "1")
            one.broker.replication.forget(1, told.append)
            await until(lambda: told == [True])
            assert json.loads(facts(one)["orbitmqReplicaSlaves"])[0]["state"] == "counted", "it follows on"
        await until(lambda: json.loads(facts(one)["orbitmqReplicaSlaves"])[0]["state"] == "away")
        one.broker.replication.forget(1, told.append)
        await until(lambda: told == [True, True])
        assert facts(one)["orbitmqReplicaSlaves"] == "[]"
        one.broker.replication.forget(1, told.append)
        assert told[2:] == [False], "nobody knows it any more"


async def test_a_master_that_waits_for_nobody_lacks_nobody(tmp_path: Path) -> None:
    async with master(tmp_path, free_port(), "ASYNC_MASTER") as process:
        assert (await ready(process)) == (200, {"status": "ready"})
        assert facts(process)["orbitmqReplicaTrouble"] == ""


async def test_a_master_that_refuses_without_copies_is_not_ready(tmp_path: Path) -> None:
    async with master(tmp_path, free_port(), "SYNC_MASTER", "refuseWithoutCopies=true") as process:
        status, told = await ready(process)
        assert status == 503
        assert told["reasons"][0]["reason"] == "store_unwritable"
        assert told["remarks"][0]["text"] == "sends are refused: 1 more slave has to keep up"


@pytest.mark.parametrize("ends", ["master", "stranger"])
async def test_how_connections_ended_is_counted(tmp_path: Path, ends: str) -> None:
    port = free_port()
    flags = ["haPeerAddresses=10.9.9.9"] if ends == "stranger" else []
    async with master(tmp_path, port, "ASYNC_MASTER", *flags) as one, slave(tmp_path, port) as two:
        if ends == "stranger":
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_report(0))
            assert await reader.read() == b""
            writer.close()
            assert (await shown(one))["orbitmq_replica_connection_ends_total", "refused"] == 1
            return
        await until(lambda: follows(two))
        one.broker.replication.port.close()
        await until(lambda: not follows(two))
        assert (await shown(two))["orbitmq_replica_connection_ends_total", "connection lost"] == 1
        assert (await ready(two))[1]["reasons"][0]["reason"] == "not_following"
