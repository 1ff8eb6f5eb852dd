"""How fast one slave is sent the log: so many bytes a second.

Rules of this file
1. Something may be sent while nothing is owed. What is sent beyond the allowance is owed, and paid with time: the rate holds on average,
   and no transfer is cut for it.
2. What was not used is not saved up: after a pause it goes on with the same rate.
"""

from __future__ import annotations

from orbitmq.units import NS_PER_S


class SendRate:
    """A rate of 0 is none."""

    __slots__ = ("_bytes_per_s", "_free_at_ns")

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_ns = 0

    @property
    def free_at_ns(self) -> int:
        """When the next transfer may be sent; not later than now if it may be sent at once."""
        return self._free_at_ns

    def sent(self, size: int, now_ns: int) -> None:
        if self._bytes_per_s:
            self._free_at_ns = max(self._free_at_ns, now_ns) + size * NS_PER_S // self._bytes_per_s
