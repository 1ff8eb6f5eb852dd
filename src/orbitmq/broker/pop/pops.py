"""Pops: what becomes of a wish for messages, whichever front end it came through.

A pop takes messages of one queue or of all and hides them for a time (`taking`); whoever has one settles it (`settling`). What is not
settled in its invisible time reappears in the retry topic of its group (`returning`). A front end makes a `Pop` of what came to it, and an
answer of what it is told; nothing here knows its protocol.

Rules of this file
1. A pop that finds nothing waits (`waiting`) until its time is over, and is run again whenever something may have come.
2. A pop is refused at once, by a `Refusal`, or told its end once. The same holds for a look without taking.
3. A pop that waited takes nothing when its topic or its group is not as it was: it ends, and who asks again is checked by what counts now.

Source: RocketMQ broker, POP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from orbitmq.broker.admission import Admission
from orbitmq.broker.cold_pulls import AnswerReader
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.checkpoints import PopCheckpoints
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import InFlight, PopQueue
from orbitmq.broker.pop.ordering import FILE as ORDERS_FILE
from orbitmq.broker.pop.ordering import PopOrders
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.broker.pop.returning import PopReturns
from orbitmq.broker.pop.revive_topic import ReviveTopic
from orbitmq.broker.pop.settling import PopSettling, check_invisible, no_queue
from orbitmq.broker.pop.stored_again import StoredAgain
from orbitmq.broker.pop.taking import ALL_QUEUES, Pop, PopEnd, PopTaken, PopTaker
from orbitmq.broker.pop.waiting import PopWaiters
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.room import Room
from orbitmq.broker.topics import READ
from orbitmq.limits.pop import (
    POP_ATTEMPT_ID_CHARS_MAX,
    POP_MESSAGES_MAX,
    POP_SLEEP_MS_MAX,
)
from orbitmq.limits.wire import RETRY_TOPIC_BYTES_MAX
from orbitmq.protocol.pop_receipts import PopSource, pop_retry_topic
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.timers.timers import Timers
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

HELD: Final = "held pops"
"""Name of the wake-up that ends pops which waited long enough."""

FREED: Final = "ordered pops"
"""Name of the wake-up at which messages of ordered pops come back."""


WOKEN: Final = "pops to be woken"
"""Name of the wake-up that goes on where a turn had no time to wake all."""


class PopQuestion(msgspec.Struct, eq=False):
    """A question that waits: whether there is a message for a pop. `told` hears the answer."""

    pop: Pop
    told: Callable[[bool], None]


class Pops(Room):
    """All pops of a broker. It answers no requests itself; it joins the broker as a room for everything else."""

    def __init__(self, core: BrokerCore, admission: Admission, timers: Timers | None) -> None:
        """Messages are popped from `attach` on. Without `timers` nothing of what is in flight is stored."""
        self._core = core
        self._timers = timers
        self.in_flight: Final = InFlight()
        self.figures: Final = PopFigures()
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
        core.bind(self.orders)
        self._progress = PopProgress(core, self.in_flight, self.orders)
        self._taker = PopTaker(core, self._progress, self._run_again)
        self._returns = PopReturns(core, admission, self._progress, self.figures)
        self.checkpoints: PopCheckpoints | None = None
        self.revive_topic: ReviveTopic | None = None
        if timers is not None:
            self.checkpoints = PopCheckpoints(core, self.in_flight, self._progress.finish, self.figures)
        self.settling: Final = PopSettling(core, self._progress, self.checkpoints, self._wake)
        self._waiters: PopWaiters[Pop] = PopWaiters(self._run_again)
        self._questions: PopWaiters[PopQuestion] = PopWaiters(self._ask_again)
        self._stops = False
        core.deadlines.define(HELD, self._check_held)
        core.deadlines.define(FREED, self._wake_freed)
        core.deadlines.define(WOKEN, self._wake_more)

    # --- who may pop (Appender) ---------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to give messages out, and to store again what comes back, as the log says of pops before. Raises OSError."""
        if self._progress.is_open:
            return
        if self.checkpoints is not None and self._timers is not None:
            self.revive_topic = ReviveTopic(
                self._core, self._progress, self._timers, self.figures, self.checkpoints.drop
            )
            self.revive_topic.take_up()
            StoredAgain(self._core, self._progress).settle()
            for key in list(self.in_flight.queues):
                self._progress.finish(key)
        self._progress.is_open = True

    def detach(self) -> None:
        """Give nothing out any more, end what waits, and forget what is in flight: whoever is attached next finds in the log what is
        covered, and pops the rest anew."""
        self._progress.is_open = False
        self._progress.forget_all()
        self._returns.forget_all()
        if self.checkpoints is not None:
            self.checkpoints.forget_all()
        self._waiters.polls.release_all()
        self._questions.polls.release_all()

    # --- as a room of the broker --------------------------------------------------------------------------------------

    def arrived(self, entries: Sequence[Dispatched]) -> None:
        self._waiters.arrived(entries)
        self._questions.arrived(entries)

    def turn_ended(self) -> None:
        self._progress.turn_ended()

    def arm(self, now_ns: int) -> None:
        held_ns, asked_ns = self._waiters.polls.next_at_ns(), self._questions.polls.next_at_ns()
        self._deadlines.move(
            HELD, held_ns if asked_ns is None else asked_ns if held_ns is None else min(held_ns, asked_ns)
        )
        is_more = self._waiters.next_step() | self._questions.next_step()  # both take their step
        self._deadlines.move(WOKEN, now_ns if is_more else None)
        if not self._progress.is_open:
            return
        self._returns.arm()
        if self.checkpoints is not None and self.revive_topic is not None:
            self.checkpoints.arm()
            self.revive_topic.follow()
        free_ms = self.orders.next_free_ms
        self._deadlines.move(FREED, None if free_ms is None else now_ns + self._sleep_ns(free_ms))

    def peer_closed(self, peer: Peer) -> None:
        self.drop(peer)

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
        self._progress.turn_ended()
        self._waiters.polls.release_all()
        self._questions.polls.release_all()
        self.cover()

    def cover(self) -> None:
        """Before nothing is appended any more: store what is in flight, durably, for whoever is attached next. Blocks. Raises OSError."""
        if self.checkpoints is not None and self._progress.is_open:
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

    def _wake_more(self) -> None:
        self._waiters.go_on()
        self._questions.go_on()

    def _check_held(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._waiters.check(now_ns)
        self._questions.check(now_ns)

    # --- taking -------------------------------------------------------------------------------------------------------

    def take(self, pop: Pop, expression: str, kind: str, *, waits_ns: int) -> None:
        """Take what `pop` may have and wants by the expression of that kind (`TAG` or `SQL92`), or wait for it that long.

        `pop.told` hears the end once, at once or later. Raises `Refusal`.
        """
        self._check_broker()
        if not self._progress.is_open:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_ATTACHED, {})
        if pop.max_count > POP_MESSAGES_MAX:
            raise _invalid(f"a pop takes at most {POP_MESSAGES_MAX} messages, not {pop.max_count}")
        if not self._settings.timer_wheel_enable:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "POP needs timers (timerWheelEnable=false)", {})
        self._check(pop)
        check_invisible(pop.invisible_ms)
        _check_attempt(pop)
        pop.max_count = max(pop.max_count, 1)
        pop.wanted = self._subscriptions.wanted(pop.topic, expression, kind)
        pop.deadline_ns = self._clock.monotonic_ns() + max(waits_ns, 0)
        self._take_or_wait(pop)

    def peek(self, pop: Pop) -> None:
        """Look at what `pop` would take, without taking it. `pop.told` hears the end once. Raises `Refusal`."""
        self._check_broker()
        if pop.max_count > POP_MESSAGES_MAX:
            raise _invalid(f"at most {POP_MESSAGES_MAX} messages are shown, not {pop.max_count}")
        self._check(pop)
        pop.max_count, pop.hides = max(pop.max_count, 1), False
        self._taker.take(pop, lambda pop, taken: pop.told(pop, taken, PopEnd.FOUND if taken.count else PopEnd.NOTHING))

    def drop(self, caller: AnswerReader) -> None:
        """Whoever would be answered is gone: pops that wait for messages or for the disk are forgotten."""
        self._waiters.polls.drop_owner(caller)
        self._questions.polls.drop_owner(caller)
        self._taker.cold.drop(caller)

    def waiting_count(self, pop: Pop) -> int:
        """How many pops of the same kind wait. Raises `Refusal`."""
        self._check(pop)
        return self._waiters.count(pop.topic, pop.group, pop.queue_id)

    def _run_again(self, pop: Pop) -> None:
        """A later run of a pop that waited. Raises nothing: whoever let it go has others to let go."""
        try:
            if self._stops or not self._progress.is_open:
                self._miss(pop, PopTaken(self._clock.now_ms()), PopEnd.NOTHING)
            elif not self._taker.is_checked(pop):
                self._waiters.wake(pop.topic, pop.group)  # another one may have what this one does not take
                self._miss(pop, PopTaken(self._clock.now_ms()), PopEnd.NOTHING)
            else:
                self._take_or_wait(pop)
        except Exception as error:
            self._statistics.failed_handler_count += 1
            logger.error("a pop of %s from %s failed", pop.topic, pop.peer.address, exc_info=error)
            failed = PopTaken(self._clock.now_ms(), problem=f"{type(error).__name__}: {error}")
            pop.told(pop, failed, PopEnd.FAILED)

    def _take_or_wait(self, pop: Pop) -> None:
        """Nothing is taken for a caller who takes no answers: it waits until he does."""
        if pop.peer.writable:
            self._taker.take(pop, self._taken)
        elif not self._taker.cold.wait(pop):
            self._miss(pop, PopTaken(self._clock.now_ms()), PopEnd.FULL)

    def _taken(self, pop: Pop, taken: PopTaken) -> None:
        """Tell what was taken; where that is nothing, wait for more."""
        if taken.count:
            self._statistics.pulled(pop.topic, pop.group, taken.count, taken.size, self._clock.monotonic_ns())
            pop.told(pop, taken, PopEnd.FOUND)
            if taken.rest_count:
                self._waiters.wake(pop.topic, pop.group)
            return
        if taken.problem is not None:
            taken.problem = f"{pop.topic} cannot be read for group {pop.group}: {taken.problem}"
            pop.told(pop, taken, PopEnd.FAILED)
            return
        if taken.lacks_place and self._taker.cold.wait(pop):
            return
        left_ns = pop.deadline_ns - self._clock.monotonic_ns()
        is_again_at_once = taken.has_passed and taken.rest_count
        if left_ns <= 0 or is_again_at_once or self._stops or not self._settings.long_polling_enable:
            self._miss(pop, taken, PopEnd.NOTHING)
        elif not self._waiters.hold(
            pop, pop.topic, pop.group, pop.queue_id,
            now_ns=self._clock.monotonic_ns(), wait_ns=left_ns, wanted=pop.wanted, owner=pop.peer,
        ):  # fmt: skip
            self._miss(pop, taken, PopEnd.FULL)

    def _miss(self, pop: Pop, taken: PopTaken, end: PopEnd) -> None:
        self._statistics.count_missed()
        pop.told(pop, taken, end)

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(
        self, pop: Pop, expression: str, kind: str, *, waits_ns: int, told: Callable[[bool], None]
    ) -> PopEnd | None:
        """Whether there is a message for `pop`, which takes nothing. None: it waits that long, and `told` hears whether there is one.

        Without an expression or its kind every message counts. Raises `Refusal`.
        """
        self._check_broker()
        self._check(pop)
        _check_attempt(pop)
        if expression and kind:
            pop.wanted = self._subscriptions.wanted(pop.topic, expression, kind)
        if self._has_message(pop):
            return PopEnd.FOUND
        if waits_ns <= 0:
            return PopEnd.NOTHING
        if self._questions.hold(
            PopQuestion(pop, told), pop.topic, pop.group, pop.queue_id,
            now_ns=self._clock.monotonic_ns(), wait_ns=waits_ns, wanted=pop.wanted, owner=pop.peer,
        ):  # fmt: skip
            return None
        return PopEnd.FULL

    def _ask_again(self, question: PopQuestion) -> None:
        question.told(not self._stops and self._progress.is_open and self._has_message(question.pop))

    def _has_message(self, pop: Pop) -> bool:
        return any(
            self._progress.may_have(key, pop.wanted)
            and not (pop.is_ordered and self.orders.blocks(key, pop.attempt_id, self._clock.now_ms()))
            for _, key in self._taker.queues_of(pop)
        )

    # --- checks, in the protocol's order --------------------------------------------------------------------------------

    def _check_broker(self) -> None:
        settings = self._settings
        if not settings.broker_permission & READ:
            raise _forbidden(
                f"broker {settings.broker_name!r} cannot be read (brokerPermission={settings.broker_permission})"
            )

    def _check(self, pop: Pop) -> None:
        """Raises Refusal for a topic, a queue or a group that gives no messages."""
        config = self._topics.get(pop.topic)
        if config is None:
            raise topic_missing(pop.topic)
        if not config.perm & READ:
            raise _forbidden(f"topic {pop.topic!r} cannot be read (perm={config.perm})")
        if not ALL_QUEUES <= pop.queue_id < config.read_queue_nums:
            raise _invalid(no_queue(config, pop.queue_id))
        group = self._groups.get(pop.group)
        if group is None:
            raise group_missing(pop.group)
        if not group.consume_enable:
            raise _forbidden(f"group {pop.group!r} may not consume (consumeEnable=false)")
        longest = len(pop_retry_topic(pop.group, pop.topic, PopSource.RETRY_V1))
        if longest > RETRY_TOPIC_BYTES_MAX:
            raise _invalid(f"the names of group and topic make a retry topic of {longest} characters")
        pop.checked = config, group


def _check_attempt(pop: Pop) -> None:
    """Raises Refusal for an attempt id that is too long to be kept."""
    if pop.attempt_id is not None and len(pop.attempt_id) > POP_ATTEMPT_ID_CHARS_MAX:
        raise _invalid(f"attemptId has at most {POP_ATTEMPT_ID_CHARS_MAX} characters, not {len(pop.attempt_id)}")


def _invalid(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark, {})


def _forbidden(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {})
