"""Offsets of zones and their changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.timing.recurrence.cron_times import Zone


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("name", "begin", "change", "before_s", "after_s"),
    [
        ("Europe/Berlin", "2026-01-01", "2026-03-29T01:00", 3600, 7200),
        ("Europe/Berlin", "2026-06-01", "2026-10-25T01:00", 7200, 3600),
        ("America/New_York", "2026-01-01", "2026-03-08T07:00", -18000, -14400),
        ("Australia/Lord_Howe", "2026-01-01", "2026-04-04T15:00", 39600, 37800),
        ("Europe/Berlin", "9899-06-01", "9899-10-29T01:00", 7200, 3600),
    ],
)
def test_a_change_is_found_to_the_second(name: str, begin: str, change: str, before_s: int, after_s: int) -> None:
    zone = Zone(name)
    begin_s, change_s = utc(begin), utc(change)
    assert zone.change_after(begin_s, begin_s + 366 * 86_400) == change_s
    assert zone.change_after(begin_s, change_s) == change_s
    assert zone.change_after(begin_s, change_s - 1) is None
    assert (zone.offset_s(change_s - 1), zone.offset_s(change_s)) == (before_s, after_s)
    assert zone.change_after(change_s, change_s) is None


@pytest.mark.parametrize("name", ["UTC", "Asia/Kolkata"])
def test_a_zone_that_never_changes(name: str) -> None:
    assert Zone(name).change_after(utc("2020-01-01"), utc("2040-01-01")) is None


@pytest.mark.parametrize(
    "name", ["Europe/Atlantis", "Europe", "../zoneinfo/UTC", "/etc/localtime", "", "a\0b", "x" * 65, "CET\n"]
)
def test_a_name_that_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not in the table of time zones") as refused:
        Zone(name)
    assert "tzdata" in (refused.value.remedy or "")
