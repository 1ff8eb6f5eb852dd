"""Settling popped messages: acknowledging them, and hiding them for another time.

A front end names a message by its queue and offset, and by the pop that brought it; both come from a receipt, in which nothing is believed
before it was compared with what is in flight.

Rules of this file
1. Acknowledging never fails because of the pop that it names: one that is out of date, or of another broker, settles nothing.
2. What becomes of messages of ordered pops is decided by `ordering`.
3. A message that was hidden for a shorter time comes back while an earlier receipt is good by its own words: it is remembered until then
   (`ShortenedTimes`), or that receipt would seem to be one of a message that is settled.

Source: RocketMQ broker, POP: acknowledgements and invisible times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.checkpoints import PopCheckpoints
from orbitmq.broker.pop.in_flight import LEAVING, Popped, PopQueue, QueueInFlight
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.errors import ProtocolError, StoreUnwritableError
from orbitmq.limits.pop import (
    POP_CLOCK_SLACK_MS,
    POP_INVISIBLE_MS_MAX,
    POP_JOINED_OFFSETS_MAX,
    POP_MESSAGES_MAX,
    POP_SHORTENED_MAX,
)
from orbitmq.protocol.pop_receipts import ORDER_REVIVE_QUEUE, PopReceipt
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import ResponseCode


class PopName(msgspec.Struct, frozen=True, gc=False):
    """Which pop brought a message."""

    popped_ms: int
    broker_name: str
    is_ordered: bool


def pop_of(receipt: PopReceipt) -> PopName:
    """The pop that a receipt names."""
    return PopName(receipt.popped_ms, receipt.broker_name, receipt.revive_queue == ORDER_REVIVE_QUEUE)


class PoppedMessage(NamedTuple):
    """A message of a pop. `queue`: where it lies, which of one that came back is one of a retry topic."""

    queue: PopQueue
    offset: int
    pop: PopName


class Hiding(NamedTuple):
    """How long a message is hidden from now on: a receipt of it names this pop time."""

    popped_ms: int
    invisible_ms: int
    """Negative after the clock was set back: the pop time is later than any before, and the message is due before it."""


class ShortenedTimes:
    """Messages that are hidden for less time than an earlier receipt of them says, and by which pop."""

    def __init__(self) -> None:
        self._pops: dict[tuple[PopQueue, int], tuple[int, int]] = {}
        """Pop time of the one that counts, and until when an earlier receipt is good; those noted first come first."""

    def note(self, before: Popped | None, key: PopQueue, popped_ms: int, due_ms: int, now_ms: int) -> None:
        """A message that was in flight as `before` says is hidden anew until `due_ms`."""
        if before is None or before.due_ms == LEAVING:
            return
        _, until_ms = self._pops.pop((key, before.offset), (0, 0))
        until_ms = max(until_ms, before.due_ms)
        if until_ms <= due_ms:
            return
        self._pops[key, before.offset] = popped_ms, until_ms
        first = next(iter(self._pops))
        if len(self._pops) > POP_SHORTENED_MAX or self._pops[first][1] <= now_ms:
            del self._pops[first]

    def settled(self, key: PopQueue, offset: int) -> None:
        """Every receipt of it is one of a settled message now."""
        if self._pops:
            self._pops.pop((key, offset), None)

    def has_replaced(self, key: PopQueue, offset: int, popped_ms: int) -> bool:
        """Whether the message was hidden anew since this pop, and was not acknowledged then."""
        known = self._pops.get((key, offset))
        return known is not None and known[0] != popped_ms


class PopSettling:
    def __init__(
        self,
        core: BrokerCore,
        progress: PopProgress,
        checkpoints: PopCheckpoints | None,
        wake: Callable[[str, str], None],
    ) -> None:
        """`wake` is told the topic and the group of a queue that gives messages to ordered pops again."""
        self.overdue_below: Callable[[], int] = lambda: 0
        """Log position below which files should be gone: what is in flight there is renewed no more."""
        self._core = core
        self._name = core.settings.broker_name
        self._topics = core.topics
        self._store = core.store
        self._clock = core.clock
        self._progress = progress
        self._orders = progress.orders
        self._checkpoints = checkpoints
        self._wake = wake
        self._shortened = ShortenedTimes()

    def queue_of(self, topic: str, group: str, queue_id: int) -> PopQueue:
        """The queue of that name. `topic` is where the message lies, which of one that came back is a retry topic. Raises `Refusal`."""
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, no_queue(config, queue_id))
        return PopQueue(topic, group, queue_id)

    def acknowledge(self, key: PopQueue, offset: int, pop: PopName) -> bool:
        """The message is done with, or was before. False: it was not settled. It is in flight by another pop, or at another broker, or it
        comes yet: its pop was forgotten in a crash, or with its topic.

        Raises `Refusal` for an offset that is not in the queue, or not of an open ordered pop. 1 us for a message in flight: nothing is
        asked of its queue then.
        """
        if not pop.is_ordered and pop.broker_name == self._name:
            queue = self._progress.find(key)
            if queue is not None and queue.settle(offset, pop.popped_ms):
                self._progress.settled(key)
                self._shortened.settled(key, offset)
                return True
        if not self._lies_in_queue(key, offset):
            raise _no_message(key, offset)
        return self._was_settled(key, offset, pop)

    def acknowledge_all(self, key: PopQueue, offsets: Iterable[int], pop: PopName) -> None:
        """As `acknowledge`, of several messages of one queue; what is not there is passed over. Raises `Refusal`."""
        config = self._topics.get(key.topic)
        if config is None or not 0 <= key.queue_id < config.read_queue_nums:
            return
        for offset in offsets:
            if self._lies_in_queue(key, offset):
                self.acknowledge(key, offset, pop)

    def is_in_flight(self, key: PopQueue, offset: int, pop: PopName) -> bool:
        """Whether this pop brought the message, and it is not settled and has not come back."""
        if pop.broker_name != self._name:
            return False
        if pop.is_ordered:
            return self._orders.has(key, offset, pop.popped_ms)
        queue = self._progress.find(key)
        return queue is not None and queue.has(offset, pop.popped_ms)

    def hide(self, key: PopQueue, offset: int, pop: PopName, invisible_ms: int, *, suspended: bool = False) -> Hiding:
        """Hide the message for that long from now on; 0 shows it at once. The receipt of an ordered pop stays good, others are replaced.

        suspended: this is no failed attempt, and counts as none. Raises `Refusal`, also for a message that is settled or came back.
        """
        check_invisible(invisible_ms)
        if pop.is_ordered:
            return self._hide_in_order(key, offset, pop, invisible_ms)
        self._check_not_overdue(key, offset)
        popped_ms, due_ms = self._times(pop.popped_ms, invisible_ms)
        queue = self._progress.find(key)
        before = None if queue is None else queue.find(offset)
        if (
            queue is None
            or pop.broker_name != self._name
            or not self._renew(queue, offset, pop.popped_ms, popped_ms, due_ms, suspended=suspended)
        ):
            raise _no_message(key, offset)
        self._shortened.note(before, key, popped_ms, due_ms, self._clock.now_ms())
        return Hiding(popped_ms, due_ms - popped_ms)

    def show(self, messages: Iterable[PoppedMessage], *, suspended: bool) -> int:
        """Make messages visible now, as `hide` with 0; how many were. What cannot be shown now is when its invisible time is over.

        Of those that nothing is stored of yet neighbours become one pop: to store what is in flight takes one record for 32 of them.
        """
        count = 0
        together: dict[PopQueue, list[tuple[int, int]]] = {}
        for key, offset, pop in messages:
            queue = self._progress.find(key)
            try:
                if not self._can_be_joined(queue, offset, pop):
                    self.hide(key, offset, pop, 0, suspended=suspended)
                    count += 1
                else:
                    self._check_not_overdue(key, offset)
                    together.setdefault(key, []).append((offset, pop.popped_ms))
            except Refusal:
                continue
        for key, named in together.items():
            popped_ms, due_ms = self._times(max(popped_ms for _, popped_ms in named), 0)
            queue, now_ms = self._progress.in_flight.queues[key], self._clock.now_ms()
            for offsets in _neighbours(sorted({offset for offset, _ in named})):
                for offset in offsets:
                    self._shortened.note(queue.find(offset), key, popped_ms, due_ms, now_ms)
                queue.renew_together(offsets, popped_ms, due_ms, suspended=suspended)
                count += len(offsets)
        return count

    # --- inside -------------------------------------------------------------------------------------------------------

    def _times(self, popped_before_ms: int, invisible_ms: int) -> tuple[int, int]:
        """Pop time and due time of what is hidden from now on, and was popped before."""
        popped_ms = max(self._progress.pop_time_ms(), popped_before_ms + 1)
        now_ms = self._clock.now_ms()  # behind the pop time when the clock was set back
        return popped_ms, invisible_ms + (now_ms if popped_ms > now_ms + POP_CLOCK_SLACK_MS else popped_ms)

    def _can_be_joined(self, queue: QueueInFlight | None, offset: int, pop: PopName) -> bool:
        """Whether a message is in flight since this pop, in no order, and nothing is stored of it."""
        if queue is None or pop.is_ordered or pop.broker_name != self._name:
            return False
        return queue.has(offset, pop.popped_ms) and queue.covered(offset, pop.popped_ms) is None

    def _was_settled(self, key: PopQueue, offset: int, pop: PopName) -> bool:
        """As `acknowledge`, of a message that is not in flight by this pop, unless it is an ordered one."""
        if pop.broker_name != self._name:
            return False
        if pop.is_ordered:
            return self._settle_in_order(key, offset, pop)
        queue = self._progress.find(key)
        if offset >= self._progress.next_offset(key):  # it comes yet, unless pops pass over it
            return queue is not None and offset in queue.passed_over and queue.find(offset) is None
        return (queue is None or queue.find(offset) is None) and not self._shortened.has_replaced(
            key, offset, pop.popped_ms
        )

    def _settle_in_order(self, key: PopQueue, offset: int, pop: PopName) -> bool:
        if offset < self._progress.first_unsettled(key):
            return True
        if not self._orders.is_last(key, pop.popped_ms):
            return False
        try:
            is_free = self._progress.acknowledge_in_order(key, offset, pop.popped_ms)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if is_free:
            self._wake(key.topic, key.group)
        return True

    def _hide_in_order(self, key: PopQueue, offset: int, pop: PopName, invisible_ms: int) -> Hiding:
        until_ms = self._clock.now_ms() + invisible_ms
        self._progress.find(key)
        if pop.broker_name != self._name or not self._orders.hide(key, offset, pop.popped_ms, until_ms):
            raise _no_message(key, offset)
        return Hiding(pop.popped_ms, until_ms - pop.popped_ms)

    def _check_not_overdue(self, key: PopQueue, offset: int) -> None:
        """Raises Refusal for a message that holds a file of the log for too long: it comes back, and its copy lies elsewhere."""
        overdue_below = self.overdue_below()
        if overdue_below <= self._store.log.start:
            return
        queue = self._store.queues.get(key.topic, key.queue_id)
        unit = None if queue is None else queue.unit(offset)
        if unit is not None and unit[0] < overdue_below:
            raise Refusal(
                ResponseCode.NO_MESSAGE,
                f"message {offset} of {key.topic}/{key.queue_id} is renewed no more: its file of the log should be gone. "
                "It comes back when its invisible time is over",
            )

    def _renew(
        self, queue: QueueInFlight, offset: int, popped_ms: int, new_popped_ms: int, due_ms: int, *, suspended: bool
    ) -> bool:
        """Raises Refusal when the store does not take what has to be said of it."""
        try:
            if self._checkpoints is not None:
                return self._checkpoints.renew(queue, offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)
        except StoreUnwritableError as error:
            raise self._core.unwritable() from error
        return queue.renew(offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)

    def _lies_in_queue(self, key: PopQueue, offset: int) -> bool:
        """As RocketMQ sees it: the end of the queue is in it."""
        topic, _, queue_id = key
        return self._store.min_offset(topic, queue_id) <= offset <= self._store.max_offset(topic, queue_id)


def _neighbours(offsets: Iterable[int]) -> Iterator[list[int]]:
    """Rising offsets in pieces as one pop brings them."""
    piece: list[int] = []
    for offset in offsets:
        if piece and (len(piece) == POP_MESSAGES_MAX or offset >= piece[0] + POP_JOINED_OFFSETS_MAX):
            yield piece
            piece = []
        piece.append(offset)
    if piece:
        yield piece


def check_invisible(invisible_ms: int) -> None:
    """Raises `Refusal` for an invisible time that is none."""
    if not 0 <= invisible_ms <= POP_INVISIBLE_MS_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime is 0 to {POP_INVISIBLE_MS_MAX} ms, not {invisible_ms}", {}
        )


def no_queue(config: TopicConfig, queue_id: int) -> str:
    return (
        f"queue {queue_id} of topic {config.topic_name!r} does not exist: it has {config.read_queue_nums} read queues"
    )


def _no_message(key: PopQueue, offset: int) -> Refusal:
    return Refusal(
        ResponseCode.NO_MESSAGE,
        f"there is no message {offset} of {key.topic}/{key.queue_id} in flight with this receipt",
    )
