"""Strange calls for a whole front end: requests of every RPC, changed field by field or byte by byte, at a broker that lives on.

Rules of this file
1. Everything follows from the seed. What a world answers (handles, ids) is used in later requests, so that strange requests reach what is
   there.
2. What a client wrote is never answered INTERNAL_SERVER_ERROR, never ends up in the log as a failure, and every call ends once, not before
   what it stored is written.
3. A world ends with nothing left: no session, question, held message or waiting receive.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError
from tests.crash.harness import scratch
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.pop.conftest import PopRig
from tests.unit.broker.transactions.conftest import TransactionRig
from tests.worlds.grpc_calls import ListCall
from tests.worlds.strange_requests import TOPICS, Seen, Strange

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.grpc import messages as m
from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc, RpcRow, Shape
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode

CLIENTS: Final = ("one", "two", "three", "", "x" * 300)
SERVED: Final = [rpc for rpc, row in RPCS.items() if row.is_served]
STORED_FIRST: Final = (Rpc.SEND_MESSAGE, Rpc.END_TRANSACTION, Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE)
"""What they store is written before they are answered."""

OFTEN: Final = (Rpc.SEND_MESSAGE, Rpc.RECEIVE_MESSAGE, Rpc.ACK_MESSAGE, Rpc.TELEMETRY)

OPEN_CALLS_MAX: Final = 40
STATUS_BYTES_MAX: Final = 4_096
LONGEST_WAIT_MS: Final = 200_000


class FuzzRig(WithFront, TransactionRig, PopRig):
    """A broker with all that clients of RocketMQ 5 can reach."""

    def more_parts(self) -> dict[str, Any]:
        return PopRig.more_parts(self) | TransactionRig.more_parts(self)

    def more_derived(self) -> list[Any]:
        return [*PopRig.more_derived(self), *TransactionRig.more_derived(self)]


class Broken(AssertionError):
    """A law does not hold."""


class _Failures(logging.Handler):
    """What the broker logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage() + (f": {record.exc_info[1]!r}" if record.exc_info else ""))


