"""Linking: a pending message gets its unit in the timer log, and its slot of the wheel gets a new last unit.

Also the way back: filling the wheel from the units of the log, after a crash or when it is damaged.

Rules of this file
1. Linking touches memory only. The order towards the disk is: units written and synced, then slots written and synced,
   then the checkpoint. `settle` does the first three steps.
2. `relink` may be called any number of times for the same units: a unit at or before the last one of its slot is there
   already.
3. A slot that names a unit at or behind the end of the log is evidence that the wheel reached the disk before the log.
   Nothing such a wheel says is used; it is made again from the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from mmap import mmap
from operator import itemgetter
from struct import error as StructError
from typing import NamedTuple

from orbitmq.leaf import twin
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.unit import DELETE, UNIT, UNIT_BYTES, TimerUnit
from orbitmq.timing.timer_files.wheel import NO_POSITION, SLOT, SLOT_BYTES, TimerWheel


class Link(NamedTuple):
    """What is to be linked. A plain tuple of the same six does as well."""

    slot_ms: int
    """Time of the slot: a multiple of the precision, not before the write clock."""
    magic: int
    """Flags of the unit, see `UnitFlag`; DEFAULT always among them."""
    physical_offset: int
    size: int
    topic_hash: int
    deliver_ms: int
    """Exact due time, 0 when it is not known. RocketMQ writes 0."""


_SLOT_MS = itemgetter(0)


def link(wheel: TimerWheel, log: TimerLog, write_ms: int, links: Sequence[Link | tuple[int, ...]]) -> int:
    """Append a unit for each link, in order, and make it the last one of its slot; returns the position of the first.

    `write_ms` is the write clock, a multiple of the precision. Every slot time must lie from it to half a wheel behind
    it (ValueError; nothing is linked then). OSError comes before anything is linked. `struct.error` for a value that
    fits no field: the links before it are linked. Cost: 0.2 us a link, without the compiled leaf 0.6 us in slots that are in use and
    1.6 us for one that is the first of its slot since `TimerWheel.write`; 52 bytes of memory a link until `TimerLog.write`.
    """
    if not links:
        return log.end
    precision, slot_count = wheel.precision_ms, wheel.slot_count
    earliest, latest = min(links, key=_SLOT_MS)[0], max(links, key=_SLOT_MS)[0]
    if earliest < write_ms or latest - write_ms > slot_count // 2 * precision:
        raise ValueError(
            f"slot times {earliest} to {latest} cannot be linked at {write_ms}: the wheel takes"
            f" {slot_count // 2 * precision} ms from there"
        )
    tail, position, last = log.open_tail()
    first, heads, view, at = position, wheel.heads_to_change(), wheel.stored_slots(), 0
    every = links if isinstance(links, list) else list(links)
    while at < len(every):
        if position > last:
            tail, position, last = log.close_file()
        count = pack_units(every, at, write_ms, precision, slot_count, position, last, heads, view, tail)
        at, position = at + count, position + count * UNIT_BYTES
        log.end = position
        if not count:  # a value that fits no field: what came before it is linked
            slot_ms, *others = every[at]
            UNIT.pack(UNIT_BYTES, NO_POSITION, others[0], write_ms, slot_ms - write_ms, *others[1:])
            raise AssertionError(f"{every[at]} was not linked")
    return first


@twin
def pack_units(
    links: list[Link | tuple[int, ...]],
    at: int,
    write_ms: int,
    precision_ms: int,
    slot_count: int,
    position: int,
    last: int,
    heads: dict[int, list[int]],
    slots: mmap,
    tail: bytearray,
) -> int:
    """Append the units of `links` from the one numbered `at` on to `tail`, the first at `position`, and change or add the heads of
    their slots. Returns their number: less than all when a unit would begin behind `last`, or at a link that fits no field."""
    unpack_slot, pack, begin = SLOT.unpack_from, UNIT.pack, at
    while at < len(links) and position <= last:
        slot_ms, magic, physical_offset, size, topic_hash, deliver_ms = links[at]
        number, delay_ms = slot_ms // precision_ms, slot_ms - write_ms
        index = number % slot_count
        head = heads.get(index)
        if head is None:
            head = list(unpack_slot(slots, index * SLOT_BYTES))
        is_new = head[0] != number or head[2] < 0  # another lap's, or nobody's
        previous = NO_POSITION if is_new else head[2]
        try:
            tail += pack(UNIT_BYTES, previous, magic, write_ms, delay_ms, physical_offset, size, topic_hash, deliver_ms)
        except StructError:
            break
        if is_new:
            head[:] = (number, position, NO_POSITION, 0, 0)
        head[2] = position
        head[3] += -1 if magic & DELETE else 1
        heads[index] = head
        position += UNIT_BYTES
        at += 1
    return at - begin


def settle(wheel: TimerWheel, log: TimerLog) -> int:
    """Write and sync units, then slots, in the order that a power failure cannot hurt. Blocks.

    Returns the position up to which the timer log is durable and the wheel complete, for the checkpoint. Who links
    meanwhile takes the same steps, with the two syncs on another thread: what is linked after `changes` waits for the
    next round.
    """
    log.write()
    position, changes = log.end, wheel.changes()
    log.datasync()
    wheel.write(changes)
    wheel.datasync()
    return position


def relink(wheel: TimerWheel, units: Iterable[TimerUnit]) -> int:
    """Make each unit, in the order of the log, the last one of its slot unless the slot knows it; returns how many it
    did not know. 1 us a unit.
    """
    added = 0
    precision, slot_count = wheel.precision_ms, wheel.slot_count
    heads, view = wheel.heads_to_change(), wheel.stored_slots()
    for unit in units:
        number = unit.slot_ms // precision
        index = number % slot_count
        head = heads.get(index)
        if head is None:
            head = list(SLOT.unpack_from(view, index * SLOT_BYTES))
        if head[0] > number and head[2] >= 0:  # a later lap has the place: this unit was delivered long ago
            continue
        if head[0] == number and head[2] >= unit.position:
            continue
        if head[0] != number or head[2] < 0:
            head = [number, unit.position, NO_POSITION, 0, 0]
        head[2] = unit.position
        head[3] += -1 if unit.magic & DELETE else 1
        heads[index] = head
        added += 1
        if wheel.is_crowded:
            wheel.write()
    return added


class Recovered(NamedTuple):
    unit_count: int
    """Units that the wheel did not know."""
    made_again: str
    """Why the wheel was made again from the whole log; empty when it could be used."""


def recover(wheel: TimerWheel, log: TimerLog, since: int, read_ms: int = 0, *, forget: Callable[[], None]) -> Recovered:
    """Bring the wheel up to the units that the log holds from position `since` on.

    The log is loaded, cut and synced. `since` is the position of the checkpoint; `read_ms` the first slot time that still has
    to be read. Cost: 1 us a unit behind `since`, and 1.5 us a slot in use; a wheel that cannot be believed costs 1 us for
    every unit of the log.

    `forget` makes position 0 the durable checkpoint. It is called before the wheel is emptied: an empty wheel looks sound, and
    after another crash units before the old checkpoint would be missed.
    """
    reason = doubt(wheel, log, read_ms)
    if not reason:
        return Recovered(relink(wheel, log.scan(since)), "")
    forget()
    wheel.clear()
    return Recovered(relink(wheel, log.scan(log.first_position)), reason)


def doubt(wheel: TimerWheel, log: TimerLog, read_ms: int = 0) -> str:
    """Why the wheel cannot be believed from slot time `read_ms` on, or nothing."""
    for slot in wheel.slots(read_ms):
        slot_ms = slot.number * wheel.precision_ms
        if slot.last >= log.end:
            return f"the slot of {slot_ms} ends at {slot.last}, the timer log at {log.end}"
        if slot.last >= log.first_position:
            unit = log.unit(slot.last)
            if unit is None or unit.slot_ms != slot_ms:
                return f"the slot of {slot_ms} ends at {slot.last}, where no unit of it stands"
    misplaced = wheel.misplaced()
    if misplaced:
        return f"{len(misplaced)} slots stand in the place of another"
    return ""
