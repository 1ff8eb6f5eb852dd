"""A message queue in the hands of one consumer: where it stands, what is unsettled, who pulls it.

Rules of this file
1. Messages know their queue and nothing above it; the queue tells its consumer (`Keeper`) what concerns more than itself.
2. Beginning and settling a message runs for every message: no look-ups, no tasks, nothing awaited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.runtime import Event, Task, monotonic_ms
from orbitmq.client.consuming.consume_statistics import TopicStatistics
from orbitmq.client.consuming.process_queue import ProcessQueue
from orbitmq.client.consuming.pull_plan import Hold
from orbitmq.client.route import MASTER_ID
from orbitmq.protocol.remoting.bodies import MessageQueue


class Keeper(Protocol):
    """The consumer as its queues see it. `traces`: whether it wants to hear of every message that `ended`."""

    traces: bool

    def ended(self, message: ReceivedMessage, took_ms: int, *, succeeded: bool) -> None: ...

    def settled(self, owned: OwnedQueue) -> None:
        """A message left the queue."""
        ...

    async def send_back(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None
    ) -> bool: ...

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None: ...


class OwnedQueue:
    """Owned at present. Rebalance makes and drops it, its puller fills it, settling a message sets `room`.

    next_offset: where the next pull begins. broker_id: the member of the broker group that the last answer suggested.
    waits_for: why nothing is pulled now, None while pulling.
    locked_at_ms: when the broker last confirmed the queue lock; None for a consumer that needs none.
    in_hand_count, offered, suspended, idle: of a consumer in order; see `feed`. Messages in the program's hands, whether the queue
        waits for its turn, whether it waits before another attempt, and set while nothing is in hand.
    leaving: given up as soon as nothing is in hand.
    """

    __slots__ = (
        "broker_id",
        "idle",
        "in_hand_count",
        "keeper",
        "leaving",
        "locked_at_ms",
        "messages",
        "next_offset",
        "offered",
        "queue",
        "room",
        "statistics",
        "suspended",
        "task",
        "waits_for",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, keeper: Keeper, statistics: TopicStatistics, now_ms: int
    ) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.keeper = keeper
        self.statistics = statistics
        self.messages: ProcessQueue[ReceivedMessage] = ProcessQueue(now_ms)
        self.broker_id = MASTER_ID
        self.room = Event()
        self.waits_for: Hold | None = None
        self.task: Task | None = None
        self.locked_at_ms: int | None = None
        self.in_hand_count = 0
        self.offered = False
        self.suspended = False
        self.leaving = False
        self.idle = Event()
        self.idle.set()

    @property
    def name(self) -> str:
        return f"{self.queue.topic} {self.queue.broker_name}/{self.queue.queue_id}"

    # --- as the settler of its messages

    def holds(self, message: ReceivedMessage) -> bool:
        return self.messages.holds(message)

    def begin(self, message: ReceivedMessage, now_ms: int) -> bool:
        return self.messages.start(message, now_ms)

    def ack(self, message: ReceivedMessage) -> bool:
        """The message is done; False when the queue is not ours any more."""
        took_ms = self.messages.settle(message, monotonic_ms())
        if took_ms is None:
            return False
        self.statistics.succeeded(took_ms)
        keeper = self.keeper
        if keeper.traces:
            keeper.ended(message, took_ms, succeeded=True)
        keeper.settled(self)
        return True

    def fail(self, message: ReceivedMessage) -> bool:
        """As `ack`, for a message that leaves the queue without success."""
        took_ms = self.messages.settle(message, monotonic_ms())
        if took_ms is None:
            return False
        self.statistics.failed(took_ms)
        keeper = self.keeper
        if keeper.traces:
            keeper.ended(message, took_ms, succeeded=False)
        keeper.settled(self)
        return True

    async def send_back(self, message: ReceivedMessage, delay_level: int, after_ms: int | None) -> bool:
        if not self.messages.holds(message):
            return False
        return await self.keeper.send_back(self, message, delay_level, after_ms)

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None:
        await self.keeper.reply(message, body, tag, properties, timeout_ms)
