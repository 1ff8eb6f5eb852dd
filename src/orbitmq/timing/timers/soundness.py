"""Whether the wheel and the timer log that a start finds can be believed.

Rules of this file
1. Nothing is mended here. What is only wrong with the wheel is said in words, because it can be made again from the timer log; what is
   wrong with the timer log is raised as StoreDamagedError, because that takes the commit log.
2. Units lead: a wheel is compared with the timer log and with what the journal knows, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orbitmq.errors import StoreDamagedError
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.unit import TimerUnit
from orbitmq.timing.timer_files.wheel import Survey, TimerWheel
from orbitmq.timing.timers.lap import Lap


def load_whole(log: TimerLog, end: int) -> None:
    """Open the files of `log`, cut behind its last unit.

    Raises StoreDamagedError, with `log` closed, when its units cannot be read up to `end`, a position in it.
    """
    found = log.load(end)
    if found >= end and (damaged := log.spot_check(end)) is not None:
        found = damaged
    if found < end:
        log.close()
        raise StoreDamagedError(
            f"{log.directory} can be read up to {found}, it reached {end}",
            remedy="it is made again from the commit log",
        )
    log.cut()


def on_grid(units: Iterable[TimerUnit], precision_ms: int) -> Iterator[TimerUnit]:
    """Units as they are; raises StoreDamagedError for one whose time is no slot's."""
    for unit in units:
        if unit.slot_ms % precision_ms:
            raise StoreDamagedError(
                f"the unit of the timer log at {unit.position} belongs to no slot: {unit.slot_ms}",
                remedy="the timer log is made again from the commit log",
            )
        yield unit


def doubt_of_wheel(found: Survey, log: TimerLog, lap: Lap, read_ms: int, expected_sum: int) -> str:
    """Why a wheel of ours cannot be believed from slot time `read_ms` on, or nothing. `expected_sum`: the messages that wait there.

    Raises StoreDamagedError when the timer log lacks units that the wheel names.
    """
    if found.heads and found.lowest < log.first_position:
        raise StoreDamagedError(
            f"{log.directory} begins at {log.first_position}, a slot that is to come at {found.lowest}",
            remedy="it is made again from the commit log",
        )
    if found.highest >= log.end:
        return f"a slot ends at {found.highest}, the timer log at {log.end}"
    if lap.is_beyond(found.heads, read_ms):
        return "it has slots that are more than a lap apart"
    if found.unit_count != expected_sum:
        return f"its slots hold {found.unit_count} messages, there were {expected_sum}"
    return ""


def has_other_precision(wheel: TimerWheel, log: TimerLog, read_ms: int, precision_ms: int) -> bool:
    """Whether the first unit that a slot from `read_ms` on leads to belongs, at `precision_ms`, to another slot."""
    for slot in wheel.slots(read_ms):
        unit = log.unit(slot.last)
        if unit is not None:
            return unit.slot_ms // precision_ms != slot.number
    return False
