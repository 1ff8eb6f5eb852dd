"""Pull requests that wait for a message.

A pull that finds nothing and may be suspended is held here under its message queue. An arrival that it wants, the
safety check, or its own time-out releases it; whoever holds the request then runs the pull once more and answers
whatever it finds.

Rules of this file
1. A held pull is released or withdrawn exactly once, and never held again.
2. An arrival costs one dictionary look-up while nobody waits.
3. Nothing is scheduled while nothing is held: `next_at_ns` is None then.
4. The number of held pulls is bounded; beyond it the caller answers at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

import msgspec

from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages
from orbitmq.limits.broker import (
    HELD_CHECK_NS,
    HELD_ENDED_AT_ONCE_MAX,
    HELD_PULLS_MAX,
    HELD_PULLS_PER_QUEUE_MAX,
)

Request = TypeVar("Request")
QueueKey = tuple[str, int]


class HeldPull(msgspec.Struct, Generic[Request], eq=False):
    """One waiting pull."""

    number: int
    request: Request
    key: QueueKey
    offset: int
    deadline_ns: int
    wanted: WantedMessages
    owner: object
    released: bool = False


class LongPolls(Generic[Request]):
    """The held pulls of a broker."""

    def __init__(self, release: Callable[[Request], None], *, per_queue_max: int = HELD_PULLS_PER_QUEUE_MAX) -> None:
        """`release` runs the pull a last time and answers it; it is called from `arrived`, `check` and `release_all`."""
        self._release = release
        self._per_queue_max = per_queue_max
        self._by_queue: dict[QueueKey, list[HeldPull[Request]]] = {}
        self.queues: Final[Container[QueueKey]] = self._by_queue
        """Those that a pull waits for."""
        self._by_owner: dict[object, dict[int, HeldPull[Request]]] = {}
        self._deadlines: list[tuple[int, int, HeldPull[Request]]] = []
        self._order = count()
        self._held_count = 0
        self._next_safety_check_ns = 0
        self._checked_ns = 0
        self.refused_count = 0

    def __len__(self) -> int:
        return self._held_count

    def hold(
        self, request: Request, topic: str, queue_id: int, offset: int, *,
        now_ns: int, wait_ms: int, wanted: WantedMessages, owner: object,
    ) -> bool:  # fmt: skip
        """Keep `request` for at most `wait_ms`; False when the bound is reached and it must be answered now.

        `offset` is the next queue offset the puller wants, `owner` the connection (see `drop_owner`).
        """
        key = (topic, queue_id)
        waiting = self._by_queue.get(key)
        if self._held_count >= HELD_PULLS_MAX or (waiting is not None and len(waiting) >= self._per_queue_max):
            self.refused_count += 1
            return False
        number = next(self._order)
        held = HeldPull(number, request, key, offset, now_ns + wait_ms * 1_000_000, wanted, owner)
        if waiting is None:
            self._by_queue[key] = [held]
        else:
            waiting.append(held)
        if self._held_count == 0:
            self._next_safety_check_ns = now_ns + HELD_CHECK_NS
        self._held_count += 1
        self._by_owner.setdefault(owner, {})[number] = held
        heapq.heappush(self._deadlines, (held.deadline_ns, number, held))
        return True

    def waiting(self, topic: str, queue_id: int) -> list[Request]:
        """The requests that wait for messages of this queue: the broker has nothing for any of them."""
        return [held.request for held in self._by_queue.get((topic, queue_id), ())]

    def arrived(self, topic: str, queue_id: int, next_offset: int, message: ArrivedMessage) -> None:
        """A message became visible; `next_offset` is the offset after it.

        A pull for an offset that lies further ahead stays held, as does one that does not want the message.
        """
        key = (topic, queue_id)
        waiting = self._by_queue.get(key)
        if waiting is None:
            return
        ready = [held for held in waiting if next_offset > held.offset and message.is_one_of(held.wanted)]
        if ready:
            self._let_go(ready)

    def wake_one(self, topic: str, queue_id: int, message: ArrivedMessage | None) -> bool:
        """Release the request that has waited longest of those which want this message; False when none does.
        With None any of them."""
        for held in self._by_queue.get((topic, queue_id), ()):
            if message is None or message.is_one_of(held.wanted):
                self._let_go([held])
                return True
        return False

    def check(self, now_ns: int, max_offset: Callable[[str, int], int]) -> None:
        """Release what has timed out, a bounded number at a time (`next_at_ns` is now then), and, at the safety check, what the queue has
        overtaken unnoticed."""
        self._checked_ns = now_ns
        expired: list[HeldPull[Request]] = []
        deadlines = self._deadlines
        while deadlines and (
            deadlines[0][2].released or (deadlines[0][0] <= now_ns and len(expired) < HELD_ENDED_AT_ONCE_MAX)
        ):
            held = heapq.heappop(deadlines)[2]
            if not held.released:
                expired.append(held)
        self._let_go(expired)
        if self._held_count and now_ns >= self._next_safety_check_ns:
            self._next_safety_check_ns = now_ns + HELD_CHECK_NS
            for key, waiting in list(self._by_queue.items()):
                end = max_offset(*key)
                # Beyond the held offset, or below it after a truncation: both change the answer.
                self._let_go([held for held in waiting if end != held.offset])

    def next_at_ns(self) -> int | None:
        """Monotonic time of the next `check`; None while nothing is held."""
        if not self._held_count:
            return None
        while self._deadlines[0][2].released:
            heapq.heappop(self._deadlines)
        return min(max(self._deadlines[0][0], self._checked_ns), self._next_safety_check_ns)

    def drop_owner(self, owner: object) -> int:
        """Forget the pulls of a closed connection without answering them; how many there were."""
        gone = list(self._by_owner.get(owner, {}).values())
        self._remove(gone)
        return len(gone)

    def withdraw(self, topic: str, queue_id: int, chosen: Callable[[Request], bool]) -> list[Request]:
        """The chosen requests that wait for this queue: held no longer, and to be answered by the caller."""
        gone = [held for held in self._by_queue.get((topic, queue_id), ()) if chosen(held.request)]
        self._remove(gone)
        return [held.request for held in gone]

    def release_topic(self, topic: str) -> None:
        """Answer everything that waits for a topic that has just been deleted."""
        self._let_go([held for held in self._all() if held.key[0] == topic])

    def release_all(self) -> None:
        """Answer everything; the broker stops."""
        self._let_go(list(self._all()))

    def _all(self) -> Iterator[HeldPull[Request]]:
        for waiting in self._by_queue.values():
            yield from waiting

    def _let_go(self, ready: list[HeldPull[Request]]) -> None:
        self._remove(ready)
        for held in ready:
            self._release(held.request)

    def _remove(self, gone: list[HeldPull[Request]]) -> None:
        for held in gone:
            held.released = True
            owned = self._by_owner[held.owner]
            del owned[held.number]
            if not owned:
                del self._by_owner[held.owner]
        for key in {held.key for held in gone}:
            left = [held for held in self._by_queue[key] if not held.released]
            if left:
                self._by_queue[key] = left
            else:
                del self._by_queue[key]
        self._held_count -= len(gone)
        if not self._held_count:
            self._deadlines.clear()
        elif len(self._deadlines) > 2 * self._held_count + 64:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].released]
            heapq.heapify(self._deadlines)
