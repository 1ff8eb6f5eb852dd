"""The meter for NATS and RabbitMQ in the timer benchmark against links with planted faults, and against a real NATS.

Each fault must be reported exactly; the figures of a sound link must be the ones that were planted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.toolchain import REPOSITORY, Missing

pytestmark = pytest.mark.alone  # it measures lateness

COUNT = 200
FAULTY = COUNT // 10
SOON_MS = 300


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    """The programs of benchmarks/ can be imported."""
    folder = str(REPOSITORY / "benchmarks")
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


class Pretended:
    """What a server does with messages, without one: bodies come back at their due time, except as the fault says."""

    in_due_order = False

    def __init__(self, fault: str) -> None:
        self.confirmed = 0
        self._fault = fault
        self._waiting: list[tuple[float, bytes]] = []

    def publish(self, number: int, due_ms: int, body: bytes) -> None:
        self.confirmed += 1
        faulty = number % 10 == 0
        if faulty and self._fault == "missing":
            return
        if faulty and self._fault == "foreign":
            body = b"else" + body[4:]
        shift = {"early": -100.0, "late": 200.0}.get(self._fault, 1.0) if faulty else 1.0
        self._waiting.append((due_ms + shift, body))
        if faulty and self._fault == "dup":
            self._waiting.append((due_ms + 2.0, body))

    def turn(self, wait_s: float) -> list[bytes]:
        time.sleep(min(wait_s, 0.005))
        now = time.time() * 1000
        due = [body for at, body in self._waiting if at <= now]
        self._waiting = [(at, body) for at, body in self._waiting if at > now]
        return due


def findings(fault: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    import timed_link

    monkeypatch.setattr(timed_link, "GRACE_S", 0.5)
    link: Any = Pretended(fault)
    found: dict[str, Any] = timed_link.late(link, COUNT, 64, base_ms=int(time.time() * 1000) + SOON_MS, over_ms=200)
    return found


@pytest.mark.parametrize(
    ("fault", "name"),
    [("none", ""), ("early", "early"), ("dup", "duplicates"), ("missing", "missing"), ("foreign", "foreign")],
)
def test_each_fault_is_counted_exactly(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(fault, monkeypatch)
    expected = {"early": 0, "duplicates": 0, "missing": 0, "foreign": 0}
    if name:
        expected[name] = FAULTY
    if fault == "foreign":
        expected["missing"] = FAULTY
    assert {key: found[key] for key in expected} == expected


def test_late_messages_show_in_the_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    late = findings("late", monkeypatch)["lateness_ms"]
    assert late["max"] >= 200
    assert late["p50"] < 200


def test_a_real_server_delivers_each_message_once_and_not_early(tmp_path: Path) -> None:
    """NATS from its wheel. RabbitMQ comes from packages of one Linux distribution: the benchmark itself refuses its rows when
    a message is early, missing or doubled."""
    import comparators
    import timed_link

    server = comparators.NatsServer(tmp_path)
    try:
        try:
            server.start()
        except Missing as missing:
            pytest.skip(f"NATS is not to be had here: {' '.join(str(missing).split())[:200]}")
        link = timed_link.NatsLink(server.port, "T")
        found = timed_link.late(link, COUNT, 64, base_ms=int(time.time() * 1000) + 1000, over_ms=500)
        rate = timed_link.fill(link, COUNT, 64, from_ms=int(time.time() * 1000) + 3_600_000, spread_ms=1000)
        link.close()
    finally:
        server.kill()
    assert [found[name] for name in ("early", "duplicates", "missing", "foreign")] == [0, 0, 0, 0]
    assert rate > 0
