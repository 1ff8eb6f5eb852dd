"""Which instants a cron expression means where clocks change, on leap days, and far ahead."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import pytest
from cronsim import CronSim

from orbitmq.errors import ConfigurationError
from orbitmq.limits import recurrence as limits
from orbitmq.timing.recurrence.cron_times import CronTimes, Zone

DAY_S = 86_400


def at(zone: str, local: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(local).replace(tzinfo=Zone(zone).info, fold=fold).timestamp())


def runs(expression: str, zone: str, begin: str, count: int, fold: int = 0) -> list[str]:
    """The first runs from a local time on, as local times with their offset."""
    info = Zone(zone).info
    found = islice(CronTimes(expression, Zone(zone)).after(at(zone, begin, fold) - 1), count)
    return [datetime.fromtimestamp(at_s, info).strftime("%m-%d %H:%M %z") for at_s in found]


SPRING = [
    ("30 2 * * *", "Europe/Berlin", "2026-03-28", ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]),
    ("30 2 * * *", "America/New_York", "2026-03-07", ["03-07 02:30 -0500", "03-08 03:00 -0400", "03-09 02:30 -0400"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["10-03 02:15 +1030", "10-04 02:30 +1100", "10-05 02:15 +1100"]),
    ("30 2 * * *", "Asia/Kolkata", "2026-03-28", ["03-28 02:30 +0530", "03-29 02:30 +0530", "03-30 02:30 +0530"]),
    # All that the gap leaves out is one run, and the one at its end is the same.
    ("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29", ["03-29 03:00 +0200", "03-29 03:30 +0200", "03-30 02:00 +0200"]),
    # The zone leaves out midnight.
    ("0 0 * * *", "Africa/Cairo", "2026-04-23", ["04-23 00:00 +0200", "04-24 01:00 +0300", "04-25 00:00 +0300"]),
    # The zone leaves out a whole day.
    ("0 9 * * *", "Pacific/Apia", "2011-12-29", ["12-29 09:00 -1000", "12-31 00:00 +1400", "12-31 09:00 +1400"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "begin", "expected"), SPRING)
def test_a_fixed_time_that_is_left_out_is_made_up_for_when_the_clock_jumps(
    expression: str, zone: str, begin: str, expected: list[str]
) -> None:
    assert runs(expression, zone, begin, 3) == expected


AUTUMN = [
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25 02:30 +0200", "10-26 02:30 +0100"]),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["11-01 01:30 -0400", "11-02 01:30 -0500"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", ["04-05 01:45 +1100", "04-06 01:45 +1030"]),
    ("30 2 * * *", "Asia/Kolkata", "2026-10-24T12:00", ["10-25 02:30 +0530", "10-26 02:30 +0530"]),
]


@pytest.mark.parametrize(("expression", "zone", "begin", "expected"), AUTUMN)
def test_a_fixed_time_that_comes_twice_runs_the_first_time(
    expression: str, zone: str, begin: str, expected: list[str]
) -> None:
    assert runs(expression, zone, begin, 2) == expected


def test_a_start_within_the_second_pass_does_not_run_what_the_first_has_run() -> None:
    assert runs("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10", 1, fold=1) == ["10-26 02:30 +0100"]
    assert runs("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10", 1, fold=0) == ["10-25 02:30 +0200"]


EVERY = [
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:30", ["03-29 01:30 +0100", "03-29 03:00 +0200"]),
    ("*/20 2 * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-30 02:00 +0200", "03-30 02:20 +0200"]),
    ("30 * * * *", "Europe/Berlin", "2026-10-25T02:00", ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]),
    ("30 * * * *", "America/New_York", "2026-11-01T01:00", ["11-01 01:30 -0400", "11-01 01:30 -0500"]),
    ("0 * * * *", "Australia/Lord_Howe", "2026-10-04T01:00", ["10-04 01:00 +1030", "10-04 03:00 +1100"]),
    ("30 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00", ["04-05 01:30 +1100", "04-05 01:30 +1030", "04-05 02:30 +1030"]),
    ("0 * * * *", "Asia/Kolkata", "2026-10-25T02:00", ["10-25 02:00 +0530", "10-25 03:00 +0530"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "begin", "expected"), EVERY)
def test_a_rule_for_every_hour_or_minute_follows_what_the_clock_shows(
    expression: str, zone: str, begin: str, expected: list[str]
) -> None:
    assert runs(expression, zone, begin, len(expected)) == expected


def test_the_library_alone_loses_the_half_hour_that_comes_twice() -> None:
    """Why it is given local times without a zone: the day that it does not, its zones may be used."""
    info = Zone("Australia/Lord_Howe").info
    alone = CronSim("30 * * * *", datetime(2026, 4, 5, 1, 0, tzinfo=info))
    assert [moment.strftime("%H:%M %z") for moment in islice(alone, 2)] == ["01:30 +1100", "02:30 +1030"]


def test_the_second_may_stand_in_front() -> None:
    times = CronTimes("*/20 59 23 * * *", Zone("UTC"))
    start = at("UTC", "2026-01-01T23:59")
    assert list(islice(times.after(start - 1), 4)) == [start, start + 20, start + 40, start + DAY_S]


def test_leap_days_are_found_over_the_century_that_has_none() -> None:
    info = Zone("Europe/Berlin").info
    found = islice(CronTimes("0 12 29 2 *", Zone("Europe/Berlin")).after(at("Europe/Berlin", "2090-01-01")), 4)
    assert [datetime.fromtimestamp(at_s, info).year for at_s in found] == [2092, 2096, 2104, 2108]


def test_the_rarest_day_of_all_is_found_forty_years_ahead() -> None:
    """A Monday that is a leap day: 2072, and then 2112."""
    found = islice(CronTimes("0 0 * 2 MON#5", Zone("UTC")).after(at("UTC", "2072-03-01")), 1)
    assert [datetime.fromtimestamp(at_s).year for at_s in found] == [2112]


def test_last_days_and_numbered_weekdays() -> None:
    assert [text[:5] for text in runs("0 0 L * *", "UTC", "2028-01-01", 3)] == ["01-31", "02-29", "03-31"]
    assert [text[:5] for text in runs("0 0 LW * *", "UTC", "2026-01-01", 2)] == ["01-30", "02-27"]
    assert [text[:5] for text in runs("0 0 * * FRI#2", "UTC", "2026-11-01", 2)] == ["11-13", "12-11"]
    assert [text[:5] for text in runs("0 0 * * 5L", "UTC", "2026-11-01", 2)] == ["11-27", "12-25"]


def test_a_day_of_the_month_and_one_of_the_week_are_alternatives_unless_one_is_a_star() -> None:
    assert [text[:5] for text in runs("0 0 13 * FRI", "UTC", "2026-11-10", 3)] == ["11-13", "11-20", "11-27"]
    assert [text[:5] for text in runs("0 0 */13 * FRI", "UTC", "2026-11-01", 2)] == ["11-27", "01-01"]


def test_there_is_an_end_of_all_calendars() -> None:
    last_s = limits.RECURRENCE_INSTANT_MS_MAX // 1000
    daily = CronTimes("0 0 * * *", Zone("Europe/Berlin"))
    assert len(list(daily.after(last_s - 3 * DAY_S))) == 3
    assert list(daily.after(last_s)) == []
    assert len(daily.latest(0, last_s, 5)) == 5


def test_there_is_a_beginning() -> None:
    daily = CronTimes("0 0 * * *", Zone("UTC"))
    assert daily.latest(-1, 3 * DAY_S, 100) == [0, DAY_S, 2 * DAY_S, 3 * DAY_S]
    assert daily.latest(DAY_S, DAY_S, 10) == []


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 30 2 *", "none of the months has such a day"),
        ("0 0 31 2,4,6,9,11 *", "none of the months has such a day"),
        ("0 0 */30 2 FRI#5", "matches no day of fifty years"),
        ("0 0 */28 * MON#2", "matches no day of fifty years"),
        ("* * * *", "it has not five fields"),
        ("@daily", "it has not five fields"),
        ("", "it has not five fields"),
        ("60 * * * *", "the field minute"),
        ("0 24 * * *", "the field hour"),
        ("0 0 0 * *", "the field day-of-month"),
        ("0 0 * 13 *", "the field month"),
        ("0 0 * * 8", "the field day-of-week"),
        ("99 0 0 * * *", "the field second"),
        ("*/0 * * * *", "the field minute"),
        ("30-10 * * * *", "the field minute"),
        ("٣ * * * *", "the field minute"),
        ("0 0 * * ²L", "the field day-of-week"),
    ],
)
def test_an_expression_that_cannot_be_is_refused_with_its_reason(expression: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        CronTimes(expression, Zone("UTC"))
    assert reason in str(refused.value)
    assert repr(expression) in str(refused.value)
    assert refused.value.remedy


def test_a_long_expression_is_refused_with_the_limit() -> None:
    every = ",".join(map(str, range(60)))
    CronTimes(f"{every} * * * *", Zone("UTC"))
    with pytest.raises(ConfigurationError, match="RECURRENCE_CRON_CHARS_MAX = 256"):
        CronTimes(f"{every} {every} * * *", Zone("UTC"))