class World:
    """One broker and its callers."""

    def __init__(self, root: Path, rig: type[FuzzRig] = FuzzRig) -> None:
        self.rig = rig(root, BrokerSettings(enable_mixed_message_type=True), SMALL_STORE)
        for name, taken in TOPICS.items():
            changes = {} if taken is None else {f"+{MESSAGE_TYPE}": taken}
            self.rig.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2), changes)
        self.rig.broker.groups.put(SubscriptionGroupConfig(group_name="o", consume_message_orderly=True))
        self.seen: deque[Seen] = deque(maxlen=60)
        """Handles, ids and nonces that were answered lately."""
        self.open: deque[ListCall] = deque()
        self.streams: dict[str, ListCall] = {}
        self.operator = self.rig.peer()
        sent = self.rig.sent_ok("N")
        self.records = [sent.fields["msgId"]]
        self._failures = _Failures()
        logging.getLogger("orbitmq").addHandler(self._failures)

    def close(self) -> None:
        """End it. Raises Broken where something is left."""
        for call in [*self.open, *self.streams.values()]:
            self.cancel(call)
        try:
            self.rig.advance(LONGEST_WAIT_MS)
            self.judge_rest()
        finally:
            logging.getLogger("orbitmq").removeHandler(self._failures)
            self.rig.close()

    def judge_rest(self) -> None:
        front, pops = self.rig.front, self.rig.broker.rooms.pops
        left = {
            "sessions": len(front.sessions), "questions": len(front.sessions.questions), "receives": len(pops._waiters.polls),
            "bytes of settings": front.sessions._settings_bytes, "producers": len(self.rig.broker.clients.producer_groups()),
            "held messages": len(front.renewals.held),
        }  # fmt: skip
        if any(left.values()):
            raise Broken(f"something is left: {left}")
        self._judge_log()

    # --- one call -----------------------------------------------------------------------------------------------------

    def take(self, rpc: Rpc, client_id: str, timeout_ms: int | None, message: bytes, *, is_cancelled: bool) -> str:
        """Carry one message out and judge the answers; how it ended."""
        call = self.streams.get(client_id) if rpc is Rpc.TELEMETRY else None
        if call is None:
            call = ListCall(rpc, 0, client_id=client_id, timeout_ms=timeout_ms)
            if rpc is Rpc.TELEMETRY:
                self.streams[client_id] = call
        call.received_ns = self.rig.clock.monotonic_ns()
        written = self.rig.store.log.end
        self.rig.front.message(call, message)
        if call.ends and rpc in STORED_FIRST and self.rig.store.log.end != written:
            raise Broken(f"{rpc} is answered before what it stored is written")
        if is_cancelled and not call.ends:
            self.cancel(call)
        self.rig.broker.end_turn()
        self._judge_log()
        if call.ends:
            self.streams = {name: stream for name, stream in self.streams.items() if stream is not call}
        elif rpc is not Rpc.TELEMETRY:
            self._let_wait(call)
        self._judge_waiting()
        return f"{rpc} {self.judge(call, message)}"

    def ask(self, code: RequestCode, client_id: str) -> None:
        """An operator asks a client something, over its stream."""
        fields = {"consumerGroup": "g", "clientId": client_id, "jstackEnable": "true", "topic": "T"}
        if self.records:
            fields["msgId"] = self.records[-1]
        self.rig.try_call(code, fields, peer=self.operator)

    def cancel(self, call: ListCall) -> None:
        if call.ends:
            return
        call.is_wanted = False
        self.rig.front.over(call)
        self.rig.broker.end_turn()
        if call.ends != 1:
            raise Broken(f"{call.call.row.rpc}: {call.ends} ends after it was cancelled")

    def pass_time(self, ms: int) -> None:
        self.rig.advance(ms)
        self._judge_log()
        for call in [call for call in self.open if call.ends]:
            self.open.remove(call)
            self.judge(call, b"")

    def _let_wait(self, call: ListCall) -> None:
        if call.call.row.shape is not Shape.SERVER_STREAM:
            raise Broken(f"{call.call.row.rpc} is not answered with the turn")
        self.open.append(call)
        if len(self.open) > OPEN_CALLS_MAX:
            self.cancel(self.open.popleft())

    # --- laws -----------------------------------------------------------------------------------------------------------

    def judge(self, call: ListCall, request: bytes) -> str:
        """How a call ended so far. `request`: what it sent last. Raises Broken."""
        row = call.call.row
        if call.ends > 1:
            raise Broken(f"{row.rpc} ended {call.ends} times")
        topic, group = _named_in(row, request)
        answers = [self._answer(row.rpc, data, topic, group) for data in call.answers]
        if row.shape is Shape.BIDIRECTIONAL:
            call.answers.clear()
        if not call.is_wanted:
            return "cancelled"
        if call.error is not None:
            return self._judge_error(call)
        if not call.ends:
            return "waits" if row.shape is Shape.SERVER_STREAM else "goes on"
        if row.shape is Shape.UNARY and len(answers) != 1:
            raise Broken(f"{row.rpc} has {len(answers)} answers")
        if row.shape is Shape.SERVER_STREAM:
            kinds = [answer.WhichOneof("content") for answer in answers]
            if kinds != ["status", *["message"] * (len(kinds) - 2), "delivery_timestamp"]:
                raise Broken(f"{row.rpc} is answered with {kinds}")
        return m.Code(answers[0].status.code).name if answers else "nothing"

    def _judge_error(self, call: ListCall) -> str:
        error = call.error
        assert error is not None
        is_no_message = error.status is GrpcStatus.INTERNAL and "the bytes are no" in str(error)
        if error.status in (GrpcStatus.INTERNAL, GrpcStatus.UNKNOWN) and not is_no_message:
            raise Broken(f"{call.call.row.rpc} ended with {error.status.name}: {error}")
        return f"ends with {error.status.name}"

    def _answer(self, rpc: Rpc, data: bytes, topic: str, group: str) -> Any:
        kind = m.TelemetryCommand if rpc is Rpc.TELEMETRY else getattr(m, f"{rpc}Response")
        answer = kind.FromString(data)
        for status in _statuses(answer):
            if status.code in (0, m.Code.INTERNAL_SERVER_ERROR, m.Code.INTERNAL_ERROR) or not status.message:
                raise Broken(f"{rpc} is answered with {status}")
            if len(status.message.encode()) > STATUS_BYTES_MAX:
                raise Broken(f"{rpc} is answered with a text of {len(status.message)} characters")
        self.seen.extend(Seen(text, topic, group) for text in _texts_of(answer))
        return answer

    def _judge_waiting(self) -> None:
        waiting, open_count = len(self.rig.broker.rooms.pops._waiters.polls), sum(not call.ends for call in self.open)
        if waiting > open_count:
            raise Broken(f"{waiting} receives wait, for {open_count} callers")

    def _judge_log(self) -> None:
        failed = self.rig.broker.core.statistics.failed_handler_count
        if failed or self._failures.lines:
            raise Broken(f"{failed} calls failed here: {self._failures.lines}")


