"""A call: what the header fields of a stream say about it.

Rules of this file
1. Only what gRPC itself needs is checked here. RocketMQ's fields are read when somebody asks for them, for few calls need all: of a
   name that stands twice the last counts, and bytes that are no text become U+FFFD.
2. Who calls is not decided here, and no value of a field stands in an error.

Source: gRPC over HTTP/2, requests; RocketMQ gRPC, headers.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.rpcs import BY_PATH, RpcRow
from orbitmq.protocol.http2.hpack import ENTRY_BYTES
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.remoting.versions import Language

_CONTENT_TYPE: Final = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?", re.DOTALL)
_TIMEOUT_BYTES: Final = 9
_UNIT_NS: Final = {
    ord("H"): 3_600_000_000_000,
    ord("M"): 60_000_000_000,
    ord("S"): 1_000_000_000,
    ord("m"): 1_000_000,
    ord("u"): 1_000,
    ord("n"): 1,
}
_LANGUAGES: Final = {language.value.encode(): language for language in Language}


class GrpcCall(msgspec.Struct, eq=False, gc=False):
    """One call. `timeout`: what the caller allows from its sending on, as it was written."""

    row: RpcRow
    timeout: bytes | None
    _fields: RequestFields
    _client_id: str | None = None

    @property
    def timeout_ns(self) -> int | None:
        """What the caller allows; None without a bound."""
        timeout = self.timeout
        return None if timeout is None else int(timeout[:-1]) * _UNIT_NS[timeout[-1]]

    @property
    def fields_bytes(self) -> int:
        """About what its header fields take, as lists of them are measured. Costs 2 us."""
        return sum([len(name) + len(value) + ENTRY_BYTES for name, value in self._fields.pairs])

    @property
    def client_id(self) -> str:
        """Empty when it is missing or blank, which no RPC of RocketMQ allows."""
        client_id = self._client_id
        if client_id is None:
            value = self._fields.get(b"x-mq-client-id", b"")
            client_id = self._client_id = value.decode("utf-8", "replace").strip()
        return client_id

    @property
    def language(self) -> Language:
        """OTHER for one that is missing or unknown; RocketMQ's proxy fails then."""
        return _LANGUAGES.get(self._fields.get(b"x-mq-language", b""), Language.OTHER)

    @property
    def client_version(self) -> str:
        return self._text(b"x-mq-client-version")

    @property
    def namespace(self) -> str:
        return self._text(b"x-mq-namespace")

    @property
    def request_id(self) -> str:
        return self._text(b"x-mq-request-id")

    @property
    def signed_text(self) -> bytes | None:
        """The date as it was written, which is all that the signature of a call covers; None without one."""
        return self._fields.get(b"x-mq-date-time")

    @property
    def authorization(self) -> bytes | None:
        return self._fields.get(b"authorization")

    @property
    def session_token(self) -> bytes | None:
        return self._fields.get(b"x-mq-session-token")

    def _text(self, name: bytes) -> str:
        return str(self._fields.get(name, b""), "utf-8", "replace")


def read_call(fields: RequestFields) -> GrpcCall:
    """The call that a stream begins with. Raises CallError for one that cannot be carried out. Cost: 1.3 us.

    The stream of a method that is known but not served is refused here too.
    """
    pairs, place_of = fields.pairs, fields.places.get
    place = place_of(b"content-type")
    content_type = b"" if place is None else pairs[place][1]
    if content_type != b"application/grpc" and _CONTENT_TYPE.fullmatch(content_type) is None:
        raise CallError(GrpcStatus.UNKNOWN, "the content type of a call is application/grpc", http_status=415)
    if fields.get(b":method") != b"POST":
        raise CallError(GrpcStatus.UNKNOWN, "the method of a call is POST", http_status=405)
    place = place_of(b":path")
    row = None if place is None else BY_PATH.get(pairs[place][1])
    if row is None:
        raise CallError(GrpcStatus.UNIMPLEMENTED, "this server has no such method")
    if not row.is_served:
        raise CallError(GrpcStatus.UNIMPLEMENTED, f"this server does not serve {row.rpc}")
    place = place_of(b"grpc-timeout")
    if place is None:
        return GrpcCall(row, None, fields)
    timeout = pairs[place][1]
    if not (timeout[:-1].isdigit() and timeout[-1] in _UNIT_NS and len(timeout) <= _TIMEOUT_BYTES):
        raise CallError(
            GrpcStatus.INVALID_ARGUMENT, "grpc-timeout is at most eight digits and one of the units H M S m u n"
        )
    return GrpcCall(row, timeout, fields)
