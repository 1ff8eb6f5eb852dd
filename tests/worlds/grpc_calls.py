"""Calls of clients of RocketMQ 5 at a front end, without a socket: a call keeps what it was answered in a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.callers import authorization

from orbitmq.access.users import User
from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.clock import ManualClock
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.calls import GrpcCall
from orbitmq.protocol.grpc.messages import TelemetryCommand
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.ids import pack_host


class ListConnection:
    """What calls come over. `pauses`: how often it is to wait; `closed`: why it was closed."""

    def __init__(self, address: tuple[str, int] = ("10.0.0.9", 40_000)) -> None:
        self.address = address
        self.attachments: dict[str, object] = {}
        self.received_ns = 0
        self.pauses = 0
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason

    def pause_requests(self) -> None:
        self.pauses += 1

    def resume_requests(self) -> None:
        self.pauses -= 1


class ListCall:
    """A call whose answers are a list. `error`: the status of gRPC that it ended with, None for OK."""

    def __init__(
        self,
        rpc: Rpc,
        received_ns: int,
        *,
        client_id: str = "client",
        timeout_ms: int | None = None,
        signed: Mapping[bytes, bytes] | None = None,
        connection: ListConnection | None = None,
        version: str = "5.2.0",
    ) -> None:
        named = {"x-mq-client-id": client_id, "x-mq-client-version": version, "x-mq-language": "JAVA"}
        fields = {name.encode(): value.encode() for name, value in named.items()}
        fields |= signed or {}
        self.call = GrpcCall(
            RPCS[rpc], None if timeout_ms is None else b"%dm" % timeout_ms, RequestFields.made(fields.items())
        )
        self.received_ns = received_ns
        self.connection = connection or ListConnection()
        self.connection.received_ns = received_ns
        self.address = self.connection.address
        self.host = pack_host(*self.address)
        self.user = ""
        self.is_wanted = True
        self.writable = True
        self.answers: list[bytes] = []
        self.error: CallError | None = None
        self.ends = 0
        self.lost: Callable[[], None] | None = None
        """Called by a test whose answer does not leave."""
        self.writable_calls: list[Callable[[], None]] = []

    def when_writable(self, call: Callable[[], None]) -> None:
        self.writable_calls.append(call)

    def answer(self, *messages: bytes) -> None:
        assert not self.ends, "an answer after the end"
        self.answers += messages

    def end(self, lost: Callable[[], None] | None = None) -> None:
        self.ends += 1
        self.lost = lost

    def fail(self, error: CallError) -> None:
        self.error = error
        self.ends += 1


class Caller:
    """One client of a front end. `end_turn` ends a loop turn of the broker. `user` signs its calls."""

    def __init__(
        self,
        front: MessagingFront,
        clock: ManualClock,
        end_turn: Callable[[], None],
        client_id: str = "client",
        user: User | None = None,
    ) -> None:
        self.front = front
        self.client_id = client_id
        self.signed = {} if user is None else authorization(user)
        self.connection = ListConnection()
        self._clock = clock
        self._end_turn = end_turn

    def begin(self, rpc: Rpc, *, timeout_ms: int | None = None, version: str = "5.2.0") -> ListCall:
        """A call of which nothing has been sent but its header fields."""
        return ListCall(
            rpc,
            self._clock.monotonic_ns(),
            client_id=self.client_id,
            timeout_ms=timeout_ms,
            signed=self.signed,
            connection=self.connection,
            version=version,
        )

    def send(self, call: ListCall, message: Any) -> None:
        """One message of a call, in a turn of its own."""
        call.received_ns = self._clock.monotonic_ns()
        self.front.message(call, message.SerializeToString())
        self._end_turn()

    def start(self, rpc: Rpc, message: Any, *, timeout_ms: int | None = None) -> ListCall:
        """A call with its one message; what it is answered may come later."""
        call = self.begin(rpc, timeout_ms=timeout_ms)
        self.send(call, message)
        return call

    def cancel(self, call: ListCall) -> None:
        """The caller wants nothing of a call any more."""
        call.is_wanted = False
        self.front.over(call)
        self._end_turn()

    def call(self, rpc: Rpc, message: Any, kind: Any, *, timeout_ms: int | None = None) -> Any:
        """The one answer, of that kind, of a call that is answered at once."""
        call = self.start(rpc, message, timeout_ms=timeout_ms)
        assert (call.ends, call.error) == (1, None)
        (answer,) = call.answers
        return kind.FromString(answer)

    def connect(self, settings: Any) -> ListCall:
        """Open the stream of the client and send settings."""
        stream = self.begin(Rpc.TELEMETRY)
        self.send(stream, TelemetryCommand(settings=settings))
        return stream


def commands(stream: ListCall) -> list[TelemetryCommand]:
    """What came on a stream since this was asked last."""
    answers, stream.answers = stream.answers, []
    return [TelemetryCommand.FromString(answer) for answer in answers]
