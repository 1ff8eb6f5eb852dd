"""RocketMQ 5.3.3 as judge of our store directories, and we of its: each opens what the other wrote.

Small file sizes make the commit log, the consume queues and the index roll. Delayed messages are pending when a writer
stops; the next broker has to deliver them, not before their time.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind, orbitmq_command
from rig.ledger import SMALL_FILES, Ledger, judge, rolled_files
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

Brokers = Callable[..., BrokerUnderTest]

COUNT = 900
CRASH_AFTER_S = 1.5
OVER_JAVA_STOP = 4
"""A level (30 s) that is still pending after the 15 s that the Java broker takes to stop."""

PAIRS = [(Kind.ORBITMQ, Kind.JAVA), (Kind.JAVA, Kind.ORBITMQ)] if Kind.ORBITMQ in KINDS_UNDER_TEST else []
if Kind.JAVA in KINDS_UNDER_TEST:
    PAIRS.append((Kind.JAVA, Kind.JAVA))
pairs = pytest.mark.parametrize(
    ("writer", "reader"), PAIRS, ids=[f"{writer.value}-to-{reader.value}" for writer, reader in PAIRS]
)
"""Who writes and who reads. Java to Java is the control: a directory of RocketMQ's must satisfy its own broker."""


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    available(lambda: java_build(BROKER_VERSION))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def open_store(brokers: Brokers, kind: Kind, name: str, data: Path) -> BrokerUnderTest:
    under_test = brokers(kind, name, data=data, settings=SMALL_FILES)
    return under_test.start()


def fill(broker: BrokerUnderTest, ledger: Ledger, *, pending_level: int = 3, count: int = COUNT) -> None:
    """Plain messages and batches, delayed ones that are delivered here, delayed ones that stay pending, consumer offsets."""
    with broker.wire() as wire:
        ledger.create_topics(wire)
        ledger.write(wire, 20, level=1)
        ledger.write(wire, count)
        time.sleep(1.2)
        ledger.commit_some(wire)
        ledger.write(wire, 20, level=pending_level)


def assert_rolled(data: Path) -> None:
    assert all(count >= 2 for count in rolled_files(data).values()), (
        f"the workload is too small to roll: {rolled_files(data)}"
    )


def assert_sound(data: Path) -> None:
    checked = subprocess.run(
        [*map(str, orbitmq_command()), "store", "check", str(data)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pairs
def test_stopped_store_is_read_whole(writer: Kind, reader: Kind, brokers: Brokers, data: Path, tmp_path: Path) -> None:
    book = Ledger("clean", 1)
    first = open_store(brokers, writer, "writer", data)
    fill(first, book, pending_level=OVER_JAVA_STOP if writer is Kind.JAVA else 3)
    first.stop()
    assert_rolled(data)
    if reader is Kind.ORBITMQ:
        assert_sound(data)
    judge(open_store(brokers, reader, "reader", data), [book], tmp_path / "judge")


if Kind.ORBITMQ in KINDS_UNDER_TEST:

    def test_in_turn_on_one_directory(brokers: Brokers, data: Path, tmp_path: Path) -> None:
        first, second, third = Ledger("turn1", 3), Ledger("turn2", 4), Ledger("turn3", 5)
        ours = open_store(brokers, Kind.ORBITMQ, "first", data)
        fill(ours, first, count=COUNT // 2)
        ours.stop()
        java = open_store(brokers, Kind.JAVA, "second", data)
        fill(java, second, pending_level=OVER_JAVA_STOP, count=COUNT // 2)
        first.committed.clear()
        java.stop()
        ours = open_store(brokers, Kind.ORBITMQ, "third", data)
        judge(ours, [first, second], tmp_path / "reader3")
        second.committed.clear()
        fill(ours, third, count=COUNT // 2)
        ours.stop()
        assert_sound(data)
        judge(open_store(brokers, Kind.JAVA, "fourth", data), [first, second, third], tmp_path / "reader4")


@pairs
def test_after_kill_of_the_writer(writer: Kind, reader: Kind, brokers: Brokers, data: Path, tmp_path: Path) -> None:
    """kill -9 in the middle of sending; every acknowledged message comes out of the other broker."""
    book = Ledger("crash", 6)
    killed = open_store(brokers, writer, "writer", data)
    fill(killed, book, count=COUNT // 2)
    book.committed.clear()  # offsets are saved every five seconds; what was committed since may be lost
    moment = threading.Timer(CRASH_AFTER_S, killed.kill)
    moment.start()
    with killed.wire() as wire, contextlib.suppress(OSError):
        while True:
            book.write(wire, 50)
    moment.join()
    assert_rolled(data)
    judge(open_store(brokers, reader, "reader", data), [book], tmp_path / "judge", after_crash=True)
