"""Where RocketMQ would have to begin to read the op queue: what it keeps as offsets of the group CID_RMQ_SYS_TRANS.

RocketMQ looks at half messages from an offset on, and at op records from another one on. The second may be passed only when every half
message it names lies before the first.

Rules of this file
1. Pure. The answer may be too early, never too late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from orbitmq.limits.transactions import OP_STRETCHES_MAX


class OpProgress:
    """Stretches of the op queue, each with the highest half offset that its records name."""

    __slots__ = ("_stretches", "next_offset")

    def __init__(self, first: int = 0, next_offset: int = 0, highest_half: int = -1) -> None:
        """Records from `first` to `next_offset` were not looked at: they name half messages up to `highest_half`."""
        self._stretches: deque[tuple[int, int]] = deque([(first, highest_half)] if first < next_offset else [])
        self.next_offset = next_offset

    def noted(self, op_offset: int, named: Iterable[int]) -> None:
        """The op record at that offset of its queue names these half messages."""
        self.next_offset = max(self.next_offset, op_offset + 1)
        self._stretches.append((op_offset, max(named, default=-1)))
        if len(self._stretches) > OP_STRETCHES_MAX:
            pairs = list(self._stretches)
            self._stretches = deque(
                (at, max(highest for _, highest in pairs[index : index + 2]))
                for index, (at, _) in list(enumerate(pairs))[::2]
            )

    def offset(self, half_offset: int) -> int:
        """The first record that may name a half message at `half_offset` or behind it; what lies before is forgotten, for half offsets
        only rise."""
        while self._stretches and self._stretches[0][1] < half_offset:
            self._stretches.popleft()
        return self._stretches[0][0] if self._stretches else self.next_offset