def _named_in(row: RpcRow, data: bytes) -> tuple[str, str]:
    """Topic and group of a request, as far as it says."""
    try:
        request = getattr(m, row.request).FromString(data)
    except DecodeError:
        return "", ""
    if row.rpc is Rpc.RECEIVE_MESSAGE:
        return request.message_queue.topic.name, request.group.name
    if row.rpc is Rpc.SEND_MESSAGE and request.messages:
        return request.messages[0].topic.name, ""
    return getattr(getattr(request, "topic", None), "name", ""), getattr(getattr(request, "group", None), "name", "")


def _statuses(answer: Any) -> Iterator[Any]:
    if answer.DESCRIPTOR.fields_by_name.get("status") and answer.HasField("status"):
        yield answer.status
    for entry in getattr(answer, "entries", ()):
        yield entry.status


def _texts_of(answer: Any) -> Iterable[str]:
    """What later requests may name: handles and ids."""
    for entry in getattr(answer, "entries", ()):
        yield from filter(
            None, (getattr(entry, name, "") for name in ("message_id", "transaction_id", "recall_handle"))
        )
    for command in ("verify_message_command", "print_thread_stack_trace_command"):
        if command in answer.DESCRIPTOR.fields_by_name and answer.HasField(command):
            yield getattr(answer, command).nonce
    if getattr(answer, "receipt_handle", ""):
        yield answer.receipt_handle
    if "message" in answer.DESCRIPTOR.fields_by_name and answer.HasField("message"):
        yield answer.message.system_properties.receipt_handle


def run_calls(seed: int, count: int, calls_of_a_world: int, rig: type[FuzzRig] = FuzzRig) -> Iterator[str]:
    """How each of so many calls ended. Raises Broken, with the call in its notes."""
    done = 0
    while done < count:
        with scratch() as folder:
            rng = random.Random(f"{seed} {done}")
            world, strange = World(folder, rig), Strange(rng)
            for number in range(done, min(done + calls_of_a_world, count)):
                yield one_call(world, strange, rng, f"seed {seed}, call {number}")
            done += calls_of_a_world
            world.close()


def one_call(world: World, strange: Strange, rng: random.Random, title: str) -> str:
    rpc = rng.choice(OFTEN if rng.random() < 0.4 else SERVED)
    message = strange.request(rpc, world.seen)
    client_id = rng.choice(CLIENTS if rng.random() < 0.1 else CLIENTS[:3])
    timeout_ms = rng.choice((None, 4_999, 10_000, 30_000, 10**12)) if rng.random() < 0.9 else rng.choice((0, 1))
    try:
        ended = world.take(rpc, client_id, timeout_ms, message, is_cancelled=rng.random() < 0.1)
        if rng.random() < 0.02:
            world.pass_time(rng.choice((1, 1_000, 7_000, 61_000)))
        if rng.random() < 0.02:
            world.ask(
                rng.choice((RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)), client_id
            )
        return ended
    except (Exception, DecodeError) as error:
        error.add_note(f"{title}: {rpc} of {client_id[:10]!r} within {timeout_ms} ms: {message[:2_000].hex()}")
        raise
