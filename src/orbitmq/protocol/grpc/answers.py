"""Answers of calls: the header blocks before and behind the messages.

Rules of this file
1. What is the same for every call is encoded once.
2. Texts for people are percent-encoded UTF-8 and bounded.

Source: gRPC over HTTP/2, responses.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.limits.grpc import STATUS_TEXT_CHARS_MAX
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.http2.frames import AnswerFrames
from orbitmq.protocol.http2.hpack import encode

_GRPC: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))

HEAD: Final = encode(_GRPC)
"""Block before the first message of every answer."""

OK_TRAILERS: Final = encode(((b"grpc-status", b"0"),))
"""Block behind the last message of an answer that is whole, whatever code of RocketMQ it carries."""

OK_ANSWER: Final = AnswerFrames(HEAD, OK_TRAILERS)
"""Around the one message of such an answer."""

_NOT_PLAIN: Final = re.compile(rb"[^ -$&-~]")


def percent_encoded(text: str) -> bytes:
    """What may stand in `grpc-message`: printable ASCII as it is, everything else as the bytes of UTF-8 behind `%`."""
    if len(text) > STATUS_TEXT_CHARS_MAX:
        text = text[: STATUS_TEXT_CHARS_MAX - 4] + " ..."
    return _NOT_PLAIN.sub(lambda match: b"%%%02X" % match[0][0], text.encode("utf-8", "replace"))


def _ending(error: CallError) -> tuple[tuple[bytes, bytes], ...]:
    return (b"grpc-status", b"%d" % error.status), (b"grpc-message", percent_encoded(str(error)))


def error_trailers(error: CallError) -> bytes:
    """The block that ends a stream whose head was sent."""
    return encode(_ending(error))


def error_head(error: CallError) -> bytes:
    """The one block of a stream that ends before its head was sent."""
    if error.http_status == 200:
        return encode(_GRPC + _ending(error))
    return encode(((b":status", b"%d" % error.http_status), *_ending(error)))
