"""One connection of the HTTP port: h11 reads its requests, and one of them at a time is answered; further ones wait in its socket.

Rules of this file
1. Bad input harms its sender only: what is no HTTP, too long, too slow, or not GET or HEAD gets its error and, where
   the protocol has come out of step, loses its connection.
2. Request bytes, the time for a request and the time to take an answer are bounded. No body is ever read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final, cast

import h11

from orbitmq.limits.server import HTTP_ANSWER_MS, HTTP_IDLE_MS, HTTP_REQUEST_BYTES_MAX, HTTP_REQUEST_MS
from orbitmq.server.connections.addresses import peer_address
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpFront, HttpRequest

_log = logging.getLogger("orbitmq.server.http")

WAKEUP: Final = "http: slow or idle client"

_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class HttpConnection(asyncio.Protocol):
    """One connection: h11's state machine, one timer, at most one answer under way."""

    def __init__(self, front: HttpFront) -> None:
        self._front = front
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HTTP_REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._address = ("", 0)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._begun = False
        self._is_head = False
        self._ended = False
        self._requests = 0
        self.waiting_since_ns = front.clock.monotonic_ns()

    @property
    def is_answering(self) -> bool:
        return self._task is not None

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.speak_over(transport, None)
        if not self._front.admit(self):
            self.cut()
            return
        self._wait(HTTP_REQUEST_MS)

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        """Use this transport from now on; the other side is `client`, where that is not what the transport says."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)
        self._address = client or peer_address(transport)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if not self._begun and self._requests:
            self._wait(HTTP_REQUEST_MS)
        self._begun = True
        self._http.receive_data(data)
        if self._task is None:
            self._read()

    def eof_received(self) -> bool:
        """Whoever sends nothing more still gets the answer under way."""
        if self._task is None:
            return False
        self._http.receive_data(b"")
        return True

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._stop_waiting()
        self._drained.set()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._front.dismiss(self)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take the next whole request, if there is one, and begin its answer."""
        try:
            event = self._http.next_event()
            if not isinstance(event, h11.Request):
                if isinstance(event, h11.ConnectionClosed):
                    self._end()
                return
            # Without a body its end follows at once.
            has_body = not isinstance(self._http.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError as error:
            self._front.traffic.bad_requests += 1
            what = str(error).partition(":")[0]  # behind the colon stands the line, which may have a password
            _log.info("http: a request from %s is malformed: %s", self._peer(), what)
            if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self._end()
                return
            self._begin(self._write(_problem(error.error_status_hint or 400, what), close=True))
            return
        self._is_head = event.method == b"HEAD"
        if has_body:
            self._front.traffic.bad_requests += 1
            self._begin(self._write(_problem(413, "requests here have no body"), close=True))
        elif event.method not in (b"GET", b"HEAD"):
            self._begin(self._write(_problem(405, "only GET and HEAD are answered", (("Allow", "GET, HEAD"),))))
        else:
            headers = dict(event.headers)
            path = event.target.decode("ascii", "replace").partition("?")[0]
            accept, authorization = (headers.get(name, b"").decode("latin-1") for name in (b"accept", b"authorization"))
            self._begin(self._asked(HttpRequest(path, accept, authorization, self._address[0])))

    def _begin(self, answering: Coroutine[object, object, None]) -> None:
        """The request is whole: nothing more is read until it is answered."""
        assert self._transport is not None
        self._stop_waiting()
        self._requests += 1
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(answering, name="http answer")

    async def _asked(self, request: HttpRequest) -> None:
        try:
            answer = await self._front.answers(request)
        except Exception as error:
            _log.exception("http: answering %s failed", request.path)
            answer = _problem(500, f"{type(error).__name__}: {error}")
        await self._write(answer)

    async def _write(self, answer: HttpAnswer, *, close: bool = False) -> None:
        transport = self._transport
        if transport is None or self._ended or transport.is_closing():
            return
        self._front.traffic.answers[answer.status] += 1
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            *answer.headers,
            *([("Connection", "close")] if close else []),
        ]
        reason = _PHRASES.get(answer.status, "")
        out = [self._http.send(h11.Response(status_code=answer.status, reason=reason, headers=headers)) or b""]
        if answer.body and not self._is_head:
            out.append(self._http.send(h11.Data(data=answer.body)) or b"")
        out.append(self._http.send(h11.EndOfMessage()) or b"")
        self._wait(HTTP_ANSWER_MS)
        transport.write(b"".join(out))
        await self._drained.wait()
        self._task = None
        if self._ended or transport.is_closing():
            return
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._begun = bool(self._http.trailing_data[0])
            self._wait(HTTP_REQUEST_MS if self._begun else HTTP_IDLE_MS)
            transport.resume_reading()
            self._read()
        else:
            self._end()

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._ended = True
        self._stop_waiting()
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Close at once; what was not taken is lost."""
        self._ended = True
        self._stop_waiting()
        self._front.dismiss(self)
        if self._transport is not None:
            self._transport.abort()

    def _wait(self, limit_ms: int) -> None:
        self._stop_waiting()
        self.waiting_since_ns = self._front.clock.monotonic_ns()
        self._timer = self._front.wakeups.call_later(limit_ms / 1_000, WAKEUP, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._begun or not self._requests:
            self._front.traffic.slow_cut += 1
            _log.info("http: %s is too slow and is cut", self._peer())
        self.cut()

    def _peer(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"


def _problem(status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", f"{text}\n".encode("utf-8", "replace"), headers)
