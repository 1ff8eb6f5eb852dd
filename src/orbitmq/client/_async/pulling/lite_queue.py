"""The queues of one lite consumer: what is pulled, ready, in hand and finished of each.

Rules of this file
1. Nothing is sent here; the puller fills the queues, polls empty them, commits read what is finished.
2. Finished is everything below the first message that is ready or in hand; where there is none, everything below the next pull. The
   offset table learns of it when it is to be written (`note_progress`), not for every message.
3. A seek puts a new process queue in the place of the old one. Whoever still works with the old one sees that it was dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client._async.runtime import Event, Task, monotonic_ms, wait_event
from orbitmq.client.consuming.offset_table import OwnedOffsets
from orbitmq.client.consuming.process_queue import ProcessQueue
from orbitmq.client.pulling.lite_options import LiteConsumerOptions, LiteHold, lite_hold
from orbitmq.client.pulling.poll_buffer import PollBuffer
from orbitmq.client.pulling.pull_request import queue_name
from orbitmq.client.route import MASTER_ID
from orbitmq.client.stored import StoredMessage
from orbitmq.protocol.remoting.bodies import MessageQueue


class LiteQueue:
    """One queue that is read at present.

    next_offset: where the next pull begins. broker_id: the member of the broker group that the last answer suggested.
    waits_for: why nothing is pulled now; `room` is set when that may have ended.
    """

    __slots__ = ("broker_id", "messages", "next_offset", "paused", "queue", "room", "task", "waits_for")

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.messages: ProcessQueue[StoredMessage] = ProcessQueue(monotonic_ms())
        self.broker_id = MASTER_ID
        self.paused = False
        self.room = Event()
        self.waits_for: LiteHold | None = None
        self.task: Task | None = None

    @property
    def name(self) -> str:
        return queue_name(self.queue)

    @property
    def finished(self) -> int:
        """Offset below which everything is finished."""
        first = self.messages.first_offset()
        # After a group was moved back, the next pull may begin below what is still in hand.
        return self.next_offset if first is None else min(first, self.next_offset)


class LiteQueues:
    """All queues of one consumer.

    offsets: what the group should have at the brokers. With automatic commit it follows what is finished; without it only commits
        and resets change it.
    """

    def __init__(self, options: LiteConsumerOptions) -> None:
        self._options = options
        self._buffer: PollBuffer[StoredMessage] = PollBuffer()
        self.owned: dict[MessageQueue, LiteQueue] = {}
        self.offsets = OwnedOffsets()
        self.arrived = Event()
        self.changed = Event()
        self._waiting_count = 0

    # --- taking and leaving queues

    def add(self, queue: MessageQueue, offset: int, *, is_stored: bool) -> LiteQueue:
        owned = self.owned[queue] = LiteQueue(queue, offset)
        self.offsets.start(queue, offset, is_stored=is_stored or not self._options.auto_commit)
        self.changed.set()
        return owned

    def remove(self, owned: LiteQueue) -> None:
        """Forget what is pulled and in hand of it. Its entry in `offsets` stays until it was written."""
        self.note_progress([owned])
        del self.owned[owned.queue]
        self._drop(owned)
        self.changed.set()

    def restart(self, owned: LiteQueue, offset: int) -> None:
        """Begin anew at `offset`; the caller starts another puller."""
        self._drop(owned)
        owned.messages = ProcessQueue(monotonic_ms())
        owned.next_offset = offset
        owned.waits_for = None
        self.note_progress([owned])  # it may lie further back, where progress by itself never goes

    def correct(self, owned: LiteQueue, offset: int) -> None:
        """The broker says where to go on: its offset of the group was moved, or the queue has none such. What was pulled stays.

        Whatever was committed before does not count any more, so the next commit writes, also where it comes to the same number.
        """
        owned.next_offset = offset
        self.offsets.put(owned.queue, offset)

    def _drop(self, owned: LiteQueue) -> None:
        owned.messages.drop()
        owned.room.set()
        if owned.task is not None:
            owned.task.cancel()
        self._buffer.forget_dropped()

    # --- messages

    def put(self, owned: LiteQueue, messages: list[StoredMessage]) -> None:
        """A pull of the queue brought these; `next_offset` was moved before."""
        fresh = owned.messages.put(messages)
        self._buffer.add(owned.messages, fresh)
        if fresh:
            self.arrived.set()

    def take(self, count: int) -> list[StoredMessage]:
        """The next messages, of one queue, now in hand; empty when nothing is ready."""
        return self._buffer.take(count)

    def finish(self) -> None:
        """What is in hand is finished."""
        self._buffer.finish(monotonic_ms())
        if self._waiting_count:
            for owned in self.owned.values():
                if owned.waits_for is not None:
                    owned.room.set()

    async def wait_for_room(self, owned: LiteQueue) -> None:
        """Until the queue may be pulled again; the caller looks."""
        owned.room.clear()
        self._waiting_count += 1
        try:
            await wait_event(owned.room)
        finally:
            self._waiting_count -= 1

    def note_progress(self, queues: Iterable[LiteQueue] | None = None) -> None:
        """With automatic commit: what is finished, of all queues or of these, is what the group should have at the brokers."""
        if self._options.auto_commit:
            for owned in self.owned.values() if queues is None else queues:
                self.offsets.put(owned.queue, owned.finished)

    # --- looking

    def position(self, owned: LiteQueue) -> int:
        """Offset at which the next poll of the queue begins."""
        ready = self._buffer.next_offset(owned.messages)
        return owned.next_offset if ready is None else ready

    def hold(self, owned: LiteQueue) -> LiteHold | None:
        """Why the queue is not to be pulled now."""
        if owned.paused:
            return LiteHold.PAUSED
        messages = owned.messages
        return lite_hold(
            len(messages),
            messages.bytes_total,
            messages.span(),
            sum(len(other.messages) for other in self.owned.values()),
            sum(other.messages.bytes_total for other in self.owned.values()),
            self._options,
        )
