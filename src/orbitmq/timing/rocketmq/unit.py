"""One unit of the timer log: a message that waits, 52 bytes.

    0  4  size, 52                      28  8  physical offset of its record
    4  8  position of the unit before it in the same slot, -1 for the first
   12  4  magic: the sum of the flags   36  4  size of the record
   16  8  write clock, ms               40  4  Java hash of the real topic
   24  4  slot time - write clock, ms   44  8  RocketMQ: reserved, 0. Ours: due time, ms, 0 = unknown

Rules of this file
1. A unit has no checksum. `is_sound` therefore asks every field whether it can be what it claims, so that neither zeros
   nor half a unit passes for one.
2. The due time is used only if it agrees with the slot. Whoever does not know it reads the record.

Source: RocketMQ timer store, directory `timerlog`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_BYTES: Final = UNIT.size
BLANK: Final = Struct(">iqi")
BLANK_BYTES: Final = BLANK.size
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
"""Magic of the filler at the end of a full file; the commit log's."""

DEFAULT: Final = 1
"""Flag that is always set."""
ROLL: Final = 2
"""The message is due later than its slot: it is put into the timer topic once more when the slot comes."""
DELETE: Final = 4
"""Not a message but the cancellation of one in the same slot."""
VOID: Final = 8
"""Ours, always with DELETE: stands for nothing. RocketMQ takes it for a cancellation of no message. It is the last unit of a
hand-over, and its record tells RocketMQ how far the timer topic is linked."""

SOUND_MAGICS: Final = frozenset(
    {DEFAULT, DEFAULT | ROLL, DEFAULT | DELETE, DEFAULT | ROLL | DELETE, DEFAULT | DELETE | VOID},
)


class TimerUnit(NamedTuple):
    position: int
    """In the timer log."""
    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    deliver_ms: int
    """As stored; see `due_ms`."""

    @property
    def slot_ms(self) -> int:
        """Time of the slot the unit is linked in."""
        return self.write_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        return bool(self.magic & ROLL)

    @property
    def is_delete(self) -> bool:
        return bool(self.magic & DELETE)

    @property
    def is_void(self) -> bool:
        return bool(self.magic & VOID)

    def due_ms(self, precision_ms: int) -> int | None:
        """When the message falls due; None when the unit does not say, or says what its slot contradicts."""
        since_slot = self.deliver_ms - self.slot_ms
        if self.deliver_ms and since_slot > 0 and (since_slot <= precision_ms or self.magic & ROLL):
            return self.deliver_ms
        return None


def is_sound(
    position: int, size: int, previous: int, magic: int, write_ms: int, physical_offset: int, record_size: int
) -> bool:
    """Whether these fields can be a unit at `position`."""
    return (
        size == UNIT_BYTES
        and magic in SOUND_MAGICS
        and -1 <= previous < position
        and record_size > 0
        and physical_offset >= 0
        and write_ms > 0
    )
