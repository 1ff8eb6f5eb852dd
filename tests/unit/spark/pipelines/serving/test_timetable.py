"""When a job of a service runs, whatever the clock does."""

from __future__ import annotations

import datetime

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.recurrence import RECURRENCE_AHEAD_MS_MAX
from orbitmq.limits.spark import SERVICE_RESTART_MS, SERVICE_RESTART_MS_MAX
from orbitmq.spark.pipelines.serving.service import Restarts
from orbitmq.spark.pipelines.serving.timetable import Timetable
from orbitmq.timing.recurrence.rule import Rule

HOUR_MS = 3_600_000
NIGHTLY = Timetable("nightly", Rule(cron="0 3 * * *", zone="Europe/Berlin"))
HOURLY = Timetable("hourly", Rule(interval_ms=HOUR_MS))


def at(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def test_a_cron_expression_begins_with_its_next_instant_and_an_interval_at_once() -> None:
    now = at("2026-11-28T12:00:00+01:00")
    assert NIGHTLY.next_ms(None, now) == at("2026-11-29T03:00:00+01:00")
    assert HOURLY.next_ms(None, now + 5) == now + 5
    assert HOURLY.next_ms(now + 5, now + 10) == now + HOUR_MS, "then at whole multiples, which every start finds again"


def test_of_what_was_missed_the_latest_run_is_made_up_for() -> None:
    last, now = at("2026-11-20T03:00:00+01:00"), at("2026-11-28T12:00:00+01:00")
    assert NIGHTLY.next_ms(last, now) == at("2026-11-28T03:00:00+01:00")
    assert NIGHTLY.next_ms(at("2026-11-28T03:00:00+01:00"), now) == at("2026-11-29T03:00:00+01:00")


def test_a_clock_that_goes_back_repeats_no_run() -> None:
    last = at("2026-11-28T03:00:00+01:00")
    assert NIGHTLY.next_ms(last, last - 60_000) == at("2026-11-29T03:00:00+01:00")
    assert HOURLY.next_ms(last, last - RECURRENCE_AHEAD_MS_MAX) == last + HOUR_MS


def test_a_clock_that_was_years_ahead_holds_up_nothing() -> None:
    assert NIGHTLY.next_ms(at("2031-01-01T03:00:00+01:00"), at("2026-11-28T12:00:00+01:00")) == at(
        "2026-11-29T03:00:00+01:00"
    )


def test_a_rule_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Timetable("x", Rule(cron="0 3 * * *", zone="Mars/Olympus"))


def test_pauses_grow_to_their_bound_and_begin_anew_after_what_went_well() -> None:
    restarts = Restarts()
    pauses = [restarts.failed() for _ in range(12)]
    assert pauses[:3] == [SERVICE_RESTART_MS, 2 * SERVICE_RESTART_MS, 4 * SERVICE_RESTART_MS]
    assert pauses[-1] == SERVICE_RESTART_MS_MAX
    assert [restarts.failed() for _ in range(5_000)][-1] == SERVICE_RESTART_MS_MAX
    restarts.worked()
    assert restarts.failed() == SERVICE_RESTART_MS
