"""A blocking connection to one server that asks in waves.

Rules of this file
1. All requests of a wave leave together and the answers are matched by opaque, in whatever order they come: one round trip and a
   few system calls for a hundred requests. (Brokers give 32 messages for a pull; asked one by one a pull costs 110 us of CPU, in
   a wave 20.)
2. A connection belongs to one thread. It has no timer and no task; nothing happens while nobody asks.
3. After a failure the connection is closed: what was asked and not answered is unknown, and the caller dials anew.
4. Requests of the server, and answers that nobody waits for, are dropped.
5. What is given as a command is signed here, with credentials; whoever makes frames signs them.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from orbitmq.client.addresses import no_connection, split_address
from orbitmq.client.bulk.answer_buffer import AnswerBuffer, AnswerHead
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.protocol.remoting.frame import Buffer, Command, encode, encode_head
from orbitmq.protocol.signing import Credentials

_OPAQUE_MAX: Final = 2**31 - 1

_LONG_BODY_BYTES: Final = 16 * 1024
"""From here on a system call of its own costs less than copying the body behind its head."""

Encoder = Callable[[int], Buffer]
"""Makes the whole frame of a request that gets this opaque."""


def framed(command: Command) -> Encoder:
    """The encoder of an ordinary request."""

    def encode_with(opaque: int) -> Buffer:
        command.opaque = opaque
        return encode(command)

    return encode_with


class WaveConnection:
    """A connection to `address` (`host:port`). Waits at most `timeout_ms` for anything to arrive."""

    def __init__(
        self,
        address: str,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Connects, with `tls` over TLS. `ConnectionLostError` when nobody listens there, not in time, or TLS is not agreed on."""
        host, port = split_address(address)
        self.address = address
        self.timeout_ms = timeout_ms
        self.buffer = AnswerBuffer()
        self._credentials = credentials
        self._opaque = 0
        self._closed = False
        self._arrivals: selectors.BaseSelector | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout_ms / 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)  # closes it if that fails
        except OSError as error:
            raise no_connection(address, timeout_ms, error) from error

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, requests: Sequence[Encoder]) -> list[int]:
        """Write all of them in one piece; their opaques. No answer is read."""
        opaques: list[int] = []
        frames: list[Buffer] = []
        for make in requests:
            self._opaque = self._opaque + 1 if self._opaque < _OPAQUE_MAX else 1
            opaques.append(self._opaque)
            frames.append(make(self._opaque))
        if self._closed:
            raise ConnectionLostError(f"the connection to {self.address} is closed", request_sent=False)
        try:
            self._socket.sendall(b"".join(frames))
        except OSError as error:
            raise self._lost(error) from error
        return opaques

    def send_one(self, command: Command) -> int:
        """Write one request; its opaque. Waits while the server does not read. A long body is not copied.

        It may be larger than what the buffers of the kernel take, so answers of requests before it have to fit those of the kernel:
        that of a send is half a kilobyte.
        """
        self._sign(command)
        self._opaque = command.opaque = self._opaque + 1 if self._opaque < _OPAQUE_MAX else 1
        head, body = encode_head(command, len(command.body)), command.body
        if self._closed:
            raise ConnectionLostError(f"the connection to {self.address} is closed", request_sent=False)
        try:
            if len(body) < _LONG_BODY_BYTES:
                self._socket.sendall(b"".join((head, body)))
            else:
                self._socket.sendall(head)
                self._socket.sendall(body)
        except OSError as error:
            raise self._lost(error) from error
        return command.opaque

    def has_arrived(self) -> bool:
        """Whether something is there for `receive`, which may have to wait for the rest of it over TLS."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        if self._arrivals is None:
            self._arrivals = selectors.DefaultSelector()
            self._arrivals.register(self._socket, selectors.EVENT_READ)
        return bool(self._arrivals.select(0))

    def receive(self) -> list[AnswerHead]:
        """Answers that have arrived, at least a part of one; waits for it. Their bodies lie in `buffer`."""
        try:
            count = self._socket.recv_into(self.buffer.room())
        except TimeoutError:
            self.close()
            raise RequestTimeoutError(f"nothing came from {self.address} within {self.timeout_ms} ms") from None
        except OSError as error:
            raise self._lost(error) from error
        except FrameError:
            self.close()
            raise
        if count == 0:
            self.close()
            raise ConnectionLostError(f"connection to {self.address} closed by the server before the answer arrived")
        try:
            return [answer for answer in self.buffer.received(count) if answer.command.is_response]
        except FrameError:
            self.close()
            raise

    def exchange(self, commands: Iterable[Command]) -> list[Command]:
        """The answers to these requests, whatever their codes, in the order of the requests, each with a copy of its body."""
        commands = list(commands)
        for command in commands:
            self._sign(command)
        opaques = self.send([framed(command) for command in commands])
        missing = set(opaques)
        answers: dict[int, Command] = {}
        while missing:
            for answer in self.receive():
                command = answer.command
                if command.opaque in missing:
                    missing.discard(command.opaque)
                    command.body = self.buffer.body(answer)
                    answers[command.opaque] = command
        self.buffer.clear()
        return [answers[opaque] for opaque in opaques]

    def close(self) -> None:
        """Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            if self._arrivals is not None:
                self._arrivals.close()
            self._socket.close()

    def _sign(self, command: Command) -> None:
        if self._credentials is not None:
            command.fields = self._credentials.signed(command.fields, command.body)

    def _lost(self, error: OSError) -> ConnectionLostError:
        self.close()
        return ConnectionLostError(f"connection to {self.address} lost: {error.strerror or error}")
