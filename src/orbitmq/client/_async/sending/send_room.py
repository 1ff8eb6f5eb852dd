"""Back-pressure: how much one producer may have under way.

Rules of this file
1. A send that finds no room waits for it within its own time; it never waits longer, and nothing is dropped silently.
2. First come, first served: a large message at the head is not overtaken by small ones, so it gets its turn.
3. A message larger than the whole room goes alone.
"""

from __future__ import annotations

from collections import deque

from orbitmq.client._async.runtime import Event, wait_event
from orbitmq.errors import SendFailedError


class SendRoom:
    """Room for `messages_max` sends with `bytes_max` bytes of bodies."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, Event]] = deque()
        self.messages_count = 0
        self.bytes_count = 0

    def enter_now(self, size: int) -> bool:
        """Take room for `size` bytes if there is some and nobody waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self.messages_count += 1
        self.bytes_count += size
        return True

    async def enter(self, size: int, timeout_ms: int) -> None:
        """Take room, waiting for it if need be. `SendFailedError` when the time ends first."""
        if self.enter_now(size):
            return
        place = (size, Event())
        self._waiting.append(place)
        try:
            await wait_event(place[1], timeout_ms)
        except BaseException:
            if place[1].is_set():
                self.leave(size)  # let in and interrupted in the same moment
            else:
                self._give_up(place)
            raise
        if not place[1].is_set():
            self._give_up(place)
            raise SendFailedError(
                f"no room to send within {timeout_ms} ms: this producer has {self.messages_count} sends with "
                f"{self.bytes_count} bytes under way and may have {self._messages_max} with {self._bytes_max}",
                maybe_stored=False,
                remedy="nothing was sent; the brokers are slower than this program: send less at a time, or raise in_flight_max and "
                "in_flight_bytes_max",
            )

    def leave(self, size: int) -> None:
        """Give room back."""
        self.messages_count -= 1
        self.bytes_count -= size
        if self._waiting:
            self._admit()

    def _fits(self, size: int) -> bool:
        if not self.messages_count:
            return True
        return self.messages_count < self._messages_max and self.bytes_count + size <= self._bytes_max

    def _give_up(self, place: tuple[int, Event]) -> None:
        self._waiting.remove(place)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, admitted = self._waiting.popleft()
            self.messages_count += 1
            self.bytes_count += size
            admitted.set()
