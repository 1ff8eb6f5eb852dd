"""TLS on a connection that is open already: what is read is decrypted, what is written is encrypted, by `ssl.MemoryBIO`.

`TlsSession` knows bytes only. `TlsTransport` stands between the transport of a socket and a protocol that knows nothing of TLS: to the
protocol it is a transport like any other.

Rules of this file
1. What is written waits as it was given and is encrypted `AHEAD_BYTES` ahead of what the socket takes. Large answers are views of
   mapped files, which cost no memory; encrypted at once, they would, for every client that does not read.
2. Everything that one read brought is decrypted and given in one piece; nothing that is decrypted waits here. Whoever pauses reading
   pauses the socket.
3. What came whole before a record that cannot be decrypted still counts: it is given first, then the connection ends.
4. Bytes pass through OpenSSL's buffers a record at a time: those buffers never shrink, and a connection that once took a large answer
   would keep its size for good.
5. We say goodbye (close_notify) and do not wait for the answer. A peer that leaves without one has ended its input as on a plain
   connection: frames tell by their length whether something is missing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from orbitmq.protocol.remoting.frame import Buffer

HELLO: Final = 0x16
"""First byte of a TLS connection: a handshake record. No other protocol of our ports begins with it."""

REFUSAL: Final = b"\x15\x03\x03\x00\x02\x02\x28"
"""The alert "handshake failure": tells a client that TLS is not served here."""

_RECORD_BYTES: Final = 16_384
"""Plain bytes of the largest record."""

AHEAD_BYTES: Final = 65_536
"""Encrypted bytes in the buffer of the socket's transport above which nothing more is encrypted."""

_HIGH_WATER_BYTES: Final = 65_536
"""High mark of asyncio's transports, unless their protocol sets one."""


class TlsSession:
    """The server's side of one TLS connection, without a socket: encrypted bytes in and out, plain bytes out and in."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._encrypted: list[bytes] = []
        self.is_open = False
        """The handshake is done."""
        self.is_ended = False
        """The peer has said goodbye: it sends nothing more."""
        self.failure: ssl.SSLError | None = None
        """Why the connection cannot go on. `outgoing` holds the alert that says so to the peer."""

    def receive(self, data: Buffer) -> bytes:
        """Take bytes of the peer; answers the plain bytes they brought. Look at `failure` and `is_ended` afterwards."""
        pieces: list[bytes] = []
        view = memoryview(data)
        for begin in range(0, len(view), _RECORD_BYTES):
            if self.failure is not None or self.is_ended:
                break
            self._incoming.write(view[begin : begin + _RECORD_BYTES])
            self._decrypt(pieces)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _decrypt(self, pieces: list[bytes]) -> None:
        try:
            if not self.is_open:
                self._object.do_handshake()
                self.is_open = True
            while piece := self._object.read(_RECORD_BYTES):
                pieces.append(piece)
                if not self._incoming.pending and not self._object.pending():
                    break
            else:
                self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            self.failure = error

    def encrypt(self, data: Buffer) -> None:
        """Turn plain bytes into `outgoing` ones, all of them; or see `failure`."""
        view = memoryview(data)
        try:
            for begin in range(0, len(view), _RECORD_BYTES):
                self._object.write(view[begin : begin + _RECORD_BYTES])
                if self._outgoing.pending >= _RECORD_BYTES:
                    self._encrypted.append(self._outgoing.read())
        except ssl.SSLError as error:
            self.failure = error

    def end(self) -> None:
        """Say goodbye in `outgoing`, where the handshake was done."""
        if self.is_open and self.failure is None:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                return  # the peer's own goodbye has not come; nobody waits for it

    def outgoing(self) -> bytes:
        """What has to be written to the socket, once."""
        if not self._encrypted:
            return self._outgoing.read()
        encrypted, self._encrypted = self._encrypted, []
        return b"".join((*encrypted, self._outgoing.read()))

    def facts(self) -> dict[str, Any]:
        """What asyncio calls the extra information of a TLS transport."""
        return {"ssl_object": self._object, "cipher": self._object.cipher(), "peercert": self._object.getpeercert()}


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """A transport for `protocol`, and the protocol of the transport of its socket."""

    def __init__(self, below: asyncio.Transport, session: TlsSession, protocol: asyncio.Protocol) -> None:
        self._facts = session.facts()
        self._below = below
        self._session = session
        self._protocol = protocol
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._is_closing = False
        self._is_paused = False
        self.set_write_buffer_limits()

    # --- as a transport ---------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._facts[name] if name in self._facts else self._below.get_extra_info(name, default)

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self.is_closing() or self._session.failure is not None:
            return
        for part in list_of_data:
            self._waiting.append(memoryview(part))
            self._waiting_bytes += len(part)
        self._go_on()

    def close(self) -> None:
        """What was written leaves first."""
        if not self.is_closing():
            self._is_closing = True
            if self._below.is_reading():
                self._below.pause_reading()
            self._go_on()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._below.is_closing()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low
        # Not above the low mark: as long as the protocol is paused, the socket's transport is as well, and says when it goes on.
        self._below.set_write_buffer_limits(min(self._low_bytes, AHEAD_BYTES // 2))
        self._say_how_much_waits()

    # --- between them -----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Encrypt as far ahead as is allowed; take leave when the last byte of a connection that is closed is encrypted."""
        below, session = self._below, self._session
        while self._waiting and not below.is_closing() and below.get_write_buffer_size() < AHEAD_BYTES:
            self._encrypt_some()
            below.write(session.outgoing())
        if self._is_closing and not self._waiting and not below.is_closing():
            session.end()
            below.write(session.outgoing())
            below.close()
        self._say_how_much_waits()

    def _encrypt_some(self) -> None:
        room_bytes = AHEAD_BYTES
        while self._waiting and room_bytes > 0:
            part = self._waiting.popleft()
            if len(part) > room_bytes:
                self._waiting.appendleft(part[room_bytes:])
                part = part[:room_bytes]
            self._session.encrypt(part)
            self._waiting_bytes -= len(part)
            room_bytes -= len(part)

    def _say_how_much_waits(self) -> None:
        unsent_bytes = self.get_write_buffer_size()
        if not self._is_paused and unsent_bytes > self._high_bytes:
            self._is_paused = True
            self._protocol.pause_writing()
        elif self._is_paused and unsent_bytes <= self._low_bytes:
            self._is_paused = False
            self._protocol.resume_writing()

    # --- as the protocol of the socket ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._is_closing:
            self.give(self._session.receive(data))

    def give(self, plain: bytes) -> None:
        """Hand what the session has decrypted to the protocol, and write what it has to say itself."""
        session = self._session
        if plain:
            self._protocol.data_received(plain)
        answer = session.outgoing()
        if answer and not self._below.is_closing():
            self._below.write(answer)
        if session.failure is not None:
            self._forget()
            self._below.close()
        elif session.is_ended:
            self.eof_received()

    def eof_received(self) -> bool:
        if self.is_closing():
            return not self._below.is_closing()
        stays_open = bool(self._protocol.eof_received())
        if not stays_open:
            self.close()
        return not self._below.is_closing()

    def resume_writing(self) -> None:
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._protocol.connection_lost(exc)

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
