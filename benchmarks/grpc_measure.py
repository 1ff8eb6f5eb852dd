"""Workloads of the clients of RocketMQ 5: how each row of their comparison is measured on one running server.

Rules of this file
1. CPU per message is that of all server processes, between the moment when the warm-up ended and the last answer.
2. Calls are made before the clock starts (`grpc_load`), so the generator leaves a core to the server.
3. An answer with another code than OK, and a message that is early, lost or repeated, is no measurement: `Invalid` is raised.
"""

from __future__ import annotations

import itertools
import os
import selectors
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.process import anonymous_kb, cpu_us
from rig.wire import CREATE_TOPIC, Wire, topic_fields

from grpc_load import Answered, Load
from lateness import quantiles
from measure import QUEUES, Invalid, Numbers
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ClientType,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    MessageQueue,
    MessageType,
    Publishing,
    QueryRouteRequest,
    QueryRouteResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
    Timestamp,
)

BODY: Final = os.urandom(512).hex().encode()
BATCH: Final = 32
INVISIBLE_S: Final = 300
POLL_S: Final = 5
POLL_TIMEOUT_MS: Final = 20_000
WAITING_POLL_S: Final = 20
MS_BETWEEN_TIMED: Final = 4
LATE_AT_MOST_MS: Final = 10_000


class Amounts(NamedTuple):
    """How much work a run does. `warm`: calls before anything counts, for the compiler of Java."""

    warm: int
    calls: int
    single_calls: int
    received: int
    clients: int
    idle_s: float
    lateness: int


FULL: Final = Amounts(200_000, 30_000, 6_000, 40_000, 1_000, 15, 1_000)
QUICK: Final = Amounts(20_000, 8_000, 2_000, 6_400, 200, 4, 200)


class GrpcServer(NamedTuple):
    """A server that is measured: its ports, and its processes."""

    grpc_port: int
    broker_port: int
    pids: Callable[[], list[int]]

    def cpu_us(self) -> int:
        return sum(map(cpu_us, self.pids()))

    def anonymous_kb(self) -> int:
        return sum(map(anonymous_kb, self.pids()))


