"""What the slots that are over hold when the store is handed over: what is pending, and nothing else.

A broker that starts, ours or RocketMQ's, reads slots from the read clock on. So that clock stays at the first slot in which
something is overdue (deliveries were paused, the disk was full), every slot from there to the one in progress is linked anew without
what was delivered, and what is overdue leaves in the order of its due times.

Rules of this file
1. Cancellations stay in the slot of the messages they may name: in another one they would meet others of the same key.
2. What is linked anew ends with a unit that stands for nothing. After a crash in the middle of a stop, before its mark was saved, all of
   it is dropped again: a chain begun anew that lacks its end would hide the units of the old one, and the sums of the mark before know
   only that.
3. RocketMQ looks back half a lap at most, from when it starts. What is older than a quarter of a lap moves to the slot in progress,
   with its cancellations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orbitmq.timing.timer_files.unit import TimerUnit

Unit = tuple[int, ...]
"""A unit to be linked: as `timer_files.link.Link`."""


def kept_slots(
    chains: Iterable[tuple[int, list[TimerUnit]]],
    is_pending: Callable[[TimerUnit], bool],
    to_ms: int,
    oldest_ms: int,
) -> dict[int, list[Unit]]:
    """Slot time -> what is to be linked there, by time.

    `chains` are the slots up to `to_ms`, the one in progress, by time, with their units, oldest first. Nothing is left in slots at or
    before `oldest_ms`.
    """
    kept: dict[int, list[TimerUnit]] = {}
    for slot_ms, chain in chains:
        units = [unit for unit in chain if unit.is_delete or is_pending(unit)]
        if slot_ms == to_ms or not all(unit.is_delete for unit in units):
            into_ms = slot_ms if slot_ms > oldest_ms else to_ms
            kept.setdefault(into_ms, []).extend(units)
    return {slot_ms: [_again(unit, slot_ms) for unit in _in_order(kept[slot_ms])] for slot_ms in sorted(kept)}


def unfinished_copy(units: Iterable[TimerUnit], linked_until: int) -> int | None:
    """Position of the first unit that was linked anew by a hand-over whose stop did not come to its end; None when there is none.

    `units` are the last ones of the timer log, up to its end; before them every record below `linked_until`, a position in the commit
    log, has its unit.
    """
    begin: int | None = None
    for unit in units:
        if unit.physical_offset >= linked_until and not unit.is_void:
            begin, linked_until = None, unit.physical_offset + 1
        elif begin is None:
            begin = unit.position
    return begin


def _in_order(units: list[TimerUnit]) -> list[TimerUnit]:
    return sorted(units, key=lambda unit: unit.position)


def _again(unit: TimerUnit, slot_ms: int) -> Unit:
    return slot_ms, unit.magic, unit.physical_offset, unit.size, unit.topic_hash, unit.deliver_ms
