"""Our command line against a broker, RocketMQ's own or ours: groups are read and moved, dead letters go back.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest, Kind

import orbitmq
from orbitmq.client.redrive import ORIGIN_PROPERTY

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=0)
LIMIT_S = 180

_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"cli-{time.time_ns() // 1_000_000}-{next(_serial)}"


class Cli:
    """Commands to one cluster."""

    def __init__(self, broker: BrokerUnderTest, home: Path) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ORBITMQ_", "NAMESRV_"))}
        self._environment = {**kept, "ORBITMQ_NAMESRV": broker.name_server, "XDG_CONFIG_HOME": str(home)}

    def run(self, *words: object, text: str | None = None) -> str:
        line = [sys.executable, "-m", "orbitmq.cli.main", *map(str, words)]
        done = subprocess.run(
            line, capture_output=True, text=True, env=self._environment, timeout=LIMIT_S, input=text, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: object) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def cli(broker: BrokerUnderTest, tmp_path: Path) -> Cli:
    return Cli(broker, tmp_path)


async def consume(broker: BrokerUnderTest, name: str, count: int, *, fail: bool = False) -> list[bytes]:
    """What a member of the group gets until it has `count` messages; it acknowledges all, or makes all dead letters."""
    seen: list[bytes] = []
    async with (
        asyncio.timeout(LIMIT_S),
        orbitmq.connect(broker.name_server) as mq,
        mq.consumer(name, name, options=FIRST) as consumer,
    ):
        async for message in consumer:
            seen.append(message.body)
            await (message.retry() if fail else message.ack())
            if len(seen) == count:
                break
    return seen


def stored(cli: Cli, topic: str) -> int:
    return sum(row["messages"] for row in cli.json("topic", "stats", topic))


def test_the_cluster_its_brokers_and_its_counters(broker: BrokerUnderTest, cli: Cli, name: str) -> None:
    (row,) = cli.json("cluster", "show")
    assert (row["active"], row["version"]) == (True, "V5_3_3")
    assert cli.json("broker", "config", "get", row["broker"], "flushDiskType")["flushDiskType"] == "ASYNC_FLUSH"
    cli.run("nameserver", "kv", "put", name, "k", "v")
    assert cli.json("nameserver", "kv", "list", name) == [{"key": "k", "value": "v"}]
    cli.run("nameserver", "kv", "delete", name, "k")
    assert cli.json("nameserver", "config", "get")


def test_a_group_is_read_and_moved_while_nobody_is_online(broker: BrokerUnderTest, cli: Cli, name: str) -> None:
    cli.run("topic", "create", name, "-q", 1)
    cli.run("group", "create", name)
    cli.run("send", name, text="one\ntwo\nthree\n")
    assert asyncio.run(consume(broker, name, 3)) == [b"one", b"two", b"three"]
    assert cli.json("group", "lag", name, "-t", name)["lag"] == 0
    (moved,) = cli.json("group", "reset", name, "-t", name, "--to-offset", 1, "--yes")
    assert (moved["before"], moved["after"], moved["again"]) == (3, 1, 2)
    lag = cli.json("group", "lag", name, "-t", name)
    assert lag["lag"] == 2
    assert asyncio.run(consume(broker, name, 2)) == [b"two", b"three"]


def test_a_group_is_moved_while_it_consumes(broker: BrokerUnderTest, cli: Cli, name: str) -> None:
    cli.run("topic", "create", name, "-q", 1)
    cli.run("send", name, text="one\ntwo\n")

    async def work() -> list[bytes]:
        seen: list[bytes] = []
        async with (
            asyncio.timeout(LIMIT_S),
            orbitmq.connect(broker.name_server) as mq,
            mq.consumer(name, name, options=FIRST) as consumer,
        ):
            async for message in consumer:
                seen.append(message.body)
                await message.ack()
                if len(seen) == 2:
                    (member,) = await asyncio.to_thread(cli.json, "group", "members", name)
                    assert (member["client_id"], member["answers"]) == (mq.client_id, True)
                    await asyncio.to_thread(cli.run, "group", "reset", name, "-t", name, "--earliest", "--yes")
                if len(seen) == 4:
                    break
        return seen

    assert asyncio.run(work()) == [b"one", b"two", b"one", b"two"]


def test_dead_letters_go_back_to_their_topic(broker: BrokerUnderTest, cli: Cli, name: str) -> None:
    cli.run("topic", "create", name, "-q", 2)
    cli.run("group", "create", name)
    for number in range(4):
        cli.run("send", name, f"bill {number}", "--tag", "odd" if number % 2 else "even", "--key", f"k{number}")
    asyncio.run(consume(broker, name, 4, fail=True))
    ends = time.monotonic() + LIMIT_S
    while f"%DLQ%{name}" not in cli.run("topic", "list", "--all") or stored(cli, f"%DLQ%{name}") < 4:
        assert time.monotonic() < ends
        time.sleep(0.2)

    odd = cli.json("message", "redrive", name, "--tag", "odd")
    assert (odd["looked_at"], odd["redriven"], odd["complete"]) == (4, 2, True)
    assert cli.json("message", "redrive", name, "--tag", "odd")["looked_at"] == 0
    assert cli.json("message", "redrive", name)["redriven"] == 4
    # The two that both runs found: our broker knows them by their key, RocketMQ's has no such memory.
    assert stored(cli, name) == 4 + (4 if broker.kind is Kind.ORBITMQ else 6)

    lines = cli.run("tail", name, "--from-beginning", "--stop-at-end", "-f", "json").splitlines()
    redriven = [record for record in map(json.loads, lines) if ORIGIN_PROPERTY in record["properties"]]
    assert {record["body"] for record in redriven} == {f"bill {number}" for number in range(4)}
    for record in redriven:
        assert (record["reconsume_times"], record["keys"]) == (0, f"k{record['body'][-1]}")
        assert not {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "ORIGIN_MESSAGE_ID"} & set(record["properties"])
