"""Due times: what programs may say, and which property says it to the broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orbitmq.client.due_time import due_property, instant_ms, length_ms, nearest_level
from orbitmq.client.message import Message, check_message, message_properties
from orbitmq.errors import MessageIllegalError
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_MS = 1_795_262_400_000


@pytest.mark.parametrize(
    ("at", "expected_ms"),
    [
        (NOON, NOON_MS),
        (NOON + timedelta(milliseconds=7), NOON_MS + 7),
        (NOON + timedelta(microseconds=1), NOON_MS + 1),
        (datetime(2026, 11, 21, 14, tzinfo=timezone(timedelta(hours=2))), NOON_MS),
        (NOON_MS, NOON_MS),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (1, 1),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), TIMER_DELIVER_MS_MAX),
    ],
)
def test_an_instant_is_milliseconds_and_never_early(at: datetime | int, expected_ms: int) -> None:
    assert instant_ms("at", at) == expected_ms


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (datetime(2026, 11, 21, 12), "without a time zone"),
        (NOON_MS // 1000, "seconds by their size"),
        (-1, "between 1970"),
        (TIMER_DELIVER_MS_MAX + 1, "year 9999"),
        (datetime(1969, 1, 1, tzinfo=UTC), "between 1970"),
        (1.5e12, "whole milliseconds"),
        (True, "whole milliseconds"),
        (timedelta(seconds=3), "goes into after"),
        ("2026-11-21T12:00:00Z", "whole milliseconds"),
    ],
)
def test_an_instant_that_could_mean_two_things_is_refused(at: Any, said: str) -> None:
    with pytest.raises(MessageIllegalError, match=said) as failure:
        instant_ms("at", at)
    assert str(failure.value).startswith("at is ")


@pytest.mark.parametrize(
    ("after", "expected_ms"),
    [
        (timedelta(days=3), 259_200_000),
        (timedelta(microseconds=1), 1),
        (1.5, 1_500),
        (0.1, 100),
        (0.0001, 1),
        (0, 0),
        (90, 90_000),
    ],
)
def test_a_length_of_time_is_rounded_up_to_milliseconds(after: timedelta | float, expected_ms: int) -> None:
    assert length_ms("after", after) == expected_ms


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (-1, "not negative"),
        (timedelta(seconds=-1), "not negative"),
        (float("nan"), "number of seconds"),
        (float("inf"), "number of seconds"),
        (1e12, "year 9999"),
        (timedelta(days=365 * 9000), "year 9999"),
        (NOON, "goes into at"),
        (True, "timedelta or a number of seconds"),
        ("10m", "timedelta or a number of seconds"),
    ],
)
def test_what_is_no_length_of_time_is_refused(after: Any, said: str) -> None:
    with pytest.raises(MessageIllegalError, match=said):
        length_ms("after", after)


def test_an_instant_travels_as_such_and_a_length_of_time_as_a_delay() -> None:
    assert due_property(NOON, None) == ("TIMER_DELIVER_MS", str(NOON_MS))
    assert due_property(None, 1.5) == ("TIMER_DELAY_MS", "1500")
    with pytest.raises(MessageIllegalError, match="both at"):
        due_property(NOON, 1)
    with pytest.raises(MessageIllegalError, match="neither"):
        due_property(None, None)


def test_a_message_has_one_due_time() -> None:
    check_message(Message(b"x", after=1), 100)
    assert message_properties(Message(b"x", after=1), "ID")["TIMER_DELAY_MS"] == "1000"
    assert not Message(b"x").is_timed
    for wrong in (Message(b"x", delay_level=3, after=1), Message(b"x", delay_level=3, at=NOON)):
        with pytest.raises(MessageIllegalError, match="two due times"):
            check_message(wrong, 100)
    with pytest.raises(MessageIllegalError, match=r"parameters of their own: .*after"):
        check_message(Message(b"x", properties={"TIMER_DELAY_MS": "5"}), 100)


@pytest.mark.parametrize(
    ("after_ms", "level"),
    [
        (0, 1),
        (999, 1),
        (3_000, 2),
        (2_999, 1),
        (90_000, 6),
        (3_600_000, 17),
        (86_400_000, 18),
        (45_000, 5),
        (44_999, 4),
    ],
)
def test_the_nearest_level_is_the_longer_of_two(after_ms: int, level: int) -> None:
    assert nearest_level(after_ms) == level
