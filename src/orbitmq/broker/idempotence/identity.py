"""Which send is meant: scope, epoch and key of an idempotent send, read from a message's properties.

A program that may have to repeat a send says who it is (the scope), in which run of its work (the epoch), and which of its
sends this is (the key). Two sends with the same three to the same topic are one send. A service, whose work has no runs, names a window
in place of the epoch: for so long after a send with that key another one is the same send.

Rules of this file
1. Pure. What cannot be read is refused and nothing is guessed: a send that was meant to be stored once must not be stored
   as one that may be doubled.
2. A copy of a message is not its send. Send-backs, retries, dead letters and what a program forwards with all the
   properties it received carry the first send's names; they lose them on the way in, and in a log that another broker
   wrote they are passed over. Storing something twice is a nuisance, not storing it is a loss.
3. The topic is part of the key, the queue is not: a producer may repeat a send to another queue.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from orbitmq.broker.refusal import Refusal
from orbitmq.limits.broker import ONCE_KEY_BYTES_MAX, ONCE_SCOPE_BYTES_MAX, ONCE_WINDOW_MS_MIN
from orbitmq.protocol.names import DLQ_PREFIX, FAR_TIMER_TOPIC, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched

ONCE_NAMES: Final = frozenset({Property.ONCE_SCOPE, Property.ONCE_EPOCH, Property.ONCE_KEY, Property.ONCE_WINDOW})

TRANSIENT_PREFIX: Final = "~"
"""Scopes that producers make for their own retries begin with it; they are forgotten soon."""

WINDOW_PREFIX: Final = "^"
"""Scopes begin with it, and then with their topic, whose sends have a window and no epoch."""

WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, FAR_TIMER_TOPIC})
"""Where a message that was sent with a time to wait for is stored first, in place of its real topic."""

HELD_TOPICS: Final = WAITING_TOPICS | {HALF_TOPIC}
"""Where a message that was sent is stored before it comes to its real topic. Its commit is no send."""

DIGEST_BYTES: Final = 16
EPOCH_MAX: Final = (1 << 63) - 1
_EPOCH_DIGITS: Final = 19
_WINDOW_DIGITS: Final = 14

COPY_NAMES: Final = frozenset(
    {
        Property.RETRY_TOPIC,
        Property.ORIGIN_MESSAGE_ID,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
    }
)
"""On messages that were stored before under another place: sent back, given up, or brought back."""

STAMPS: Final = frozenset({Property.MSG_REGION, Property.CLUSTER})
"""What a broker writes on everything it stores and no producer does: a send that has them is a copy."""

IDENTITY_MARK: Final = Property.ONCE_SCOPE.encode() + b"\x01"
"""Without these bytes in its properties a record is no idempotent send; looking for them takes about 0.06 us."""


class SendIdentity(msgspec.Struct, frozen=True, gc=False):
    """The identity of one send. `digest` stands for topic and key. window_ms: 0 for a send with an epoch; the epoch of others is 0."""

    scope: str
    epoch: int
    digest: int
    window_ms: int = 0


def digest_of(topic: str, key: str) -> int:
    """128 bits for topic and key. Cost: about 0.8 us."""
    return int.from_bytes(
        blake2b(f"{topic}\0{key}".encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
    )


def is_copy(topic: str, values: dict[str, str]) -> bool:
    """Whether a message to `topic` repeats another message, and not the send of one."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or not COPY_NAMES.isdisjoint(values)


def read_identity(topic: str, values: dict[str, str]) -> SendIdentity | None:
    """What the properties of a send say; None when they say nothing. Raises `Refusal` for half of it or nonsense."""
    scope = values.get(Property.ONCE_SCOPE)
    if scope is None:
        for name in (Property.ONCE_EPOCH, Property.ONCE_KEY, Property.ONCE_WINDOW):
            if name in values:
                raise _illegal(f"the message has {name} but no {Property.ONCE_SCOPE}, or an empty one")
        return None
    if len(scope) > ONCE_SCOPE_BYTES_MAX or len(scope.encode("utf-8", "replace")) > ONCE_SCOPE_BYTES_MAX:
        raise _illegal(f"{Property.ONCE_SCOPE} has more than {ONCE_SCOPE_BYTES_MAX} bytes")
    epoch = window_ms = 0
    if Property.ONCE_WINDOW in values or scope.startswith(WINDOW_PREFIX):
        window_ms = _read_window(topic, scope, values)
    else:
        epoch = _read_epoch(values)
    key = values.get(Property.ONCE_KEY) or values.get(Property.UNIQ_KEY)
    if key is None:
        raise _illegal(f"an idempotent send needs a key: neither {Property.ONCE_KEY} nor {Property.UNIQ_KEY} is given")
    if len(key) > ONCE_KEY_BYTES_MAX:
        raise _illegal(f"the key of an idempotent send has at most {ONCE_KEY_BYTES_MAX} characters, not {len(key)}")
    return SendIdentity(scope, epoch, digest_of(topic, key), window_ms)


