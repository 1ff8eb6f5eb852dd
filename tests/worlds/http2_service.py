"""A service on a socket over our HTTP/2 connection, for foreign clients to judge.

It serves the test service of the gRPC project, and a page of text to whoever speaks HTTP/2 without gRPC. Nothing of a broker is in it,
so what a client dislikes is in `protocol/http2`, or in what `protocol/grpc` makes of messages and texts.

Rules of this file
1. Answers are given at once: windows move as they would under a quick server.
2. A call that its client leaves open stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

from orbitmq.errors import Http2Error
from orbitmq.limits.grpc import REQUEST_BYTES_MAX
from orbitmq.protocol.grpc.answers import error_head, percent_encoded
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.definitions import FILE_NAME, read_definitions
from orbitmq.protocol.grpc.message_prefix import MessageCutter, with_prefix
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, Event, RequestStarted, StreamReset
from orbitmq.protocol.http2.hpack import encode

PAGE: Final = b"a page of text"
PAGE_HEAD: Final = encode(
    [(b":status", b"200"), (b"content-type", b"text/plain"), (b"content-length", b"%d" % len(PAGE))]
)
SERVICE: Final = b"/grpc.testing.TestService/"
UNIMPLEMENTED: Final = error_head(CallError(GrpcStatus.UNIMPLEMENTED, "no such method"))

DEFINITIONS: Final = """
syntax = "proto3";
package grpc.testing;
message Empty {
}
message Payload {
  int32 type = 1;
  bytes body = 2;
}
message EchoStatus {
  int32 code = 1;
  string message = 2;
}
message SimpleRequest {
  int32 response_size = 2;
  EchoStatus response_status = 7;
}
message SimpleResponse {
  Payload payload = 1;
}
message StreamingInputCallRequest {
  Payload payload = 1;
}
message StreamingInputCallResponse {
  int32 aggregated_payload_size = 1;
}
message ResponseParameters {
  int32 size = 1;
}
message StreamingOutputCallRequest {
  repeated ResponseParameters response_parameters = 2;
  EchoStatus response_status = 7;
}
message StreamingOutputCallResponse {
  Payload payload = 1;
}
"""
"""What the cases use of grpc/testing/messages.proto."""


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    pool.Add(read_definitions(DEFINITIONS))
    return GetMessageClassesForFiles([FILE_NAME], pool)


MESSAGES: Final = {name.rpartition(".")[2]: kind for name, kind in _classes().items()}


class ServiceCall:
    """One call of the test service."""

    def __init__(self, name: bytes, headers: dict[bytes, bytes], port: ServicePort, stream_id: int) -> None:
        self._name = name
        self._headers = headers
        self._port = port
        self._stream_id = stream_id
        self._cutter = MessageCutter(REQUEST_BYTES_MAX, is_single=False)
        self._summed_bytes = 0
        self._has_head = False
        self._has_ended = False

    def take(self, event: DataReceived) -> None:
        for message in self._cutter.feed(event.data):
            if not self._has_ended:
                STEPS[self._name](self, message)
        if event.ended and not self._has_ended:
            if self._name == b"StreamingInputCall":
                self._answer(MESSAGES["StreamingInputCallResponse"](aggregated_payload_size=self._summed_bytes))
            self._end(0)

    def empty(self, message: bytes) -> None:
        self._answer(MESSAGES["Empty"]())

    def unary(self, message: bytes) -> None:
        request = MESSAGES["SimpleRequest"].FromString(message)
        if request.HasField("response_status"):
            self._end(request.response_status.code, request.response_status.message)
        else:
            self._answer(MESSAGES["SimpleResponse"](payload={"body": bytes(request.response_size)}))

    def take_input(self, message: bytes) -> None:
        self._summed_bytes += len(MESSAGES["StreamingInputCallRequest"].FromString(message).payload.body)

    def give_output(self, message: bytes) -> None:
        request = MESSAGES["StreamingOutputCallRequest"].FromString(message)
        if request.HasField("response_status"):
            self._end(request.response_status.code, request.response_status.message)
        for wanted in request.response_parameters:
            self._answer(MESSAGES["StreamingOutputCallResponse"](payload={"body": bytes(wanted.size)}))

    def _end(self, code: int, text: str = "") -> None:
        """Status and trailers, with the head where there was no message."""
        self._has_ended = True
        trailers = [(b"grpc-status", b"%d" % code), *self._echoed(b"x-grpc-test-echo-trailing-bin")]
        if text:
            trailers.append((b"grpc-message", percent_encoded(text)))
        if not self._has_head:
            trailers = [*self._head(), *trailers]
        self._port.connection.send_headers(self._stream_id, encode(trailers), end=True)

    def _answer(self, message: Any) -> None:
        if not self._has_head:
            self._has_head = True
            self._port.connection.send_headers(self._stream_id, encode(self._head()))
        self._port.connection.send_data(self._stream_id, with_prefix(message.SerializeToString()))

    def _head(self) -> list[tuple[bytes, bytes]]:
        plain = [(b":status", b"200"), (b"content-type", b"application/grpc")]
        return plain + self._echoed(b"x-grpc-test-echo-initial")

    def _echoed(self, name: bytes) -> list[tuple[bytes, bytes]]:
        return [(name, self._headers[name])] if name in self._headers else []


STEPS: Final[dict[bytes, Callable[[ServiceCall, bytes], None]]] = {
    b"EmptyCall": ServiceCall.empty,
    b"UnaryCall": ServiceCall.unary,
    b"StreamingInputCall": ServiceCall.take_input,
    b"StreamingOutputCall": ServiceCall.give_output,
    b"FullDuplexCall": ServiceCall.give_output,
}


class ServicePort(asyncio.Protocol):
    """One accepted connection. What is raised beyond Http2Error is kept in `broken`."""

    def __init__(self, broken: list[Exception]) -> None:
        self.connection = Http2Connection()
        self._broken = broken
        self._calls: dict[int, ServiceCall | None] = {}  # by stream; None: the page is wanted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.connection.receive_data(data):
                self._handle(event)
        except Http2Error:
            pass
        except Exception as error:
            self._broken.append(error)
            self._transport.abort()
            return
        self._transport.writelines(self.connection.take_output())
        if self.connection.failure is not None:
            self._transport.close()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestStarted):
            self._begin(event)
        elif isinstance(event, DataReceived):
            if (call := self._calls.get(event.stream_id)) is not None:
                call.take(event)
            elif event.ended and event.stream_id in self._calls:
                self._give_page(event.stream_id)
        elif isinstance(event, StreamReset):
            self._calls.pop(event.stream_id, None)
            self.connection.finished(event.stream_id)

    def _begin(self, event: RequestStarted) -> None:
        headers = dict(event.fields.pairs)
        if not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            self._calls[event.stream_id] = None
            if event.ended:
                self._give_page(event.stream_id)
            return
        name = headers[b":path"].removeprefix(SERVICE)
        if name in STEPS:
            self._calls[event.stream_id] = ServiceCall(name, headers, self, event.stream_id)
        else:
            self.connection.send_headers(event.stream_id, UNIMPLEMENTED, end=True)

    def _give_page(self, stream_id: int) -> None:
        self.connection.send_headers(stream_id, PAGE_HEAD)
        self.connection.send_data(stream_id, PAGE, end=True)


@asynccontextmanager
async def http2_service() -> AsyncIterator[int]:
    """The port of a running service. Raises what escaped from a connection when it ends."""
    broken: list[Exception] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ServicePort(broken), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
    if broken:
        raise ExceptionGroup("escaped from a connection", broken)
