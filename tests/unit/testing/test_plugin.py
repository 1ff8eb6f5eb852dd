"""The pytest plugin as a user's test run sees it: each test here is a run of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = ("-p", "no:orbitmq", "-p", "orbitmq.testing.plugin", "-p", "no:cacheprovider")
"""Loaded by name, so that it is this one also where the installed entry points are older."""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, f"--basetemp={directory / 'temp'}", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)


def written(directory: Path, tests: str, name: str = "test_user.py") -> None:
    (directory / name).write_text(tests, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


PLAIN = """
from datetime import timedelta

def test_a_plain_test(orbitmq_broker):
    with orbitmq_broker.connect() as mq:
        mq.send("orders", b"42", delay_level=16)
    assert [message.topic for message in orbitmq_broker.pending()] == ["orders"]
    orbitmq_broker.advance(timedelta(minutes=30))
    assert [message.body for message in orbitmq_broker.messages("orders")] == [b"42"]
    orbitmq_broker.restart()
    orbitmq_broker.crash(down=timedelta(days=1))
    orbitmq_broker.advance_to(orbitmq_broker.now + timedelta(days=1))
    orbitmq_broker.run_until(lambda: len(orbitmq_broker.address) > 0)
    assert orbitmq_broker.dead_letters("nobody") == []

def test_another_has_a_broker_of_its_own(orbitmq_broker):
    assert orbitmq_broker.messages("orders") == []
"""

ASYNC = """
import asyncio
from datetime import timedelta
import pytest

async def scenario(broker):
    seen = []
    async def handler(message):
        seen.append(message.body)
    async with broker.connect() as mq, mq.consumer("readers", "orders") as consumer:
        await mq.send("orders", b"42", delay_level=16)
        running = asyncio.create_task(consumer.run(handler))
        await broker.run_until(lambda: seen == [b"42"], groups=["readers"])
        running.cancel()
    assert [message.body for message in await broker.messages("orders")] == [b"42"]

@pytest.mark.asyncio
async def test_with_a_plugin_that_runs_async_tests(orbitmq_async_broker):
    await scenario(orbitmq_async_broker)

def test_without_one(orbitmq_async_broker):
    asyncio.run(scenario(orbitmq_async_broker))
"""


SETTINGS = """
from datetime import timedelta
import pytest

@pytest.fixture
def orbitmq_settings():
    return {"messageDelayLevel": "3d"}

def test_it(orbitmq_broker):
    with orbitmq_broker.connect() as mq:
        mq.send("orders", b"x", delay_level=1)
    orbitmq_broker.advance(timedelta(days=3))
    assert len(orbitmq_broker.messages("orders")) == 1
"""


def test_plain_tests_async_tests_whatever_runs_them_and_settings(tmp_path: Path) -> None:
    written(tmp_path, PLAIN, "test_plain.py")
    written(tmp_path, ASYNC, "test_async.py")
    written(tmp_path, SETTINGS, "test_settings.py")
    done = run(tmp_path)
    assert "5 passed" in done.stdout, done.stdout
    assert list((tmp_path / "temp").glob("orbitmq[0-9]*")) == []


FAILING = """
def test_fails(orbitmq_broker):
    with orbitmq_broker.connect() as mq:
        mq.send("orders", b"evidence")
    assert False

def test_passes(orbitmq_broker):
    pass

def test_without_a_broker():
    pass
"""


@pytest.mark.parametrize(("choice", "kept"), [(None, 1), ("never", 0), ("always", 2)])
def test_data_of_failed_tests_are_kept_and_named(tmp_path: Path, choice: str | None, kept: int) -> None:
    written(tmp_path, FAILING)
    done = run(tmp_path, *(() if choice is None else (f"--orbitmq-keep={choice}",)))
    directories = list((tmp_path / "temp").glob("orbitmq[0-9]*"))
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert len(directories) == kept
    for directory in directories:
        assert f"orbitmq: the broker's data are kept in {directory}" in done.stdout
        assert (directory / "config").is_dir()


def test_it_imports_nothing_for_tests_that_do_not_ask_for_it(tmp_path: Path) -> None:
    written(
        tmp_path,
        "import sys\n\ndef test_it():\n"
        "    loaded = {name for name in sys.modules if name.partition('.')[0] == 'orbitmq'}\n"
        "    assert loaded == {'orbitmq', 'orbitmq.client', 'orbitmq.testing', 'orbitmq.testing.plugin'}\n",
    )
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_finds_it_through_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"orbitmq": "orbitmq.testing.plugin"}
