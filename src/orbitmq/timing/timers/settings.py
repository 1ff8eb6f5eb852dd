"""What can be chosen for the timers of a store."""

from __future__ import annotations

import msgspec

from orbitmq.timing.index.parts import IndexShape


class TimerSettings(msgspec.Struct, frozen=True):
    """Of one store."""

    precision_ms: int = 1_000
    """What RocketMQ keeps its due times to: of the slots that records and timer files name. Delivery is exact whatever it is."""
    stopped: bool = False
    """Release nothing."""
    shape: IndexShape = IndexShape()
    """How much goes into a part of the index."""
