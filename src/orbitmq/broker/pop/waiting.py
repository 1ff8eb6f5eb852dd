"""Pops that wait for a message: by topic and group, for one queue or for all.

Rules of this file
1. A message wakes one waiter of each group: first one of its queue, then one of all queues. A message of a retry topic wakes any.
2. An arrival costs one or two dictionary look-ups while nobody waits for its topic.
3. The waiters themselves, their time-outs and bounds are those of pulls (`long_poll`).

Source: RocketMQ broker, POP: waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic

from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages
from orbitmq.broker.long_poll import LongPolls, Request
from orbitmq.broker.pop.taking import ALL_QUEUES
from orbitmq.limits.pop import POP_WAITING_PER_QUEUE_MAX
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.pop_receipts import RETRY_SOURCES, pop_retry_topic
from orbitmq.store.dispatch import Dispatched


class PopWaiters(Generic[Request]):
    """Waiters of one kind."""

    def __init__(self, release: Callable[[Request], None]) -> None:
        """`release` runs the request again; it may wait again then."""
        self.polls: Final[LongPolls[Request]] = LongPolls(release, per_queue_max=POP_WAITING_PER_QUEUE_MAX)
        self._groups: dict[str, dict[str, set[int]]] = {}
        """Topic -> group -> queue ids of those that wait, or have waited."""
        self._retries: dict[str, tuple[str, str]] = {}
        """Retry topic -> topic and group of the same."""

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
        for entry in entries:
            if not entry.has_queue_unit:
                continue
            message = ArrivedMessage(entry.tags_code, entry.properties)
            for group in list(self._groups.get(entry.topic, ())):
                if not self.polls.wake_one(f"{entry.topic}@{group}", entry.queue_id, message):
                    self.polls.wake_one(f"{entry.topic}@{group}", ALL_QUEUES, message)
            if entry.topic.startswith(RETRY_PREFIX) and entry.topic in self._retries:
                self.wake(*self._retries[entry.topic], message)

    def wake(self, topic: str, group: str, message: ArrivedMessage | None = None) -> None:
        """Run one waiter of this topic and group again."""
        for queue_id in sorted(self._groups.get(topic, {}).get(group, ())):
            if self.polls.wake_one(f"{topic}@{group}", queue_id, message):
                return

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
