"""What can be chosen for the timers of a store."""

from __future__ import annotations

import msgspec

from orbitmq.timing.index.parts import IndexShape


class TimerSettings(msgspec.Struct, frozen=True):
    """Settings of one store's timers."""

    precision_ms: int = 1_000
    """Width of the slots in which RocketMQ keeps due times, and which records and timer files name. Delivery is exact whatever it is."""
    stopped: bool = False
    """Release nothing."""
    shape: IndexShape = IndexShape()
    """How much goes into a part of the index."""
