"""Rules and their runs: identity, jitter, start and end, bounds."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.schedule import Schedule

BEGUN = 1_790_000_000_000
MINUTE = 60_000
DAY = 86_400_000
HOURLY = Rule(cron="0 * * * *")


def schedule(rule: Rule, name: str = "report", generation: int = 7) -> Schedule:
    return Schedule(name, generation, rule, BEGUN)


ID_OF_TODAY = "A35A8FD3EE59986E44542ACC59EE3034"
"""`printf 'Bericht ä\\0007\\00060000' | b2sum -l 192`, its first half. Another digest would store runs twice after an update."""

# --- identity -----------------------------------------------------------------------------------------------------------


def test_a_run_has_the_same_id_however_it_is_worked_out() -> None:
    whole = schedule(HOURLY).occurrences(BEGUN, BEGUN + DAY, 100)
    assert len(whole) == 24
    assert schedule(HOURLY).latest(BEGUN, BEGUN + DAY, 100) == whole
    assert [schedule(HOURLY).next(run.planned_ms - 1) for run in whole] == whole
    assert schedule(HOURLY).occurrences(whole[4].planned_ms, BEGUN + DAY, 3) == whole[5:8]


def test_an_id_looks_like_a_unique_key_and_is_stable_over_releases() -> None:
    run = schedule(Rule(interval_ms=MINUTE, start_ms=0), name="Bericht ä").next(0)
    assert run is not None
    assert run.planned_ms == MINUTE
    assert run.id == ID_OF_TODAY
    assert len(run.id) == 32
    assert set(run.id) <= set("0123456789ABCDEF")


def test_ids_differ_by_name_generation_and_instant() -> None:
    ids = [
        run.id
        for name, generation in [("a", 1), ("a", 11), ("a1", 1), ("b", 1)]
        for run in schedule(HOURLY, name, generation).occurrences(BEGUN, BEGUN + DAY, 50)
    ]
    assert len(set(ids)) == len(ids) == 4 * 24


def test_ids_do_not_depend_on_what_else_the_rule_says() -> None:
    jittered = msgspec.structs.replace(HOURLY, jitter_ms=MINUTE, catch_up=CatchUp.ALL)
    plain = schedule(HOURLY).occurrences(BEGUN, BEGUN + DAY, 5)
    assert [run.id for run in schedule(jittered).occurrences(BEGUN, BEGUN + DAY, 5)] == [run.id for run in plain]


# --- jitter -------------------------------------------------------------------------------------------------------------


def test_jitter_spreads_over_its_whole_bound_and_is_the_same_each_time() -> None:
    rule = Rule(interval_ms=10 * MINUTE, start_ms=0, jitter_ms=5 * MINUTE)
    runs = schedule(rule).occurrences(0, DAY * 14, 2_000)
    off = [run.at_ms - run.planned_ms for run in runs]
    assert min(off) >= 0
    assert max(off) <= 5 * MINUTE
    buckets = [sum(1 for ms in off if ms * 10 // (5 * MINUTE + 1) == tenth) for tenth in range(10)]
    assert all(150 < bucket < 250 for bucket in buckets)
    assert schedule(rule).occurrences(0, DAY * 14, 2_000) == runs
    assert schedule(rule, name="other").occurrences(0, DAY, 5) != runs[:5]


def test_jitter_never_reaches_the_next_run() -> None:
    runs = schedule(Rule(cron="0,1 * * * *", jitter_ms=DAY)).occurrences(BEGUN, BEGUN + 3 * DAY, 200)
    assert all(run.planned_ms <= run.at_ms < following.planned_ms for run, following in pairwise(runs))


def test_latest_puts_off_its_last_run_as_upcoming_does() -> None:
    rolling = schedule(Rule(cron="0,1 * * * *", jitter_ms=DAY))
    for until_ms in range(BEGUN, BEGUN + 3 * 3_600_000, 7 * MINUTE):
        whole = rolling.occurrences(BEGUN - DAY, until_ms, 1_000)
        assert rolling.latest(BEGUN - DAY, until_ms, 4) == whole[-4:]
        assert rolling.latest(BEGUN - DAY, until_ms, 1_000) == whole


def test_the_last_run_of_all_calendars_is_not_lost_to_jitter() -> None:
    last_ms = limits.RECURRENCE_INSTANT_MS_MAX
    yearly = schedule(Rule(interval_ms=366 * DAY, start_ms=last_ms - 10, jitter_ms=5))
    assert [run.planned_ms for run in yearly.upcoming(0)] == [last_ms - 10]
    assert [run.planned_ms for run in yearly.latest(0, last_ms, 3)] == [last_ms - 10]


# --- start, end, interval ---------------------------------------------------------------------------------------------


def test_start_is_included_and_end_is_not() -> None:
    rule = Rule(cron="0 0 * * *", start_ms=10 * DAY, end_ms=13 * DAY)
    assert [run.planned_ms // DAY for run in schedule(rule).upcoming(0)] == [10, 11, 12]
    assert [run.planned_ms // DAY for run in schedule(rule).latest(0, 100 * DAY, 2)] == [11, 12]
    assert schedule(rule).latest(13 * DAY, 100 * DAY, 2) == []
    assert schedule(rule).next(12 * DAY) is None


def test_an_interval_counts_elapsed_time_from_its_start() -> None:
    rule = Rule(interval_ms=90 * MINUTE, start_ms=BEGUN + 5, zone="Europe/Berlin")
    assert [run.planned_ms for run in schedule(rule).occurrences(0, BEGUN + DAY, 2)] == [
        BEGUN + 5,
        BEGUN + 5 + 90 * MINUTE,
    ]
    far_ms = BEGUN + 50 * 365 * DAY
    found = schedule(rule).next(far_ms)
    assert found is not None
    assert (found.planned_ms - BEGUN - 5) % (90 * MINUTE) == 0
    assert far_ms < found.planned_ms <= far_ms + 90 * MINUTE


def test_an_interval_without_a_start_is_counted_from_when_it_was_made() -> None:
    found = schedule(Rule(interval_ms=MINUTE)).next(BEGUN)
    assert found is not None
    assert found.planned_ms == BEGUN + MINUTE


def test_the_latest_of_millions_cost_as_much_as_the_latest_of_ten() -> None:
    second = schedule(Rule(interval_ms=1_000, start_ms=0))
    assert [run.planned_ms for run in second.latest(0, BEGUN, 3)] == [BEGUN - 2_000, BEGUN - 1_000, BEGUN]
    assert second.latest(BEGUN, BEGUN + 10, 3) == []
    assert second.latest(BEGUN, BEGUN - 10_000, 3) == []


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(), "neither given"),
        (Rule(cron="* * * * *", interval_ms=MINUTE), "both given"),
        (Rule(interval_ms=999), "interval_ms 999 is outside RECURRENCE_INTERVAL_MS_MIN = 1000"),
        (Rule(interval_ms=10**15), "RECURRENCE_INTERVAL_MS_MAX"),
        (Rule(cron="* * * * *", zone="Mars/Olympus"), "'Mars/Olympus' is not in the table"),
        (Rule(interval_ms=MINUTE, zone="Mars/Olympus"), "'Mars/Olympus' is not in the table"),
        (Rule(interval_ms=MINUTE, start_ms=-1), "start_ms -1 is outside 0"),
        (Rule(interval_ms=MINUTE, end_ms=10**16), "RECURRENCE_INSTANT_MS_MAX"),
        (Rule(interval_ms=MINUTE, start_ms=5, end_ms=5), "the rule has no run"),
        (Rule(interval_ms=MINUTE, count_max=0), "count_max 0 is outside 1 to RECURRENCE_COUNT_MAX"),
        (Rule(interval_ms=MINUTE, jitter_ms=-1), "RECURRENCE_JITTER_MS_MAX"),
        (Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL, catch_up_max=1_001), "RECURRENCE_CATCH_UP_MAX = 1000"),
        (Rule(interval_ms=MINUTE, overlap=Overlap.SKIP), "needs the consumer group"),
        (Rule(interval_ms=MINUTE, overlap=Overlap.SKIP, overlap_group="a b"), "overlap_group: the group name 'a b'"),
        (Rule(interval_ms=MINUTE, overlap_group="g"), "is asked about by overlap 'skip' only"),
        (
            Rule(interval_ms=MINUTE, overlap=Overlap.SKIP, overlap_group="g", catch_up=CatchUp.ALL),
            "contradict each other",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_reason(rule: Rule, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        schedule(rule)
    assert said in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["", "x" * 256, "two\nlines", "a\0b"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="RECURRENCE_NAME_CHARS_MAX = 255"):
        schedule(HOURLY, name)