class GrpcWorkloads:
    """The workloads on one server."""

    def __init__(self, server: GrpcServer, amounts: Amounts) -> None:
        self._server = server
        self._amounts = amounts
        self._names = (f"GRPC_{number}" for number in itertools.count())
        self._broker_name = ""

    # --- sending ------------------------------------------------------------------------------------------------------

    def warm(self) -> None:
        self._send(self._topic(), self._amounts.warm, 64)

    def send(self, in_flight: int, *, tls: bool = False, delay_s: int = 0) -> Numbers:
        count = self._amounts.single_calls if in_flight == 1 else self._amounts.calls
        topic = self._topic("DELAY" if delay_s else "NORMAL")
        return self._send(topic, count, in_flight, tls=tls, delay_s=delay_s)

    def _send(self, topic: str, count: int, in_flight: int, *, tls: bool = False, delay_s: int = 0) -> Numbers:
        load = Load(self._server.grpc_port, _client_id(), tls=tls)
        requests = [_send_request(topic, number, delay_s) for number in range(count)]
        calls = [load.made("SendMessage", request.SerializeToString()) for request in requests]

        def check(answered: Answered) -> None:
            answer = SendMessageResponse.FromString(answered.messages[0])
            _check(answer.entries[0].status.code if answer.entries else answer.status.code, answer.status.message)

        try:
            return self._measured(load, calls, in_flight, check)
        finally:
            load.close()

    def heartbeats(self, in_flight: int) -> Numbers:
        load = Load(self._server.grpc_port, _client_id())
        _connect_producer(load, self._topic())
        request = HeartbeatRequest(client_type=ClientType.PRODUCER).SerializeToString()
        calls = [load.made("Heartbeat", request) for _ in range(self._amounts.calls)]

        def check(answered: Answered) -> None:
            answer = HeartbeatResponse.FromString(answered.messages[0])
            _check(answer.status.code, answer.status.message)

        try:
            return self._measured(load, calls, in_flight, check)
        finally:
            load.close()

    def _measured(
        self, load: Load, calls: list[tuple[int, bytes, int]], in_flight: int, check: Callable[[Answered], None]
    ) -> Numbers:
        """All calls, of which the first fifth does not count. Answers are looked at when the clock has stopped."""
        warm = len(calls) // 5
        answers: list[Answered] = []
        load.run(calls[:warm], in_flight, answers.append)
        before, begun = self._server.cpu_us(), time.monotonic()
        since = len(answers)
        load.run(calls[warm:], in_flight, answers.append)
        used, seconds = self._server.cpu_us() - before, time.monotonic() - begun
        for answered in answers:
            check(answered)
        count = len(answers) - since
        late = sorted(answered.latency_ns / 1e6 for answered in answers[since:])
        return {"value": used / count, "rate": count / seconds, **quantiles(late)}

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive_and_acknowledge(self, in_flight: int) -> Numbers:
        """Batches of 32, each acknowledged by one call."""
        topic, count = self._filled()
        load = self._consumer(topic)
        received = 0
        before = self._server.cpu_us()
        while received < count:
            wanted = min(in_flight, -(-(count - received) // BATCH))
            calls = [self._receive_call(load, topic) for _ in range(wanted)]
            answers: list[Answered] = []
            load.run(calls, in_flight, answers.append)
            batches = [batch for answered in answers if (batch := _handles(answered))]
            if not batches:
                raise Invalid(f"{received} of {count} messages were received")
            received += sum(map(len, batches))
            calls = [load.made("AckMessage", _ack_request(topic, batch)) for batch in batches]
            load.run(calls, in_flight, _check_acks)
        used = self._server.cpu_us() - before
        load.close()
        return {"value": used / received}

    def acknowledge_one_by_one(self, in_flight: int) -> Numbers:
        topic, count = self._filled()
        load = self._consumer(topic)
        found: list[tuple[str, str]] = []
        while len(found) < count:
            calls = [self._receive_call(load, topic) for _ in range(min(8, -(-(count - len(found)) // BATCH)))]
            before = len(found)
            load.run(calls, 8, lambda answered: found.extend(_handles(answered)))
            if len(found) == before:
                raise Invalid(f"{before} of {count} messages were received")
        calls = [load.made("AckMessage", _ack_request(topic, [handle])) for handle in found]
        try:
            return self._measured(load, calls, in_flight, _check_acks)
        finally:
            load.close()

    def _filled(self) -> tuple[str, int]:
        """A topic with messages for a group that has begun before them."""
        topic = self._topic()
        load = self._consumer(topic)
        load.run([self._receive_call(load, topic) for _ in range(4)], 4, _handles)
        load.close()
        self._send(topic, self._amounts.received, 64)
        return topic, self._amounts.received

    def _consumer(self, topic: str) -> Load:
        load = Load(self._server.grpc_port, _client_id())
        _connect_consumer(load, topic)
        answer = QueryRouteResponse.FromString(
            load.one("QueryRoute", QueryRouteRequest(topic=Resource(name=topic)).SerializeToString())
        )
        _check(answer.status.code, answer.status.message)
        self._broker_name = answer.message_queues[0].broker.name
        return load

    def _receive_call(self, load: Load, topic: str) -> tuple[int, bytes, int]:
        return load.made("ReceiveMessage", self._receive_request(topic, POLL_S), timeout_ms=POLL_TIMEOUT_MS)

    def _receive_request(self, topic: str, poll_s: int) -> bytes:
        queue = MessageQueue(topic=Resource(name=topic), id=-1)
        queue.broker.name = self._broker_name
        return ReceiveMessageRequest(
            group=Resource(name=_group_of(topic)),
            message_queue=queue,
            filter_expression=FilterExpression(type=FilterType.TAG, expression="*"),
            batch_size=BATCH,
            invisible_duration=Duration(seconds=INVISIBLE_S),
            long_polling_timeout=Duration(seconds=poll_s),
        ).SerializeToString()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def waiting_clients(self, *, tls: bool = False) -> Numbers:
        """Clients with a connection, a stream of Telemetry and a receive that waits: memory and CPU of each."""
        topic = self._topic()
        first = self._consumer(topic)
        first.run([self._receive_call(first, topic)], 1, _handles)
        time.sleep(2)
        memory_kb, clients = self._server.anonymous_kb(), []
        request = self._receive_request(topic, WAITING_POLL_S)
        for _ in range(self._amounts.clients):
            load = Load(self._server.grpc_port, _client_id(), tls=tls)
            _connect_consumer(load, topic)
            load.begin("ReceiveMessage", request, timeout_ms=WAITING_POLL_S * 1_000 + 3_000)
            clients.append(load)
        time.sleep(1)
        more_kb = self._server.anonymous_kb() - memory_kb
        before, seconds = self._server.cpu_us(), min(self._amounts.idle_s, WAITING_POLL_S / 2)
        time.sleep(seconds)
        used = self._server.cpu_us() - before
        for load in [first, *clients]:
            load.close()
        return {"value": more_kb / len(clients), "cpu_percent": used / seconds / 10_000}

    # --- lateness -----------------------------------------------------------------------------------------------------

    def lateness_beside_sends(self, rate: int) -> Numbers:
        """Timed messages, received by calls that wait, while other messages are sent at a steady rate."""
        topic, other, count = self._topic("DELAY"), self._topic(), self._amounts.lateness
        consumer, sender, steady = (
            self._consumer(topic),
            *(Load(self._server.grpc_port, _client_id()) for _ in range(2)),
        )
        consumer.run([self._receive_call(consumer, topic)], 1, _handles)
        spread_ms = count * MS_BETWEEN_TIMED
        first_due_ms = int(time.time() * 1000) + 3_000 + spread_ms
        requests = [
            _send_request(topic, number, 0, due_ms=first_due_ms + number * MS_BETWEEN_TIMED) for number in range(count)
        ]
        dues = {_id_of(one): first_due_ms + number * MS_BETWEEN_TIMED for number, one in enumerate(requests)}
        sender.run([sender.made("SendMessage", one.SerializeToString()) for one in requests], 16, lambda answered: None)
        background = [_send_request(other, number, 0) for number in range(rate * (3_000 + 2 * spread_ms) // 1_000)]
        frames = [steady.made("SendMessage", one.SerializeToString())[1] for one in background]
        late = self._late_beside(consumer, topic, steady, frames, rate, dues)
        for load in (consumer, sender, steady):
            load.close()
        ordered = sorted(late.values())
        if len(ordered) < count or ordered[0] < -1:
            raise Invalid(
                f"{len(ordered)} of {count} timed messages came, the earliest {min(ordered, default=0):.1f} ms late"
            )
        return {"value": ordered[len(ordered) * 99 // 100], **quantiles(ordered)}

    def _late_beside(
        self, consumer: Load, topic: str, steady: Load, frames: list[bytes], rate: int, dues: dict[str, int]
    ) -> dict[str, float]:
        """How late each timed message came, in milliseconds by its id; `dues`: when it was to come. `frames` leave meanwhile."""
        request, late = self._receive_request(topic, WAITING_POLL_S), dict[str, float]()
        selector = selectors.DefaultSelector()
        for load in (consumer, steady):
            selector.register(load.socket, selectors.EVENT_READ, load)
        begun, at, waiting = time.monotonic(), 0, 0
        while len(late) < len(dues) and time.time() * 1000 < max(dues.values()) + LATE_AT_MOST_MS:
            while waiting < 2:
                consumer.begin("ReceiveMessage", request, timeout_ms=WAITING_POLL_S * 1_000 + 3_000)
                waiting += 1
            sent = min(len(frames), int((time.monotonic() - begun) * rate))
            if at < sent:
                steady.socket.sendall(b"".join(frames[at:sent]))
                at = sent
            for key, _ in selector.select(0.0005):
                for _, content in key.data.read():
                    if key.data is consumer:
                        waiting -= 1
                        now_ms = time.time() * 1000
                        for message in _received(content):
                            message_id = message.system_properties.message_id
                            late[message_id] = now_ms - dues[message_id]
        return late

    # --- inside -------------------------------------------------------------------------------------------------------

    def _topic(self, kind: str = "NORMAL") -> str:
        topic = next(self._names)
        with Wire(self._server.broker_port) as wire:
            wire.call(CREATE_TOPIC, topic_fields(topic, QUEUES) | {"attributes": f"+message.type={kind}"})
        time.sleep(0.5)
        return topic


def _client_id() -> str:
    return f"bench@{os.getpid()}@{uuid.uuid4().hex[:8]}"


def _send_request(topic: str, number: int, delay_s: int, *, due_ms: int | None = None) -> SendMessageRequest:
    now = time.time_ns()
    system = SystemProperties(
        tag="TagA",
        keys=[f"key-{number}"],
        message_id=f"01{uuid.uuid4().hex.upper()}",
        body_encoding=1,
        message_type=MessageType.DELAY if delay_s or due_ms else MessageType.NORMAL,
        born_timestamp=Timestamp(seconds=now // 10**9, nanos=now % 10**9),
        born_host="127.0.0.1",
    )
    if delay_s:
        system.delivery_timestamp.CopyFrom(Timestamp(seconds=now // 10**9 + delay_s))
    elif due_ms:
        system.delivery_timestamp.CopyFrom(Timestamp(seconds=due_ms // 1000, nanos=due_ms % 1000 * 1_000_000))
    return SendMessageRequest(messages=[Message(topic=Resource(name=topic), system_properties=system, body=BODY)])


def _group_of(topic: str) -> str:
    """Members of a group want the same."""
    return f"bench-{topic}"


def _id_of(request: SendMessageRequest) -> str:
    return request.messages[0].system_properties.message_id


def _connect_producer(load: Load, topic: str) -> None:
    publishing = Publishing(topics=[Resource(name=topic)])
    _connect(load, Settings(client_type=ClientType.PRODUCER, publishing=publishing))


def _connect_consumer(load: Load, topic: str) -> None:
    entry = SubscriptionEntry(
        topic=Resource(name=topic), expression=FilterExpression(type=FilterType.TAG, expression="*")
    )
    subscription = Subscription(group=Resource(name=_group_of(topic)), subscriptions=[entry])
    subscription.long_polling_timeout.CopyFrom(Duration(seconds=POLL_S))
    settings = Settings(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    settings.request_timeout.CopyFrom(Duration(seconds=3))
    _connect(load, settings)


def _connect(load: Load, settings: Settings) -> None:
    settings.user_agent.version = "5.2.0"
    load.open("Telemetry", TelemetryCommand(settings=settings).SerializeToString())
    request = HeartbeatRequest(client_type=settings.client_type)
    if settings.HasField("subscription"):
        request.group.name = settings.subscription.group.name
    for _ in range(100):
        answer = HeartbeatResponse.FromString(load.one("Heartbeat", request.SerializeToString()))
        if answer.status.code == Code.OK:
            return
        time.sleep(0.02)
    raise Invalid(f"the server does not know a client that sent settings: {answer.status.message}")


def _received(content: bytes) -> Iterator[Message]:
    for data in Answered(0, 0, content).messages:
        item = ReceiveMessageResponse.FromString(data)
        kind = item.WhichOneof("content")
        if kind == "message":
            yield item.message
        elif kind == "status" and item.status.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
            raise Invalid(f"a receive was answered {item.status.code}: {item.status.message}")


def _handles(answered: Answered) -> list[tuple[str, str]]:
    """Message ids and receipt handles of one receive."""
    found = [message.system_properties for message in _received(answered.content)]
    return [(system.message_id, system.receipt_handle) for system in found]


def _ack_request(topic: str, handles: list[tuple[str, str]]) -> bytes:
    entries = [AckMessageEntry(message_id=message_id, receipt_handle=handle) for message_id, handle in handles]
    request = AckMessageRequest(group=Resource(name=_group_of(topic)), topic=Resource(name=topic), entries=entries)
    return request.SerializeToString()


def _check_acks(answered: Answered) -> None:
    answer = AckMessageResponse.FromString(answered.messages[0])
    _check(answer.status.code, answer.status.message)


def _check(code: int, text: str) -> None:
    if code != Code.OK:
        raise Invalid(f"a call was answered {code}: {text}")


def median(runs: list[Numbers], name: str = "value") -> float:
    return statistics.median(numbers[name] for numbers in runs)
