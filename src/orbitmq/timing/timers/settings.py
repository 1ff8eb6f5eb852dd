"""What can be chosen for the timers of a store."""

from __future__ import annotations

import msgspec

from orbitmq.timing.timer_files.log import FILE_BYTES
from orbitmq.timing.timer_files.wheel import SLOT_COUNT


class TimerSettings(msgspec.Struct, frozen=True):
    """Of one store."""

    precision_ms: int = 1_000
    """Width of a slot of the wheel."""
    roll_window_slots: int = 172_800
    """What is further away waits in a nearer slot and is put into the timer topic again from there."""
    log_file_bytes: int = FILE_BYTES
    slot_count: int = SLOT_COUNT
    """Of the wheel; RocketMQ's has always the same."""
    stopped: bool = False
    """Release nothing."""
