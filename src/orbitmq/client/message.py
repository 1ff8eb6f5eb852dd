"""What a program sends, and what it gets back for it.

Rules of this file
1. Values only: nothing here talks to a broker, and a `Message` may be sent any number of times.
2. A message is checked before it leaves the process; `MessageIllegalError` says which field breaks which rule.
3. Reserved properties have parameters of their own (`tag`, `key`, `delay_level`, `at` ...) and are refused in `properties`.
4. What only timer messages need is imported when the first of them comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from orbitmq.errors import MessageIllegalError, RecordError
from orbitmq.limits.broker import (
    ONCE_KEY_BYTES_MAX,
    ONCE_SCOPE_BYTES_MAX,
    ONCE_WINDOW_MS_DEFAULT,
    ONCE_WINDOW_MS_MIN,
    ONCE_WINDOW_SCOPE_BYTES_MAX,
)
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.protocol.filtering.java_numbers import INT_MAX
from orbitmq.protocol.names import is_send_forbidden, topic_name_problem
from orbitmq.protocol.properties import Property, encode_properties, user_property_problem
from orbitmq.protocol.remoting.codes import ResponseCode


class SendStatus(Enum):
    """How far a stored message had come when the broker answered. All four mean: stored, will be delivered.

    They differ in what may still lose it. `SEND_OK` satisfied the broker's flush and replication mode; the others
    were written but the flush to disk, or a replica, was late or missing.
    """

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT

    @property
    def lack(self) -> str:
        """What is missing of the promise, for the end of a sentence; empty for `SEND_OK`."""
        return _LACKS.get(self, "")


_LACKS: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: "the broker has not flushed it to disk in time",
    SendStatus.SLAVE_NOT_AVAILABLE: "the broker has no copy that could be waited for",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "no copy of the broker said in time that it has it",
}

STORED: Final = {int(status.value): status for status in SendStatus}
"""The codes of answers that say that something is stored."""


class _Body(msgspec.Struct, frozen=True):
    """What `Message` takes by position."""

    body: bytes


class Message(_Body, frozen=True, kw_only=True):
    """One message to send. The topic is named by the call that sends it.

    body: the payload; at least one byte, at most the producer's `max_message_bytes`.
    tag: one word that consumers can filter on at the broker.
    key: index key, or several; a key may not contain blanks, which separate keys in the index.
    delay_level: 0 delivers at once; n delivers after the n-th step of the broker's level list (by default
        1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h). A level beyond the list means its last step.
    at: deliver at this instant: a datetime with time zone, or milliseconds since 1970. One that has passed means at once.
    after: deliver so long after the broker has got the message: a timedelta, or seconds. Only one of `delay_level`, `at` and `after`.
    priority: 0 or more; the broker chooses the queue with that number, or the last one. In topics of type PRIORITY consumers that pop
        get the highest first. Beside none of `delay_level`, `at`, `after`, an ordering key and a transaction. From RocketMQ 5.4 on.
    properties: user properties; names outside the reserved set of the protocol.
    flag: a number the broker keeps with the message and does not look at.
    wait_stored: False lets a broker with synchronous flush answer before the flush.
    """

    tag: str | None = None
    key: str | Sequence[str] | None = None
    delay_level: int = 0
    at: datetime | int | None = None
    after: timedelta | float | None = None
    priority: int | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    flag: int = 0
    wait_stored: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether it has a due time of its own, `at` or `after`."""
        return self.at is not None or self.after is not None

    @property
    def keys(self) -> tuple[str, ...]:
        if self.key is None:
            return ()
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


class Once(msgspec.Struct, frozen=True):
    """Makes sends of one message recognisable: a broker stores the first and answers the others with its receipt. For jobs, which
    begin and end; for keys that never end there is `OnceWithin`.

    scope: who counts, such as a job; without a leading `~`. epoch: of two writers of a scope the one with the higher epoch
    wins, and sends of a lower one are refused with `StaleEpochError`. key: names the message within scope and epoch. A broker
    remembers the keys of the current and the previous epoch. The broker follows from the key, so a repeat, by
    whatever process, finds its predecessor; while that broker is away the send waits for it. RocketMQ's broker ignores all three.
    """

    scope: str
    epoch: int
    key: str

    def __post_init__(self) -> None:
        _check_scope("Once.scope", self.scope, ONCE_SCOPE_BYTES_MAX)
        _check_name("Once.key", self.key, ONCE_KEY_BYTES_MAX)
        _check_type("Once.epoch", self.epoch, int)
        if not 0 <= self.epoch < 2**63:
            raise MessageIllegalError(f"Once.epoch is {self.epoch}; epochs are numbers from 0 that fit 64 bits")


