"""When what is done."""

from __future__ import annotations

from orbitmq.limits.far import (
    FAR_COMPACT_BYTES_MAX,
    FAR_DAY_FILES_MAX,
    FAR_INDEXES_MAX,
    FAR_LANDING_AGE_MS,
    FAR_LANDING_FILES_MAX,
    FAR_LANDING_ROWS_MAX,
)
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.plan import Horizon, compaction, day_directory, landing_is_due, next_promotion

DAY_MS = 86_400_000
THREE_DAYS = Horizon(3 * DAY_MS)


def file(name: str, source: int, *, due_ms: int = 0, size: int = 1) -> FarFile:
    return FarFile(
        name=name, rows=2, min_ms=due_ms, max_ms=due_ms + 9, first_source=source, last_source=source + 9,
        payload_bytes=size, next_ms=due_ms, index=f"keys/{name}",
    )  # fmt: skip


def test_a_message_is_promoted_at_the_first_hour_at_which_it_is_within_three_days() -> None:
    hour = 3_600_000
    assert THREE_DAYS.step_ms == hour
    for due_ms in (3 * DAY_MS + 10 * hour, 3 * DAY_MS + 10 * hour + 1, 3 * DAY_MS + 11 * hour - 1):
        at_ms = THREE_DAYS.promotion_ms(due_ms)
        assert at_ms % hour == 0
        assert THREE_DAYS.due_until_ms(at_ms) >= due_ms
        assert THREE_DAYS.due_until_ms(at_ms - 1) < due_ms
        assert due_ms - at_ms > 3 * DAY_MS - hour


def test_what_is_accepted_is_not_promoted_at_once() -> None:
    now_ms = 1_700_000_123_456
    due_ms = now_ms + 3 * DAY_MS + THREE_DAYS.step_ms + 1
    assert THREE_DAYS.accepts(due_ms, now_ms)
    assert THREE_DAYS.promotion_ms(due_ms) > now_ms
    assert not THREE_DAYS.accepts(due_ms - 1, now_ms)


def test_landing_waits_for_rows_bytes_or_age() -> None:
    assert not landing_is_due(0, 1 << 40, 1 << 40)
    assert not landing_is_due(1, 1, FAR_LANDING_AGE_MS - 1)
    assert landing_is_due(1, 1, FAR_LANDING_AGE_MS)
    assert landing_is_due(FAR_LANDING_ROWS_MAX, 1, 0)
    assert landing_is_due(1, 1 << 30, 0)


def test_the_oldest_messages_are_promoted_first() -> None:
    files = [file("b", 200, due_ms=5), file("a", 100, due_ms=9), file("c", 1, due_ms=50)]
    found = next_promotion(files, 10)
    assert found is not None
    assert found.name == "a"
    assert next_promotion(files, 4) is None


def test_many_landing_files_and_many_files_of_a_day_are_written_anew() -> None:
    landing = [file(f"landing/{n:03d}", n * 10) for n in range(FAR_LANDING_FILES_MAX)]
    assert compaction(landing[:-1], []) == []
    assert compaction(landing, []) == landing
    day = [file(f"days/dueDay=2030-01-01/{n:03d}", n * 10) for n in range(FAR_DAY_FILES_MAX)]
    other = file("days/dueDay=2030-01-02/000", 0)
    assert compaction([*day[:-1], other], []) == []
    assert compaction([*day, other], []) == day


def test_what_is_written_anew_together_fits_in_memory() -> None:
    landing = [file(f"landing/{n:03d}", n * 10, size=30 << 20) for n in range(FAR_LANDING_FILES_MAX)]
    assert compaction(landing, []) == landing[:1]
    day = [file(f"days/dueDay=2030-01-01/{n:03d}", n * 10, size=100 << 20) for n in range(FAR_DAY_FILES_MAX)]
    assert compaction(day, []) == [], "a large file gains nothing"


def test_a_day_becomes_one_file_though_all_days_are_too_much_at_once() -> None:
    days = [
        file(f"days/dueDay=2030-01-{day:02d}/{n:03d}", n * 10, size=2 << 20)
        for n in range(FAR_DAY_FILES_MAX)
        for day in range(1, 11)
    ]
    chosen = compaction(days, [])
    directories = [found.name.rpartition("/")[0] for found in chosen]
    assert sorted(set(directories)) == ["days/dueDay=2030-01-01", "days/dueDay=2030-01-02", "days/dueDay=2030-01-03"]
    assert [directories.count(name) for name in sorted(set(directories))] == [8, 8, 8]


def test_files_with_finished_rows_are_found_by_due_time_and_number() -> None:
    files = [file(f"days/dueDay=2030-01-{day:02d}/000", 100, due_ms=day * 10) for day in range(1, 6)]
    assert compaction(files, [(105, 22), (105, 41), (99, 31)], asked=True) == [files[1], files[3]]


def test_files_without_their_index_are_written_anew() -> None:
    files = [file(f"days/dueDay=2030-01-{day:02d}/000", day * 10) for day in range(1, 4)]
    assert compaction(files, [], lost_indexes={files[1].index}) == [files[1]]


def test_many_small_indexes_become_one() -> None:
    def days(count: int, size: int) -> list[FarFile]:
        return [
            file(f"days/dueDay=2031-{n // 28 + 1:02d}-{n % 28 + 1:02d}/000", n * 10, size=size) for n in range(count)
        ]

    assert compaction(days(FAR_INDEXES_MAX, 1 << 20), []) == []
    many = days(FAR_INDEXES_MAX + 1, 1 << 20)
    assert compaction(many, []) == many[: FAR_COMPACT_BYTES_MAX >> 20]
    large = days(FAR_INDEXES_MAX + 1, FAR_COMPACT_BYTES_MAX)
    assert compaction(large, []) == [], "there is nothing to gain"


def test_days_have_the_names_that_readers_of_partitions_know() -> None:
    assert day_directory(21_000) == "days/dueDay=2027-07-01"
