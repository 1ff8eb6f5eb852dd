"""Pulled messages on their way to the program.

Two ways of handing out: `Feed` in any order between queues, as many as the program asks for; `OrderedFeed` one run of messages of a
queue at a time, the next one when the whole run is settled.

Rules of this file
1. What is handed out was begun: its queue still holds it, and it is in the program's hands from then on.
2. A queue that was given up is out of here at once; a program that is slow to ask never holds up old messages.
3. In order means: nothing of a queue is handed out while an earlier message of it is in hand, waits for another attempt, or while
   the broker's lock on the queue is not certain. A failed run begins again at its first failed message.
4. The feed is bounded by what may be pulled and not yet settled; it holds nothing else.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settler
from orbitmq.client._async.consuming.owned_queue import OwnedQueue
from orbitmq.client._async.runtime import Idlers
from orbitmq.limits.client import QUEUE_LOCK_LIFE_MS


class AnyFeed(Protocol):
    """What a consumer needs of either feed."""

    idlers: Idlers

    def __len__(self) -> int: ...

    def add(self, owned: OwnedQueue, fresh: list[ReceivedMessage]) -> None:
        """Messages that its process queue has just taken."""
        ...

    def take(self, count: int, now_ms: int) -> list[ReceivedMessage]:
        """The next messages of one queue, begun, at most `count`; empty when there are none."""
        ...

    def settled(self, owned: OwnedQueue) -> None:
        """A message of the queue left the program's hands for good."""
        ...

    def forget(self, owned: OwnedQueue) -> None:
        """The queue was given up."""
        ...


class Feed:
    """Messages in the order they were pulled."""

    def __init__(self) -> None:
        self.idlers = Idlers()
        self._waiting: deque[ReceivedMessage] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, owned: Settler, fresh: list[ReceivedMessage]) -> None:
        self._waiting.extend(fresh)
        self.idlers.wake()

    def take(self, count: int, now_ms: int) -> list[ReceivedMessage]:
        waiting = self._waiting
        taken: list[ReceivedMessage] = []
        settler: Settler | None = None
        while waiting and len(taken) < count:
            message = waiting[0]
            if settler is not None and message.settler is not settler:
                break
            waiting.popleft()
            if message.settler.begin(message, now_ms):
                settler = message.settler
                taken.append(message)
        if waiting:
            self.idlers.wake()
        return taken

    def settled(self, owned: Settler) -> None:
        pass  # nothing waits for it

    def forget(self, owned: Settler) -> None:
        self._waiting = deque(message for message in self._waiting if message.settler is not owned)


class OrderedFeed:
    """Queues that have a message to begin with and nothing in hand, in turn."""

    def __init__(self) -> None:
        self.idlers = Idlers()
        self._ready: deque[OwnedQueue] = deque()

    def __len__(self) -> int:
        return sum(len(owned.messages) for owned in self._ready)

    def add(self, owned: OwnedQueue, fresh: list[ReceivedMessage]) -> None:
        self._offer(owned)

    def take(self, count: int, now_ms: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        while self._ready and not taken:
            owned = self._ready.popleft()
            owned.offered = False
            if not _is_certain(owned, now_ms):
                continue  # offered again when the lock is confirmed
            taken = owned.messages.first(count)
            for message in taken:
                owned.begin(message, now_ms)
            owned.in_hand_count = len(taken)
            if taken:
                owned.idle.clear()
        if self._ready:
            self.idlers.wake()
        return taken

    def settled(self, owned: OwnedQueue) -> None:
        self._out_of_hand(owned)
        if owned.in_hand_count == 0 and not owned.suspended:
            self._offer(owned)

    def suspend(self, owned: OwnedQueue) -> None:
        """A message of the run in hand starts again later; nothing of the queue is handed out before `resume`."""
        owned.suspended = True
        self._out_of_hand(owned)

    def resume(self, owned: OwnedQueue) -> None:
        owned.suspended = False
        self._offer(owned)

    def confirmed(self, owned: OwnedQueue) -> None:
        """The lock is certain again."""
        self._offer(owned)

    def forget(self, owned: OwnedQueue) -> None:
        if owned.offered:
            self._ready.remove(owned)
            owned.offered = False

    def _out_of_hand(self, owned: OwnedQueue) -> None:
        owned.in_hand_count -= 1
        if owned.in_hand_count == 0:
            owned.idle.set()

    def _offer(self, owned: OwnedQueue) -> None:
        if owned.offered or owned.in_hand_count or owned.suspended or owned.leaving or not len(owned.messages):
            return
        owned.offered = True
        self._ready.append(owned)
        self.idlers.wake()


def _is_certain(owned: OwnedQueue, now_ms: int) -> bool:
    if owned.leaving or owned.messages.dropped:
        return False
    return owned.locked_at_ms is None or now_ms - owned.locked_at_ms < QUEUE_LOCK_LIFE_MS
