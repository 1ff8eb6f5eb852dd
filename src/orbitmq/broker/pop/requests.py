"""POP consumption: requests 200050 to 200055 and 200151.

A pop takes messages of one queue or of all and hides them; the consumer acknowledges each. What is not acknowledged in its invisible
time reappears in the retry topic of its group (`returning`).

Rules of this file
1. A pop that finds nothing waits (`waiting`) until its poll time is over, and is run again whenever something may have come.
2. Acknowledging never fails because of what it names: a receipt that is out of date settles nothing, and the answer is SUCCESS.
3. Receipts of ordered pops name the revive queue 999: what becomes of their messages is decided by `ordering`.

Source: RocketMQ broker, POP; remoting, POP family.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.checkpoints import PopCheckpoints
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import InFlight, PopQueue, QueueInFlight
from orbitmq.broker.pop.ordering import FILE as ORDERS_FILE
from orbitmq.broker.pop.ordering import PopOrders
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.broker.pop.returning import PopReturns
from orbitmq.broker.pop.revive_topic import ReviveTopic
from orbitmq.broker.pop.stored_again import StoredAgain
from orbitmq.broker.pop.taking import ALL_QUEUES, REVIVE_QUEUE, Pop, PopTaken, PopTaker
from orbitmq.broker.pop.waiting import PopWaiters
from orbitmq.broker.real_topics import first_topic
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.topics import READ
from orbitmq.errors import ProtocolError, StoreUnwritableError
from orbitmq.limits.pop import (
    POP_ACK_BITS_BYTES_MAX,
    POP_ACKS_AT_ONCE_MAX,
    POP_ATTEMPT_ID_CHARS_MAX,
    POP_CLOCK_SLACK_MS,
    POP_INVISIBLE_MS_MAX,
    POP_LATE_REQUEST_MS,
    POP_MESSAGES_MAX,
    POP_SLEEP_MS_MAX,
)
from orbitmq.limits.wire import RETRY_TOPIC_BYTES_MAX
from orbitmq.protocol.pop_receipts import (
    ORDER_REVIVE_QUEUE,
    PopReceipt,
    PopSource,
    decode_receipt,
    message_offset_info,
    pop_retry_topic,
    start_offset_info,
)
from orbitmq.protocol.remoting.bodies import BatchAckBody, BatchAckEntry, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.timers.timers import Timers
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

HELD: Final = "held pops"
"""Name of the wake-up that ends pops which waited long enough."""

FREED: Final = "ordered pops"
"""Name of the wake-up at which messages of ordered pops come back."""

_BYTES_WITH_BITS: Final = re.compile(rb"[^\x00]")

FROM_END: Final = 1
"""Value of `initMode`: a group without an offset begins with the last message."""


class PopQuestion(msgspec.Struct, eq=False):
    """A NOTIFICATION that waits: whether there is a message for a pop."""

    command: Command
    peer: Peer
    pop: Pop


class PopRequests(Room):
    def __init__(self, core: BrokerCore, admission: Admission, timers: Timers | None) -> None:
        """Puts back what was in flight before. Without `timers` nothing of it is stored. Raises OSError."""
        self.in_flight: Final = InFlight()
        self.figures: Final = PopFigures()
        self._core = core
        self._settings = core.settings
        self._topics = core.topics
        self._groups = core.groups
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self._deadlines = core.deadlines
        self._subscriptions = core.subscriptions
        self.orders: Final = PopOrders(core.facilities.tables(ORDERS_FILE), core.clock)
        """Saved by whoever saves the offsets."""
        self.orders.load(core.offsets)
        self._progress = PopProgress(core, self.in_flight, self.orders)
        self._taker = PopTaker(core, self._progress, self._run_again)
        self._returns = PopReturns(core, admission, self._progress, self.figures)
        self.checkpoints: PopCheckpoints | None = None
        self.revive_topic: ReviveTopic | None = None
        if timers is not None:
            self.checkpoints = PopCheckpoints(core, self.in_flight, self._progress.finish, self.figures)
            self.revive_topic = ReviveTopic(core, self._progress, timers, self.figures, self.checkpoints.drop)
            self.revive_topic.take_up()
            StoredAgain(core, self._progress).settle()
            for key in list(self.in_flight.queues):
                self._progress.finish(key)
        self._waiters: PopWaiters[Pop] = PopWaiters(self._run_again)
        self._questions: PopWaiters[PopQuestion] = PopWaiters(self._ask_again)
        self.overdue_below: Callable[[], int] = lambda: 0
        """Log position below which files should be gone: what is in flight there is renewed no more."""
        self._stops = False
        core.deadlines.define(HELD, self._check_held)
        core.deadlines.define(FREED, self._wake_freed)

    # --- as a room of the broker --------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.POP_MESSAGE: self.pop,
            code.PEEK_MESSAGE: self.peek,
            code.ACK_MESSAGE: self.ack,
            code.BATCH_ACK_MESSAGE: self.batch_ack,
            code.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
            code.NOTIFICATION: self.notification,
            code.POLLING_INFO: self.polling_info,
        }

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return dict.fromkeys((RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME), first_topic)

    def arrived(self, entries: Sequence[Dispatched]) -> None:
        self._waiters.arrived(entries)
        self._questions.arrived(entries)

    def arm(self, now_ns: int) -> None:
        ends = [at_ns for kind in (self._waiters, self._questions) if (at_ns := kind.polls.next_at_ns()) is not None]
        self._deadlines.move(HELD, min(ends, default=None))
        self._returns.arm()
        if self.checkpoints is not None and self.revive_topic is not None:
            self.checkpoints.arm()
            self.revive_topic.follow()
        free_ms = self.orders.next_free_ms
        self._deadlines.move(FREED, None if free_ms is None else now_ns + self._sleep_ns(free_ms))

    def peer_closed(self, peer: Peer) -> None:
        self._waiters.polls.drop_owner(peer)
        self._questions.polls.drop_owner(peer)
        self._taker.cold.drop(peer)

    def facts(self) -> Mapping[str, object]:
        return {
            "orbitmqPopInFlight": self.in_flight.message_count,
            "orbitmqPopOrdered": len(self.orders),
            "orbitmqPopReturned": self._returns.returned_count,
            "orbitmqPopGone": self._returns.gone_count,
            "orbitmqPopsNotHeld": self._waiters.polls.refused_count,
            "orbitmqPopCheckpoints": self.checkpoints.stored_count if self.checkpoints else 0,
            "orbitmqPopAcksLost": self.checkpoints.lost_ack_count if self.checkpoints else 0,
            "orbitmqPopRecordsUnread": self.revive_topic.unread_count if self.revive_topic else 0,
        }

    def close(self) -> None:
        self._stops = True
        self._waiters.polls.release_all()
        self._questions.polls.release_all()
        if self.checkpoints is not None:
            self.checkpoints.store_all()

    def lowest_needed(self) -> int | None:
        """Log position of the oldest message in flight; None when there is none. Retention leaves it where it is."""
        positions = []
        for key, in_flight in self.in_flight.queues.items():
            queue, first = self._store.queues.get(key.topic, key.queue_id), in_flight.first
            unit = None if queue is None or first is None else queue.unit(first)
            if unit is not None:
                positions.append(unit[0])
        return min(positions, default=None)

    def wake_reset(self, group: str, topic: str, queue_id: int) -> None:
        """The offset of a queue was reset: there may be messages for a pop that waits."""
        self._progress.forget(PopQueue(topic, group, queue_id))
        self._waiters.wake(topic, group)

    def forget_gone(self) -> None:
        """Offsets were deleted, with a topic or a group: end what is in flight there. 2 us for each queue with messages in flight."""
        for key in [*self.in_flight.queues, *self.orders]:
            self._progress.find(key)

    def _sleep_ns(self, due_ms: int) -> int:
        """How long to sleep until `due_ms` of the wall clock, which may be stepped meanwhile."""
        wait_ns = due_ms * NS_PER_MS - self._clock.due_ns()
        return min(max(wait_ns, 0), POP_SLEEP_MS_MAX * NS_PER_MS)

    def _wake_freed(self) -> None:
        """Messages of ordered pops have come back: somebody may have them again."""
        for topic, group, _ in self.orders.take_free(self._clock.due_ns() // NS_PER_MS):
            self._wake(topic, group)

    def _wake(self, topic: str, group: str) -> None:
        self._waiters.wake(topic, group)
        self._questions.wake(topic, group)

    def _check_held(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._waiters.check(now_ns)
        self._questions.check(now_ns)

    # --- popping ------------------------------------------------------------------------------------------------------

    def pop(self, command: Command, peer: Peer) -> Command | None:
        try:
            self._pop(command, peer)
        except Refusal as refusal:
            raise Refusal(refusal.code, refusal.remark, _header()) from refusal
        return None

    def _pop(self, command: Command, peer: Peer) -> None:
        waits_ns = self._waits_ns(command)
        if waits_ns < -POP_LATE_REQUEST_MS * NS_PER_MS:
            raise Refusal(ResponseCode.POLLING_TIMEOUT, "the poll time of this pop is over")
        count, invisible_ms = command.int32("maxMsgNums"), command.integer("invisibleTime")
        self._check_broker()
        if count > POP_MESSAGES_MAX:
            raise _invalid(f"a pop takes at most {POP_MESSAGES_MAX} messages, not {count}")
        if not self._settings.timer_wheel_enable:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "POP needs timers (timerWheelEnable=false)", {})
        pop = self._checked(command, peer)
        _check_invisible(invisible_ms)
        _read_order(command, pop)
        pop.max_count, pop.invisible_ms = max(count, 1), invisible_ms
        pop.from_end = command.int32("initMode") == FROM_END
        pop.wanted = self._subscriptions.wanted(pop.topic, command.text("exp"), command.text("expType"))
        pop.deadline_ns = self._clock.monotonic_ns() + max(waits_ns, 0)
        self._taker.take(pop, self._answer)

    def peek(self, command: Command, peer: Peer) -> Command | None:
        count = command.int32("maxMsgNums")
        try:
            self._check_broker()
            if count > POP_MESSAGES_MAX:
                raise _invalid(f"at most {POP_MESSAGES_MAX} messages are shown, not {count}")
            pop = self._checked(command, peer)
        except Refusal as refusal:
            raise Refusal(refusal.code, refusal.remark, _header()) from refusal
        pop.max_count, pop.hides = max(count, 1), False
        self._taker.take(pop, self._answer_peek)
        return None

    def _run_again(self, pop: Pop) -> None:
        """A later run of a pop that waited. Raises nothing: whoever let it go has others to let go."""
        try:
            if self._stops:
                self._answer_missed(pop, PopTaken(self._clock.now_ms()), ResponseCode.POLLING_TIMEOUT)
            elif pop.peer.writable or not self._taker.cold.wait(pop):
                self._taker.take(pop, self._answer)
        except Exception as error:
            self._statistics.failed_handler_count += 1
            logger.error("a pop of %s from %s failed", pop.topic, pop.peer.address, exc_info=error)
            pop.peer.send(_answer(pop, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _answer(self, pop: Pop, taken: PopTaken) -> None:
        """Answer with what was taken; where that is nothing, wait for more."""
        if taken.count:
            self._deliver(pop, taken)
            if taken.rest_count:
                self._waiters.wake(pop.topic, pop.group)
            return
        if taken.problem is not None:
            where = f"{pop.topic} cannot be read for group {pop.group}"
            pop.peer.send(_answer(pop, ResponseCode.SYSTEM_ERROR, f"{where}: {taken.problem}"))
            return
        if taken.lacks_place and self._taker.cold.wait(pop):
            return
        left_ns = pop.deadline_ns - self._clock.monotonic_ns()
        is_again_at_once = taken.has_passed and taken.rest_count
        if left_ns <= 0 or is_again_at_once or self._stops or not self._settings.long_polling_enable:
            self._answer_missed(pop, taken, ResponseCode.POLLING_TIMEOUT)
        elif not self._waiters.hold(
            pop, pop.topic, pop.group, pop.queue_id,
            now_ns=self._clock.monotonic_ns(), wait_ns=left_ns, wanted=pop.wanted, owner=pop.peer,
        ):  # fmt: skip
            self._answer_missed(pop, taken, ResponseCode.POLLING_FULL)

    def _answer_peek(self, pop: Pop, taken: PopTaken) -> None:
        answer = _answer(pop, ResponseCode.SUCCESS if taken.count else ResponseCode.PULL_NOT_FOUND, "")
        answer.fields = _header(taken.rest_count)
        pop.peer.send_parts(answer, taken.records)

    def _answer_missed(self, pop: Pop, taken: PopTaken, code: ResponseCode) -> None:
        self._statistics.count_missed()
        answer = _answer(pop, code, code.name)
        answer.fields = _pop_header(pop, taken)
        pop.peer.send(answer)

    def _deliver(self, pop: Pop, taken: PopTaken) -> None:
        self._statistics.pulled(pop.topic, pop.group, taken.count, taken.size, self._clock.monotonic_ns())
        answer = _answer(pop, ResponseCode.SUCCESS, "FOUND")
        answer.fields = _pop_header(pop, taken)
        pop.peer.send_parts(answer, taken.records)

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def ack(self, command: Command, peer: Peer) -> Command:
        key, offset, receipt = self._named(command)
        if not self._lies_in_queue(key, offset):
            raise _no_message(key, offset)
        if receipt.revive_queue == ORDER_REVIVE_QUEUE:
            self._settle_in_order(key, offset, receipt.popped_ms, receipt.broker_name)
        else:
            self._settle(key, offset, receipt.popped_ms, receipt.broker_name)
        return response(command, ResponseCode.SUCCESS)

    def batch_ack(self, command: Command, peer: Peer) -> Command:
        body = BatchAckBody.decode(command.body)
        if not body.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "the request acknowledges nothing", {})
        for entry in body.acks:
            if len(entry.bit_set) > POP_ACK_BITS_BYTES_MAX:
                raise Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a bit set has at most {POP_ACK_BITS_BYTES_MAX} bytes, not {len(entry.bit_set)}",
                )
        count = max(len(body.acks), sum(int.from_bytes(entry.bit_set).bit_count() for entry in body.acks))
        if count > POP_ACKS_AT_ONCE_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch acknowledges at most {POP_ACKS_AT_ONCE_MAX} messages, not {count}",
            )
        for entry in body.acks:
            key = _key_of(entry)
            if key is None or not self._has_queue(key):
                continue
            settle = self._settle_in_order if entry.revive_queue_id == ORDER_REVIVE_QUEUE else self._settle
            for offset in _offsets_of(entry):
                if self._lies_in_queue(key, offset):
                    settle(key, offset, entry.pop_time, body.broker_name)
        return response(command, ResponseCode.SUCCESS)

    def change_invisible_time(self, command: Command, peer: Peer) -> Command:
        key, offset, receipt = self._named(command)
        invisible_ms = command.integer("invisibleTime")
        _check_invisible(invisible_ms)
        if receipt.revive_queue == ORDER_REVIVE_QUEUE:
            return self._hide_in_order(command, key, offset, receipt)
        self._check_not_overdue(key, offset)
        popped_ms = max(self._progress.pop_time_ms(), receipt.popped_ms + 1)
        now_ms = self._clock.now_ms()  # behind the pop time when the clock was set back
        due_ms = invisible_ms + (now_ms if popped_ms > now_ms + POP_CLOCK_SLACK_MS else popped_ms)
        queue = self._progress.find(key)
        if (
            queue is None
            or receipt.broker_name != self._settings.broker_name
            or not self._renew(command, queue, offset, receipt.popped_ms, popped_ms, due_ms)
        ):
            raise _no_message(key, offset)
        fields = {"popTime": str(popped_ms), "invisibleTime": str(due_ms - popped_ms), "reviveQid": str(REVIVE_QUEUE)}
        return response(command, ResponseCode.SUCCESS, None, fields)

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

    def _named(self, command: Command) -> tuple[PopQueue, int, PopReceipt]:
        """The message that a request names, and the receipt. Raises Refusal, or ProtocolError for no receipt."""
        topic, queue_id = command.text("topic"), command.int32("queueId")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, _no_queue(config, queue_id))
        receipt = decode_receipt(command.text("extraInfo"))
        return PopQueue(topic, command.text("consumerGroup"), queue_id), command.integer("offset"), receipt

    def _settle(self, key: PopQueue, offset: int, popped_ms: int, broker_name: str) -> None:
        queue = self._progress.find(key)
        if queue is not None and broker_name == self._settings.broker_name and queue.settle(offset, popped_ms):
            self._progress.finish(key)

    def _renew(
        self, command: Command, queue: QueueInFlight, offset: int, popped_ms: int, new_popped_ms: int, due_ms: int
    ) -> bool:
        """Raises Refusal when the store does not take what has to be said of it."""
        suspended = command.boolean("suspend")
        try:
            if self.checkpoints is not None:
                return self.checkpoints.renew(queue, offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)
        except StoreUnwritableError as error:
            raise self._core.unwritable() from error
        return queue.renew(offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)

    def _settle_in_order(self, key: PopQueue, offset: int, popped_ms: int, broker_name: str) -> None:
        """Raises Refusal for a message that this pop did not bring."""
        if broker_name != self._settings.broker_name:
            return
        try:
            is_free = self._progress.acknowledge_in_order(key, offset, popped_ms)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if is_free:
            self._wake(key.topic, key.group)

    def _hide_in_order(self, command: Command, key: PopQueue, offset: int, receipt: PopReceipt) -> Command:
        """Hide a message of an ordered pop for another time; its receipt stays good."""
        invisible_ms = command.integer("invisibleTime")
        until_ms = self._clock.now_ms() + invisible_ms
        self._progress.find(key)
        if receipt.broker_name != self._settings.broker_name or not self.orders.hide(
            key, offset, receipt.popped_ms, until_ms
        ):
            raise _no_message(key, offset)
        fields = {
            "popTime": str(receipt.popped_ms),
            "invisibleTime": str(until_ms - receipt.popped_ms),
            "reviveQid": str(ORDER_REVIVE_QUEUE),
        }
        return response(command, ResponseCode.SUCCESS, None, fields)

    def _has_queue(self, key: PopQueue) -> bool:
        config = self._topics.get(key.topic)
        return config is not None and 0 <= key.queue_id < config.read_queue_nums

    def _lies_in_queue(self, key: PopQueue, offset: int) -> bool:
        """As RocketMQ sees it: the end of the queue is in it."""
        topic, _, queue_id = key
        return self._store.min_offset(topic, queue_id) <= offset <= self._store.max_offset(topic, queue_id)

    # --- questions ----------------------------------------------------------------------------------------------------

    def notification(self, command: Command, peer: Peer) -> Command | None:
        waits_ns = self._waits_ns(command)
        self._check_broker()
        question = PopQuestion(command, peer, self._checked(command, peer))
        pop = question.pop
        _read_order(command, pop)
        if (expression := command.text("exp")) and (kind := command.text("expType")):
            pop.wanted = self._subscriptions.wanted(pop.topic, expression, kind)
        pop.deadline_ns = self._clock.monotonic_ns() + max(waits_ns, 0)
        if (has_message := self._has_message(pop)) or waits_ns <= 0:
            return _told(question, has_message=has_message)
        if not self._questions.hold(
            question, pop.topic, pop.group, pop.queue_id,
            now_ns=self._clock.monotonic_ns(), wait_ns=waits_ns, wanted=pop.wanted, owner=peer,
        ):  # fmt: skip
            return _told(question, has_message=False, is_full=True)
        return None

    def polling_info(self, command: Command, peer: Peer) -> Command:
        pop = self._checked(command, peer)
        count = self._waiters.count(pop.topic, pop.group, pop.queue_id)
        return response(command, ResponseCode.SUCCESS, None, {"pollingNum": str(count)})

    def _ask_again(self, question: PopQuestion) -> None:
        question.peer.send(_told(question, has_message=not self._stops and self._has_message(question.pop)))

    def _has_message(self, pop: Pop) -> bool:
        return any(
            self._progress.may_have(key, pop.wanted)
            and not (pop.is_ordered and self.orders.blocks(key, pop.attempt_id, self._clock.now_ms()))
            for _, key in self._taker.queues_of(pop)
        )

    # --- checks, in the protocol's order --------------------------------------------------------------------------------

    def _waits_ns(self, command: Command) -> int:
        """How long the request may wait yet; negative when its poll time is over."""
        now_ms, born_ms, poll_ms = self._clock.now_ms(), command.integer("bornTime"), command.integer("pollTime")
        if born_ms <= 0:
            born_ms = now_ms
        return min(born_ms + poll_ms - now_ms, poll_ms) * NS_PER_MS

    def _check_broker(self) -> None:
        settings = self._settings
        if not settings.broker_permission & READ:
            raise _forbidden(
                f"broker {settings.broker_name!r} cannot be read (brokerPermission={settings.broker_permission})"
            )

    def _checked(self, command: Command, peer: Peer) -> Pop:
        """Whose messages a request is about. Raises Refusal."""
        group_name, topic = command.text("consumerGroup"), command.text("topic")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        if not config.perm & READ:
            raise _forbidden(f"topic {topic!r} cannot be read (perm={config.perm})")
        queue_id = command.int32("queueId")
        if not ALL_QUEUES <= queue_id < config.read_queue_nums:
            raise _invalid(_no_queue(config, queue_id))
        group = self._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        if not group.consume_enable:
            raise _forbidden(f"group {group_name!r} may not consume (consumeEnable=false)")
        longest = len(pop_retry_topic(group_name, topic, PopSource.RETRY_V1))
        if longest > RETRY_TOPIC_BYTES_MAX:
            raise _invalid(f"the names of group and topic make a retry topic of {longest} characters")
        return Pop(peer, command.opaque, group_name, topic, queue_id, 1)


def _read_order(command: Command, pop: Pop) -> None:
    """Raises Refusal for an attempt id that is too long to be kept."""
    pop.is_ordered = command.boolean("order")
    pop.attempt_id = command.text("attemptId") or None
    if pop.attempt_id is not None and len(pop.attempt_id) > POP_ATTEMPT_ID_CHARS_MAX:
        raise _invalid(f"attemptId has at most {POP_ATTEMPT_ID_CHARS_MAX} characters, not {len(pop.attempt_id)}")


def _key_of(entry: BatchAckEntry) -> PopQueue | None:
    """The queue that acknowledgements are about; None when they name no topic of a pop."""
    try:
        source = PopSource(entry.retry or PopSource.NORMAL)
    except ValueError:
        return None
    return PopQueue(pop_retry_topic(entry.consumer_group, entry.topic, source), entry.consumer_group, entry.queue_id)


def _offsets_of(entry: BatchAckEntry) -> Iterator[int]:
    for found in _BYTES_WITH_BITS.finditer(entry.bit_set):
        for bit in range(8):
            if found[0][0] >> bit & 1:
                yield entry.start_offset + 8 * found.start() + bit


def _check_invisible(invisible_ms: int) -> None:
    if not 0 <= invisible_ms <= POP_INVISIBLE_MS_MAX:
        raise _invalid(f"invisibleTime is 0 to {POP_INVISIBLE_MS_MAX} ms, not {invisible_ms}")


def _header(rest_count: int = 0) -> dict[str, str]:
    """What an answer says that hides nothing."""
    return {"popTime": "0", "invisibleTime": "0", "reviveQid": str(REVIVE_QUEUE), "restNum": str(rest_count)}


def _pop_header(pop: Pop, taken: PopTaken) -> dict[str, str]:
    fields = _header(taken.rest_count) | {
        "popTime": str(taken.popped_ms),
        "invisibleTime": str(pop.invisible_ms),
        "startOffsetInfo": start_offset_info(taken.queues),
        "msgOffsetInfo": message_offset_info(taken.queues),
    }
    if pop.is_ordered:
        fields |= {"reviveQid": str(ORDER_REVIVE_QUEUE), "orderCountInfo": ";".join(taken.order_counts)}
    return fields


def _answer(pop: Pop, code: ResponseCode, remark: str) -> Command:
    return Command(code, pop.opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, remark)


def _told(question: PopQuestion, *, has_message: bool, is_full: bool = False) -> Command:
    fields = {"hasMsg": str(has_message).lower(), "pollingFull": str(is_full).lower()}
    return response(question.command, ResponseCode.SUCCESS, None, fields)


def _no_queue(config: TopicConfig, queue_id: int) -> str:
    return (
        f"queue {queue_id} of topic {config.topic_name!r} does not exist: it has {config.read_queue_nums} read queues"
    )


def _no_message(key: PopQueue, offset: int) -> Refusal:
    return Refusal(
        ResponseCode.NO_MESSAGE,
        f"there is no message {offset} of {key.topic}/{key.queue_id} in flight with this receipt",
    )


def _invalid(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark, {})


def _forbidden(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {})
