"""Where the pops of each group stand in each queue: the committed offset, and what is in flight beyond it.

Rules of this file
1. The committed offset only follows what is in flight: it is never moved past an unsettled message, and never back.
2. A group without an offset on a queue gets one with its first pop. When its offset goes with the topic or the group, what was in
   flight is forgotten at once: the next topic of that name has other messages at the same offsets.
3. A reset forgets what is in flight; receipts from before it settle nothing.
4. What acknowledgements have settled is committed at the end of the turn, once for each queue: it may be many of one queue, and a crash
   loses the turn's offsets in any case.

Source: RocketMQ broker, POP: reading.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.choosing.wanted import WantedMessages
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.in_flight import InFlight, PopQueue, QueueInFlight
from orbitmq.broker.pop.ordering import PopOrders
from orbitmq.limits.pop import POP_CLOCK_SLACK_MS, POP_QUESTION_UNITS_MAX
from orbitmq.protocol.names import RETRY_PREFIX


class PopProgress:
    def __init__(self, core: BrokerCore, in_flight: InFlight, orders: PopOrders) -> None:
        self.in_flight = in_flight
        self.orders = orders
        self._core = core
        self._offsets = core.offsets
        self._store = core.store
        self._reset_ms = 0
        self._given_ms = 0
        """The last pop time."""
        self._settled: dict[PopQueue, None] = {}
        """Queues of which something was settled in this turn."""
        self.is_open = False
        """Whether messages may be popped here: not where another broker's log is copied."""
        core.offsets.when_dropped = self._dropped

    def pop_time_ms(self) -> int:
        """The pop time of a pop that begins now: later than any from before the last reset, or the last start, as long as the clock goes
        on. When it was set back since, pop times go back with it, because messages reappear by them."""
        now_ms = self._core.clock.now_ms()
        self._given_ms = now_ms if now_ms < self._reset_ms - POP_CLOCK_SLACK_MS else max(now_ms, self._reset_ms + 1)
        return self._given_ms

    def pop_after(self, popped_ms: int) -> None:
        """An earlier process popped at that time: its receipts name other pops than those to come. A time to come is passed over, because
        the clock was set back since."""
        if popped_ms <= self._core.clock.now_ms():
            self._reset_ms = max(self._reset_ms, popped_ms)

    def begin(self, key: PopQueue, *, from_end: bool) -> QueueInFlight | None:
        """The queue with its place for the next pop; None when no offset can be kept for it. `finish` is called afterwards.

        from_end: a group without an offset begins with the last message.
        """
        topic, group, queue_id = key
        if self._offsets.take_reset(group, topic, queue_id) is not None:
            self.forget(key)
        committed = self._offsets.query(group, topic, queue_id)
        if committed is None:
            self._drop(key)
            committed = self._first_offset(key, from_end)
            if not self._offsets.commit(group, topic, queue_id, committed):
                return None
        queue = self.in_flight.open(key, committed)
        queue.next_offset = max(queue.next_offset, committed)
        return queue

    def forget(self, key: PopQueue) -> None:
        """The offset of a queue was reset: what is in flight of it will be popped anew, or never."""
        self._drop(key)
        self._tell_apart()

    def forget_all(self) -> None:
        """Forget what is in flight of all queues; receipts from before settle nothing."""
        self.turn_ended()
        self.in_flight.forget_all()
        self._tell_apart()

    def find(self, key: PopQueue) -> QueueInFlight | None:
        """What is in flight of a queue."""
        return self.in_flight.queues.get(key)

    def finish(self, key: PopQueue) -> None:
        """Commit what has become settled."""
        topic, group, queue_id = key
        queue, committed = self.find(key), self._offsets.query(group, topic, queue_id)
        if queue is None or committed is None:
            return
        committable = queue.committable
        if committable > committed:
            self._offsets.commit(group, topic, queue_id, committable)
        self.in_flight.close_if_empty(key)

    def settled(self, key: PopQueue) -> None:
        """Something of a queue was settled: `finish` it when the turn ends."""
        self._settled[key] = None

    def turn_ended(self) -> None:
        settled, self._settled = self._settled, {}
        for key in settled:
            self.finish(key)

    def begin_anew(self, key: PopQueue, offset: int) -> QueueInFlight:
        """The queue ends before what was popped of it: everything of that is forgotten, and pops go on at `offset`."""
        self._drop(key)
        self._tell_apart()
        self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        return self.in_flight.open(key, offset)

    def next_offset(self, key: PopQueue, *, from_end: bool = False) -> int:
        """Where the next pop would begin; changes nothing."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        queue = self.in_flight.queues.get(key)
        if committed is None:
            return self._first_offset(key, from_end)
        return committed if queue is None else max(committed, queue.next_offset)

    def first_unsettled(self, key: PopQueue, *, from_end: bool = False) -> int:
        """The committed offset, where an ordered pop begins."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        return self._first_offset(key, from_end) if committed is None else committed

    def acknowledge_in_order(self, key: PopQueue, offset: int, popped_ms: int) -> bool:
        """A message of an ordered pop is done with; True when the queue may be popped now. Raises ProtocolError for one that it did not
        bring."""
        if offset < self.first_unsettled(key):
            return False
        self.find(key)
        end = self.orders.acknowledge(key, offset, popped_ms)
        if end is not None:
            self._offsets.commit(key.group, key.topic, key.queue_id, end)
        return end is not None and not self.orders.blocks(key, None, self._core.clock.now_ms())

    def backlog(self, key: PopQueue) -> int:
        """Messages of the queue that no pop has reached."""
        return max(0, self._store.max_offset(key.topic, key.queue_id) - self.next_offset(key))

    def may_have(self, key: PopQueue, wanted: WantedMessages) -> bool:
        """Whether a pop of the queue may find a message that its group wants. Tags are asked of the queue where it is about to be
        popped to its end, properties never."""
        first = max(self.next_offset(key), self._store.min_offset(key.topic, key.queue_id))
        end = self._store.max_offset(key.topic, key.queue_id)
        queue = self._store.queues.get(key.topic, key.queue_id)
        if wanted.codes is None or queue is None or end - first > POP_QUESTION_UNITS_MAX:
            return end > first
        try:
            return any(wanted.codes(tags_code) for _, _, tags_code in queue.scan(first, end))
        except OSError:
            return True  # the pop says what is wrong

    def _dropped(self, topic: str, group: str, queue_ids: Iterable[int]) -> None:
        for queue_id in queue_ids:
            self._drop(PopQueue(topic, group, queue_id))
        self._tell_apart()

    def _tell_apart(self) -> None:
        """What was acknowledged of pops until now says nothing of the next ones, though these may bring the same offsets in this
        millisecond."""
        now_ms = self._core.clock.now_ms()
        self._reset_ms = self._given_ms if now_ms < self._given_ms <= now_ms + POP_CLOCK_SLACK_MS else now_ms

    def _drop(self, key: PopQueue) -> None:
        self.in_flight.drop(key)
        self.orders.forget(key)

    def _first_offset(self, key: PopQueue, from_end: bool) -> int:
        low = self._store.min_offset(key.topic, key.queue_id)
        if not from_end or key.topic.startswith(RETRY_PREFIX):
            return low
        if self._core.settings.init_pop_offset_by_check_msg_in_mem and self._core.begins_at_zero(
            key.topic, key.queue_id
        ):
            return 0
        return max(self._store.max_offset(key.topic, key.queue_id) - 1, 0)
