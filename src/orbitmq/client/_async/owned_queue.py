"""A message queue in the hands of one consumer: where it stands, what is unsettled, who pulls it."""

from __future__ import annotations

from orbitmq.client._async.delivery import ReceivedMessage
from orbitmq.client._async.runtime import Event, Task
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.pull_plan import Hold
from orbitmq.client.route import MASTER_ID
from orbitmq.protocol.remoting.bodies import MessageQueue


class OwnedQueue:
    """Owned at present. Rebalance makes and drops it, its puller fills it, settling a message sets `room`.

    next_offset: where the next pull begins. broker_id: the member of the broker group that the last answer suggested.
    waits_for: why nothing is pulled now, None while pulling.
    """

    __slots__ = ("broker_id", "messages", "next_offset", "queue", "room", "task", "waits_for")

    def __init__(self, queue: MessageQueue, next_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.messages: ProcessQueue[ReceivedMessage] = ProcessQueue(now_ms)
        self.broker_id = MASTER_ID
        self.room = Event()
        self.waits_for: Hold | None = None
        self.task: Task | None = None

    @property
    def name(self) -> str:
        return f"{self.queue.topic} {self.queue.broker_name}/{self.queue.queue_id}"
