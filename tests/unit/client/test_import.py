"""Importing the client stays cheap and pulls in nothing that a small program does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("typer", "rich", "lz4", "zstandard", "uvloop", "orbitmq.store", "orbitmq.broker", "orbitmq.server")


@pytest.mark.parametrize(
    "statement", ["import orbitmq", "import orbitmq.client", "from orbitmq import connect", "import orbitmq.sync"]
)
def test_no_heavy_module_is_imported(statement: str) -> None:
    program = f"import sys\n{statement}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


WITH_MSGSPEC_ONLY = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("orbitmq", "msgspec", "scripted_cluster", "__mp_main__"):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)


sys.meta_path.insert(0, Refuse())
sys.path.insert(0, TESTS)
from scripted_cluster import NAME_SERVER, Cluster
import orbitmq.sync
from orbitmq.client._async.client import Client

cluster = Cluster()
cluster.add_broker("b-a")
cluster.add_topic("T", queues=1)
cluster.add_topic("%RETRY%g", queues=1)
first = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST)
with orbitmq.sync.Client(Client(NAME_SERVER, dial=cluster.dial)) as mq:
    mq.send("T", b"x" * 1_000)
    with mq.consumer("g", "T", options=first) as consumer:
        print(len(next(consumer).body))
"""


def test_a_client_runs_with_msgspec_alone() -> None:
    """What `pip install --no-deps orbitmq msgspec` gives is enough to send and to consume."""
    program = WITH_MSGSPEC_ONLY.replace("TESTS", repr(str(Path(__file__).parent)))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "1000\n"), result.stderr


NOT_TO_SEND = (
    "orbitmq.client._async.administration",
    "orbitmq.client._async.callbacks",
    "orbitmq.client._async.consuming",
    "orbitmq.client._async.pulling",
    "orbitmq.client._async.sending.batcher",
    "orbitmq.client._async.sending.requests",
    "orbitmq.client._async.sending.tracer",
    "orbitmq.client._sync",
    "orbitmq.client.consuming.process_queue",
    "orbitmq.client.consuming.pull_plan",
    "orbitmq.client.consuming.subscription",
    "orbitmq.client.pulling",
    "orbitmq.client.redrive",
    "orbitmq.client.sending.reply",
    "orbitmq.client.stored",
    "orbitmq.protocol.batches",
    "orbitmq.protocol.compression",
    "orbitmq.protocol.records",
    "orbitmq.protocol.remoting.bodies.assignment",
    "orbitmq.protocol.remoting.bodies.connections",
    "orbitmq.protocol.remoting.bodies.groups",
    "orbitmq.protocol.remoting.bodies.offsets",
    "orbitmq.protocol.remoting.bodies.queue_locks",
    "orbitmq.protocol.remoting.bodies.registration",
    "orbitmq.protocol.remoting.bodies.running",
    "orbitmq.protocol.remoting.bodies.statistics",
    "dataclasses",
    "hmac",
    "ipaddress",
    "isal",
    "pathlib",
    "secrets",
    "urllib",
)
"""What a program that connects and sends does without. Together they took a third of the import's time."""


FIND = f"""
new = set(sys.modules) - before
print([part for part in {NOT_TO_SEND!r} if any(name == part or name.startswith(part + ".") for name in new)])
"""


def test_what_a_program_that_sends_does_without_is_not_imported() -> None:
    program = f"import asyncio, sys\nbefore = set(sys.modules)\nfrom orbitmq import connect\n{FIND}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_each_of_them_would_be_found() -> None:
    """The control: no entry names what does not exist."""
    program = (
        f"import importlib, sys\nbefore = set()\nfor name in {NOT_TO_SEND!r}: importlib.import_module(name)\n{FIND}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == repr([*NOT_TO_SEND])


def test_every_public_name_exists() -> None:
    import orbitmq
    import orbitmq.client
    import orbitmq.sync

    for module in (orbitmq, orbitmq.client, orbitmq.sync):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert orbitmq.sync.__all__ == sorted(orbitmq.__all__)
    assert set(orbitmq.client.__all__) <= set(orbitmq.__all__)
    for module in (orbitmq, orbitmq.client):
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError):
            _ = module.no_such_name
