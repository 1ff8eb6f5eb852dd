"""Retention decisions: age and hour, disk levels, pins before everything."""

from __future__ import annotations

from datetime import datetime

import pytest

from orbitmq.store.files import DiskUsage
from orbitmq.store.retention import (
    DiskLevel,
    LogFile,
    Retention,
    decide,
    disk_level,
    local_hour,
    used_percent,
)
from orbitmq.store.settings import StoreSettings

HOUR_MS = 3_600_000
AT_FOUR = int(datetime(2026, 3, 10, 4, 30).timestamp() * 1000)
AT_NOON = int(datetime(2026, 3, 10, 12, 0).timestamp() * 1000)
GIB = 1 << 30
SETTINGS = StoreSettings()


def disk(percent: int, *, large: bool = False) -> DiskUsage:
    total = 1000 * GIB if large else 10 * GIB
    used = total * percent // 100
    return DiskUsage(total, used, total - used)


EMPTY = DiskUsage(100 * GIB, 0, 100 * GIB)


def log(*ages_hours: float, now: int) -> list[LogFile]:
    return [LogFile(n * 100, n * 100 + 100, int(now - age * HOUR_MS)) for n, age in enumerate(ages_hours)]


def bases(decision: Retention) -> list[int]:
    return [file.base for file in decision.remove]


def test_expired_files_go_in_the_hour_only_oldest_first_and_never_the_last() -> None:
    files = log(100, 90, 71, 200, 300, now=AT_FOUR)
    assert bases(decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY])) == [0, 100]
    files = log(100, 90, 80, 75, 74, now=AT_FOUR)
    assert bases(decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY])) == [0, 100, 200, 300]
    files = log(100, 90, 71, now=AT_NOON)
    assert bases(decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[EMPTY])) == []
    assert bases(decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[EMPTY], manual=True)) == [0, 100]
    assert decide([], now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY]).remove == []


def test_exactly_the_reserved_time_is_expired() -> None:
    assert bases(decide(log(72, 1, now=AT_FOUR), now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY])) == [0]


def test_one_round_removes_a_bounded_number() -> None:
    files = log(*[100] * 30, now=AT_FOUR)
    assert len(decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY]).remove) == 10


@pytest.mark.parametrize(
    ("percent", "level"),
    [
        (75, DiskLevel.CLEAN),  # 7.5 of 10 GiB leaves more than 2 GiB, see below
        (85, DiskLevel.CLEAN),
        (86, DiskLevel.FORCE),
        (90, DiskLevel.FORCE),
        (91, DiskLevel.FULL),
    ],
)
def test_levels_when_little_is_free(percent: int, level: DiskLevel) -> None:
    usage = disk(percent)
    small = DiskUsage(usage.total_bytes // 10, usage.used_bytes // 10, usage.free_bytes // 10)
    expected = DiskLevel.FINE if percent == 75 else level
    assert disk_level(small, SETTINGS) is expected
    assert disk_level(disk(percent, large=True), SETTINGS) is DiskLevel.FINE


def test_percents_are_rounded_up_and_an_unknown_size_is_only_worth_a_look() -> None:
    assert used_percent(DiskUsage(1000, 751, 249)) == 76
    assert disk_level(DiskUsage(1000, 751, 249), SETTINGS) is DiskLevel.CLEAN
    assert disk_level(DiskUsage(0, 0, 0), SETTINGS) is DiskLevel.CLEAN


def test_thresholds_stay_in_the_ranges_of_rocketmq() -> None:
    settings = StoreSettings(
        disk_max_used_space_ratio=100, disk_space_clean_forcibly_ratio=100, disk_space_warning_level_ratio=100
    )
    assert disk_level(DiskUsage(100, 91, 9), settings) is DiskLevel.FULL
    assert disk_level(DiskUsage(100, 86, 14), settings) is DiskLevel.FORCE
    assert disk_level(DiskUsage(100, 85, 15), settings) is DiskLevel.FINE


def test_a_filling_disk_removes_expired_files_at_any_hour_and_young_ones_only_when_forced() -> None:
    files = log(100, 10, 1, now=AT_NOON)
    clean, force = DiskUsage(100, 80, 20), DiskUsage(100, 88, 12)
    assert bases(decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[clean])) == [0]
    assert bases(decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[EMPTY, force])) == [0, 100]
    never = StoreSettings(clean_file_forcibly_enable=False)
    assert bases(decide(files, now_ms=AT_NOON, settings=never, disks=[force])) == [0]


def test_a_full_disk_refuses_sends_and_a_large_one_at_the_same_percent_does_not() -> None:
    files = log(1, 1, now=AT_NOON)
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[DiskUsage(100, 95, 5)])
    assert decision.refuse_sends
    assert "95 % used" in decision.reason
    assert bases(decision) == [0]
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[disk(95, large=True)])
    assert decision == Retention([], False, "", False, DiskLevel.FINE)


def test_a_pinned_file_stops_the_round() -> None:
    files = log(100, 100, 100, 100, now=AT_FOUR)
    decision = decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY], lowest_needed=100)
    assert bases(decision) == [0]
    assert decision.pinned
    assert not decision.refuse_sends
    decision = decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY], lowest_needed=99)
    assert bases(decision) == []
    assert decision.pinned
    assert not decision.refuse_sends


def test_when_only_pinned_files_could_give_space_nothing_goes_and_sends_are_refused() -> None:
    files = log(1, 1, 1, now=AT_NOON)
    nearly = DiskUsage(100, 88, 12)
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], lowest_needed=5)
    assert decision.remove == []
    assert decision.refuse_sends
    assert "still to be delivered" in decision.reason
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], lowest_needed=150)
    assert bases(decision) == [0]
    assert not decision.refuse_sends
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], lowest_needed=None)
    assert bases(decision) == [0, 100]


def test_local_hour() -> None:
    assert local_hour(AT_FOUR) == 4
