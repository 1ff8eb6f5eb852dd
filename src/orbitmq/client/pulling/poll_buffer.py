"""What a lite consumer has pulled and not handed out yet, and what the program has in hand.

    pulled -> ready -> in hand (until the next poll) -> finished

Rules of this file
1. No I/O and no clock; callers pass `now_ms`.
2. One poll hands out messages of one pull, so of one queue, in the order of their offsets.
3. Asking for more says that what was handed out before is finished. Until then it is unsettled in its process queue, which keeps
   the offset to commit below it.
4. A process queue that was dropped (given up, or left by a seek) takes with it what it had ready and in hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from orbitmq.client.consuming.process_queue import ProcessQueue, QueuedMessage

T = TypeVar("T", bound=QueuedMessage)


class PollBuffer(Generic[T]):
    """Pulled messages of all queues of one consumer, in the order in which they came."""

    __slots__ = ("_in_hand", "_ready")

    def __init__(self) -> None:
        self._ready: deque[tuple[ProcessQueue[T], deque[T]]] = deque()
        self._in_hand: list[tuple[ProcessQueue[T], T]] = []

    def add(self, source: ProcessQueue[T], messages: Sequence[T]) -> None:
        """Messages that `source.put` has just taken in."""
        if messages:
            self._ready.append((source, deque(messages)))

    def take(self, count: int) -> list[T]:
        """The next messages, at most `count`, now in hand; empty when nothing is ready."""
        while self._ready:
            source, messages = self._ready[0]
            if source.dropped or not messages:
                self._ready.popleft()
                continue
            taken = [messages.popleft() for _ in range(min(count, len(messages)))]
            self._in_hand.extend((source, message) for message in taken)
            return taken
        return []

    def finish(self, now_ms: int) -> None:
        """What is in hand is done."""
        for source, message in self._in_hand:
            source.settle(message, now_ms)
        self._in_hand.clear()

    def forget_dropped(self) -> None:
        """Free what belongs to dropped process queues: a program that polls rarely would else hold it."""
        self._ready = deque(entry for entry in self._ready if not entry[0].dropped)
        self._in_hand = [entry for entry in self._in_hand if not entry[0].dropped]

    def next_offset(self, source: ProcessQueue[T]) -> int | None:
        """Offset of the first message of `source` that is ready; None when none is."""
        for candidate, messages in self._ready:
            if candidate is source and messages:
                return messages[0].queue_offset
        return None
