"""A store that is taken over and handed over, and ends at any call on the way: RocketMQ is refused, or sees exactly what waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.harness import scratch
from tests.worlds.faults import Call, Killed, Plan, RecordingFiles
from tests.worlds.rocketmq_timers import Refused, seen_by_rocketmq

from orbitmq.store.files import Files, OsFiles
from orbitmq.timing.rocketmq import exchange as exchanging
from orbitmq.timing.rocketmq import handing_over
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.fence import lower_fence
from orbitmq.timing.timers.exchange import DueUnits, HandOver

NOW_MS = 1_795_228_412_345
SLOTS, WINDOW, LOG_BYTES = 1_024, 300, 52 * 6 + 16

Units = list[tuple[int, int, int, int]]


def due(count: int, base: int) -> Units:
    """Overdue, near and far."""
    return sorted((NOW_MS - 30_000 + number * 41_000, base + number * 300, 300, number) for number in range(count))


BEFORE, AFTER = due(9, 0), due(14, 100_000)


def to_rocketmq(files: Files, root: Path) -> TimerExchange:
    return TimerExchange(files, root, 1_000, WINDOW, SLOTS, LOG_BYTES)


def leave(exchange: TimerExchange, units: Units, *, lower: bool = True) -> None:
    pieces = [DueUnits.of(units[:5]), DueUnits.of(units[5:])]
    exchange.hand_over(HandOver(pieces, {}, [], (units[-1][1] + 300, 300), len(units) + 1, NOW_MS))
    if lower:
        exchange.lower_fence()


def stay(files: Files, root: Path) -> None:
    """What a broker of ours does between two of RocketMQ's."""
    exchange = to_rocketmq(files, root)
    exchange.settle_take_over(3, NOW_MS)
    leave(exchange, AFTER)


def sees(root: Path) -> str:
    """What is wrong with what RocketMQ would see; nothing where it is refused."""
    try:
        seen = seen_by_rocketmq(root, 1_000, SLOTS, LOG_BYTES)
    except Refused:
        return ""
    except AssertionError as error:
        return f"RocketMQ would stumble: {error}"
    for units in (BEFORE, AFTER):
        if sorted(seen.messages) == units and seen.next_offset == len(units) + 1:
            is_behind = seen.last_physical == units[-1][1] + 300 and seen.read_ms == (NOW_MS - 30_001) // 1_000 * 1_000
            return "" if is_behind else "RocketMQ would go on elsewhere"
    return f"RocketMQ would see {seen.messages}"


def ended_at(step: int, *, power: bool) -> tuple[bool, str]:
    """Whether everything came to its end before call number `step`, and what is wrong with what it left."""
    with scratch() as base:
        root, left = base / "store", base / "after"
        root.mkdir()
        leave(to_rocketmq(OsFiles(), root), BEFORE)
        files = RecordingFiles(OsFiles(), root, plan=lambda call: Killed() if call.number == step else None)
        is_whole = False
        try:
            stay(files, root)
            is_whole = True
        except Killed:
            pass
        if not power:
            return is_whole, sees(root)
        problems = []
        for seed in range(4):
            files.power_cut(left / str(seed), random.Random(step * 10 + seed))
            problems.append(sees(left / str(seed)))
        return is_whole, next(filter(None, problems), "")


def first_problem(*, power: bool) -> str:
    for step in range(1, 1_000):
        is_whole, problem = ended_at(step, power=power)
        if problem:
            return f"ended at call {step}: {problem}"
        if is_whole:
            assert step > 20, "it was never interrupted"
            return ""
    raise AssertionError("it has no end")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_rocketmq_is_refused_or_sees_exactly_what_waits(power: bool) -> None:
    assert first_problem(power=power) == ""


def failing_at(step: int) -> Plan:
    return lambda call: OSError(28, "No space left") if call.number == step else None


def test_an_error_at_any_call_leaves_the_fence_up_or_everything_as_it_was(tmp_path: Path) -> None:
    step = 0
    while True:
        step += 1
        root = tmp_path / str(step)
        root.mkdir()
        leave(to_rocketmq(OsFiles(), root), BEFORE)
        files = RecordingFiles(OsFiles(), root, plan=failing_at(step))
        try:
            stay(files, root)
        except OSError:
            assert to_rocketmq(OsFiles(), root).is_fenced or (step <= 2 and sees(root) == ""), f"call {step}"
            stay(OsFiles(), root)  # the disk has room again
            assert sees(root) == ""
            assert len(seen_by_rocketmq(root, 1_000, SLOTS, LOG_BYTES).messages) == len(AFTER)
            continue
        assert step > 20
        return


def test_the_fence_is_up_from_the_first_change_to_the_last(tmp_path: Path) -> None:
    leave(to_rocketmq(OsFiles(), tmp_path), BEFORE)
    fenced: list[bool] = []

    def plan(call: Call) -> None:
        fenced.append(to_rocketmq(OsFiles(), tmp_path).is_fenced)

    stay(RecordingFiles(OsFiles(), tmp_path, plan=plan), tmp_path)
    assert fenced.count(False) == 2, "before the first call; and while the removal of the fence is synced"
    assert not fenced[0]
    assert not fenced[-1]


# --- planted bugs -----------------------------------------------------------------------------------------------------


def test_a_fence_that_goes_before_the_hand_over_is_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write: Callable[..., object] = exchanging.TimerExchange._write_checkpoint

    def planted(self: TimerExchange, *arguments: object) -> None:
        lower_fence(self._files, self._root)
        write(self, *arguments)

    monkeypatch.setattr(exchanging.TimerExchange, "_write_checkpoint", planted)
    assert "RocketMQ would" in first_problem(power=False)


def test_a_checkpoint_ahead_of_the_synced_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over._LogWriter, "sync", handing_over._LogWriter._write)
    assert "RocketMQ would stumble" in first_problem(power=True)


def test_a_fence_that_is_never_raised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_fence = TimerExchange.raise_fence

    def planted(self: TimerExchange) -> None:
        if not self.exists:
            raise_fence(self)

    monkeypatch.setattr(TimerExchange, "raise_fence", planted)
    assert "RocketMQ would" in first_problem(power=False)
