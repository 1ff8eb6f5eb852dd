"""Retention decisions: age and hour, disk levels, pins before everything."""

from __future__ import annotations

from datetime import datetime

import pytest

from orbitmq.limits.store import PINNED_FILE_MS_MAX
from orbitmq.store.files import DiskUsage
from orbitmq.store.retention import (
    DiskLevel,
    RetainedFile,
    Retention,
    WaitingRecords,
    decide,
    disk_level,
    disk_limits,
    local_hour,
    reserve_bytes,
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


def log(*ages_hours: float, now: int) -> list[RetainedFile]:
    return [RetainedFile(n * 100, n * 100 + 100, int(now - age * HOUR_MS)) for n, age in enumerate(ages_hours)]


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


def test_a_ratio_that_is_set_counts_alone_and_the_others_as_before() -> None:
    large = disk(91, large=True)
    assert disk_level(large, SETTINGS) is DiskLevel.FINE
    assert disk_level(large, StoreSettings(disk_space_warning_level_ratio=90)) is DiskLevel.FULL
    assert disk_level(large, StoreSettings(disk_space_clean_forcibly_ratio=80)) is DiskLevel.FORCE
    assert disk_level(large, StoreSettings(disk_max_used_space_ratio=75)) is DiskLevel.CLEAN
    assert disk_level(disk(75, large=True), StoreSettings(disk_max_used_space_ratio=75)) is DiskLevel.FINE
    texts = [limit.text for limit in disk_limits(StoreSettings(disk_space_clean_forcibly_ratio=80))]
    assert texts == [
        "above 90 % used while less than 2048 MiB are free",
        "above 80 % used",
        "above 75 % used while less than 2048 MiB are free",
    ]


def test_how_much_free_space_is_enough_can_be_set() -> None:
    usage = DiskUsage(100 * GIB, 92 * GIB, 8 * GIB)
    assert disk_level(usage, StoreSettings(disk_space_free_enough_bytes=10 * GIB)) is DiskLevel.FULL
    assert disk_level(usage, StoreSettings(disk_space_free_enough_bytes=8 * GIB)) is DiskLevel.FINE


def test_files_that_go_before_their_time_are_counted_apart() -> None:
    files = log(100, 90, 10, 5, 1, now=AT_NOON)
    force = DiskUsage(100, 88, 12)
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[force])
    assert (bases(decision), decision.early) == ([0, 100, 200, 300], 2)
    assert decide(files, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY]).early == 0


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
    assert decision.reason == (
        "the disk is full (95 % used, 0 MiB free): sends are refused above 90 % used while less than 2048 MiB are free"
    )
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


def waiting(*ranges: tuple[int, int]) -> WaitingRecords:
    """Pending records that fill these ranges of the log."""

    def bytes_below(position: int) -> int:
        return sum(max(min(end, position) - start, 0) for start, end in ranges)

    return WaitingRecords(ranges[0][0], bytes_below)


def expired(
    pending: WaitingRecords | None, *, files: int = 5, disk: DiskUsage = EMPTY, lowest: int | None = None
) -> Retention:
    """A round over files of 100 bytes of which all but the last have expired."""
    return decide(
        log(*[100] * files, now=AT_FOUR),
        now_ms=AT_FOUR,
        settings=SETTINGS,
        disks=[disk],
        lowest_needed=lowest,
        pending=pending,
    )


def test_files_in_front_of_the_oldest_pending_record_go_and_it_is_put_again() -> None:
    decision = expired(waiting((250, 260)))
    assert bases(decision) == [0, 100]
    assert decision.rewrite_below == 300
    assert decision.pinned
    assert not decision.refuse_sends


def test_pending_records_are_put_again_only_where_that_frees_at_least_as_much_as_it_writes() -> None:
    assert expired(waiting((0, 50))).rewrite_below == 100
    assert expired(waiting((0, 51))).rewrite_below == 200, "one more file makes it worth while"
    assert expired(waiting((0, 100), (100, 200))).rewrite_below == 400
    assert expired(waiting((0, 201))).rewrite_below is None, "four files are not worth it"
    assert expired(waiting((0, 201))).remove == []


def test_nothing_is_put_again_for_a_file_that_would_not_go() -> None:
    assert expired(waiting((410, 420))).rewrite_below is None, "the last file is being written"
    young = log(100, 1, 1, now=AT_FOUR)
    decision = decide(young, now_ms=AT_FOUR, settings=SETTINGS, disks=[EMPTY], pending=waiting((110, 120)))
    assert bases(decision) == [0]
    assert decision.rewrite_below is None
    assert expired(waiting((110, 120)), lowest=150).rewrite_below is None, "a reader needs that file where it is"


def test_putting_again_needs_room() -> None:
    assert expired(waiting((0, 10)), disk=DiskUsage(100, 91, 9)).rewrite_below is None
    assert expired(waiting((0, 10)), disk=DiskUsage(100, 90, 10)).rewrite_below == 100
    assert expired(waiting((0, 10)), disk=DiskUsage(0, 0, 0)).rewrite_below == 100, (
        "of a disk of unknown size nothing is known"
    )


def test_a_crowded_disk_moves_what_is_pending_and_takes_sends_while_that_helps() -> None:
    files = log(1, 1, 1, now=AT_NOON)
    nearly = DiskUsage(4000 * GIB, 3999 * GIB, 3 * GIB // 2)
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], pending=waiting((5, 10)))
    assert decision.rewrite_below == 100
    assert decision.level is DiskLevel.FULL
    assert decision.reason.startswith("the disk is full")
    nearly = DiskUsage(13 * GIB, 23 * GIB // 2, 3 * GIB // 2)
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], pending=waiting((5, 10)))
    assert decision.rewrite_below == 100
    assert not decision.refuse_sends
    decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[nearly], pending=waiting((0, 200)))
    assert decision.rewrite_below is None
    assert "the oldest commit log files hold messages still to be delivered" in decision.reason


def test_sends_leave_the_reserve_alone_while_anything_is_pending() -> None:
    assert reserve_bytes(SETTINGS) == GIB
    assert reserve_bytes(StoreSettings(mapped_file_size_commit_log=1000)) == 1000
    files = log(1, now=AT_NOON)
    for free, refused in ((GIB, False), (GIB - 1, True)):
        small = DiskUsage(5 * GIB, 5 * GIB - free, free)
        decision = decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[EMPTY, small], pending=waiting((5, 10)))
        assert decision.refuse_sends is refused
        assert decision.reason == (
            "1023 MiB of the disk are free, and 1024 MiB are kept for messages that are still to be delivered"
            if refused
            else ""
        )
        assert not decide(files, now_ms=AT_NOON, settings=SETTINGS, disks=[EMPTY, small]).refuse_sends


def test_local_hour() -> None:
    assert local_hour(AT_FOUR) == 4


def test_files_that_stay_long_after_their_time_are_overdue() -> None:
    files = [RetainedFile(0, 100, 0), RetainedFile(100, 200, 1_000), RetainedFile(200, 300, 0)]
    reserved_ms = SETTINGS.file_reserved_time_hours * 3_600_000
    for late_ms, overdue_below in (
        (PINNED_FILE_MS_MAX - 1, 0),
        (PINNED_FILE_MS_MAX, 100),
        (2 * PINNED_FILE_MS_MAX, 200),
    ):
        decision = decide(files, now_ms=reserved_ms + late_ms, settings=SETTINGS, disks=[EMPTY], lowest_needed=0)
        assert decision.overdue_below == overdue_below
        assert decision.remove == []
