"""A pull request of one queue, encoded once; each pull fills in its offset, its count and its number.

Rules of this file
1. The bytes are those of `frame.encode`; a test compares them.
2. A signature is over all fields, so signed pulls are encoded each on its own.
"""

from __future__ import annotations

import struct
from typing import Final

from orbitmq.client.bulk.wave_connection import Encoder, framed
from orbitmq.client.pulling.pull_request import PullRequest
from orbitmq.protocol.remoting.frame import PREFIX_BYTES, encode_head, request
from orbitmq.protocol.signing import Credentials

_PREFIX: Final = struct.Struct(">iI")
_OPAQUE: Final = 1_989_898_989
"""Stands where the number comes; no other field of a request can look like its member."""


class PullTemplate:
    """Makes the frames of pulls that differ from `model` in offset and count only."""

    def __init__(self, model: PullRequest, credentials: Credentials | None = None) -> None:
        fields = model.fields()
        self._code, self._fields, self._credentials = model.code, fields, credentials
        offset, count = f'"queueOffset":"{model.offset}"', f'"maxMsgNums":"{model.count}"'
        head = encode_head(request(model.code, fields, opaque=_OPAQUE), 0)[PREFIX_BYTES:]
        longest = fields if credentials is None else credentials.signed(fields)
        pattern = head.replace(b"%", b"%%")
        for text, place in (
            (offset.encode(), b'"queueOffset":"%d"'),
            (count.encode(), b'"maxMsgNums":"%d"'),
            (f'"opaque":{_OPAQUE}'.encode(), b'"opaque":%d'),
        ):
            before, _, after = pattern.partition(text)
            pattern = before + place + after
        self._pattern = pattern
        self._count_first = list(fields).index("maxMsgNums") < list(fields).index("queueOffset")
        head_bytes = len(encode_head(request(model.code, longest, opaque=_OPAQUE), 0))
        self.frame_bytes_max = head_bytes + 3 * len(str(2**63))

    def pull(self, offset: int, count: int) -> Encoder:
        """The encoder of a pull of `count` messages from `offset` on."""
        if self._credentials is not None:
            fields = {**self._fields, "queueOffset": str(offset), "maxMsgNums": str(count)}
            return framed(request(self._code, self._credentials.signed(fields)))
        first, second = (count, offset) if self._count_first else (offset, count)

        def encode_with(opaque: int) -> bytes:
            header = self._pattern % (first, second, opaque)
            return _PREFIX.pack(len(header) + 4, len(header)) + header

        return encode_with
