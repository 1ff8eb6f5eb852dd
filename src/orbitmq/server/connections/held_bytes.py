"""Which connection holds most of what is held, when that is too much.

Rules of this file
1. Nothing is kept while little is held. From the first time that it is too much, finding one costs a look at the few that changed: whoever
   opens thousands of connections would otherwise have each of them looked at for each that is cut.
"""

from __future__ import annotations

import heapq
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Generic, Protocol, TypeVar


class Holder(Protocol):
    @property
    def held_bytes(self) -> int:
        """What is held of it now."""
        ...


H = TypeVar("H", bound=Holder)


class HeldBytes(Generic[H]):
    def __init__(self, holders: AbstractSet[H], most_bytes: int) -> None:
        """`holders` as they are at any time. `most_bytes`: more are too many, of all of them."""
        self._holders = holders
        self._most_bytes = most_bytes
        self._order: list[tuple[int, int, H]] = []
        """A heap of (bytes below zero, number, holder). While it is not empty each holder is in it with what it holds, or with more."""
        self._numbers = count()

    def grew(self, holder: H, all_bytes: int) -> H | None:
        """`holder` holds more than before, all together `all_bytes`: the one with the most, if that is too much."""
        if self._order:
            heapq.heappush(self._order, (-holder.held_bytes, next(self._numbers), holder))
            if 2 * all_bytes < self._most_bytes or len(self._order) > 4 * len(self._holders):
                self._order = []
        return self._most() if all_bytes > self._most_bytes else None

    def _most(self) -> H | None:
        if not self._order:
            self._order = [(-one.held_bytes, next(self._numbers), one) for one in self._holders if one.held_bytes]
            heapq.heapify(self._order)
        order = self._order
        while order:
            less_bytes, _, holder = order[0]
            if holder.held_bytes == -less_bytes and holder in self._holders:
                return holder
            heapq.heappop(order)
            if 0 < holder.held_bytes < -less_bytes:
                heapq.heappush(order, (-holder.held_bytes, next(self._numbers), holder))
        return None
