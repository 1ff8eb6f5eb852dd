"""An epoch is on the disk before anything is said in it: writing it, and again where that failed.

Rules of this file
1. One write after the other, in the order in which they were asked for. What a later one has taken the place of is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.group import GROUP_KEEP_RETRY_MS
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import EpochKept, KeptEpoch
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "epoch of the group"

Keep = Callable[[KeptEpoch, Callable[[str], None]], None]
"""Writes it so that a power failure leaves it, and tells why that failed, empty where it did not."""


class EpochKeeping:
    """Of one member."""

    def __init__(
        self, replica: Replica, keep: Keep, kept: Callable[[EpochKept], None], clock: Clock, deadlines: Deadlines
    ) -> None:
        """`kept(input)` is told what is on the disk."""
        self._replica = replica
        self._keep = keep
        self._kept = kept
        self._clock = clock
        self._deadlines = deadlines
        self._unkept: KeptEpoch | None = None
        self._is_over = False
        deadlines.define(WAKEUP, self._again)

    def write(self, epoch: KeptEpoch) -> None:
        def done(why_not: str) -> None:
            if self._is_over:
                return
            if not why_not:
                self._kept(EpochKept(epoch.epoch))
            elif epoch == self._replica.kept:  # else a later one is written already
                self._unkept = epoch
                self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + GROUP_KEEP_RETRY_MS * NS_PER_MS)

        self._keep(epoch, done)

    def write_again(self) -> None:
        """What is kept beside the epoch has changed."""
        self._keep(self._replica.kept, lambda why_not: None)

    def close(self) -> None:
        self._is_over = True
        self._deadlines.disarm(WAKEUP)

    def _again(self) -> None:
        epoch, self._unkept = self._unkept, None
        if epoch is not None and epoch == self._replica.kept:
            self.write(epoch)
