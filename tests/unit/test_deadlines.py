"""Deadlines: armed names run once when their time has come, the earliest first, and are counted."""

from __future__ import annotations

import pytest

from orbitmq.deadlines import Deadlines
from orbitmq.limits.clock import DEADLINE_RETRY_NS


def table(*names: str) -> tuple[Deadlines, list[str]]:
    deadlines, ran = Deadlines(), []
    for name in names:
        deadlines.define(name, lambda name=name: ran.append(name))  # type: ignore[misc]
    return deadlines, ran


def test_nothing_armed_means_nothing_to_wake_for() -> None:
    deadlines, ran = table("a")
    assert deadlines.next_ns is None
    deadlines.run_due(1 << 60)
    assert ran == []


def test_the_earliest_runs_first_and_each_once() -> None:
    deadlines, ran = table("a", "b", "c")
    deadlines.arm("a", 30)
    deadlines.arm("b", 10)
    deadlines.arm("c", 40)
    assert deadlines.next_ns == 10
    deadlines.run_due(30)
    assert ran == ["b", "a"]
    assert deadlines.next_ns == 40
    deadlines.run_due(30)
    assert ran == ["b", "a"]
    assert deadlines.wakeups == {"a": 1, "b": 1}


def test_arming_again_keeps_the_earlier_time() -> None:
    deadlines, ran = table("a")
    deadlines.arm("a", 20)
    deadlines.arm("a", 30)
    assert deadlines.next_ns == 20
    deadlines.arm("a", 10)
    assert deadlines.next_ns == 10
    deadlines.disarm("a")
    assert deadlines.next_ns is None
    deadlines.disarm("a")
    deadlines.run_due(100)
    assert ran == []


def test_an_action_may_arm_itself_and_disarm_another() -> None:
    deadlines, ran = table("b")

    def again() -> None:
        ran.append("again")
        deadlines.arm("again", 5)
        deadlines.disarm("b")

    deadlines.define("again", again)
    deadlines.arm("again", 1)
    deadlines.arm("b", 2)
    deadlines.run_due(10)
    assert ran == ["again"], "not twice in one round, and what it disarmed does not run"
    assert deadlines.next_ns == 5


def test_an_action_that_raises_silences_no_other() -> None:
    deadlines, ran = table("b")
    deadlines.define("a", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    deadlines.arm("a", 1)
    deadlines.arm("b", 2)
    with pytest.raises(ZeroDivisionError):
        deadlines.run_due(10)
    deadlines.run_due(10)
    assert ran == ["b"]


def test_an_action_that_raises_is_tried_again_after_a_pause() -> None:
    deadlines, _ = table()
    deadlines.define("a", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    deadlines.arm("a", 1)
    for now_ns in (10, 10 + DEADLINE_RETRY_NS, 10 + 2 * DEADLINE_RETRY_NS):
        with pytest.raises(ZeroDivisionError):
            deadlines.run_due(now_ns)
        assert deadlines.next_ns == now_ns + DEADLINE_RETRY_NS


def test_a_name_without_an_action_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="no action is defined for 'x'"):
        Deadlines().arm("x", 1)
