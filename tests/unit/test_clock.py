"""Which time it is when the wall clock jumps, and what the reading of it costs in comparisons."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.clock import SystemClock, TrustedClock, WallTime
from orbitmq.limits.clock import CLOCK_BELIEVED_AFTER_MS, CLOCK_JUMP_MS

S = 1_000_000_000
YEAR = 365 * 86_400 * S
WALL = 1_790_000_000 * S
BOOT = 5_000 * S
JUMP = CLOCK_JUMP_MS * 1_000_000
LASTS = CLOCK_BELIEVED_AFTER_MS * 1_000_000


class Machine:
    """Two clocks, moved by hand, and how often they were read."""

    def __init__(self) -> None:
        self.wall, self.boot, self.looks = WALL, BOOT, 0

    def read_boot(self) -> int:
        self.looks += 1
        return self.boot

    def clock(self) -> TrustedClock:
        return TrustedClock(lambda: self.wall, self.read_boot, lambda: self.boot)

    def go_on(self, ns: int) -> None:
        self.wall += ns
        self.boot += ns


@pytest.fixture
def machine() -> Machine:
    return Machine()


# Steps of (seconds that pass, seconds that the wall clock steps by); then the reading, relative to time without steps, and whether
# a jump is waited for.
TABLE: dict[str, list[tuple[float, float, float, bool]]] = {
    "no step": [(1, 0, 0, False), (100, 0, 0, False), (86_400, 0, 0, False)],
    "small steps are followed at once": [(1, 10, 10, False), (1, -9, 1, False), (0, -10, -9, False)],
    "a moment": [(1, 3e8, 0, True), (1, -3e8, 0, False), (100, 0, 0, False)],
    "it lasts": [(1, 3e8, 0, True), (59.9, 0, 0, True), (0.1, 0, 3e8, False), (1, 0, 3e8, False)],
    "it lasts, and nobody looks": [(1, 3_600, 0, True), (9_000, 0, 3_600, False)],
    "back, and it lasts": [(1, -3_600, 0, True), (60, 0, -3_600, False), (5, 0, -3_600, False)],
    "another jump begins another minute": [(1, 3_600, 0, True), (50, 3_600, 0, True), (50, 0, 0, True), (10, 0, 7_200, False)],
    "a jump that is corrected a little lasts": [(1, 3_600, 0, True), (30, 5, 0, True), (30, 0, 3_605, False)],
    "to and fro": [(1, 3_600, 0, True), (30, -3_600, 0, False), (10, 3_600, 0, True), (59, 0, 0, True), (1, 0, 3_600, False)],
}  # fmt: skip


@pytest.mark.parametrize("steps", TABLE.values(), ids=TABLE)
def test_what_is_believed(steps: list[tuple[float, float, float, bool]]) -> None:
    passed = stepped = 0
    known = WallTime(WALL, BOOT)
    for seconds, step, ahead, waits in steps:
        passed += round(seconds * S)
        stepped += round(step * S)
        now = known.judge(WALL + passed + stepped, BOOT + passed)
        assert (now - WALL - passed) / S == ahead
        assert (known.jump_ns != 0) == waits


def test_jumps_are_counted_by_how_they_end() -> None:
    known = WallTime(WALL, BOOT)
    known.judge(WALL + YEAR, BOOT)
    known.judge(WALL, BOOT)
    assert (known.believed_count, known.ended_count) == (0, 1)
    known.judge(WALL - YEAR, BOOT)
    known.judge(WALL - YEAR + LASTS, BOOT + LASTS)
    assert (known.believed_count, known.ended_count) == (1, 1)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 2 * S), st.integers(0, 200 * S)),
            st.one_of(st.just(0), st.integers(-JUMP, JUMP), st.integers(-YEAR, YEAR)),
        ),
        max_size=40,
    )
)
def test_time_leaves_the_other_clock_only_for_what_has_lasted(steps: list[tuple[int, int]]) -> None:
    known = WallTime(WALL, BOOT)
    wall, boot, before = WALL, BOOT, WALL
    far: list[tuple[int, int]] = []
    """(boot, wall minus boot) of the latest readings in a row that were not believed."""
    for passed, step in steps:
        wall, boot = wall + passed + step, boot + passed
        now = known.judge(wall, boot)
        if now == wall and abs(now - before - passed) > JUMP:
            assert far, "nothing is believed at once"
            assert boot - far[0][0] >= LASTS
            assert all(abs(one[1] - next_one[1]) <= JUMP for one, next_one in pairwise(far))
            assert abs(wall - boot - far[-1][1]) <= JUMP
        else:
            assert abs(now - before - passed) <= JUMP
        if known.jump_ns:
            assert now == before + passed, "meanwhile time goes on, exactly"
            assert wall - now == known.jump_ns
            if far and abs(wall - boot - far[-1][1]) > JUMP:
                far.clear()
            far.append((boot, wall - boot))
        else:
            assert now == wall
            far.clear()
        before = now


def test_one_reading_of_a_jump_moves_nothing(machine: Machine) -> None:
    clock = machine.clock()
    machine.go_on(S)
    machine.wall += 10 * YEAR
    assert clock.now_ns() == clock.due_ns() == WALL + S
    assert clock.now_ms() == (WALL + S) // 1_000_000
    machine.wall -= 10 * YEAR
    assert clock.now_ns() == WALL + S
    assert clock.time.ended_count == 1


def test_what_is_due_is_due_by_both_clocks(machine: Machine) -> None:
    clock = machine.clock()
    machine.wall -= 3_600 * S
    assert clock.now_ns() == WALL
    assert clock.due_ns() == WALL - 3_600 * S
    machine.go_on(LASTS)
    assert clock.now_ns() == clock.due_ns() == WALL - 3_600 * S + LASTS


def test_suspension_is_no_jump(machine: Machine) -> None:
    clock = machine.clock()
    machine.go_on(8 * 3_600 * S)
    assert clock.now_ns() == WALL + 8 * 3_600 * S
    assert clock.time.jump_ns == 0


def test_the_clocks_are_compared_once_a_second(machine: Machine) -> None:
    clock = machine.clock()
    clock.now_ms()
    looks = machine.looks
    for _ in range(999):
        machine.go_on(S // 1_000)
        clock.now_ms()
        clock.due_ns()
    assert machine.looks == looks
    machine.go_on(S // 1_000)
    clock.now_ns()
    assert machine.looks == looks + 1


def test_a_process_that_was_stopped_between_two_readings_sees_no_jump() -> None:
    def walls() -> Iterator[int]:
        yield from (WALL, WALL)  # the start
        yield from (
            WALL + 2 * S,
            WALL + 2 * S,
        )  # a reading, the first of a comparison, and here the process stands still
        yield WALL + 900 * S
        while True:
            yield WALL + 901 * S

    boots = iter([BOOT, BOOT + 2 * S, BOOT + 901 * S])
    wall = walls()
    clock = TrustedClock(lambda: next(wall), lambda: next(boots), lambda: 0)
    assert clock.now_ns() == WALL + 901 * S
    assert clock.time.jump_ns == clock.time.ended_count == 0


def test_a_jump_is_said_once_and_so_is_its_end(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "orbitmq.clock")
    clock = machine.clock()
    for step in (YEAR, 0, -YEAR, 0):
        machine.wall += step
        clock.now_ms()
        machine.go_on(S)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the wall clock jumped by 31536000.0 s",
        "the wall clock's jump by 31536000.0 s is over; nothing went by it",
    ]
    machine.wall += YEAR
    clock.now_ms()
    machine.go_on(LASTS)
    clock.now_ms()
    assert caplog.records[-1].getMessage() == "the wall clock's jump by 31536000.0 s has lasted: time follows it"


def test_the_machines_own_clocks_agree() -> None:
    clock, plain = TrustedClock(), SystemClock()
    assert plain.now_ms() <= clock.now_ms() <= clock.due_ns() // 1_000_000 <= plain.due_ns() // 1_000_000
    assert plain.monotonic_ns() <= clock.monotonic_ns() <= plain.monotonic_ns()


def test_a_client_runs_where_no_clock_counts_suspension() -> None:
    program = "import time; del time.CLOCK_BOOTTIME; import orbitmq.client, orbitmq.clock as c; print(c.TrustedClock().due_ns())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) > WALL // 2
