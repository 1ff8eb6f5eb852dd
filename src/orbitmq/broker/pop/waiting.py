"""Pops that wait for a message: by topic and group, for one queue or for all.

Rules of this file
1. A message wakes one waiter of each group: first one of its queue, then one of all queues. A message of a retry topic wakes any.
2. An arrival costs one or two dictionary look-ups while nobody waits for its topic.
3. Who is woken takes 0.1 ms, and may have the next one woken. A turn wakes a bounded number, none inside another; which waiter it is, is
   decided when it is woken, so one that went meanwhile leaves its place to the next.
4. The waiters themselves, their time-outs and bounds are those of pulls (`long_poll`).

Source: RocketMQ broker, POP: waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple

from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages
from orbitmq.broker.long_poll import LongPolls, Request
from orbitmq.broker.pop.taking import ALL_QUEUES
from orbitmq.limits.pop import POP_LOOKS_AT_ONCE_MAX, POP_WAITING_PER_QUEUE_MAX, POP_WAKES_MAX
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.pop_receipts import RETRY_SOURCES, pop_retry_topic
from orbitmq.store.dispatch import Dispatched

_LOOKS_OF_A_WAKE: Final = 64
"""What running a waiter takes beside a look at a group."""


class _Wake(NamedTuple):
    """Of each of these groups one waiter is to be woken: by a message of a queue, or whichever of its queues it waits for."""

    topic: str
    groups: deque[str]
    message: ArrivedMessage | None = None
    queue_id: int | None = None


class PopWaiters(Generic[Request]):
    """Waiters of one kind."""

    def __init__(self, release: Callable[[Request], None]) -> None:
        """`release` runs the request again; it may wait again then."""
        self.polls: Final[LongPolls[Request]] = LongPolls(release, per_queue_max=POP_WAITING_PER_QUEUE_MAX)
        self._groups: dict[str, dict[str, set[int]]] = {}
        """Topic -> group -> queue ids of those that wait, or have waited."""
        self._retries: dict[str, tuple[str, str]] = {}
        """Retry topic -> topic and group of the same."""
        self._wakes: deque[_Wake] = deque()
        """Those that a turn had no time for."""
        self._left = POP_LOOKS_AT_ONCE_MAX
        """Looks that this turn may take yet."""
        self._is_running = False

    def hold(
        self, request: Request, topic: str, group: str, queue_id: int, *,
        now_ns: int, wait_ns: int, wanted: WantedMessages, owner: object,
    ) -> bool:  # fmt: skip
        """Keep `request` until a message comes that it wants, or for `wait_ns`; False when too many wait."""
        wait_ms = -(-wait_ns // 1_000_000)
        if not self.polls.hold(
            request, f"{topic}@{group}", queue_id, 0, now_ns=now_ns, wait_ms=wait_ms, wanted=wanted, owner=owner
        ):
            return False
        if len(self._retries) > 2 * len(RETRY_SOURCES) * len(self.polls):
            self._forget_gone()
        self._groups.setdefault(topic, {}).setdefault(group, set()).add(queue_id)
        self._retries |= {pop_retry_topic(group, topic, source): (topic, group) for source in RETRY_SOURCES}
        return True

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait under this queue id."""
        return len(self.polls.waiting(f"{topic}@{group}", queue_id))

    def arrived(self, entries: Sequence[Dispatched]) -> None:
        """These messages became visible."""
        if not len(self.polls):
            return
        wakes: deque[_Wake] = deque()
        for entry in entries:
            if not entry.has_queue_unit:
                continue
            groups = self._groups.get(entry.topic)
            if groups is None and entry.topic not in self._retries:
                continue
            message = ArrivedMessage(entry.tags_code, entry.properties)
            if groups is not None:
                wakes.append(_Wake(entry.topic, deque(groups), message, entry.queue_id))
            if entry.topic.startswith(RETRY_PREFIX) and entry.topic in self._retries:
                topic, group = self._retries[entry.topic]
                wakes.append(_Wake(topic, deque([group]), message))
        self._run(wakes)
        self._wakes += wakes
        self._run(self._wakes)
        while len(self._wakes) > POP_WAKES_MAX and not self._is_running:
            self._left = POP_LOOKS_AT_ONCE_MAX
            self._run(self._wakes)

    def wake(self, topic: str, group: str) -> None:
        """Run one waiter of this topic and group again, soon."""
        if group in self._groups.get(topic, ()):
            self._wakes.append(_Wake(topic, deque([group])))
            self._run(self._wakes)

    def next_step(self) -> bool:
        """A turn has ended: the next one may wake as many again. True when some are to be woken."""
        self._left = POP_LOOKS_AT_ONCE_MAX
        return bool(self._wakes)

    def go_on(self) -> None:
        """Wake those that are to be woken, as many as a turn may."""
        self._run(self._wakes)

    def _run(self, wakes: deque[_Wake]) -> None:
        """Take from the front what this turn may. What is woken may have others woken: they come behind."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while wakes and self._left > 0:
                groups = wakes[0].groups
                if groups:
                    self._left -= _LOOKS_OF_A_WAKE if self._wake_one(wakes[0], groups.popleft()) else 1
                else:
                    wakes.popleft()
        finally:
            self._is_running = False

    def _wake_one(self, wake: _Wake, group: str) -> bool:
        """Run one waiter of a group again; False when none wants this message."""
        name = f"{wake.topic}@{group}"
        if wake.queue_id is not None:
            queue_ids: Sequence[int] = (wake.queue_id, ALL_QUEUES)
        else:
            queue_ids = sorted(self._groups.get(wake.topic, {}).get(group, ()))
        return any(self.polls.wake_one(name, queue_id, wake.message) for queue_id in queue_ids)

    def check(self, now_ns: int) -> None:
        """Release those whose time is over."""
        self.polls.check(now_ns, lambda name, queue_id: 0)

    def _forget_gone(self) -> None:
        for topic, groups in list(self._groups.items()):
            for group, waited in list(groups.items()):
                kept = {queue_id for queue_id in waited if (f"{topic}@{group}", queue_id) in self.polls.queues}
                if kept:
                    groups[group] = kept
                    continue
                del groups[group]
                for source in RETRY_SOURCES:
                    self._retries.pop(pop_retry_topic(group, topic, source), None)
            if not groups:
                del self._groups[topic]
