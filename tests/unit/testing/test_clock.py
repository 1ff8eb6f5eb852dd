"""The virtual calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from orbitmq.protocol.schedule import DelayLevels
from orbitmq.testing.clock import VirtualClock, as_datetime, as_ms, whole_ms

NOON = datetime(2030, 5, 17, 12, 0, tzinfo=UTC)


def test_the_calendar_stands_still_and_the_stopwatch_runs() -> None:
    clock = VirtualClock(1_000)
    begun = clock.monotonic_ns()
    while clock.monotonic_ns() == begun:
        pass
    assert clock.now_ms() == 1_000


def test_it_moves_forward_only() -> None:
    clock = VirtualClock(1_000)
    clock.move_to(1_000)
    clock.move_to(2_000)
    with pytest.raises(ValueError, match="not set back"):
        clock.move_to(1_999)
    assert clock.now_ms() == 2_000


def test_a_delay_on_a_standing_clock_is_exact_and_on_a_running_one_never_short() -> None:
    assert DelayLevels.parse("1s", VirtualClock.rounding_ms).due_ms(1, 5_000) == 6_000
    assert DelayLevels.parse("1s").due_ms(1, 5_000) == 6_001


def test_instants_and_milliseconds() -> None:
    assert as_datetime(as_ms(NOON)) == NOON
    assert as_ms(NOON + timedelta(microseconds=1_999)) == as_ms(NOON) + 1
    assert as_ms(NOON.astimezone(timezone(timedelta(hours=9)))) == as_ms(NOON)
    with pytest.raises(ValueError, match="no time zone"):
        as_ms(NOON.replace(tzinfo=None))


def test_lengths_of_time() -> None:
    assert whole_ms(timedelta(days=3)) == 259_200_000
    assert whole_ms(timedelta(microseconds=1_999)) == 1
    with pytest.raises(ValueError, match="forward only"):
        whole_ms(timedelta(microseconds=-1))
