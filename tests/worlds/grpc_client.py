"""A client of gRPC over the library h2, on a socket: one connection, any calls, nothing of RocketMQ in it but the name of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import h2.config
import h2.connection
import h2.events

from orbitmq.protocol.grpc.message_prefix import with_prefix

SERVICE = "/apache.rocketmq.v2.MessagingService/"


class Client:
    """One connection of the library h2. `answers`: content by call; `trailers`: what ended a call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        states, inputs = h2.connection.ConnectionState, h2.connection.ConnectionInputs
        machine = self.h2.state_machine
        machine._transitions = machine._transitions | {  # h2 forgets calls under way at a GOAWAY, see RFC 9113, 6.8
            (states.CLIENT_OPEN, inputs.RECV_GOAWAY): (None, states.CLIENT_OPEN)
        }
        self.h2.initiate_connection()
        self.answers: dict[int, bytes] = {}
        self.heads: dict[int, dict[str, str]] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.others: list[str] = []
        self.is_closed = False

    def begin(self, rpc: str, fields: Mapping[bytes, bytes] | None = None, *, client_id: str = "one") -> int:
        """A call with these header fields beside those that every call has."""
        stream_id = int(self.h2.get_next_available_stream_id())
        path = rpc if rpc.startswith("/") else SERVICE + rpc
        usual = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
        ]
        usual += [("content-type", "application/grpc"), ("x-mq-client-id", client_id)]
        self.h2.send_headers(stream_id, [*usual, *(fields or {}).items()])
        self.write()
        return stream_id

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        self.h2.send_data(stream_id, data, end_stream=end)
        self.write()

    async def send_all(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """As `send`, of more than the windows of the server take at once."""
        while len(data) > (room := min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)):
            if room:
                self.send(stream_id, data[:room])
                data = data[room:]
            else:
                await self.until(lambda: self.h2.local_flow_control_window(stream_id) > 0)
        self.send(stream_id, data, end=end)

    def call(self, rpc: str, message: bytes, fields: Mapping[bytes, bytes] | None = None) -> int:
        stream_id = self.begin(rpc, fields)
        self.send(stream_id, with_prefix(message), end=True)
        return stream_id

    def cancel(self, stream_id: int) -> None:
        self.h2.reset_stream(stream_id, 8)
        self.write()

    def write(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            data = await self._reader.read(65_536)
            if not data:
                self.is_closed = True
                assert is_true(), (self.others, self.trailers)
                return
            for event in self.h2.receive_data(data):
                self._take(event)
            self.write()

    async def ended(self, stream_id: int) -> dict[str, str]:
        await self.until(lambda: stream_id in self.trailers)
        return self.trailers[stream_id]

    async def closed(self) -> None:
        """Until the server has closed the connection. Where it left something unread the end is a reset."""
        try:
            await self.until(lambda: self.is_closed)
        except ConnectionResetError:
            self.is_closed = True

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.heads[event.stream_id] = dict(event.headers)
                if event.stream_ended:
                    self.trailers[event.stream_id] = dict(event.headers)
            case h2.events.DataReceived():
                self.answers[event.stream_id] = self.answers.get(event.stream_id, b"") + event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived():
                self.trailers[event.stream_id] = dict(event.headers)
            case _:
                self.others.append(type(event).__name__)