class OnceWithin(msgspec.Struct, frozen=True):
    """Makes sends with one key recognisable for a time: a broker stores the first, answers each that comes within `window` after it
    with the first one's receipt, and stores the next one after that. For services, whose keys never end: orders, payments, requests.

    key: names the message within its topic, such as `order-42`. window: counts from the first send; a timedelta, or seconds; at
    least one, at most `idempotenceReservedTime` of the broker (three days); a day by default. scope: whose keys they are within the
    topic, without a leading `~` or `^`; by default all programs that send to it share theirs. The broker follows from the key, as with
    `Once`.

    A broker remembers the keys of a window, 48 to 160 bytes each, and refuses a new one that it has no room for: see the guide.
    RocketMQ's broker ignores all of it.
    """

    key: str
    window: timedelta | float = ONCE_WINDOW_MS_DEFAULT / 1_000
    scope: str | None = None

    def __post_init__(self) -> None:
        _check_name("OnceWithin.key", self.key, ONCE_KEY_BYTES_MAX)
        if self.scope is not None:
            _check_scope("OnceWithin.scope", self.scope, ONCE_WINDOW_SCOPE_BYTES_MAX)
        if self.window_ms < ONCE_WINDOW_MS_MIN:
            raise MessageIllegalError(
                f"OnceWithin.window is {self.window!s}; it lasts {ONCE_WINDOW_MS_MIN / 1_000:g} s at least",
                remedy="give the time within which callers try again, such as timedelta(days=1)",
            )

    @property
    def window_ms(self) -> int:
        from orbitmq.client.due_time import length_ms

        return length_ms("OnceWithin.window", self.window)


def identity_of(once: Once | OnceWithin | str | None) -> Once | OnceWithin | None:
    """What parameter `once` means: a text is the key of an `OnceWithin`. `MessageIllegalError`."""
    if once is None or isinstance(once, Once | OnceWithin):
        return once
    if isinstance(once, str):
        return OnceWithin(str.__str__(once))
    raise MessageIllegalError(
        f"once is {once!r}",
        remedy="give a key, such as 'order-42', an OnceWithin(key, ...), or a Once(scope, epoch, key)",
    )


def check_topic(topic: str) -> None:
    """Raise `MessageIllegalError` when programs may not send to `topic`."""
    if not isinstance(topic, str):  # some kinds cannot be looked up
        raise MessageIllegalError(topic_name_problem(topic) or "")
    _check_topic(topic)


@lru_cache(maxsize=1_024)
def _check_topic(topic: str) -> None:
    problem = topic_name_problem(topic)
    if problem is not None:
        raise MessageIllegalError(problem)
    if is_send_forbidden(topic):
        raise MessageIllegalError(
            f"topic {topic!r} belongs to the broker; programs may not send to it", remedy="choose another topic name"
        )


def check_message(message: Message, max_bytes: int) -> None:
    """Raise `MessageIllegalError` naming the first rule that `message` breaks. `max_bytes` bounds the plain body."""
    body = message.body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise MessageIllegalError(
            f"a message body is bytes, not {type(body).__name__}", remedy='encode text first: text.encode("utf-8")'
        )
    if len(body) == 0:
        raise MessageIllegalError("the message body is empty; RocketMQ refuses such messages", remedy="send one byte")
    if len(body) > max_bytes:
        raise MessageIllegalError(
            f"the message body has {len(body)} bytes, the producer allows {max_bytes}",
            remedy="send a reference to the data, or raise max_message_bytes here and maxMessageSize at the broker",
        )
    if message.delay_level:
        _check_type("delay_level", message.delay_level, int)
        if not 0 <= message.delay_level <= INT_MAX:
            raise MessageIllegalError(
                f"delay_level is {message.delay_level}; levels count from 1, and 0 means no delay"
            )
    if message.at is not None or message.after is not None:
        due_property(message)
    if message.priority is not None:
        _check_priority(message, message.priority)
    if message.key is not None and not isinstance(message.key, str | Sequence):
        raise MessageIllegalError(f"key is {message.key!r}", remedy="index keys are text, or several in a list")
    for key in message.keys:
        _check_type("key", key, str)
        if not key or any(character.isspace() for character in key):
            raise MessageIllegalError(f"key {key!r} is empty or contains blanks, which separate keys in the index")
        _check_text("key", key)
    if message.tag is not None:
        _check_type("tag", message.tag, str)
        if not message.tag.strip() or "||" in message.tag:
            raise MessageIllegalError(f"tag {message.tag!r} is blank or contains '||', which separates tags in filters")
        _check_text("tag", message.tag)
    if not isinstance(message.flag, int) or not -INT_MAX - 1 <= message.flag <= INT_MAX:
        raise MessageIllegalError(f"flag is {message.flag!r}; it is a whole number of 32 bits")
    if not isinstance(message.properties, Mapping):
        raise MessageIllegalError(
            f"properties is {type(message.properties).__name__}", remedy='give names and values: {"shop": "3"}'
        )
    for name, value in message.properties.items():
        _check_type("the name of a property", name, str)
        _check_type(f"the property {name!r}", value, str)
        problem = user_property_problem(name, value)
        if problem is not None:
            raise MessageIllegalError(
                problem,
                remedy="reserved names have parameters of their own: tag, key, delay_level, at, after, priority, ordering_key",
            )


