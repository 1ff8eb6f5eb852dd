"""A cluster as a file: exported, imported into an empty one with brokers of the same names, and exported again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from server_process import ServedProcess
from test_cli import Cli

import orbitmq
from orbitmq.client.admin import PolicyEntryInfo, PolicyInfo, ResetTo
from orbitmq.protocol.signing import Credentials

SECRET = "secret-of-root"
SMALL = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxIndexNum": 200_000, "waitTimeMillsInSendQueue": 60_000}


class Deployment:
    """A name server and two brokers that ask everybody who they are, and a command line of their super user."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        config = directory / "broker.conf"
        root = json.dumps({"username": "root", "password": SECRET})
        config.write_text(f"authenticationEnabled=true\nauthorizationEnabled=true\ninitAuthenticationUser={root}\n")
        config.chmod(0o600)
        self.processes = [ServedProcess(directory / "names", command="nameserver")]
        address = f"127.0.0.1:{self.processes[0].name_port}"
        for name in ("broker-a", "broker-b"):
            settings = {**SMALL, "brokerName": name, "namesrvAddr": address}
            options = ("--config", config)
            self.processes.append(ServedProcess(directory / name, command="broker", options=options, settings=settings))
        self.cli = Cli(directory / "home", address)
        self.cli.environment |= {"ORBITMQ_ACCESS_KEY": "root", "ORBITMQ_SECRET_KEY": SECRET}

    def client(self) -> orbitmq.Client:
        options = orbitmq.ClientOptions(credentials=Credentials("root", SECRET))
        return orbitmq.connect(self.cli.name_server, options=options)

    def outcomes(self, file: Path, *words: object) -> Counter[str]:
        return Counter(row["outcome"] for row in self.cli.json("cluster", "import", file, *words))


@contextmanager
def deployed(directory: Path) -> Iterator[Deployment]:
    deployment = Deployment(directory)
    try:
        yield deployment
    finally:
        for process in reversed(deployment.processes):
            process.kill()


def parts(file: Path) -> dict[str, Any]:
    document = json.loads(file.read_text())
    assert isinstance(document, dict)
    return document


async def furnish(first: Deployment) -> None:
    """One of each thing, and of topics also one that a single broker has."""
    entry = PolicyEntryInfo("Topic:orders", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")
    async with first.client() as mq:
        await mq.admin.create_topic("orders", queues_count=4, attributes={"message.type": "NORMAL"})
        await mq.admin.create_topic("stock", queues_count=2, broker="broker-b")
        await mq.admin.create_group("billing", retry_max_times=3)
        await mq.admin.create_user("shop", "secret-of-the-shop")
        await mq.admin.set_policies("shop", [PolicyInfo("Custom", [entry])])
        await mq.recurring.put("daily", "orders", b"good morning", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
        await mq.recurring.put("rarely", "stock", b"\xff\x00", every=129_600, tag="a", properties={"city": "Genf"})
        await mq.recurring.pause("rarely")
    await send_to_every_queue(first, "orders")
    async with first.client() as mq:
        await mq.admin.reset_offsets("billing", "orders", ResetTo.OFFSET, offset=2)


async def send_to_every_queue(deployment: Deployment, topic: str) -> None:
    """Five messages to each of eight queues."""
    async with deployment.client() as mq:
        for number in range(40):
            await mq.send(topic, b"%d" % number)


def test_an_empty_cluster_becomes_like_the_one_that_was_exported(tmp_path: Path) -> None:
    file, again = tmp_path / "first.json", tmp_path / "again.json"
    with deployed(tmp_path / "first") as first:
        asyncio.run(furnish(first))
        first.cli.run("cluster", "check", code=1)  # stock is on one broker
        first.cli.run("cluster", "export", file, "--passwords")
        assert SECRET not in first.cli.run("cluster", "export", "-").stdout
        assert set(first.outcomes(file)) == {"the same"}, "it is like itself"
    exported = parts(file)
    assert [len(exported[part]) for part in ("topics", "groups", "users", "policies", "offsets", "recurring")] == [
        2, 1, 2, 1, 2, 2,
    ]  # fmt: skip
    assert exported["offsets"][0]["offsets"] == {str(number): 2 for number in range(4)}

    with deployed(tmp_path / "second") as second:
        planned = second.outcomes(file, "--dry-run")
        assert second.cli.json("topic", "list") == []
        done = second.outcomes(file)
        assert planned == done
        assert set(done) == {"created", "the same"}, "root is there already"
        assert set(second.outcomes(file)) == {"the same"}

        second.cli.run("cluster", "export", again, "--passwords")
        empty = parts(again)
        assert {**empty, "offsets": None} == {**exported, "offsets": None}
        assert {offset for row in empty["offsets"] for offset in row["offsets"].values()} == {0}, "its queues are empty"

        asyncio.run(send_to_every_queue(second, "orders"))  # now the queues are long enough
        assert second.outcomes(file, "--only", "offsets") == {"changed": 2}
        second.cli.run("cluster", "export", again, "--passwords")
        assert again.read_bytes() == file.read_bytes()
