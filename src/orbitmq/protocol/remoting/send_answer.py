"""The answer to a successful send, encoded in one step.

It is the most frequent frame a broker writes, and all but seven values of it are the same every time. `SendAnswers` writes
what `frame.encode` writes for the same command, byte for byte, in a quarter of the time.

Rules of this file
1. The general encoder is the reference: a text that needs escaping in JSON goes through it.
2. Nothing is decided here; which message got which place is the caller's knowledge.

Source: RocketMQ remoting, sending, response header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command, encode
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language

REPEAT_FIELD: Final = "orbitmqRepeat"
"""Ours, in the answer to a send that the broker had before: what became of the first message, a `Repeat`."""

DELIVER_FIELD: Final = "orbitmqDeliverMs"
"""Ours, in the answer to a repeat of a message with a time: when the first one falls, or fell, due."""


class Repeat(StrEnum):
    """What became of the first message of a repeated send."""

    STORED = "stored"
    RECALLED = "recalled"
    """It had a time, and was recalled before that: it is not delivered."""


_REPEATS: Final = {str(repeat): repeat for repeat in Repeat}


def repeat_of(fields: Mapping[str, str]) -> Repeat | None:
    """None for the answer to a message that was stored by this send."""
    return _REPEATS.get(fields[REPEAT_FIELD]) if REPEAT_FIELD in fields else None


_prefix = struct.Struct(">ii").pack


class SendAnswers:
    """Encoder for one broker: its address, region and trace switch stand in every answer."""

    __slots__ = ("_constant", "_id_prefix", "_template")

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._id_prefix = store_host.hex().upper()
        self._constant = {"TRACE_ON": "true" if trace_on else "false", "MSG_REGION": region}
        constant = msgspec.json.encode(self._constant)[1:-1].replace(b"%", b"%%")
        self._template = (
            b'{"code":0,"extFields":{"queueId":"%%d","transactionId":"%%b","msgId":"%b%%016X",%b,"queueOffset":"%%d"%%b}'
            b',"flag":1,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
            % (self._id_prefix.encode(), constant, OUR_VERSION)
        )

    def encode(
        self,
        opaque: int,
        queue_id: int,
        unique_key: str,
        physical_offset: int,
        queue_offset: int,
        handle: str | None = None,
    ) -> bytes:
        """The whole frame; `handle` is base64. Cost: about 0.7 us when `unique_key` is letters and digits, as clients make it."""
        if not unique_key.isalnum():
            return encode(self.command(opaque, queue_id, unique_key, physical_offset, queue_offset, handle))
        recall = b"" if handle is None else b',"recallHandle":"%b"' % handle.encode()
        header = self._template % (queue_id, unique_key.encode(), physical_offset, queue_offset, recall, opaque)
        size = len(header)
        return _prefix(size + 4, size) + header

    def command(
        self,
        opaque: int,
        queue_id: int,
        unique_key: str,
        physical_offset: int,
        queue_offset: int,
        handle: str | None = None,
    ) -> Command:
        """The same answer as a command."""
        fields = {
            "queueId": str(queue_id),
            "transactionId": unique_key,
            "msgId": f"{self._id_prefix}{physical_offset:016X}",
            **self._constant,
            "queueOffset": str(queue_offset),
        }
        if handle is not None:
            fields["recallHandle"] = handle
        return Command(0, opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, None, fields, True)
