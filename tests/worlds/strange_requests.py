"""Requests of RocketMQ 5 as clients write them, and as nobody would: strange in one field at any depth, or broken as bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from orbitmq.protocol.grpc import messages as m
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc

TOPICS: Final = {"T": "NORMAL", "D": "DELAY", "F": "FIFO", "X": "TRANSACTION", "M": "MIXED", "N": None}
"""Topics, and what they take."""

TEXTS: Final = (
    "", " ", "T", "D", "F", "X", "M", "N", "g", "o", "new", "id", "*", "A || B", "a > 1", "||", "a >", "T@x", "ns%T", "%RETRY%g", "%DLQ%g",
    "%RETRY%g_T", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "CID_RMQ_SYS_x", "n" * 127, "n" * 128,
    "é" * 70_000, "é", "\0", "\x01", "\x02", "\u0085", "\u20ac", "\U0001f600", "\r\n", "TRAN_MSG", "UNIQ_KEY", "TIMER_DELIVER_MS",
    "__SHARDINGKEY", "KEYS", "true", "-1", "0", "9" * 25, "1e400", "NaN", "0 1 2 3 4 broker-a 5 6 7", "0 0 0 0 0 b 0 0 0",
    "djEgVCBiIDEgaWQ=", "a" * 200, "../x", "${jndi}", "{}", "<x>",
)  # fmt: skip
NUMBERS: Final = (
    0,
    1,
    2,
    3,
    5,
    16,
    31,
    32,
    33,
    60,
    128,
    1_024,
    10_000,
    43_200,
    999_999_999,
    10**9,
    2**31 - 1,
    2**31,
    253_402_300_800,
    2**62,
    2**63 - 1,
)
FLOATS: Final = (0.0, 1.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
UNKNOWN_FIELDS: Final = (b"\xa2\x1f\x01x", b"\xa0\x1f\x01", b"\xf8\xff\xff\xff\x0f\x01")


class Seen(NamedTuple):
    """A text that was answered, and what the request named."""

    text: str
    topic: str
    group: str


class Strange:
    """Requests as clients write them, and what nobody would write."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def request(self, rpc: Rpc, seen: Sequence[Seen]) -> bytes:
        """The next request of an RPC. `seen`: texts that were answered."""
        rng = self._rng
        request = self._plausible(rpc, seen)
        if rng.random() < 0.1:
            return self._broken(request.SerializeToString())
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            self._change(request, seen)
        data: bytes = request.SerializeToString()
        return data + rng.choice(UNKNOWN_FIELDS) if rng.random() < 0.05 else data

    def _plausible(self, rpc: Rpc, seen: Sequence[Seen]) -> Any:
        rng = self._rng
        kind = getattr(m, RPCS[rpc].request)
        request = kind()
        handle, topic_name, group_name = rng.choice(seen) if seen else Seen("handle", "", "")
        topic = m.Resource(name=topic_name or rng.choice(list(TOPICS)))
        group = m.Resource(name=group_name or rng.choice(("g", "o", "h")))
        self._fill(request, "topic", topic)
        self._fill(request, "group", group)
        for name in ("receipt_handle", "recall_handle", "transaction_id"):
            self._fill(request, name, handle)
        match rpc:
            case Rpc.SEND_MESSAGE:
                for _ in range(rng.choice((1, 1, 1, 3))):
                    request.messages.append(self._message(topic))
            case Rpc.RECEIVE_MESSAGE:
                request.message_queue.topic.CopyFrom(topic)
                request.batch_size = rng.choice((1, 32))
                request.invisible_duration.seconds = rng.choice((10, 60))
                request.auto_renew = rng.random() < 0.3
                if rng.random() < 0.3:
                    request.attempt_id = rng.choice(("a", "b"))
            case Rpc.ACK_MESSAGE:
                request.entries.add(message_id="id", receipt_handle=handle)
                for _ in range(rng.choice((0, 0, 2))):
                    request.entries.add(message_id="id", receipt_handle=self._text(seen))
            case Rpc.CHANGE_INVISIBLE_DURATION:
                request.invisible_duration.seconds = rng.choice((0, 1, 30))
            case Rpc.END_TRANSACTION:
                request.resolution, request.source = rng.randrange(3), rng.randrange(3)
            case Rpc.TELEMETRY:
                if rng.random() < 0.2:
                    command = rng.choice(("thread_stack_trace", "verify_message_result", "verify_message_command"))
                    getattr(request, command).nonce = handle
                else:
                    self._settings(request, topic, group)
        return request

    def _fill(self, request: Any, name: str, value: Any) -> None:
        field = request.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            return
        if isinstance(value, str):
            setattr(request, name, value)
        else:
            getattr(request, name).CopyFrom(value)

    def _message(self, topic: Any) -> Any:
        rng = self._rng
        system = m.SystemProperties(message_id=f"id{rng.randrange(50)}", message_type=m.MessageType.NORMAL)
        if topic.name == "X" or rng.random() < 0.1:
            system.message_type = m.MessageType.TRANSACTION
        if topic.name == "D" or rng.random() < 0.1:
            system.delivery_timestamp.seconds = 1_700_000_000 + rng.randrange(-10, 100_000)
        if topic.name == "F" or rng.random() < 0.1:
            system.message_group = rng.choice("abc")
        return m.Message(topic=topic, body=b"body", system_properties=system, user_properties={"a": "5"})

    def _settings(self, request: Any, topic: Any, group: Any) -> None:
        settings = request.settings
        if self._rng.random() < 0.5:
            settings.client_type = m.ClientType.PRODUCER
            settings.publishing.topics.append(topic)
        else:
            settings.client_type = self._rng.choice((m.ClientType.PUSH_CONSUMER, m.ClientType.SIMPLE_CONSUMER))
            settings.subscription.group.CopyFrom(group)
            settings.subscription.subscriptions.add(topic=topic).expression.expression = "*"

    def _change(self, request: Any, seen: Sequence[Seen]) -> None:
        """Something strange in one field, at any depth."""
        message = request
        while True:
            field = self._rng.choice(message.DESCRIPTOR.fields)
            if self._rng.random() < 0.1:
                message.ClearField(field.name)
                return
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                self._set(message, field, seen)
                return
            if field.is_repeated:
                inner = getattr(message, field.name)
                if self._rng.random() < 0.02:
                    for _ in range(self._rng.choice((200, 1_100))):
                        inner.add()
                message = self._rng.choice(inner) if len(inner) else inner.add()
            else:
                message = getattr(message, field.name)
                message.SetInParent()

    def _set(self, message: Any, field: Any, seen: Sequence[Seen]) -> None:
        if field.message_type is not None:  # user properties
            getattr(message, field.name)[self._text(seen)] = self._text(seen)
            return
        value = self._value(field, seen)
        if field.is_repeated:
            getattr(message, field.name).extend([value] * self._rng.choice((1, 1, 2, 40)))
        else:
            setattr(message, field.name, value)

    def _value(self, field: Any, seen: Sequence[Seen]) -> Any:
        rng = self._rng
        kind = field.cpp_type
        if kind == field.CPPTYPE_STRING:
            return (
                self._text(seen)
                if field.type == field.TYPE_STRING
                else rng.choice((b"", b"x", b"\0" * 40, b"x" * 40_000))
            )
        if kind == field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return rng.choice(FLOATS)
        number = rng.choice(NUMBERS) * rng.choice((1, 1, 1, -1))
        bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM) else 64
        return max(-(1 << bits - 1), min(number, (1 << bits - 1) - 1))

    def _text(self, seen: Sequence[Seen]) -> str:
        rng = self._rng
        if not seen or rng.random() < 0.6:
            return rng.choice(TEXTS)
        text = rng.choice(seen).text
        words = text.split(" ")
        match rng.randrange(4):
            case 0:
                return text
            case 1:
                words[rng.randrange(len(words))] = str(rng.choice(NUMBERS) * rng.choice((1, -1)))
                return " ".join(words)
            case 2:
                return text[: rng.randrange(len(text) + 1)]
            case _:
                return text + rng.choice(TEXTS)

    def _broken(self, data: bytes) -> bytes:
        """Bytes that need be no message."""
        broken, rng = bytearray(data), self._rng
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(broken) + 1)
            match rng.randrange(4):
                case 0:
                    broken[at:at] = rng.randbytes(rng.choice((1, 4)))
                case 1:
                    del broken[at : at + rng.choice((1, 4))]
                case 2:
                    del broken[at:]
                case _:
                    broken[at : at + 1] = rng.randbytes(1)
        return bytes(broken)
