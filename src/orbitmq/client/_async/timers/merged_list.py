"""One list of what is pending out of those of all brokers, by due time.

Rules of this file
1. A source is asked for its next page when its last one has been told, and not before.
2. A message that two sources tell, because it went from one to the other meanwhile, is told once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from orbitmq.client._async.runtime import all_of
from orbitmq.client.timers import TimerView, view
from orbitmq.protocol.remoting import timer_bodies as wire


class Master(NamedTuple):
    broker_name: str
    address: str


class _Source:
    """What one broker has in one tier, page by page."""

    def __init__(self, master: Master, query: wire.TimerQuery) -> None:
        self.master = master
        self.query = query
        self.timers: deque[TimerView] = deque()
        self.ended = False
        self.left_out = 0
        """Messages that the broker cannot read, as far as that was told."""

    @property
    def deliver_ms(self) -> int:
        return self.timers[0].deliver_ms


class MergedList:
    """`page` asks a broker; `tell` hears of messages that a broker cannot list."""

    def __init__(
        self,
        page: Callable[[Master, wire.TimerQuery], Awaitable[wire.TimerPage]],
        tell: Callable[[str, int], None],
    ) -> None:
        self._page = page
        self._tell = tell

    async def timers(self, masters: Sequence[Master], query: wire.TimerQuery) -> AsyncIterator[TimerView]:
        """What these brokers have."""
        sources = [
            _Source(master, msgspec.structs.replace(query, tier=tier))
            for master in masters
            for tier in (wire.TIER_NEAR, wire.TIER_FAR)
        ]
        await all_of([self._fill(source) for source in sources])
        heads = [(source.deliver_ms, number) for number, source in enumerate(sources) if source.timers]
        heapq.heapify(heads)
        told: tuple[int, set[str]] = (0, set())
        while heads:
            deliver_ms, number = heads[0]
            source = sources[number]
            timer = source.timers.popleft()
            if told[0] != deliver_ms:
                told = deliver_ms, set()
            if timer.message_id not in told[1]:  # it may go from far to near meanwhile
                told[1].add(timer.message_id)
                yield timer
            if not source.timers:
                await self._fill(source)
            if source.timers:
                heapq.heapreplace(heads, (source.deliver_ms, number))
            else:
                heapq.heappop(heads)

    async def _fill(self, source: _Source) -> None:
        """Until it has timers or has come to its end; a page in the middle may be empty."""
        query = source.query
        while not source.timers and not source.ended:
            page = await self._page(source.master, query)
            source.timers.extend(view(timer, source.master.broker_name) for timer in page.timers)
            query.cursor = page.cursor
            if page.left_out > source.left_out:
                source.left_out = page.left_out
                self._tell(source.master.broker_name, page.left_out)
            source.ended = query.cursor is None
