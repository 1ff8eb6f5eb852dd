"""Timer log, wheel and checkpoint after the process or the machine died at any call.

A life links batches, settles now and then, and links on while it does. Afterwards: everything settled is there, every chain is
whole, nothing stands in two slots, and the wheel on the disk never speaks of units that the log has not got.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.harness import kill_at, scratch
from tests.worlds.faults import Killed, RecordingFiles

from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.checkpoint import TimerCheckpoint, TimerCheckpointFile, read_timer_checkpoint
from orbitmq.timing.timer_files.link import Link, link, recover, settle
from orbitmq.timing.timer_files.log import ChainEnd, TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, UNIT_BYTES
from orbitmq.timing.timer_files.wheel import TimerWheel

W = 1_795_228_412_000
SLOTS = 512
"""16 KiB: four pages that may reach the disk or not."""

FILE_BYTES = 97 * UNIT_BYTES + 16
"""A little more than a page, so that units lie across pages."""

TURNS = 40
SEEDS = range(60)
Settle = Callable[[TimerWheel, TimerLog, Callable[[], None]], int]
"""Brings everything linked so far to the disk and calls its last argument, which links more, in the middle."""


class Life:
    """What one process linked, and how much of it was settled when it ended."""

    def __init__(self) -> None:
        self.linked = 0
        self.settled = 0
        self.settled_position = 0


def slot_of(number: int) -> int:
    return W + number * 37 % 200 * 1000


def live(files: RecordingFiles, root: Path, rng: random.Random, life: Life, settle: Settle) -> None:
    checkpoint = TimerCheckpointFile.open(files, root / "timercheck")
    wheel = TimerWheel.create(files, root / "timerwheel", 1000, SLOTS)
    log = TimerLog(files, root / "timerlog", FILE_BYTES)
    log.load()
    files.sync_dir(root)
    wheel.datasync()

    def link_some() -> None:
        count = rng.randint(1, 30)
        numbers = range(life.linked, life.linked + count)
        link(wheel, log, W, [Link(slot_of(n), DEFAULT, n * 100, 100, 7, slot_of(n) + 1 + n % 1000) for n in numbers])
        life.linked += count

    for _ in range(TURNS):
        link_some()
        if rng.random() < 0.5:
            log.write()
        if rng.random() < 0.3:
            count = life.linked
            position = settle(wheel, log, link_some if rng.random() < 0.5 else lambda: None)
            checkpoint.write(TimerCheckpoint(W, position, count, count))
            checkpoint.sync()
            life.settled, life.settled_position = count, position


def in_order(wheel: TimerWheel, log: TimerLog, meanwhile: Callable[[], None]) -> int:
    log.write()
    position, changes = log.end, wheel.changes()
    meanwhile()
    log.datasync()
    wheel.write(changes)
    wheel.datasync()
    return position


def examine(root: Path, life: Life) -> int:
    """Recover what is there; returns the number of units. AssertionError names what is wrong."""
    files = OsFiles()
    value = read_timer_checkpoint(files, root / "timercheck") or TimerCheckpoint()
    log = TimerLog(files, root / "timerlog", FILE_BYTES)
    if not (root / "timerwheel").exists() or (root / "timerwheel").stat().st_size != SLOTS * 32:
        assert life.settled == 0
        return 0
    wheel = TimerWheel.open(files, root / "timerwheel", 1000, SLOTS)
    assert value.last_timer_log_flush_pos >= life.settled_position or life.settled == 0
    end = log.load(value.last_timer_log_flush_pos)
    assert end >= value.last_timer_log_flush_pos
    log.cut()
    assert recover(wheel, log, value.last_timer_log_flush_pos, forget=lambda: None).made_again == ""
    units = list(log.scan())
    assert [unit.physical_offset for unit in units] == [n * 100 for n in range(len(units))]
    assert life.settled <= len(units) <= life.linked
    assert all(unit.slot_ms == slot_of(n) for n, unit in enumerate(units))
    for n, unit in enumerate(units[: life.settled]):
        assert unit.due_ms(1000) == slot_of(n) + 1 + n % 1000
    seen: list[int] = []
    for slot in wheel.slots():
        walk = log.walk(slot.last, slot.number * 1000)
        assert walk.end is ChainEnd.COMPLETE, walk.problem
        assert slot.unit_count == len(walk.units)
        seen += [unit.position for unit in walk.units]
    assert sorted(seen) == [unit.position for unit in units]
    link(wheel, log, W, [Link(W, DEFAULT, 10**9, 100, 7, 0)])
    settle(wheel, log)
    wheel.close()
    log.close()
    again = TimerLog(files, root / "timerlog", FILE_BYTES)
    again.load()
    last = again.last_unit()
    again.close()
    assert last is not None
    assert last.physical_offset == 10**9
    return len(units)


def crash(seed: int, *, power: bool, keep: float | None = None, settle: Settle = in_order) -> str:
    """One life that dies at a drawn call; returns the problem."""
    rng = random.Random(seed)
    with scratch() as base:
        root = base / "store"
        root.mkdir()
        files = RecordingFiles(OsFiles(), root, plan=kill_at(rng.randint(1, 120)))
        life = Life()
        with contextlib.suppress(Killed):
            live(files, root, rng, life, settle)
        target = root
        if power:
            target = base / "after"
            files.power_cut(target, rng, keep=keep)
        try:
            examine(target, life)
        except AssertionError as error:
            return f"seed {seed}: {error}"
        return ""


@pytest.mark.parametrize("power", [False, True])
def test_everything_settled_is_there_after_a_crash(power: bool) -> None:
    problems = [problem for seed in SEEDS if (problem := crash(seed, power=power))]
    assert problems == []


def slots_first(wheel: TimerWheel, log: TimerLog, meanwhile: Callable[[], None]) -> int:
    """Planted: the wheel reaches the disk before the units it names."""
    wheel.write()
    wheel.datasync()
    return in_order(wheel, log, meanwhile)


def newest_slots(wheel: TimerWheel, log: TimerLog, meanwhile: Callable[[], None]) -> int:
    """Planted: slots that changed while the log was synced are written with the others."""
    log.write()
    position = log.end
    meanwhile()
    log.datasync()
    wheel.write()
    wheel.datasync()
    return position


def units_not_synced(wheel: TimerWheel, log: TimerLog, meanwhile: Callable[[], None]) -> int:
    """Planted: the checkpoint speaks of units that are not durable."""
    log.write()
    position, changes = log.end, wheel.changes()
    meanwhile()
    wheel.write(changes)
    wheel.datasync()
    return position


@pytest.mark.parametrize("planted", [slots_first, newest_slots, units_not_synced])
def test_a_wrong_order_towards_the_disk_is_caught(planted: Settle) -> None:
    """By the very crashes that find nothing without it."""
    assert any(crash(seed, power=True, settle=planted) for seed in SEEDS)


def test_a_full_disk_at_any_call_loses_nothing() -> None:
    for failing in range(1, 60):
        with scratch() as base:
            files = RecordingFiles(OsFiles(), base)
            wheel = TimerWheel.create(files, base / "timerwheel", 1000, SLOTS)
            log = TimerLog(files, base / "timerlog", FILE_BYTES)
            log.load()
            first = len(files.calls)
            files.plan = lambda call, at=first + failing: OSError(28, "full") if call.number == at else None  # type: ignore[misc]
            failed = 0
            for turn in range(12):
                link(
                    wheel,
                    log,
                    W,
                    [Link(slot_of(n), DEFAULT, n * 100, 100, 7, 0) for n in range(turn * 25, turn * 25 + 25)],
                )
                try:
                    settle(wheel, log)
                except OSError:
                    failed += 1
                    settle(wheel, log)
            assert [unit.physical_offset for unit in log.scan()] == [n * 100 for n in range(300)]
            assert sum(slot.unit_count for slot in wheel.slots()) == 300
            wheel.close()
            log.close()
            if not failed:
                return
    pytest.fail("every call failed once: the life is longer than the test")
