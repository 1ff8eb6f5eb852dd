"""The request queue: requests that were read and wait to be handled.

While the server keeps up nothing waits: a request is handled as soon as its bytes are read. Under a flood that would
hide how long requests wait (in the kernel's buffers, where nobody sees it) and let one turn grow without end. So when
a turn has lasted its slice, what is read goes into the queue, and reading and handling take slices in turn. What waited
is then known to the millisecond, and the handlers can refuse it.

Rules of this file
1. First in, first out, over all connections. A request keeps the time at which its bytes were read.
2. The queue is bounded in requests and in bytes. Who finds it full hears so at once and does not wait.
3. No clock is read per connection and nothing is decided here about what to refuse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from orbitmq.clock import Clock
from orbitmq.limits.server import WAITING_REQUESTS_BYTES_MAX, WAITING_REQUESTS_MAX

CLOCK_EVERY: Final = 8
"""Requests that are handled between two looks at the clock."""


R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Waiter(Protocol[R_contra]):
    """The connection that a waiting request came from; what a request is, is its own affair."""

    def serve(self, received_ns: int, request: R_contra, /) -> None:
        """Handle the request now; raises nothing."""
        ...


class RequestQueue:
    """The waiting requests of a process."""

    __slots__ = ("_bytes", "_bytes_max", "_clock", "_requests", "_requests_max", "longest", "others_waiting", "refused")

    def __init__(
        self,
        clock: Clock,
        requests_max: int = WAITING_REQUESTS_MAX,
        bytes_max: int = WAITING_REQUESTS_BYTES_MAX,
        others_waiting: Callable[[], int] = int,
    ) -> None:
        """`others_waiting()` counts requests that were handled and wait for something else, such as their flush; they
        take places of the queue."""
        self._clock = clock
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self.others_waiting = others_waiting
        self._requests: deque[tuple[Waiter[Any], int, Any, int]] = deque()
        self._bytes = 0
        self.refused = 0
        """Requests that found the queue full."""
        self.longest = 0
        """The longest it has been."""

    def __len__(self) -> int:
        return len(self._requests)

    def head_wait_ms(self) -> int:
        """How long the first of them has been waiting; 0 when nobody waits."""
        if not self._requests:
            return 0
        return (self._clock.monotonic_ns() - self._requests[0][1]) // 1_000_000

    def now_ns(self) -> int:
        return self._clock.monotonic_ns()

    @property
    def bytes_waiting(self) -> int:
        return self._bytes

    def join(self, waiter: Waiter[R], received_ns: int, request: R, size: int) -> bool:
        """Put a request of `size` bytes at the end; False when the queue is full."""
        length = len(self._requests)
        if length + self.others_waiting() >= self._requests_max or self._bytes + size > self._bytes_max:
            self.refused += 1
            return False
        self._requests.append((waiter, received_ns, request, size))
        self._bytes += size
        if length >= self.longest:
            self.longest = length + 1
        return True

    def serve(self, slice_ns: int) -> None:
        """Handle requests from the front for about `slice_ns`."""
        requests, clock = self._requests, self._clock
        until_ns = clock.monotonic_ns() + slice_ns
        while requests:
            for _ in range(min(CLOCK_EVERY, len(requests))):
                waiter, received_ns, request, size = requests.popleft()
                self._bytes -= size
                waiter.serve(received_ns, request)
            if clock.monotonic_ns() >= until_ns:
                return
