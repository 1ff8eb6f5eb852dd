"""One connection to an HTTP server that is asked: h11 over a stream, one question at a time.

Rules of this file
1. What an answer may take of memory is bounded before it is read.
2. Nothing is followed and nothing repeated here: a redirect is an answer with its status.
3. A connection whose answer did not end as it should carries no further question.
4. There are no times here: whoever asks has a limit, and closes the connection when it is over.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple

import h11

from orbitmq.errors import ProtocolError
from orbitmq.limits.engine import ENGINE_ANSWER_BYTES_MAX, ENGINE_HEAD_BYTES_MAX

READ_BYTES: Final = 65_536

NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL says, by its release, of an answer that is plain text."""

LEAVE_TLS: Final = "ask it without tls=true, or give it a certificate"


class HttpLinkAnswer(NamedTuple):
    status: int
    body: bytes


class HttpLinkError(ProtocolError):
    """What came is no HTTP answer, or more than is taken, or it ended before the answer did; or TLS could not begin."""

    def __init__(self, why: str, *, remedy: str | None = None) -> None:
        super().__init__(why, remedy=remedy)
        self.why = why


class HttpLink:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        """`host`: what the header of that name says."""
        self._reader = reader
        self._writer = writer
        self._host = host
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ENGINE_HEAD_BYTES_MAX)

    @property
    def is_idle(self) -> bool:
        """Whether another question can be asked."""
        return self._http.our_state is h11.IDLE and self._http.their_state is h11.IDLE and not self._reader.at_eof()

    async def ask(self, path: str, body: bytes, token: str = "") -> HttpLinkAnswer:
        """POST. Raises HttpLinkError and OSError."""
        status = await self._asked(path, body, token)
        pieces: list[bytes] = []
        size = 0
        async for piece in self._body():
            pieces.append(piece)
            size += len(piece)
            if size > ENGINE_ANSWER_BYTES_MAX:
                raise HttpLinkError(f"its answer is longer than {ENGINE_ANSWER_BYTES_MAX} bytes")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return HttpLinkAnswer(status, b"".join(pieces))

    async def stream(self, path: str, body: bytes, token: str = "") -> AsyncGenerator[bytes, None]:
        """POST, and the lines of an answer that goes on; of one with another status than 200 the one line is all of it. Ends with the
        answer. Raises as `ask`."""
        status = await self._asked(path, body, token)
        rest = b""
        async for piece in self._body():
            *lines, rest = (rest + piece).split(b"\n")
            if status == 200:
                for line in filter(None, lines):
                    yield line
            else:
                rest = b"\n".join((*lines, rest))
            if len(rest) > ENGINE_ANSWER_BYTES_MAX:
                raise HttpLinkError(f"a piece of its answer is longer than {ENGINE_ANSWER_BYTES_MAX} bytes")
        if rest:
            yield rest

    def close(self) -> None:
        """At once; what it was asked for may be done all the same."""
        if self.is_idle:
            self._writer.close()
        else:
            self._writer.transport.abort()

    async def _asked(self, path: str, body: bytes, token: str) -> int:
        headers = [("Host", self._host), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if token:
            headers.append(("Authorization", token))
        head = self._http.send(h11.Request(method="POST", target=path, headers=headers)) or b""
        self._writer.write(head + (self._http.send(h11.Data(data=body)) or b""))
        self._http.send(h11.EndOfMessage())
        await self._writer.drain()
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise HttpLinkError("it closed the connection instead of answering")
        return event.status_code

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise HttpLinkError("its answer has no end")

    async def _event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(READ_BYTES))
        except h11.RemoteProtocolError as error:
            raise HttpLinkError(f"its answer is no HTTP: {error}") from error
        return event


async def open_link(host: str, port: int, tls: ssl.SSLContext | None) -> HttpLink:
    """Raises OSError, of which errors of TLS are; HttpLinkError where nothing at the other end begins TLS."""
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    except (ssl.SSLError, ConnectionResetError) as error:
        is_no_tls = isinstance(error, ConnectionResetError) or error.reason in NO_TLS
        if tls is None or not is_no_tls:
            raise
        raise HttpLinkError(
            "it refuses the handshake of TLS, as a server without TLS does", remedy=LEAVE_TLS
        ) from error
    return HttpLink(reader, writer, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