def _check_priority(message: Message, priority: int) -> None:
    _check_type("priority", priority, int)
    if not 0 <= priority <= INT_MAX:
        raise MessageIllegalError(f"priority is {priority}; it lies between 0 and {INT_MAX}")
    if message.delay_level or message.is_timed:
        raise MessageIllegalError(
            "a priority beside a delay: the broker would drop it",
            remedy="give one of priority, delay_level, at and after",
        )


def due_property(message: Message) -> tuple[str, str]:
    """The property that says when a timed message is due. `MessageIllegalError`."""
    from orbitmq.client import due_time

    if message.delay_level:
        raise MessageIllegalError(
            f"delay_level={message.delay_level} beside {'at' if message.at is not None else 'after'}: two due times",
            remedy="give one of delay_level, at and after",
        )
    return due_time.due_property(message.at, message.after)


def check_ordering_key(ordering_key: str) -> None:
    """Raise `MessageIllegalError` when this cannot be an ordering key."""
    _check_type("ordering_key", ordering_key, str)
    _check_text("ordering_key", ordering_key)


def _check_name(what: str, text: str, bytes_max: int) -> None:
    _check_type(what, text, str)
    if not text.strip() or len(text.encode("utf-8", "surrogatepass")) > bytes_max:
        raise MessageIllegalError(f"{what} is blank or longer than {bytes_max} bytes")
    _check_text(what, text)


def _check_scope(what: str, scope: str, bytes_max: int) -> None:
    _check_name(what, scope, bytes_max)
    if scope.startswith(("~", "^")):
        raise MessageIllegalError(
            f"{what} {scope!r} begins with {scope[0]!r}, by which brokers tell scopes that they may forget, or whose keys have windows",
            remedy="choose a name without it",
        )


def _check_type(what: str, value: object, wanted: type[str] | type[int]) -> None:
    if not isinstance(value, wanted) or isinstance(value, bool):
        kind = "text" if wanted is str else "a whole number"
        raise MessageIllegalError(
            f"{what} is {value!r}; it has to be {kind}", remedy=f"convert it: {wanted.__name__}(...)"
        )


def _check_text(what: str, text: str) -> None:
    if "\x01" in text or "\x02" in text:
        raise MessageIllegalError(f"{what} contains U+0001 or U+0002, which separate properties on the wire")


def message_properties(message: Message, unique_id: str) -> dict[str, str]:
    """All properties the message travels with, in the order they are written. `message` was checked before."""
    properties = dict(message.properties)
    keys = message.keys
    if keys:
        properties[Property.KEYS] = " ".join(keys)
    if message.tag is not None:
        properties[Property.TAGS] = message.tag
    if message.delay_level:
        properties[Property.DELAY] = str(message.delay_level)
    if message.at is not None or message.after is not None:
        name, value = due_property(message)
        properties[name] = value
    if message.priority is not None:
        properties[Property.PRIORITY] = str(message.priority)
    properties[Property.WAIT] = "true" if message.wait_stored else "false"
    properties[Property.UNIQ_KEY] = unique_id
    return properties


def encoded_properties(properties: Mapping[str, str]) -> bytes:
    """The wire form, or `MessageIllegalError` when there is none or it does not fit the record's length field."""
    try:
        encoded = encode_properties(properties)
    except RecordError as error:
        raise MessageIllegalError(str(error)) from error
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise MessageIllegalError(
            f"the properties take {len(encoded)} bytes encoded, a record holds {PROPERTIES_BYTES_MAX}",
            remedy="move the data into the body",
        )
    return encoded
