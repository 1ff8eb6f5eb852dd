"""A call: what the header fields of a stream say about it.

Rules of this file
1. Only what gRPC itself needs is checked here. RocketMQ's fields are read when somebody asks for them, for few calls need all: of a
   name that stands twice the last counts, and bytes that are no text become U+FFFD.
2. Who calls is not decided here, and no value of a field stands in an error.

Source: gRPC over HTTP/2, requests; RocketMQ gRPC, headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.rpcs import BY_PATH, RpcRow
from orbitmq.protocol.http2.hpack import ENTRY_BYTES
from orbitmq.protocol.remoting.versions import Language

_CONTENT_TYPE: Final = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?", re.DOTALL)
_TIMEOUT_DIGITS: Final = 8
_UNIT_NS: Final = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_LANGUAGES: Final = {language.value.encode(): language for language in Language}


class GrpcCall:
    """One call. `timeout_ns` is what the caller allows from its sending on, None without a bound."""

    __slots__ = ("_fields", "row", "timeout_ns")

    def __init__(self, row: RpcRow, timeout_ns: int | None, fields: dict[bytes, bytes]) -> None:
        self.row = row
        self.timeout_ns = timeout_ns
        self._fields = fields

    @property
    def fields_bytes(self) -> int:
        """About what its header fields take, as lists of them are measured. Costs 0.7 us."""
        fields = self._fields
        return len(b"".join(fields)) + len(b"".join(fields.values())) + ENTRY_BYTES * len(fields)

    @property
    def client_id(self) -> str:
        """Empty when it is missing or blank, which no RPC of RocketMQ allows."""
        return self._text(b"x-mq-client-id").strip()

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


def read_call(headers: Iterable[tuple[bytes, bytes]]) -> GrpcCall:
    """The call that a stream begins with. Raises CallError for one that cannot be carried out. Cost: 3 us.

    The stream of a method that is known but not served is refused here too.
    """
    fields = dict(headers)
    content_type = fields.get(b"content-type", b"")
    if content_type != b"application/grpc" and _CONTENT_TYPE.fullmatch(content_type) is None:
        raise CallError(GrpcStatus.UNKNOWN, "the content type of a call is application/grpc", http_status=415)
    if fields.get(b":method") != b"POST":
        raise CallError(GrpcStatus.UNKNOWN, "the method of a call is POST", http_status=405)
    row = BY_PATH.get(fields.get(b":path", b""))
    if row is None:
        raise CallError(GrpcStatus.UNIMPLEMENTED, "this server has no such method")
    if not row.is_served:
        raise CallError(GrpcStatus.UNIMPLEMENTED, f"this server does not serve {row.rpc}")
    timeout = fields.get(b"grpc-timeout")
    return GrpcCall(row, None if timeout is None else _timeout_ns(timeout), fields)


def _timeout_ns(text: bytes) -> int:
    digits, unit_ns = text[:-1], _UNIT_NS.get(text[-1:])
    if unit_ns is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS:
        raise CallError(
            GrpcStatus.INVALID_ARGUMENT, "grpc-timeout is at most eight digits and one of the units H M S m u n"
        )
    return int(digits) * unit_ns
