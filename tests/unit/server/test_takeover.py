"""Stores of RocketMQ with messages that cannot be delivered yet: counted, and refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import HALF_TOPIC, TIMER_TOPIC
from orbitmq.server.takeover import linked_timers, refuse_unfinished, undecided_halves, unlinked_timers
from orbitmq.store.files import OsFiles

FILES = OsFiles()
PRECISION_MS = 1_000
SLOT = struct.Struct(">qqqii")


class Queue:
    def __init__(self, min_offset: int, max_offset: int) -> None:
        self.min_offset = min_offset
        self.max_offset = max_offset


class Queues:
    """As much of the consume queues as is asked."""

    def __init__(self, **queues: Queue) -> None:
        self._queues = queues

    def get(self, topic: str, queue_id: int) -> Queue | None:
        assert queue_id == 0
        return self._queues.get(topic)


def queues(**found: Queue) -> Any:
    return Queues(**found)


def timer_check(root: Path, first_unread_ms: int, linked_offset: int) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "timercheck").write_bytes(struct.pack(">4q", first_unread_ms, 0, linked_offset, linked_offset))


def wheel(root: Path, *slots: tuple[int, int, int, int], size: int = 1_000) -> None:
    """Slots as (number, first, last, units) at their places; the rest is a hole."""
    with (root / "timerwheel").open("wb") as file:
        file.truncate(size * SLOT.size)
        for number, first, last, units in slots:
            file.seek(number % size * SLOT.size)
            file.write(SLOT.pack(number, first, last, units, 0))


def test_an_ordinary_store_is_taken_over(tmp_path: Path) -> None:
    refuse_unfinished(tmp_path, FILES, queues(), PRECISION_MS)
    wheel(tmp_path)
    timer_check(tmp_path, 1_700_000_000_000, 7)
    refuse_unfinished(tmp_path, FILES, queues(**{TIMER_TOPIC: Queue(0, 7)}), PRECISION_MS)


@pytest.mark.parametrize(
    ("linked", "first", "last", "expected"), [(0, 0, 5, 5), (3, 0, 5, 2), (5, 0, 5, 0), (9, 0, 5, 0), (1, 4, 6, 2)]
)
def test_records_not_yet_in_the_wheel(tmp_path: Path, linked: int, first: int, last: int, expected: int) -> None:
    timer_check(tmp_path, 0, linked)
    found = queues(**{TIMER_TOPIC: Queue(first, last)})
    assert unlinked_timers(tmp_path, FILES, found) == expected
    if expected:
        with pytest.raises(ConfigurationError, match=f"{expected} or more pending timer messages"):
            refuse_unfinished(tmp_path, FILES, found, PRECISION_MS)


def test_without_a_timer_check_every_record_is_unlinked(tmp_path: Path) -> None:
    assert unlinked_timers(tmp_path, FILES, queues(**{TIMER_TOPIC: Queue(2, 9)})) == 7


def test_slots_that_were_not_read_yet(tmp_path: Path) -> None:
    now = 1_700_000_000
    timer_check(tmp_path, now * 1_000, 0)
    wheel(tmp_path, (now - 1, 0, 52, 4), (now, 52, 104, 2), (now + 60, 104, 520, 8), (now + 70, -1, -1, 0))
    assert linked_timers(tmp_path, FILES, PRECISION_MS) == 10
    with pytest.raises(ConfigurationError, match="10 or more pending timer messages") as caught:
        refuse_unfinished(tmp_path, FILES, queues(), PRECISION_MS)
    assert "let RocketMQ finish" in str(caught.value)


def test_a_large_sparse_wheel_is_read_only_where_it_has_content(tmp_path: Path) -> None:
    now = 1_700_000_000
    size = 2 * 7 * 24 * 3_600
    wheel(tmp_path, (now, 0, 52, 3), size=size)
    timer_check(tmp_path, now * 1_000, 0)
    assert (tmp_path / "timerwheel").stat().st_size > 30_000_000
    assert linked_timers(tmp_path, FILES, PRECISION_MS) == 3


def test_a_torn_timer_check_counts_as_zeros(tmp_path: Path) -> None:
    timer_check(tmp_path, 5, 5)
    path = tmp_path / "config" / "timercheck"
    path.write_bytes(path.read_bytes()[:11])
    assert unlinked_timers(tmp_path, FILES, queues(**{TIMER_TOPIC: Queue(0, 3)})) == 3


@pytest.mark.parametrize(("table", "expected"), [(None, 6), ({}, 6), ({"0": 4}, 2), ({"0": 6}, 0), ({"0": 99}, 0)])
def test_halves_that_nobody_has_decided(tmp_path: Path, table: dict[str, int] | None, expected: int) -> None:
    import json

    if table is not None:
        (tmp_path / "config").mkdir()
        offsets = {"offsetTable": {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": table}}
        (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    found = queues(**{HALF_TOPIC: Queue(0, 6)})
    assert undecided_halves(tmp_path, FILES, found) == expected
    if expected:
        with pytest.raises(ConfigurationError, match=f"up to {expected} undecided transactions"):
            refuse_unfinished(tmp_path, FILES, found, PRECISION_MS)


@pytest.mark.parametrize("name", ["timer-clean", "timer-crash", "timer-far"])
def test_the_golden_stores_hold_timers(golden_store: Callable[[str], Any], name: str) -> None:
    """Wheels as the Java broker wrote them."""
    assert linked_timers(golden_store(name).root, FILES, PRECISION_MS) > 0
