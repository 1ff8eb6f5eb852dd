"""Cron expressions in time zones against every minute of a few days, looked at one by one.

The model never parses an expression: it is given the sets that the expression was written from. It walks through the minutes of
UTC, looks at the local clock, and applies the two rules: a rule at fixed times runs once for every local time, when it is
first shown or jumped over; a rule at every hour or minute runs whenever the clock shows a matching time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError
from orbitmq.timing.recurrence.cron_times import CronTimes, Zone

MINUTE_S = 60
DAY_S = 86_400
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Chatham",
    "Antarctica/Troll", "Africa/Cairo", "Africa/Casablanca", "America/Santiago", "America/Havana", "America/Sao_Paulo",
    "Atlantic/Azores", "Asia/Gaza", "Pacific/Apia", "America/Caracas", "Asia/Pyongyang",
]  # fmt: skip
"""Changes of an hour, half an hour and two; at midnight; of the standard time; over the date line."""
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class Field(NamedTuple):
    text: str
    values: frozenset[int]

    @property
    def star(self) -> bool:
        return self.text.startswith("*")


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    @property
    def fixed(self) -> bool:
        return not self.minute.star and not self.hour.star

    def matches_day(self, local: datetime) -> bool:
        day = local.day in self.day.values
        weekday = local.isoweekday() % 7 in {value % 7 for value in self.weekday.values}
        both = self.day.star or self.weekday.star
        return local.month in self.month.values and ((day and weekday) if both else (day or weekday))

    def matches(self, local: datetime) -> bool:
        return local.minute in self.minute.values and local.hour in self.hour.values and self.matches_day(local)


def fields(least: int, most: int, stars: int) -> st.SearchStrategy[Field]:
    numbers = st.integers(least, most)
    everything = frozenset(range(least, most + 1))

    def steps(step: int) -> Field:
        return Field(f"*/{step}", frozenset(range(least, most + 1, step)))

    def span(ends: tuple[int, int], step: int) -> Field:
        low, high = min(ends), max(ends)
        text = f"{low}-{high}" + (f"/{step}" if step > 1 and low < high else "")
        return Field(text, frozenset(range(low, high + 1, step if low < high else 1)))

    def listed(values: set[int]) -> Field:
        return Field(",".join(map(str, sorted(values))), frozenset(values))

    return st.one_of(
        *[st.just(Field("*", everything))] * stars,
        st.builds(steps, st.integers(2, most)),
        st.builds(span, st.tuples(numbers, numbers), st.sampled_from([1, 1, 2, 5])),
        st.builds(listed, st.sets(numbers, min_size=1, max_size=4)),
    )


def weekday_names() -> st.SearchStrategy[Field]:
    return st.sets(st.integers(0, 6), min_size=1, max_size=3).map(
        lambda days: Field(",".join(DAYS[day] for day in sorted(days)), frozenset(days))
    )


EXPRESSIONS = st.builds(
    Expression,
    minute=fields(0, 59, 1),
    hour=st.one_of(fields(0, 23, 1), st.sets(st.integers(0, 3), min_size=1).map(
        lambda hours: Field(",".join(map(str, hours)), frozenset(hours)))),
    day=fields(1, 31, 8),
    month=fields(1, 12, 12),
    weekday=st.one_of(fields(0, 7, 8), weekday_names()),
)  # fmt: skip


def changes_near(zone: ZoneInfo, near_s: int) -> int:
    """The hour of the first change in the two years after an instant; the instant when there is none."""
    offset = datetime.fromtimestamp(near_s, zone).utcoffset()
    for hour in range(0, 2 * 366 * 24, 24):
        if datetime.fromtimestamp(near_s + hour * 3600, zone).utcoffset() != offset:
            for fine in range(hour - 24, hour + 1):
                if datetime.fromtimestamp(near_s + fine * 3600, zone).utcoffset() != offset:
                    return near_s + fine * 3600
    return near_s


def model(expression: Expression, zone: ZoneInfo, from_s: int, until_s: int) -> Iterator[int]:
    """The runs in [from, until]."""
    shown_until: datetime | None = None  # local times before this one have been shown or jumped over
    for at_s in range(from_s - 2 * DAY_S, until_s + 1, MINUTE_S):
        local = datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)
        if expression.fixed:
            first = local if shown_until is None else shown_until
            minutes = (local - first) // timedelta(minutes=1)
            runs = any(expression.matches(first + timedelta(minutes=index)) for index in range(minutes + 1))
            shown_until = local + timedelta(minutes=1) if minutes >= 0 else first
        else:
            runs = expression.matches(local)
        if runs and at_s >= from_s:
            yield at_s


@st.composite
def cases(draw: st.DrawFn) -> tuple[Expression, str, int]:
    expression = draw(EXPRESSIONS)
    name = draw(st.sampled_from(ZONES))
    near = draw(st.datetimes(datetime(2005, 1, 1), datetime(2036, 1, 1)))
    near_s = int(near.replace(second=0, microsecond=0, tzinfo=UTC).timestamp())
    if draw(st.booleans()):
        near_s = changes_near(ZoneInfo(name), near_s)
    return expression, name, near_s - draw(st.integers(0, 36 * 60)) * MINUTE_S


def check(expression: Expression, name: str, from_s: int, starts: list[int], limit: int) -> None:
    until_s = from_s + 3 * DAY_S
    try:
        times = CronTimes(expression.text, Zone(name))
    except ConfigurationError as error:
        assume(f"{error}".find("matches no day") < 0 and "none of the months" not in f"{error}")
        raise
    expected = list(model(expression, ZoneInfo(name), from_s, until_s))
    found = list(takewhile(lambda at_s: at_s <= until_s, times.after(from_s - 1)))
    assert found == expected
    assert times.latest(from_s - 1, until_s, limit) == expected[-limit:]
    for start in starts:  # wherever it begins, it goes on in the same way
        after_s = from_s + start
        assert list(takewhile(lambda at_s: at_s <= until_s, times.after(after_s))) == [
            at_s for at_s in expected if at_s > after_s
        ]


STARTS = st.lists(st.integers(0, 3 * DAY_S - 1), max_size=3)


@settings(max_examples=150, deadline=None)
@given(cases(), STARTS, st.integers(1, 40))
def test_a_rule_runs_at_the_minutes_at_which_it_should(
    case: tuple[Expression, str, int], starts: list[int], limit: int
) -> None:
    check(*case, starts, limit)


def numbers(text: str, values: set[int]) -> Field:
    return Field(text, frozenset(values))


HALF_PAST_TWO = Expression(
    numbers("0,30", {0, 30}), numbers("1-3", {1, 2, 3}), Field("*", frozenset(range(1, 32))),
    Field("*", frozenset(range(1, 13))), Field("*", frozenset(range(8))),
)  # fmt: skip
OVER_BERLINS_AUTUMN = int(datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp())


def test_the_model_catches_a_restart_that_forgets_the_hour_that_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    second_hour = int(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp()) - OVER_BERLINS_AUTUMN
    check(HALF_PAST_TWO, "Europe/Berlin", OVER_BERLINS_AUTUMN, [second_hour], 5)
    monkeypatch.setattr(CronTimes, "_unseen_after", lambda _self, after_s, offset_s: after_s + offset_s + 1)
    with pytest.raises(AssertionError):
        check(HALF_PAST_TWO, "Europe/Berlin", OVER_BERLINS_AUTUMN, [second_hour], 5)


def test_the_model_catches_a_change_that_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = HALF_PAST_TWO._replace(minute=numbers("*/30", {0, 30}), hour=numbers("2", {2}))
    check(twice, "Europe/Berlin", OVER_BERLINS_AUTUMN, [], 5)
    found = Zone.change_after

    def ten_minutes_late(self: Zone, from_s: int, until_s: int) -> int | None:
        change_s = found(self, from_s, until_s)
        return None if change_s is None else change_s + 600

    monkeypatch.setattr(Zone, "change_after", ten_minutes_late)
    with pytest.raises(AssertionError):
        check(twice, "Europe/Berlin", OVER_BERLINS_AUTUMN, [], 5)


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"])
@example(shift=0)
@settings(max_examples=3, deadline=None)
@given(shift=st.integers(0, 10))
def test_latest_costs_no_more_for_a_longer_time(name: str, shift: int) -> None:
    """Thirty years of minutes, of which the last five are wanted."""
    until_s = OVER_BERLINS_AUTUMN + shift * DAY_S
    minutes = CronTimes("* * * * *", Zone(name))
    assert minutes.latest(until_s - 30 * 366 * DAY_S, until_s, 5) == minutes.latest(until_s - DAY_S, until_s, 5)
