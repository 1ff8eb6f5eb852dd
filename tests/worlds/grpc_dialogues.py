"""What clients of RocketMQ 5 say to a server, call by call: dialogues that a recorder holds with RocketMQ's proxy, tests with our front.

A dialogue asks, is sent what it heard, and may ask with what it learnt: handles and ids are the server's own. What is compared is the form
of the answers: codes, fields, counts. What differs with every run (times, handles, hosts, queues) is masked.

Rules of this file
1. Topics and groups are those of `TOPICS` and `ORDERLY`; every dialogue has clients, groups and messages of its own.
2. A text of a status counts where it is the name of the code, for which programs look; others are for people.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import MessageToDict

from orbitmq.protocol.grpc import messages as m
from orbitmq.protocol.grpc.rpcs import Rpc

TOPICS: Final = {
    "Plain": "NORMAL",
    "Received": "NORMAL",
    "Sequenced": "FIFO",
    "Ordered": "FIFO",
    "Timed": "DELAY",
    "Decided": "TRANSACTION",
}
"""Topics with one queue, and their types."""
ORDERLY: Final = "Orderly"
"""A group that consumes in order."""
POLL_MS: Final = 5_000
MIB: Final = 1 << 20
TRANSACTION: Final = m.MessageType.TRANSACTION


class Ask(NamedTuple):
    """A call. `client`: empty for one that does not say who it is. A stream is kept open, and heard up to its first answer."""

    rpc: Rpc
    message: Any
    client: str = "client"
    version: str = "5.2.0"
    timeout_ms: int | None = 20_000


class Wait(NamedTuple):
    ms: int


class Heard(NamedTuple):
    """What a call was answered: its messages, and the status of gRPC that ended it (0: in order, or still open)."""

    messages: list[Any]
    status: int

    @property
    def received(self) -> list[Any]:
        return [item.message for item in self.messages if item.WhichOneof("content") == "message"]


Dialogue = Generator[Ask | Wait, Heard, None]


def resource(name: str) -> m.Resource:
    return m.Resource(name=name)


def sent(
    topic: str = "Plain", body: bytes = b"body", user: Mapping[str, str] | None = None, **system: Any
) -> m.Message:
    named = {"message_id": "01ABCDEF", "message_type": m.MessageType.NORMAL, "born_host": "10.1.2.3"} | system
    return m.Message(
        topic=resource(topic), body=body, user_properties=user or {}, system_properties=m.SystemProperties(**named)
    )


def send(*messages: m.Message, client: str = "client") -> Ask:
    return Ask(Rpc.SEND_MESSAGE, m.SendMessageRequest(messages=messages), client)


def route(topic: str, client: str = "client") -> Ask:
    endpoints = m.Endpoints(scheme=m.AddressScheme.IPv4, addresses=[m.Address(host="127.0.0.1", port=8081)])
    return Ask(Rpc.QUERY_ROUTE, m.QueryRouteRequest(topic=resource(topic), endpoints=endpoints), client)


def assignment(topic: str, group: str, client: str = "client") -> Ask:
    endpoints = m.Endpoints(scheme=m.AddressScheme.IPv4, addresses=[m.Address(host="127.0.0.1", port=8081)])
    request = m.QueryAssignmentRequest(topic=resource(topic), group=resource(group), endpoints=endpoints)
    return Ask(Rpc.QUERY_ASSIGNMENT, request, client)


def produces(*topics: str, client: str = "client") -> Ask:
    publishing = m.Publishing(topics=[resource(topic) for topic in topics])
    settings = m.Settings(client_type=m.ClientType.PRODUCER, publishing=publishing)
    return Ask(Rpc.TELEMETRY, m.TelemetryCommand(settings=settings), client, timeout_ms=None)


def consumes(group: str, topic: str = "Plain", client: str = "client", kind: int = m.ClientType.SIMPLE_CONSUMER) -> Ask:
    entry = m.SubscriptionEntry(
        topic=resource(topic), expression=m.FilterExpression(type=m.FilterType.TAG, expression="*")
    )
    subscription = m.Subscription(group=resource(group), subscriptions=[entry])
    settings = m.Settings(client_type=kind, subscription=subscription, request_timeout=m.Duration(seconds=3))
    return Ask(Rpc.TELEMETRY, m.TelemetryCommand(settings=settings), client, timeout_ms=None)


def receive(
    group: str,
    topic: str = "Plain",
    client: str = "client",
    version: str = "5.2.0",
    timeout_ms: int = 20_000,
    **more: Any,
) -> Ask:
    named: dict[str, Any] = {
        "group": resource(group),
        "message_queue": m.MessageQueue(topic=resource(topic), id=-1),
        "filter_expression": m.FilterExpression(type=m.FilterType.TAG, expression="*"),
        "batch_size": 32,
        "invisible_duration": m.Duration(seconds=10),
        "long_polling_timeout": m.Duration(seconds=POLL_MS // 1000),
    }
    return Ask(Rpc.RECEIVE_MESSAGE, m.ReceiveMessageRequest(**named | more), client, version, timeout_ms)


def ack(group: str, *handles: str, topic: str = "Plain", client: str = "client") -> Ask:
    entries = [m.AckMessageEntry(message_id=f"id-{at}", receipt_handle=handle) for at, handle in enumerate(handles)]
    return Ask(
        Rpc.ACK_MESSAGE, m.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries), client
    )


def change(group: str, handle: str, ms: int, client: str = "client") -> Ask:
    duration = m.Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
    request = m.ChangeInvisibleDurationRequest(
        group=resource(group),
        topic=resource("Received"),
        receipt_handle=handle,
        message_id="01ABCDEF",
        invisible_duration=duration,
    )
    return Ask(Rpc.CHANGE_INVISIBLE_DURATION, request, client)


def forward(group: str, handle: str, client: str = "client") -> Ask:
    request = m.ForwardMessageToDeadLetterQueueRequest(
        group=resource(group),
        topic=resource("Received"),
        receipt_handle=handle,
        message_id="01ABCDEF",
        delivery_attempt=1,
        max_delivery_attempts=3,
    )
    return Ask(Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, request, client)


def end(transaction_id: str, resolution: int, topic: str = "Decided", client: str = "client") -> Ask:
    request = m.EndTransactionRequest(
        topic=resource(topic), message_id=transaction_id, transaction_id=transaction_id, resolution=resolution,
        source=m.TransactionSource.SOURCE_CLIENT,
    )  # fmt: skip
    return Ask(Rpc.END_TRANSACTION, request, client)


def recall(handle: str, topic: str = "Timed", client: str = "client") -> Ask:
    return Ask(Rpc.RECALL_MESSAGE, m.RecallMessageRequest(topic=resource(topic), recall_handle=handle), client)


def heartbeat(kind: int, group: str = "", client: str = "client") -> Ask:
    request = m.HeartbeatRequest(client_type=kind)
    if group:
        request.group.name = group
    return Ask(Rpc.HEARTBEAT, request, client)


def handles(heard: Heard) -> list[str]:
    return [message.system_properties.receipt_handle for message in heard.received]


# --- the dialogues --------------------------------------------------------------------------------------------------


def nobody() -> Dialogue:
    """Calls that do not say who they are."""
    yield route("Plain", client="")
    yield send(sent(), client="")
    yield heartbeat(m.ClientType.PRODUCER, client=" ")
    yield ack("G", "handle", client="")


def routes() -> Dialogue:
    for topic in ("Plain", "Ordered", "Timed", "Decided", "Nowhere", "", "no good", "T" * 128, "TBW102", "rmq_sys_x"):
        yield route(topic)
    yield assignment("Plain", "DialogueGroup")
    yield assignment("Ordered", ORDERLY)
    for topic, group in (
        ("Nowhere", "G"),
        ("no good", "G"),
        ("Plain", ""),
        ("Plain", "g" * 121),
        ("Plain", "CID_RMQ_SYS_x"),
    ):
        yield assignment(topic, group)


def sends() -> Dialogue:
    """Messages that are taken."""
    yield send(sent())
    yield send(sent(tag="tag", keys=["k1", "k2"], user={"price": "7", "größe": "☕"}, message_id="01AA"))
    yield send(sent("Ordered", message_group="g", message_type=m.MessageType.FIFO))
    yield send(sent("Timed", delivery_timestamp=m.Timestamp(seconds=4_000), message_type=m.MessageType.DELAY))
    yield send(sent("Decided", message_type=m.MessageType.TRANSACTION))
    yield send(sent(body=b"x" * (4 * MIB)))
    yield send(sent(user={f"p{number}": "v" for number in range(128)}))


def wrong_sends() -> Dialogue:
    """Messages that are refused, each for one reason."""
    yield Ask(Rpc.SEND_MESSAGE, m.SendMessageRequest())
    yield send(sent(), sent("Timed"))
    wrong = [
        sent("Nowhere"), sent("no good"), sent(body=b""), sent(body=b"x" * (4 * MIB + 1)),
        sent(user={f"p{number}": "v" for number in range(129)}), sent(user={"UNIQ_KEY": "x"}), sent(user={"a": "b\x01"}),
        sent(user={"a\x00": "b"}), sent(user={"a": "b" * 16_384}), sent(tag=" "), sent(tag="a|b"), sent(tag="a\x00"), sent(keys=[" "]),
        sent(keys=["k\x00"]), sent(message_id=""), sent("Ordered", message_group="g" * 64), sent("Ordered", message_group=" "),
        sent("Ordered"), sent("Timed"), sent("Decided"), sent(message_group="g"), sent(delivery_timestamp=m.Timestamp(seconds=1)),
        sent(message_type=TRANSACTION),
        sent("Decided", message_type=TRANSACTION, orphaned_transaction_recovery_duration=m.Duration(seconds=3_601)),
        sent("Timed", delivery_timestamp=m.Timestamp(seconds=4_000_000_000)),
    ]  # fmt: skip
    for message in wrong:
        yield send(message)


def telemetry() -> Dialogue:
    producer, consumer = m.ClientType.PRODUCER, m.ClientType.SIMPLE_CONSUMER
    yield heartbeat(producer, client="t1")
    yield produces("Plain", "Ordered", client="t1")
    yield heartbeat(producer, client="t1")
    yield produces(client="t2")
    yield consumes("TelemetryGroup", client="t3")
    yield consumes(ORDERLY, "Ordered", client="t4", kind=m.ClientType.PUSH_CONSUMER)
    yield heartbeat(consumer, "TelemetryGroup", client="t3")
    yield heartbeat(consumer, "no good", client="t3")
    yield produces("no good", client="t5")
    yield consumes("no good", client="t6")
    yield Ask(Rpc.TELEMETRY, m.TelemetryCommand(settings=m.Settings(client_type=producer)), "t7", timeout_ms=None)
    leave = m.NotifyClientTerminationRequest()
    yield Ask(Rpc.NOTIFY_CLIENT_TERMINATION, leave, "t1")
    yield Ask(Rpc.NOTIFY_CLIENT_TERMINATION, leave, "t8")
    yield heartbeat(producer, client="t1")


def receives() -> Dialogue:
    """A consumer from its first receive to its last acknowledgement."""
    group, client = "ReceiveGroup", "r1"
    yield consumes(group, "Received", client)
    yield receive(group, "Received", client)
    yield send(
        sent(
            "Received", tag="tag", keys=["k1", "k2"], user={"price": "7"}, message_id="01RECEIVE", trace_context="00-ab"
        ),
        client=client,
    )
    heard = yield receive(group, "Received", client)
    (handle,) = handles(heard)
    yield ack(group, handle, topic="Received", client=client)
    yield ack(group, handle, topic="Received", client=client)
    yield ack(group, topic="Received", client=client)
    yield ack(group, handle, topic="Nowhere", client=client)
    yield ack("no good", handle, topic="Received", client=client)
    yield send(sent("Received", message_id="01CHANGE"), client=client)
    (handle,) = handles((yield receive(group, "Received", client)))
    yield change(group, handle, 43_200_001, client)
    changed = yield change(group, handle, 20_000, client)
    yield ack(group, changed.messages[0].receipt_handle, topic="Received", client=client)
    yield send(sent("Received", message_id="01EXPIRES"), client=client)
    (handle,) = handles((yield receive(group, "Received", client)))
    yield Wait(11_000)
    yield ack(group, handle, topic="Received", client=client)
    yield change(group, handle, 10_000, client)
    yield forward(group, handle, client)
    for word in ("handle", "", "1 2 3 4 5 broker 7 8 9", "0 1 2 3 4"):
        yield ack(group, word, topic="Received", client=client)


def polls() -> Dialogue:
    """Receives that are refused."""
    group, client = "PollGroup", "p1"
    yield consumes(group, client=client)
    for version in ("5.0.3", "5.0.2"):
        yield receive(group, client=client, version=version, timeout_ms=3_000)
    for ms in (9_999, 43_200_001):
        yield receive(
            group, client=client, invisible_duration=m.Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
        )
    yield receive(group, "no good", client)
    yield receive("no good", client=client)
    yield receive(group, "Nowhere", client)
    yield receive(group, client=client, filter_expression=m.FilterExpression(type=m.FilterType.TAG, expression="||"))
    yield receive(group, client=client, filter_expression=m.FilterExpression(type=m.FilterType.SQL, expression=""))
    yield receive(group, client=client, filter_expression=m.FilterExpression(type=m.FilterType.SQL, expression="a >"))


def orderly() -> Dialogue:
    """One message at a time, until it is acknowledged."""
    client = "o1"
    yield consumes(ORDERLY, "Sequenced", client)
    yield receive(ORDERLY, "Sequenced", client)
    for number in range(2):
        yield send(
            sent("Sequenced", message_group="g", message_id=f"01ORDER{number}", message_type=m.MessageType.FIFO),
            client=client,
        )
    heard = yield receive(ORDERLY, "Sequenced", client, batch_size=1)
    yield receive(ORDERLY, "Sequenced", client, batch_size=1, timeout_ms=6_000)
    yield ack(ORDERLY, *handles(heard), topic="Sequenced", client=client)
    heard = yield receive(ORDERLY, "Sequenced", client, batch_size=1)
    yield ack(ORDERLY, *handles(heard), topic="Sequenced", client=client)


def transactions() -> Dialogue:
    client = "x1"
    yield produces("Decided", client=client)
    yield end("", m.TransactionResolution.COMMIT, client=client)
    yield end("unknown", m.TransactionResolution.COMMIT, client=client)
    yield end("unknown", m.TransactionResolution.COMMIT, topic="no good", client=client)
    for number, resolution in enumerate((m.TransactionResolution.COMMIT, m.TransactionResolution.ROLLBACK)):
        half = yield send(
            sent("Decided", message_id=f"01HALF{number}", message_type=m.MessageType.TRANSACTION), client=client
        )
        yield end(half.messages[0].entries[0].transaction_id, resolution, client=client)
        yield end(half.messages[0].entries[0].transaction_id, resolution, client=client)


def recalls(now_s: int) -> Dialogue:
    client, due = "c1", m.Timestamp(seconds=now_s + 3_600)
    timed = yield send(
        sent("Timed", message_id="01TIMED", message_type=m.MessageType.DELAY, delivery_timestamp=due), client=client
    )
    handle = timed.messages[0].entries[0].recall_handle
    yield recall(handle, "Plain", client)
    yield recall(handle, "Nowhere", client)
    yield recall(handle, "no good", client)
    yield recall("handle", client=client)
    yield recall("", client=client)
    yield recall(handle, client=client)


def unserved() -> Dialogue:
    yield Ask(Rpc.PULL_MESSAGE, m.PullMessageRequest())
    yield Ask(Rpc.GET_OFFSET, m.GetOffsetRequest())
    yield Ask(Rpc.UPDATE_OFFSET, m.UpdateOffsetRequest())
    yield Ask(Rpc.QUERY_OFFSET, m.QueryOffsetRequest())


def dialogues(now_s: int) -> Mapping[str, Dialogue]:
    """All of them by name. now_s: the time of the server, in seconds since 1970."""
    return {
        "nobody": nobody(),
        "routes": routes(),
        "sends": sends(),
        "wrong sends": wrong_sends(),
        "telemetry": telemetry(),
        "receives": receives(),
        "polls": polls(),
        "orderly": orderly(),
        "transactions": transactions(),
        "recalls": recalls(now_s),
        "unserved": unserved(),
    }


# --- what is compared -------------------------------------------------------------------------------------------------

_MASKED: Final = frozenset({
    "born_timestamp", "store_timestamp", "delivery_timestamp", "receipt_handle", "recall_handle", "store_host", "endpoints", "broker",
})  # fmt: skip
_LEFT_OUT: Final = frozenset({"queue_id", "queue_offset", "offset"})
"""Numbers, which do not show where they are 0."""


def form(heard: Heard) -> dict[str, Any]:
    """What of an answer is compared."""
    items = [MessageToDict(message, preserving_proto_field_name=True) for message in heard.messages]
    return {"status": heard.status, "items": [_form(item) for item in items]}


def _form(value: Any, name: str = "") -> Any:
    if name in _MASKED:
        return "..."
    if name == "message" and isinstance(value, str):
        return value if value.isupper() and " " not in value else "..."
    if isinstance(value, dict):
        return {key: _form(inner, key) for key, inner in sorted(value.items()) if key not in _LEFT_OUT}
    if isinstance(value, list):
        return [_form(inner) for inner in value]
    return f"{len(value)} characters" if name == "body" and len(value) > 1000 else value
