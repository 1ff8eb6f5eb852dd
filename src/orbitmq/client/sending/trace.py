"""Message trace: what became of a message, told by the clients that sent and consumed it.

Clients send records about their work as ordinary messages to a topic of its own, indexed by the ids and keys of the messages they
are about. A record is text: fields separated by U+0001, ended by U+0002; a missing value is the word `null`.

Rules of this file
1. Values only. Writing and reading are RocketMQ's layout, so its tools show our records and ours show its.
2. Reading is tolerant: records of older and newer clients have fewer or more fields; what is no record known here becomes
   `UnknownTrace`, with its fields as they stand.

(RocketMQ broker, message trace; client, trace records.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
MISSING: Final = "null"


class MessageKind(Enum):
    """What kind of message a producer sent, numbered as on the wire."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeOutcome(Enum):
    """How handling a message ended, numbered as on the wire."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class SentTrace(msgspec.Struct, frozen=True):
    """A producer got an answer to a send. `time_ms` is when it began, `cost_ms` how long it took."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    succeeded: bool
    client_host: str | None = None

    def encoded(self) -> str:
        return _record(
            "Pub", self.time_ms, self.region, self.group, self.topic, self.message_id, self.tag, self.keys, self.store_host,
            self.body_length, self.cost_ms, self.kind.value, self.offset_message_id, self.succeeded,
        )  # fmt: skip


class ConsumeBegun(msgspec.Struct, frozen=True):
    """A consumer handed a message to its program. `request_id` names the attempt."""

    time_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None

    def encoded(self) -> str:
        return _record(
            "SubBefore", self.time_ms, self.region, self.group, self.request_id, self.message_id, self.retry_times, self.keys,
        )  # fmt: skip


class ConsumeEnded(msgspec.Struct, frozen=True):
    """The program is done with a message. Time and group are missing in records of old clients."""

    request_id: str
    message_id: str
    cost_ms: int
    succeeded: bool
    keys: str | None
    outcome: ConsumeOutcome
    time_ms: int | None = None
    group: str | None = None

    def encoded(self) -> str:
        return _record(
            "SubAfter", self.request_id, self.message_id, self.cost_ms, self.succeeded, self.keys, self.outcome.value,
            self.time_ms, self.group,
        )  # fmt: skip


class TransactionTrace(msgspec.Struct, frozen=True):
    """A producer ended a transaction. `state` is the protocol's name of the decision."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: str | None
    store_host: str
    kind: MessageKind
    transaction_id: str
    state: str
    from_check: bool


class RecallTrace(msgspec.Struct, frozen=True):
    """A producer took a timer message back."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    succeeded: bool


class UnknownTrace(msgspec.Struct, frozen=True):
    """Text that is no record known here."""

    fields: tuple[str, ...]

    @property
    def message_id(self) -> str:
        return ""

    @property
    def time_ms(self) -> int | None:
        return None


Trace = SentTrace | ConsumeBegun | ConsumeEnded | TransactionTrace | RecallTrace | UnknownTrace


def attempt_id(group: str, client_id: str, message_id: str, queue_offset: int, reconsume_times: int) -> str:
    """The `request_id` of one attempt at a message. The end of the attempt makes the same, so nothing is kept between them."""
    digest = zlib.crc32(f"{group}/{client_id}/{queue_offset}/{reconsume_times}".encode())
    return f"{message_id}{digest:08X}"


def decode_traces(body: bytes) -> list[Trace]:
    """The records of a trace message, in its order. Bytes that are not UTF-8 become U+FFFD."""
    texts = body.decode("utf-8", "replace").split(RECORD_END)
    return [_decoded(text.split(FIELD_END)) for text in texts if text]


def _record(kind: str, *values: object) -> str:
    return FIELD_END.join([kind, *map(_text, values)]) + RECORD_END


def _text(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _optional(text: str) -> str | None:
    return None if text == MISSING else text


def _decoded(fields: list[str]) -> Trace:
    reader = _READERS.get(fields[0])
    if reader is None or len(fields) - 1 < reader[0]:
        return UnknownTrace(tuple(fields))
    try:
        return reader[1](fields[1:])
    except ValueError:  # a number that is none, or one without a meaning here
        return UnknownTrace(tuple(fields))


def _sent(fields: list[str]) -> SentTrace:
    time, region, group, topic, message_id, tag, keys, host, length, cost, kind = fields[:11]
    old = len(fields) == 12  # without the offset id
    return SentTrace(
        int(time), region, group, topic, message_id, _optional(tag), _optional(keys), host, int(length), int(cost),
        MessageKind(int(kind)), "" if old else fields[11], fields[11 if old else 12] == "true",
        fields[13] if len(fields) > 13 else None,
    )  # fmt: skip


def _begun(fields: list[str]) -> ConsumeBegun:
    time, region, group, request_id, message_id, retry_times, keys = fields[:7]
    return ConsumeBegun(int(time), region, group, request_id, message_id, int(retry_times), _optional(keys))


def _ended(fields: list[str]) -> ConsumeEnded:
    request_id, message_id, cost, success, keys = fields[:5]
    outcome = ConsumeOutcome(int(fields[5])) if len(fields) > 5 else ConsumeOutcome.SUCCESS
    if len(fields) <= 5 and success != "true":
        outcome = ConsumeOutcome.FAILED
    time, group = (int(fields[6]), fields[7]) if len(fields) > 7 else (None, None)
    return ConsumeEnded(request_id, message_id, int(cost), success == "true", _optional(keys), outcome, time, group)


def _transaction(fields: list[str]) -> TransactionTrace:
    time, region, group, topic, message_id, tag, keys, host, kind, transaction_id, state, check = fields[:12]
    return TransactionTrace(
        int(time), region, group, topic, message_id, _optional(tag), _optional(keys), host, MessageKind(int(kind)),
        transaction_id, state, check == "true",
    )  # fmt: skip


def _recall(fields: list[str]) -> RecallTrace:
    time, region, group, topic, message_id, success = fields[:6]
    return RecallTrace(int(time), region, group, topic, message_id, success == "true")


_READERS: Final[dict[str, tuple[int, Callable[[list[str]], Trace]]]] = {
    "Pub": (12, _sent),
    "SubBefore": (7, _begun),
    "SubAfter": (5, _ended),
    "EndTransaction": (12, _transaction),
    "Recall": (6, _recall),
}
"""By the first field: how many fields must follow, and who reads them."""
