"""What happened on an HTTP/2 connection, for the server that owns it.

Rules of this file
1. Nothing in an event refers to the bytes it was read from.
2. A stream begins with RequestStarted. Its DataReceived follow in order; the last says `ended`, unless RequestStarted did. StreamReset
   may end it anywhere, and nothing of the stream follows.
"""

from __future__ import annotations

import msgspec

from orbitmq.protocol.http2.request_fields import RequestFields


class RequestStarted(msgspec.Struct, frozen=True, gc=False):
    """A well-formed request."""

    stream_id: int
    fields: RequestFields
    ended: bool


class DataReceived(msgspec.Struct, frozen=True, gc=False):
    """A piece of a request. Trailers come as an empty last piece."""

    stream_id: int
    data: bytes
    ended: bool


class StreamReset(msgspec.Struct, frozen=True, gc=False):
    """Nothing that is sent for this stream arrives any longer: the peer cancelled it, or broke a rule. `code`: of the RST_STREAM.

    Also comes for an answer that was given whole and still waited for a window. What the server still does for the stream counts until
    it says `finished`.
    """

    stream_id: int
    code: int


class PeerGoesAway(msgspec.Struct, frozen=True, gc=False):
    """The peer begins no more requests; those that run go on. `code`: why."""

    code: int


Event = RequestStarted | DataReceived | StreamReset | PeerGoesAway
