"""A wall clock that is set back, a little or far: everything comes once, in its time, and nothing else stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

FAR_MS = 2 * 3_600_000
STEPS_MS = [20_000, 29_000, 45_000, 3 * 3_600_000, 300 * 86_400_000]


def play(little: LittleStore, seconds: int) -> dict[bytes, int]:
    """Body -> how late each was that came meanwhile."""
    came: dict[bytes, int] = {}
    seen = len(little.bodies())
    for _ in range(seconds * 2):
        little.clock.advance(500)
        little.settle()
        for body, properties in list(zip(little.bodies(), little.properties(), strict=True))[seen:]:
            assert body not in came
            came[body] = little.clock.now_ms() - int(properties["TIMER_DELIVER_MS"])
            seen += 1
    assert all(late_ms >= 0 for late_ms in came.values())
    return came


def jump(little: LittleStore, now_ms: int) -> dict[bytes, int]:
    """Set the clock, and let it be noticed."""
    little.clock.set_wall(now_ms)
    return play(little, 3)


@pytest.mark.parametrize("back_ms", STEPS_MS)
def test_what_is_sent_after_the_clock_was_set_back_comes_in_its_time(tmp_path: Path, back_ms: int) -> None:
    little = LittleStore(tmp_path)
    start_ms = little.clock.now_ms()
    for number, after_ms in enumerate((5_500, 60_000, FAR_MS - 5_000)):
        little.send(body=b"before %d" % number, after_ms=after_ms)
    little.settle()
    jump(little, start_ms - back_ms)
    for number, after_ms in enumerate((10_700, 4_300, 10_200, FAR_MS + 20_000)):
        little.send(body=b"after %d" % number, after_ms=after_ms)
    assert little.timers.next_due_ms is not None
    assert little.timers.next_due_ms <= little.clock.now_ms() + 4_300
    came = play(little, 15)
    assert list(came) == [b"after 1", b"after 2", b"after 0"]
    assert max(came.values()) < 500
    assert little.timers.pending_count == 4
    came = jump(little, start_ms + 70_000) | jump(little, start_ms + FAR_MS + 30_000) | play(little, 10)
    assert sorted(came) == [b"after 3", b"before 0", b"before 1", b"before 2"]
    assert len(little.bodies()) == 7
    assert little.timers.pending_count == 0


@pytest.mark.parametrize("back_ms", STEPS_MS)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_start_while_the_clock_is_back_delivers_in_time(tmp_path: Path, back_ms: int, is_killed: bool) -> None:
    little = LittleStore(tmp_path)
    start_ms = little.clock.now_ms()
    little.send(body=b"before", after_ms=FAR_MS - 5_000)
    little.settle()
    jump(little, start_ms - back_ms)
    little.send(body=b"1", after_ms=20_000)
    little.send(body=b"2", after_ms=30_000)
    play(little, 2)
    if is_killed:
        little.kill()
    else:
        little.close()
    again = LittleStore(tmp_path, clock=little.clock)
    again.send(body=b"3", after_ms=25_000)
    came = play(again, 35)
    assert list(came) == [b"1", b"3", b"2"]
    assert max(came.values()) < 500
    assert again.timers.pending_count == 1
    assert list(jump(again, start_ms + FAR_MS)) == [b"before"]
    assert len(again.bodies()) == 4


def test_a_start_with_a_clock_that_was_set_back_meanwhile(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    start_ms = little.clock.now_ms()
    little.send(body=b"before", after_ms=FAR_MS - 5_000)
    little.settle()
    little.kill()
    little.clock.set_wall(start_ms - 6 * FAR_MS)
    again = LittleStore(tmp_path, clock=little.clock)
    again.send(body=b"1", after_ms=5_000)
    came = play(again, 8)
    assert list(came) == [b"1"]
    assert max(came.values()) < 500
    assert list(jump(again, start_ms + FAR_MS)) == [b"before"]
    assert again.timers.pending_count == 0