def _read_epoch(values: dict[str, str]) -> int:
    epoch = values.get(Property.ONCE_EPOCH)
    if epoch is None:
        raise _illegal(f"the message has {Property.ONCE_SCOPE} but no {Property.ONCE_EPOCH}")
    if not (epoch.isascii() and epoch.isdigit() and len(epoch) <= _EPOCH_DIGITS and int(epoch) <= EPOCH_MAX):
        raise _illegal(f"{Property.ONCE_EPOCH} is a decimal number from 0 to 2^63 - 1, not {epoch[:32]!r}")
    return int(epoch)


def _read_window(topic: str, scope: str, values: dict[str, str]) -> int:
    """The topic owns the scope, so only who may send to it can fill what it may have of the memory."""
    window, owner = values.get(Property.ONCE_WINDOW), WINDOW_PREFIX + topic
    if window is None or scope.partition("/")[0] != owner:
        raise _illegal(
            f"{Property.ONCE_WINDOW} goes with the {Property.ONCE_SCOPE} {owner!r}, or one that begins with {owner + '/'!r}, and no other: "
            f"scope {scope[:64]!r}, window {window!r:.32}"
        )
    if Property.ONCE_EPOCH in values:
        raise _illegal(f"the message has {Property.ONCE_WINDOW} and {Property.ONCE_EPOCH}: give one of them")
    is_number = window.isascii() and window.isdigit() and len(window) <= _WINDOW_DIGITS
    if not is_number or int(window) < ONCE_WINDOW_MS_MIN:
        raise _illegal(f"{Property.ONCE_WINDOW} is milliseconds, at least {ONCE_WINDOW_MS_MIN}, not {window[:32]!r}")
    return int(window)


class SendReader:
    """`read_identity` for many sends to one topic, which nearly always have one scope and one epoch: what was read of these is
    believed when the next send says the same. Cost: about 0.7 us."""

    __slots__ = ("_beginning", "_epoch", "_epoch_text", "_scope", "_topic")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._scope, self._epoch_text, self._epoch = "\x02", "", 0  # what no property can say
        self._beginning = blake2b(f"{topic}\0".encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)

    def read(self, values: dict[str, str]) -> SendIdentity | None:
        """What the properties of a send say; see `read_identity`."""
        key = values.get(Property.ONCE_KEY)
        if (
            not key
            or len(key) > ONCE_KEY_BYTES_MAX
            or values.get(Property.ONCE_SCOPE) != self._scope
            or values.get(Property.ONCE_EPOCH) != self._epoch_text
            or Property.ONCE_WINDOW in values
        ):
            identity = read_identity(self._topic, values)
            if identity is not None:
                self._scope, self._epoch = identity.scope, identity.epoch
                self._epoch_text = values.get(Property.ONCE_EPOCH, "")  # of one with a window: what no other one says
            return identity
        digest = self._beginning.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return SendIdentity(self._scope, self._epoch, int.from_bytes(digest.digest()))


def without_identity(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in ONCE_NAMES}


def identity_in_log(entry: Dispatched) -> tuple[SendIdentity, int] | None:
    """The identity of the send that a stored record is, and the queue its sender was told; None for any other record.

    Tolerant: what another broker stored without understanding it is no idempotent send.
    """
    if IDENTITY_MARK not in entry.properties or entry.sys_flag & TRANSACTION_MASK or entry.prepared_transaction_offset:
        return None
    values = decode_properties(entry.properties)
    topic, queue_id = entry.topic, entry.queue_id
    if topic in HELD_TOPICS:
        topic = values.get(Property.REAL_TOPIC, "")
        queue = values.get(Property.REAL_QID, "")
        if not topic or not (queue.isascii() and queue.isdigit()) or int(queue) > 0x7FFFFFFF:
            return None
        queue_id = int(queue)
    if is_copy(topic, values):
        return None
    try:
        identity = read_identity(topic, values)
    except Refusal:
        return None
    return None if identity is None else (identity, queue_id)


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def is_lasting(scope: str) -> bool:
    """Whether sends in this scope may be repeated after more than a minute."""
    return not scope.startswith(TRANSIENT_PREFIX)
