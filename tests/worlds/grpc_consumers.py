"""A consumer of RocketMQ 5 at a front end, without a socket: receives, acknowledges, hides, forwards."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.worlds.grpc_calls import Caller, ListCall

from orbitmq.protocol.grpc.merged_settings import duration_of
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ClientType,
    Code,
    FilterExpression,
    FilterType,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Message,
    MessageQueue,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    Settings,
    Status,
    Subscription,
)
from orbitmq.protocol.grpc.rpcs import Rpc


class Received(NamedTuple):
    """A whole stream."""

    status: Status
    messages: list[Message]

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def handles(self) -> list[str]:
        return [message.system_properties.receipt_handle for message in self.messages]

    @property
    def attempts(self) -> list[int]:
        return [message.system_properties.delivery_attempt for message in self.messages]


def received(call: ListCall) -> Received:
    """The stream of a receive that has ended, whose items come in the order of the protocol."""
    assert (call.ends, call.error) == (1, None)
    items = [ReceiveMessageResponse.FromString(item) for item in call.answers]
    kinds = [item.WhichOneof("content") for item in items]
    assert kinds == ["status", *["message"] * (len(items) - 2), "delivery_timestamp"]
    assert items[-1].delivery_timestamp.seconds
    return Received(items[0].status, [item.message for item in items[1:-1]])


class GrpcConsumer:
    """A member of a group that receives a topic. Without `connect` the broker knows nothing of it."""

    def __init__(self, caller: Caller, topic: str = "T", group: str = "g") -> None:
        self.caller = caller
        self.topic = topic
        self.group = group

    def connect(self, kind: ClientType = ClientType.SIMPLE_CONSUMER, **more: Any) -> ListCall:
        subscription = Subscription(group=Resource(name=self.group))
        return self.caller.connect(Settings(client_type=kind, subscription=subscription, **more))

    def start(
        self,
        *,
        count: int = 32,
        invisible_ms: int = 60_000,
        tags: str = "*",
        sql: str | None = None,
        attempt: str = "",
        renews: bool = False,
        polling_ms: int | None = None,
        timeout_ms: int | None = 30_000,
        queue: MessageQueue | None = None,
    ) -> ListCall:
        """A receive, which may wait."""
        kind = FilterType.TAG if sql is None else FilterType.SQL
        request = ReceiveMessageRequest(
            group=Resource(name=self.group),
            message_queue=queue or MessageQueue(topic=Resource(name=self.topic)),
            filter_expression=FilterExpression(type=kind, expression=tags if sql is None else sql),
            batch_size=count,
            auto_renew=renews,
            attempt_id=attempt,
        )
        if not renews:
            request.invisible_duration.CopyFrom(duration_of(invisible_ms))
        if polling_ms is not None:
            request.long_polling_timeout.CopyFrom(duration_of(polling_ms))
        return self.caller.start(Rpc.RECEIVE_MESSAGE, request, timeout_ms=timeout_ms)

    def receive(self, **more: Any) -> Received:
        """A receive that is answered at once."""
        return received(self.start(**more))

    def found(self, **more: Any) -> list[str]:
        """The handles of messages that are there."""
        answer = self.receive(**more)
        assert answer.code == Code.OK, answer.status
        return answer.handles

    def ack(self, *handles: str) -> AckMessageResponse:
        entries = [AckMessageEntry(message_id=f"id-{at}", receipt_handle=handle) for at, handle in enumerate(handles)]
        request = AckMessageRequest(topic=Resource(name=self.topic), group=Resource(name=self.group), entries=entries)
        return self.caller.call(Rpc.ACK_MESSAGE, request, AckMessageResponse)

    def change(self, handle: str, invisible_ms: int, *, suspend: bool = False) -> ChangeInvisibleDurationResponse:
        request = ChangeInvisibleDurationRequest(
            topic=Resource(name=self.topic), group=Resource(name=self.group), receipt_handle=handle, message_id="id",
            suspend=suspend,
        )  # fmt: skip
        request.invisible_duration.seconds, rest_ms = divmod(invisible_ms, 1_000)
        request.invisible_duration.nanos = rest_ms * 1_000_000
        return self.caller.call(Rpc.CHANGE_INVISIBLE_DURATION, request, ChangeInvisibleDurationResponse)

    def start_forward(self, handle: str) -> ListCall:
        request = ForwardMessageToDeadLetterQueueRequest(
            topic=Resource(name=self.topic), group=Resource(name=self.group), receipt_handle=handle, message_id="id"
        )
        return self.caller.start(Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, request)

    def forward(self, handle: str) -> int:
        """The code of the answer."""
        call = self.start_forward(handle)
        assert (call.ends, call.error) == (1, None)
        (answer,) = call.answers
        return ForwardMessageToDeadLetterQueueResponse.FromString(answer).status.code
