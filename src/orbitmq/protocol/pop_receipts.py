"""Receipts of popped messages (POP_CK), and how the answer to a pop says where its messages lie.

A receipt is eight words between blanks: start offset of the pop in its queue, pop time, invisible time, revive queue, which topic the
message lies in, broker name, queue id, queue offset. Proxies add a ninth, the position in the commit log. The client makes the receipt
of the answer's header fields `startOffsetInfo` and `msgOffsetInfo`, unless the message carries it, and sends it back with whatever
becomes of the message.

Rules of this file
1. A receipt says which pop an acknowledgement is about. Nothing in it is believed without being compared with what is in flight.

Source: RocketMQ remoting, POP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import POP_RECEIPT_CHARS_MAX
from orbitmq.protocol.names import retry_topic

ORDER_REVIVE_QUEUE: Final = 999
"""Revive queue in the receipts of ordered pops."""

_WORDS: Final = 8
_SOURCE_AT: Final = 4
_NUMBER: Final = "[0-9]{1,18}"
_RECEIPT: Final = re.compile(f"{_NUMBER} {_NUMBER} -?{_NUMBER} {_NUMBER} [012] [^ ]* {_NUMBER} {_NUMBER}(?![^ ])")


class PopSource(StrEnum):
    """Which topic a popped message lies in."""

    NORMAL = "0"
    RETRY_V1 = "1"
    """`%RETRY%<group>_<topic>`"""
    RETRY_V2 = "2"
    """`%RETRY%<group>+<topic>`"""


_SOURCES: Final = {source.value: source for source in PopSource}

RETRY_SOURCES: Final = (PopSource.RETRY_V1, PopSource.RETRY_V2)


class PopReceipt(msgspec.Struct, frozen=True, gc=False):
    start_offset: int
    """Where the pop began in its queue."""
    popped_ms: int
    invisible_ms: int
    """Negative in a renewal after the clock was set back: the pop time is later than any before, and the message is due before it."""
    revive_queue: int
    source: PopSource
    broker_name: str
    queue_id: int
    queue_offset: int

    def encode(self) -> str:
        return (
            f"{self.start_offset} {self.popped_ms} {self.invisible_ms} {self.revive_queue} {self.source} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )


def decode_receipt(text: str) -> PopReceipt:
    """What a receipt says. Raises ProtocolError for anything that is none."""
    return split_receipt(text)[0]


def split_receipt(text: str) -> tuple[PopReceipt, list[str]]:
    """What a receipt says, and the words behind it. Raises ProtocolError for anything that is none. 1.5 us."""
    if _RECEIPT.match(text) is None or len(text) > POP_RECEIPT_CHARS_MAX:
        raise ProtocolError(_receipt_problem(text))
    start, popped, invisible, revive, source, broker_name, queue_id, offset, *rest = text.split(" ")
    receipt = PopReceipt(
        int(start), int(popped), int(invisible), int(revive), _SOURCES[source], broker_name, int(queue_id), int(offset)
    )
    return receipt, rest


def _receipt_problem(text: str) -> str:
    """Why a text is no receipt."""
    if len(text) > POP_RECEIPT_CHARS_MAX:
        return f"a receipt has at most {POP_RECEIPT_CHARS_MAX} characters, not {len(text)}"
    words = text.split(" ")
    if len(words) < _WORDS:
        return f"{text[:64]!r} is no receipt of a pop: it has {len(words)} words, not {_WORDS}"
    if words[_SOURCE_AT] not in _SOURCES:
        return f"the receipt names the topic {words[_SOURCE_AT][:16]!r}, which is none of 0, 1 and 2"
    return f"{text[:64]!r} is no receipt of a pop: not all of its numbers are numbers"


def pop_retry_topic(group: str, topic: str, source: PopSource) -> str:
    """Where messages of `topic` wait for another attempt by `group`; the topic itself for `NORMAL`."""
    if source is PopSource.NORMAL:
        return topic
    return retry_topic(f"{group}{'_' if source is PopSource.RETRY_V1 else '+'}{topic}")


class PoppedQueue(NamedTuple):
    """What a pop took of one queue: the offset where it began, and those of its messages, rising."""

    source: PopSource
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


def start_offset_info(queues: Sequence[PoppedQueue]) -> str:
    """Header field `startOffsetInfo`: `source queue start`, one for each queue, between semicolons."""
    return ";".join(f"{queue.source} {queue.queue_id} {queue.start_offset}" for queue in queues)


def decode_start_offset_info(text: str) -> dict[tuple[PopSource, int], int]:
    """Where a pop began in each queue, by topic and queue id. Raises ProtocolError."""
    starts: dict[tuple[PopSource, int], int] = {}
    for part in filter(None, text.split(";")):
        try:
            source, queue_id, start = part.split(" ")
            starts[PopSource(source), int(queue_id)] = int(start)
        except ValueError as error:
            raise ProtocolError(f"{part[:64]!r} does not say where a pop began in a queue") from error
    return starts


def message_offset_info(queues: Sequence[PoppedQueue]) -> str:
    """Header field `msgOffsetInfo`: `source queue offset,offset,...`, one for each queue, between semicolons."""
    return ";".join(f"{queue.source} {queue.queue_id} {','.join(map(str, queue.offsets))}" for queue in queues)
