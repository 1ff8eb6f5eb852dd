"""Dead letters that go back to work: which ones, where to, and what is left of their past.

A message that every attempt of its group failed on lies in the dead-letter topic `%DLQ%<group>`. Redriving sends it again as a new
message to the topic it came from, or to the group's retry topic, which only that group reads. The dead letter itself stays where
it is until retention takes it.

Rules of this file
1. Decisions only; the shell reads, sends and keeps the place.
2. A redriven message starts anew: no attempts counted, no delay, an id of its own. What the program gave it stays: body, flag,
   keys, tag, ordering key and user properties. `ORIGIN_PROPERTY` names the message that died.
3. What makes a repeat recognisable is the *dead letter*, not the message that died: one that fails again becomes another dead
   letter, and that one may be redriven as well.
4. Each selection keeps a place of its own, so that a run with a filter does not hide from the next one what it passed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.client.message import Message, Once, check_message, encoded_properties, message_properties
from orbitmq.client.sending.outgoing import Outgoing
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ConfigurationError
from orbitmq.limits.broker import ONCE_KEY_BYTES_MAX, ONCE_SCOPE_BYTES_MAX
from orbitmq.limits.client import REDRIVE_REFUSALS_KEPT_MAX, REDRIVE_SCOPE_LETTERS
from orbitmq.limits.wire import FRAME_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX
from orbitmq.protocol.names import DLQ_PREFIX, REDRIVE_GROUP, RETRY_PREFIX, retry_topic, topic_name_problem
from orbitmq.protocol.properties import RESERVED, Property
from orbitmq.protocol.remoting.bodies import MessageQueue

ORIGIN_PROPERTY: Final = "ORBITMQ_REDRIVEN_FROM"
"""User property of a redriven message: the id of the message that died."""


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; all that is given must hold.

    keys: carries one of them. tags: has one of them. properties: has all these values. since_ms, until_ms: became a dead letter at or
    after, and before, these instants. topic: came from this topic. reason: this text is found in the value of some property that is
    not the protocol's own; where programs say there why something failed, it selects by that.
    """

    keys: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    since_ms: int | None = None
    until_ms: int | None = None
    topic: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ConfigurationError(f"since_ms={self.since_ms} is not before until_ms={self.until_ms}")

    def takes(self, message: StoredMessage) -> bool:
        """Whether a dead letter is meant; its time was looked at before."""
        properties = message.properties
        if self.keys and self.keys.isdisjoint(message.keys):
            return False
        if self.tags and message.tag not in self.tags:
            return False
        if self.topic is not None and origin_topic(message) != self.topic:
            return False
        if any(properties.get(name) != value for name, value in self.properties.items()):
            return False
        return self.reason is None or any(
            self.reason in value for name, value in properties.items() if name not in RESERVED
        )


class RedriveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a run over the dead letters of a group does, in the words of `Admin.redrive`. ConfigurationError for what does not go together.

    run_id: the name of a run that begins at the oldest and sends again what was sent before. None goes on where the last one with the
    same selection and topic ended.
    """

    group: str
    selection: DeadLetters = DeadLetters()
    to_topic: str | None = None
    only_group: bool = False
    rate: float | None = None
    max_count: int | None = None
    run_id: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1_000_000:
            raise ConfigurationError(f"rate={self.rate}: must be more than 0 and at most 1000000 messages a second")
        if self.max_count is not None and self.max_count < 1:
            raise ConfigurationError(f"max_count={self.max_count}: must be at least 1")
        problem = None if self.to_topic is None else topic_name_problem(self.to_topic)
        if problem is not None or (self.to_topic or "").startswith(DLQ_PREFIX):
            raise ConfigurationError(problem or f"to_topic={self.to_topic!r} is a dead-letter topic itself")
        if self.only_group and self.to_topic is not None:
            raise ConfigurationError("only_group and to_topic name two places to send to", remedy="give one of them")

    @property
    def progress(self) -> str:
        """The consumer group under which the place of such runs is kept."""
        return progress_group(self.selection, retry_topic(self.group) if self.only_group else self.to_topic)


class Span(NamedTuple):
    """Offsets of one dead-letter queue that a run looks at: `begin` to `end - 1`."""

    queue: MessageQueue
    begin: int
    end: int


class Refusal(NamedTuple):
    """A dead letter that cannot be sent. It stays where it is."""

    queue: MessageQueue
    queue_offset: int
    message_id: str
    why: str


class RedriveResult(msgspec.Struct, kw_only=True):
    """Account of a run: `looked_at = redriven + passed_over + refused`.

    total: dead letters in the spans looked at, at the start. redriven: sent, or in a dry run would be; those are among them that the
    run repeats and the broker recognised, because it answers a repeat as it answered the first send. passed_over: not meant. topics:
    redriven ones by the topic they were sent to, with `only_group` the retry topic. refusals: the first ones, in words. complete: the
    run came to its end.
    """

    group: str
    dry_run: bool
    total: int = 0
    looked_at: int = 0
    redriven: int = 0
    passed_over: int = 0
    refused: int = 0
    topics: dict[str, int] = msgspec.field(default_factory=dict)
    refusals: list[Refusal] = msgspec.field(default_factory=list)
    complete: bool = False

    def sent(self, topic: str) -> None:
        self.looked_at += 1
        self.redriven += 1
        self.topics[topic] = self.topics.get(topic, 0) + 1

    def passed(self) -> None:
        self.looked_at += 1
        self.passed_over += 1

    def refuse(self, refusal: Refusal) -> None:
        self.looked_at += 1
        self.refused += 1
        if len(self.refusals) < REDRIVE_REFUSALS_KEPT_MAX:
            self.refusals.append(refusal)


class Redriven(NamedTuple):
    """What a dead letter is sent as."""

    topic: str
    tag: str | None
    keys: tuple[str, ...]
    ordering_key: str | None
    properties: dict[str, str]


def origin_topic(message: StoredMessage) -> str | None:
    """The topic a dead letter was first sent to; None when nothing tells."""
    for name in (Property.RETRY_TOPIC, Property.DLQ_ORIGIN_TOPIC):
        topic = message.properties.get(name)
        if topic and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return topic
    return None


def redriven(message: StoredMessage, to_topic: str | None) -> Redriven | None:
    """The message to send for a dead letter; None when it does not say where it came from and `to_topic` does not either."""
    topic = to_topic or origin_topic(message)
    if topic is None:
        return None
    properties = message.user_properties
    properties[ORIGIN_PROPERTY] = origin_id(message)
    return Redriven(topic, message.tag, message.keys, message.ordering_key, properties)


def for_group(group: str, sent: Redriven, body: bytes, flag: int, unique_id: str) -> Outgoing:
    """The same as a message that only `group` gets, told to be of its topic: in the form of a retry, with no attempt counted.

    `MessageIllegalError` when it breaks a rule of the protocol.
    """
    message = Message(body, tag=sent.tag, key=sent.keys or None, properties=sent.properties, flag=flag)
    check_message(message, FRAME_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX)
    properties = {**message_properties(message, unique_id), Property.RETRY_TOPIC: sent.topic}
    if sent.ordering_key is not None:
        properties[Property.SHARDING_KEY] = sent.ordering_key
    return Outgoing(retry_topic(group), body, encoded_properties(properties).decode(), (unique_id,), flag=flag)


def origin_id(message: StoredMessage) -> str:
    """The id by which the message that died is known."""
    return message.properties.get(Property.UNIQ_KEY) or (
        message.properties.get(Property.DLQ_ORIGIN_MESSAGE_ID) or message.offset_message_id
    )


def once_of(group: str, message: StoredMessage, topic: str, run: str | None) -> Once:
    """What a broker recognises a repeat of sending this dead letter to `topic` by. run: makes it new, for those who want it again.

    A broker takes a million keys of one scope, so the letters of a queue are divided among scopes by their offsets.
    """
    queue = message.queue
    place = f"{queue.broker_name}/{queue.queue_id}/{message.queue_offset}/{origin_id(message)}>{topic}"
    key = place if run is None else f"{place}#{run}"
    stretch = message.queue_offset // REDRIVE_SCOPE_LETTERS
    scope = f"redrive.{group}/{queue.broker_name}/{queue.queue_id}/{stretch}"
    return Once(_short(scope, ONCE_SCOPE_BYTES_MAX), 0, _short(key, ONCE_KEY_BYTES_MAX))


def progress_group(selection: DeadLetters, to_topic: str | None) -> str:
    """Under which group the place of a run is kept: equal selections go on where the last run ended."""
    if to_topic is None and selection == DeadLetters():
        return REDRIVE_GROUP
    described = msgspec.json.encode([msgspec.to_builtins(selection, order="sorted"), to_topic], order="sorted")
    return f"{REDRIVE_GROUP}-{hashlib.sha256(described).hexdigest()[:12]}"


def span_of(queue: MessageQueue, first: int, end: int, kept: int | None, since: int | None, until: int | None) -> Span:
    """What a run looks at of a queue that holds `first` to `end - 1`.

    kept: where the last run of this kind ended; of no use when the queue does not reach so far, because then the topic was made
    anew. since, until: offsets that stand for the instants. The end is fixed at the start: a redriven message that fails again at
    once is a dead letter for the next run, not for this one.
    """
    begin = first if kept is None or kept > end else max(first, kept)
    if since is not None:
        begin = max(begin, since)
    last = end if until is None else min(end, until)
    return Span(queue, begin, max(begin, last))


def wait_ms(sent_count: int, elapsed_ms: int, rate: float | None) -> int:
    """How long the next message has to wait after `sent_count` in `elapsed_ms`, so that `rate` a second is not exceeded."""
    return 0 if rate is None else max(0, round(sent_count * 1000 / rate) - elapsed_ms)


def _short(text: str, bytes_max: int) -> str:
    data = text.encode()
    return text if len(data) <= bytes_max else hashlib.sha256(data).hexdigest()
