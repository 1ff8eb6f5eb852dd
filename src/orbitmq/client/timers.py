"""Timer messages as programs see them: which are meant, and what became of them.

Rules of this file
1. Values and decisions only; asking brokers is the business of `_async/timers`.
2. What is asked of several brokers gets one answer: that of the only timer found, or what holds for several together.
3. A verdict says no more than is known. RocketMQ's broker takes a recall without telling whether it came in time: `ASKED`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, Protocol

import msgspec

from orbitmq.client.arguments import check_text
from orbitmq.client.message import SendStatus
from orbitmq.client.stored import user_properties
from orbitmq.errors import ConfigurationError, ProtocolError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import MessageQueue

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimerVerdict(Enum):
    """What became of a timer message, at the moment of the answer."""

    RECALLED = "recalled"
    """It is not delivered any more."""
    RESCHEDULED = "rescheduled"
    """It has the new due time."""
    PENDING = "pending"
    """It waits for its due time."""
    ALREADY_DELIVERED = "already_delivered"
    """It stands in its topic; consumers have it or get it."""
    ALREADY_RECALLED = "already_recalled"
    NOT_FOUND = "not_found"
    """No broker that was asked knows of such a timer message."""
    TOO_LATE = "too_late"
    """It is being delivered at this moment, or changed by somebody else."""
    AMBIGUOUS = "ambiguous"
    """Several are meant and `all` was not given: nothing was changed."""
    ASKED = "asked"
    """RocketMQ's broker took the recall; it does not tell whether it takes effect."""


class TimerView(msgspec.Struct, frozen=True):
    """One timer message without its body.

    message_id: the sender's, as in its receipt. queue: where it is delivered. deliver_ms, stored_ms: when it falls due and when it was
    accepted, ms since 1970 by the broker's clock. size: bytes of the stored record. tier: `near` or `far`, where the broker keeps it.
    recall_handle: names it to `recall`, also at another time and in another process. delivered_ms: when it was
    stored in its topic.
    """

    message_id: str
    queue: MessageQueue
    keys: tuple[str, ...]
    deliver_ms: int
    stored_ms: int
    size: int
    tier: str
    recall_handle: str | None = None
    delivered_ms: int | None = None

    @property
    def topic(self) -> str:
        return self.queue.topic

    @property
    def deliver_at(self) -> datetime:
        """`deliver_ms` as an instant in UTC."""
        return _EPOCH + timedelta(milliseconds=self.deliver_ms)


class TimerMatch(msgspec.Struct, frozen=True):
    """One timer message that was meant, and what became of it."""

    verdict: TimerVerdict
    timer: TimerView | None = None


class TimerOutcome(msgspec.Struct, frozen=True):
    """Answer to a recall, a reschedule or a question.

    verdict: of the only match; of several, what holds for at least one of them (`AMBIGUOUS`: nothing was changed). Copies of one
    message, stored under one id by a sender that tried again, are recalled together: the verdict is `ALREADY_DELIVERED` or `TOO_LATE`
    where one of them has left, whatever became of the others. matches: all that is known, one for each timer message or copy that was
    meant. changed_count: how many were recalled or rescheduled by this call. more: further
    ones are meant, which were left as they are; the same recall again goes on with them. send_status: how far a broker had come with
    storing the change; what is not `SEND_OK` holds, and may be lost with fewer disks or brokers than was asked for.
    """

    verdict: TimerVerdict
    matches: tuple[TimerMatch, ...] = ()
    changed_count: int = 0
    more: bool = False
    send_status: SendStatus = SendStatus.SEND_OK

    @property
    def timer(self) -> TimerView | None:
        """The timer message, if one was found and no other."""
        return self.matches[0].timer if len(self.matches) == 1 else None


class TimerMessage(msgspec.Struct, frozen=True):
    """A pending timer message in full. properties: all of them, reserved ones included; user_properties: those of its program."""

    timer: TimerView
    body: bytes
    properties: Mapping[str, str]

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def ordering_key(self) -> str | None:
        return self.properties.get(Property.SHARDING_KEY)

    @property
    def user_properties(self) -> dict[str, str]:
        return user_properties(self.properties)


class TimerBucket(msgspec.Struct, frozen=True):
    """How many timer messages fall due in one span of time. `begin_ms` is its first instant."""

    begin_ms: int
    count: int


class TimerCounts(msgspec.Struct, frozen=True):
    """What is pending on all brokers together.

    pending, by_topic: of one topic if one was asked for; by_topic has the largest first. buckets: of the range that was asked for,
    earliest first, empty ones left out; their width is rounded up to whole minutes, or to hours or days where the messages of a topic
    are due in very many different minutes; what is far is in them by the day, and only without a topic. near, far: of all topics, by
    where the brokers keep them.
    next_due_ms: of all topics nothing falls due before this; the exact time has the first of `Timers.list`. None when nothing is pending.
    """

    pending: int
    by_topic: Mapping[str, int]
    buckets: tuple[TimerBucket, ...]
    near: int
    far: int
    next_due_ms: int | None


class HasTimer(Protocol):
    """What names a timer message: the receipt of its send, or a `TimerView`."""

    @property
    def message_id(self) -> str: ...

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def recall_handle(self) -> str | None: ...


