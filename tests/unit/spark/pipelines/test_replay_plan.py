"""Slices of a replay: they cover what is meant once, move the queues on together, and are the same whenever they are asked for."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import REPLAY_SLICE_ROWS
from orbitmq.spark.pipelines.queue_slices import rows_of_slice
from orbitmq.spark.pipelines.replaying.plan import (
    ReplayPlan,
    Stretch,
    brokers_for,
    check_same,
    tasks_for,
)


def plan_of(*stretches: Stretch, slice_rows: int = 100) -> ReplayPlan:
    return ReplayPlan(
        work="w",
        settings={"to": "t"},
        since_ms=None,
        until_ms=None,
        slice_rows=slice_rows,
        brokers={},
        stretches=stretches,
    )


def stretch(queue: int, begin: int, end: int, day: str = "", broker: str = "a") -> Stretch:
    return Stretch(day, "orders", broker, queue, begin, end)


stretches = st.lists(
    st.builds(
        lambda day, queue, begin, count: stretch(queue, begin, begin + count, f"2026-05-0{day}"),
        st.integers(1, 3), st.integers(0, 4), st.integers(0, 10**12), st.integers(1, 500),
    ),
    unique_by=lambda one: (one.day, one.queue_id),
    max_size=12,
)  # fmt: skip


@settings(deadline=None)
@given(stretches, st.integers(1, 300))
def test_every_offset_is_in_one_slice_and_no_slice_is_too_large(found: list[Stretch], slice_rows: int) -> None:
    plan = plan_of(*found, slice_rows=slice_rows)
    seen: Counter[tuple[str, int, int]] = Counter()
    for number, piece in enumerate(plan.slices()):
        assert piece.number == number
        assert 0 < piece.offsets <= max(slice_rows, len(found))
        for one in piece.stretches:
            assert one.day == piece.day
            seen.update((one.day, one.queue_id, offset) for offset in range(one.begin, one.end))
    assert seen == Counter((one.day, one.queue_id, offset) for one in found for offset in range(one.begin, one.end))


@settings(deadline=None)
@given(stretches, st.integers(1, 300))
def test_a_plan_that_was_kept_has_the_same_slices(found: list[Stretch], slice_rows: int) -> None:
    plan = plan_of(*found, slice_rows=slice_rows)
    kept = msgspec.json.decode(msgspec.json.encode(plan), type=ReplayPlan)
    assert list(kept.slices()) == list(plan.slices())
    assert list(plan_of(*reversed(found), slice_rows=slice_rows).slices()) == list(plan.slices())


def test_days_come_one_after_the_other_and_queues_move_on_together() -> None:
    plan = plan_of(
        stretch(0, 200, 250, "2026-05-02"),
        stretch(0, 0, 200, "2026-05-01"),
        stretch(1, 7, 107, "2026-05-01"),
        slice_rows=150,
    )
    assert [
        (piece.day, [(one.queue_id, one.begin, one.end) for one in piece.stretches]) for piece in plan.slices()
    ] == [
        ("2026-05-01", [(0, 0, 100), (1, 7, 57)]),
        ("2026-05-01", [(0, 100, 200), (1, 57, 107)]),
        ("2026-05-02", [(0, 200, 250)]),
    ]


def test_a_slice_of_a_slow_replay_is_short() -> None:
    assert rows_of_slice(REPLAY_SLICE_ROWS, None) == rows_of_slice(REPLAY_SLICE_ROWS, 1e6) == REPLAY_SLICE_ROWS
    assert (rows_of_slice(REPLAY_SLICE_ROWS, 20), rows_of_slice(REPLAY_SLICE_ROWS, 0.001)) == (200, 1)


def test_one_task_as_long_as_it_can_keep_up() -> None:
    assert [tasks_for(rate) for rate in (0.5, 20_000, 20_001, 100_000)] == [1, 1, 2, 5]


def test_other_settings_are_another_replay() -> None:
    plan = plan_of()
    check_same(plan, {"to": "t", "where": ""}, "f")
    with pytest.raises(ConfigurationError, match="replay in f was begun with to='t', and now it is 'u'"):
        check_same(plan, {"to": "u"}, "f")
    with pytest.raises(ConfigurationError, match="another version"):
        check_same(msgspec.structs.replace(plan, version=2), {"to": "t"}, "f")


def test_kept_queues_go_to_the_same_broker_or_to_the_others_in_turn() -> None:
    found = [stretch(queue, 0, 1, broker=broker) for queue, broker in ((0, "b"), (3, "x"), (1, "y"), (1, "z"))]
    assert brokers_for(found, {"a": 4, "b": 4}, "t") == {"b": "b", "x": "a", "y": "b", "z": "a"}
    with pytest.raises(
        ConfigurationError, match="queue 3 of broker x has no place in topic 't', which has 2 queues at broker a"
    ):
        brokers_for(found, {"a": 2, "b": 4}, "t")
