"""The properties of one message on its way into the store: what the sender wrote, read once, and what the broker adds.

Rules of this file
1. Reading follows the tolerant rules of `protocol.properties`. A text that needs no tolerance and says nothing that the sender may
   not say is stored as it is.
2. Broker properties win over the sender's: MSG_REGION, TRACE_ON and CLUSTER are ours, POP_CK and our own properties never
   come from a client.
3. Whoever decides about a message asks its marks first: one look instead of a dictionary's for each name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from orbitmq.broker.idempotence.identity import COPY_NAMES, ONCE_NAMES, STAMPS
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.batches import BatchRow
from orbitmq.protocol.filtering.java_numbers import INT_MAX
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.properties import Property, decode_properties, encode_properties, marked_properties
from orbitmq.protocol.remoting.commands import ResponseCode

OVERRIDDEN: Final = frozenset({Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER})
DROPPED: Final = frozenset(
    {
        Property.POP_CK,
        Property.DUE_MS,
        Property.LEFT_MS,
        Property.REAL_UNIQ_KEY,
        Property.RUN,
        Property.FAR,
    }
)
DELAYS: Final = frozenset({Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS})
TIMERS: Final = DELAYS | {Property.TIMER_DELIVER_MS}
PLACES: Final = frozenset({Property.TIMER_OUT_MS, Property.REAL_TOPIC, Property.REAL_QID})
"""What a message says that waits for its time."""
NOT_STORED: Final = frozenset({Property.INNER_NUM})

OURS, STAMPED, LEVEL, STATED, DELAYED, PLACED, CANCEL, REFUSED, ONCE, COPY, TRANSACTIONAL, KEYED, LITE, URGENT = (
    1 << bit for bit in range(14)
)
"""Marks: what a name, or one of several names, among the properties of a message is about."""
TIMED: Final = STATED | DELAYED

MARKS: Final[dict[str, int]] = {
    **dict.fromkeys(OVERRIDDEN | DROPPED, OURS),
    **dict.fromkeys(STAMPS, OURS | STAMPED),
    Property.DELAY: LEVEL,
    Property.TIMER_DELIVER_MS: STATED,
    **dict.fromkeys(DELAYS, DELAYED),
    **dict.fromkeys(PLACES, PLACED),
    Property.TIMER_DEL_UNIQKEY: CANCEL,
    **dict.fromkeys(NOT_STORED, REFUSED),
    Property.TRAN_MSG: TRANSACTIONAL,
    Property.SHARDING_KEY: KEYED,
    Property.PRIORITY: URGENT,
    Property.LITE_TOPIC: LITE | REFUSED,
    **dict.fromkeys(ONCE_NAMES, ONCE),
    **dict.fromkeys(COPY_NAMES, COPY),
}

DECIDED_HERE: Final = OVERRIDDEN | DROPPED | TIMERS | NOT_STORED | {Property.DELAY, Property.TRAN_MSG}
"""Names by which a sender asks for more than storing, or that are the broker's."""


TYPES: Final = (
    (LEVEL | TIMED, MessageType.DELAY),
    (KEYED, MessageType.FIFO),
    (URGENT, MessageType.PRIORITY),
    (LITE, MessageType.LITE),
)
"""The types that names alone make, the one that wins first."""


class SendFacts(msgspec.Struct, gc=False):
    """What a message says of itself. `kept` is the sender's text as stored bytes, None where they have to be written from `values`."""

    values: dict[str, str]
    marks: int
    kept: bytes | None = None
    is_half: bool = False
    """Whether it is sent as half of a transaction. No name alone says so, because copies of it keep all names: admission decides."""
    is_accepted: bool = False
    """Whether the broker has taken it before: it is placed while new messages are refused, and may use the room that was kept free."""

    @property
    def message_type(self) -> MessageType:
        """The one type that it is of."""
        marks = self.marks
        if marks & TRANSACTIONAL and is_true(self.values[Property.TRAN_MSG]):
            return MessageType.TRANSACTION
        for mark, kind in TYPES:
            if marks & mark:
                return kind
        return MessageType.NORMAL

    def without(self, names: Collection[str]) -> SendFacts:
        """The same message without some of its properties."""
        fewer = facts_of({name: value for name, value in self.values.items() if name not in names})
        fewer.marks |= self.marks & STAMPED  # its stamps are left out of the values
        return fewer


def read_facts(text: str) -> SendFacts:
    """What the property text of a request says. Cost: 0.7 us for five properties."""
    found = marked_properties(text, MARKS)
    if found is None:
        return facts_of(decode_properties(text))
    values, marks = found
    if marks & OURS or not text.isascii() or not text:
        return facts_of(values)
    return SendFacts(values, marks, (text if text[-1] == "\x02" else text + "\x02").encode())


def row_facts(row: BatchRow) -> SendFacts:
    """What a message of a batch says."""
    _, _, properties, values, marks = row
    if values is None:
        return facts_of(decode_properties(properties))
    if marks & OURS or not properties:
        return facts_of(values)
    return SendFacts(values, marks, properties if properties[-1] == 2 else properties + b"\x02")


def facts_of(values: dict[str, str]) -> SendFacts:
    """The same of properties that were read before; what no sender may say is left out."""
    marks = 0
    for name in MARKS.keys() & values.keys():
        marks |= MARKS[name]
    if marks & OURS:
        values = {name: value for name, value in values.items() if not MARKS.get(name, 0) & OURS}
    return SendFacts(values, marks)


def level_of(values: dict[str, str]) -> int:
    """The delay level a message asks for; 0 is none. Raises `Refusal` when it is no number."""
    text = values.get(Property.DELAY)
    if text is None:
        return 0
    try:
        if len(text) <= 11 and "_" not in text:
            return int(text)
    except ValueError:
        pass
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"the delay level (property DELAY) is a number, not {text[:32]!r}")


def priority_of(values: dict[str, str]) -> int:
    """The priority of a message, -1 for one that names none; what is no 32-bit number is none."""
    text = values.get(Property.PRIORITY, "")
    try:
        priority = int(text) if len(text) <= 11 and "_" not in text and text == text.strip() else -1
    except ValueError:
        return -1
    return priority if 0 <= priority <= INT_MAX else -1


def is_true(text: str | None) -> bool:
    """Java's reading of a boolean: `true` in any case."""
    return text is not None and (text == "true" or text.lower() == "true")


def waits_for_flush(values: dict[str, str]) -> bool:
    """Whether the sender waits for flush and replication; absent means yes."""
    wait = values.get(Property.WAIT)
    return wait is None or wait == "true" or is_true(wait)


def broker_properties(region: str, trace_on: bool, cluster: str) -> bytes:
    """What this broker adds to every message, as stored bytes."""
    return encode_properties(
        {
            Property.MSG_REGION: region,
            Property.TRACE_ON: "true" if trace_on else "false",
            Property.CLUSTER: cluster,
        }
    )