class MeantTimers(NamedTuple):
    """Which timer messages a call is about. broker_name: the only one that can know; None for all of the topic."""

    selector: wire.TimerSelector
    topic: str
    broker_name: str | None
    handle: str | None
    text: str


def meant(
    timer: HasTimer | str | None, topic: str | None, message_id: str | None, key: str | None, *, several: bool
) -> MeantTimers:
    """The timer messages that the parameters of a call name. `ConfigurationError` when they name none, or in two ways."""
    for name, given in (("topic", topic), ("message_id", message_id), ("key", key)):
        check_text(name, given)
    named = [name for name, value in (("message_id", message_id), ("key", key)) if value is not None]
    if timer is not None:
        if topic is not None or named:
            raise ConfigurationError(
                "a receipt or handle names its message alone", remedy="leave topic, message_id and key out"
            )
        if isinstance(timer, str):
            handle = read_handle(timer)
            text = f"timer message {handle.message_id} of topic {handle.topic!r}"
            return MeantTimers(
                wire.TimerSelector(handle=timer, all=several), handle.topic, handle.broker_name, timer, text
            )
        where = getattr(timer, "queue", None)
        if where is None:
            raise ConfigurationError(
                f"{type(timer).__name__} names no timer message",
                remedy="give a receipt, a TimerView or a recall handle",
            )
        text = f"timer message {timer.message_id} of topic {where.topic!r}"
        selector = wire.TimerSelector(topic=where.topic, message_id=timer.message_id, all=several)
        return MeantTimers(selector, where.topic, where.broker_name, timer.recall_handle, text)
    if topic is None or len(named) != 1:
        raise ConfigurationError(
            "no timer message is named"
            if not named
            else f"{' and '.join(named)} without the one thing more that names it",
            remedy="give a receipt, a recall handle, topic and message_id, or topic and key",
        )
    text = f"timer messages of topic {topic!r} with {named[0]} {message_id if key is None else key!r}"
    return MeantTimers(
        wire.TimerSelector(topic=topic, message_id=message_id, key=key, all=several), topic, None, None, text
    )


def read_handle(handle: str) -> RecallHandle:
    """What a recall handle says. `ConfigurationError` when it is none."""
    try:
        return decode_handle(handle)
    except ProtocolError as error:
        raise ConfigurationError(
            str(error), remedy="take receipt.recall_handle, or give topic and message_id"
        ) from error


# --- answers

_WORDS: Final = tuple(
    TimerVerdict[name]
    for name in (
        "AMBIGUOUS", "RECALLED", "RESCHEDULED", "PENDING", "TOO_LATE", "ALREADY_RECALLED", "ALREADY_DELIVERED", "ASKED",
    )
)  # fmt: skip
"""Verdicts by rank: of several matches, the verdict that stands first here speaks for all."""

_LEFT: Final = (TimerVerdict.ALREADY_DELIVERED, TimerVerdict.TOO_LATE)
"""What speaks for a message when it holds for one of its copies."""


def view(timer: wire.TimerViewBody, broker_name: str) -> TimerView:
    """What a broker says of a timer message."""
    return TimerView(
        timer.message_id,
        MessageQueue(timer.topic, timer.broker_name or broker_name, timer.queue_id),
        tuple(timer.keys.split()),
        timer.deliver_ms,
        timer.stored_ms,
        timer.size,
        timer.tier,
        timer.handle or None,
        timer.delivered_ms,
    )


def match(answer: wire.TimerAnswer, broker_name: str) -> TimerMatch:
    timer = None if answer.timer is None else view(answer.timer, broker_name)
    return TimerMatch(TimerVerdict(answer.verdict.value), timer)


def outcome(
    matches: Sequence[TimerMatch],
    changed_count: int = 0,
    *,
    more: bool = False,
    send_status: SendStatus = SendStatus.SEND_OK,
) -> TimerOutcome:
    """One answer out of those of several brokers."""
    found = tuple(each for each in matches if each.verdict is not TimerVerdict.NOT_FOUND)
    verdicts = {each.verdict for each in found}
    names = {each.timer.message_id for each in found if each.timer is not None}
    words = (*_LEFT, *_WORDS) if len(names) == 1 else _WORDS
    verdict = next((word for word in words if word in verdicts), TimerVerdict.NOT_FOUND)
    if len(found) > 1:
        found = tuple(each for each in found if each.timer is not None) or found
    return TimerOutcome(verdict, found, changed_count, more, send_status)


def merged_counts(counts: Sequence[wire.TimerCountsBody], only: str | None = None) -> TimerCounts:
    """What several brokers have, together; of topic `only`."""
    by_topic: dict[str, int] = {}
    buckets: dict[int, int] = {}
    for each in counts:
        for topic, count in each.by_topic.items():
            if only is None or topic == only:
                by_topic[topic] = by_topic.get(topic, 0) + count
        for begin_ms, count in each.buckets:
            buckets[begin_ms] = buckets.get(begin_ms, 0) + count
    return TimerCounts(
        sum(each.pending for each in counts) if only is None else by_topic.get(only, 0),
        dict(sorted(by_topic.items(), key=lambda item: (-item[1], item[0]))),
        tuple(TimerBucket(begin_ms, count) for begin_ms, count in sorted(buckets.items())),
        sum(each.near for each in counts),
        sum(each.far for each in counts),
        min((each.next_due_ms for each in counts if each.next_due_ms is not None), default=None),
    )
