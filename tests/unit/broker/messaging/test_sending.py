"""Sends of RocketMQ 5 at a broker: stored as they say, answered message by message when they are safe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import NOW_MS, SMALL_STORE, Rig
from tests.unit.broker.pop.conftest import PopRig
from tests.unit.broker.transactions.conftest import TransactionRig
from tests.worlds.grpc_calls import ListCall

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import READ, WRITE
from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.messages import (
    Code,
    Duration,
    Message,
    MessageType,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
    TelemetryCommand,
    Timestamp,
)
from orbitmq.protocol.grpc.queue_choice import queue_of_group
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import decode_handle
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.store.durability import PutStatus

QUEUES = 8
NOW_S = NOW_MS // 1_000
USUAL = MessagingSettings()
TYPES = {"T": None, "D": "DELAY", "F": "FIFO", "X": "TRANSACTION"}


class World:
    def __init__(self, root: Path, rig: type[Rig] = PopRig, settings: MessagingSettings = USUAL) -> None:
        self.rig = rig(root, BrokerSettings(), SMALL_STORE)
        broker = self.rig.broker
        for name, taken in TYPES.items():
            changes = {} if taken is None else {f"+{MESSAGE_TYPE}": taken}
            broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES), changes)
        self.front = MessagingFront(broker.core, broker.rooms, settings)

    def call(self, rpc: Rpc, data: bytes, **named: Any) -> ListCall:
        call = ListCall(rpc, self.rig.clock.monotonic_ns(), **named)
        self.front.message(call, data)
        return call

    def ended(self, call: ListCall) -> SendMessageResponse:
        self.rig.broker.end_turn()
        assert (call.ends, call.error) == (1, None)
        (answer,) = call.answers
        return SendMessageResponse.FromString(answer)

    def send(self, *messages: Message, **named: Any) -> SendMessageResponse:
        request = SendMessageRequest(messages=messages)
        return self.ended(self.call(Rpc.SEND_MESSAGE, request.SerializeToString(), **named))

    def records(self, topic: str) -> list[Record]:
        return [record for queue_id in range(QUEUES) for record in self.rig.records(topic, queue_id)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.rig.close()


def message(topic: str = "T", body: bytes = b"body", **system: Any) -> Message:
    named = {"message_id": f"id-{topic}", "message_type": MessageType.NORMAL} | system
    return Message(topic=Resource(name=topic), body=body, system_properties=SystemProperties(**named))


def test_a_message_is_stored_and_answered_with_the_id_that_its_client_gave(world: World) -> None:
    answer = world.send(message(message_id="0123", tag="paid", keys=["k"]))
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert (entry.status.code, entry.message_id, entry.offset, entry.transaction_id, entry.recall_handle) == (
        Code.OK,
        "0123",
        0,
        "0123",  # as RocketMQ's proxy does it, whatever the type
        "",
    )
    (found,) = world.records("T")
    assert found.body == b"body"
    wanted = {Property.UNIQ_KEY: "0123", Property.TAGS: "paid", Property.KEYS: "k", Property.PGROUP: "T"}
    assert wanted.items() <= decode_properties(found.properties).items()


def test_nothing_is_answered_before_the_log_is_written(world: World) -> None:
    call = world.call(Rpc.SEND_MESSAGE, SendMessageRequest(messages=[message()]).SerializeToString())
    assert (call.answers, call.ends) == ([], 0)
    world.ended(call)


def test_a_timed_message_has_a_recall_handle(world: World) -> None:
    at = world.rig.clock.now_ms() // 1_000 + 60
    (entry,) = world.send(message("D", delivery_timestamp=Timestamp(seconds=at))).entries
    assert entry.status.code == Code.OK
    assert entry.recall_handle


@pytest.mark.parametrize("after_s", [60, 86_400 * 365, 86_400 * 365 * 50])
def test_a_delivery_time_may_be_as_far_ahead_as_it_likes(world: World, after_s: int) -> None:
    at = world.rig.clock.now_ms() // 1_000 + after_s
    (entry,) = world.send(message("D", delivery_timestamp=Timestamp(seconds=at))).entries
    assert (entry.status.code, entry.message_id) == (Code.OK, "id-D")
    assert decode_handle(entry.recall_handle).message_id == "id-D"
    assert world.records("D") == []


@pytest.mark.parametrize("before_s", [0, 20, 86_400, NOW_S])
def test_a_delivery_time_that_has_passed_means_now(world: World, before_s: int) -> None:
    at = world.rig.clock.now_ms() // 1_000 - before_s
    (entry,) = world.send(message("D", delivery_timestamp=Timestamp(seconds=at))).entries
    assert (entry.status.code, entry.recall_handle) == (Code.OK, "")
    assert len(world.records("D")) == 1


def test_a_message_of_a_type_that_its_topic_does_not_take_is_refused(world: World) -> None:
    at = world.rig.clock.now_ms() // 1_000 + 60
    answer = world.send(message("T", delivery_timestamp=Timestamp(seconds=at)))
    assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert "takes messages of type NORMAL" in answer.status.message


def test_the_type_of_a_topic_is_asked_anew_when_it_changes(world: World) -> None:
    plain, timed = message(), message(delivery_timestamp=Timestamp(seconds=NOW_S + 60))
    codes = [world.send(one).status.code for one in (plain, timed, plain, timed)]
    topic = TopicConfig(topic_name="T", read_queue_nums=QUEUES, write_queue_nums=1)
    world.rig.broker.topics.put(topic, {f"+{MESSAGE_TYPE}": "DELAY"})
    codes += [world.send(one).status.code for one in (plain, timed, plain)]
    wrong = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert codes == [Code.OK, wrong, Code.OK, wrong, wrong, Code.OK, wrong]


def test_a_message_of_no_group_goes_to_any_queue_that_is_there_now(world: World) -> None:
    def queue_of_next(number: int) -> int:
        world.rig.chosen_queue = number
        world.send(message())
        return max(world.records("T"), key=lambda record: record.physical_offset).queue_id

    assert [queue_of_next(number) for number in (3, 7, 9)] == [3, 7, 1]
    world.rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=QUEUES, write_queue_nums=2), {})
    assert [queue_of_next(number) for number in (3, 7)] == [1, 1]


@pytest.mark.parametrize(("queues", "perm"), [(QUEUES, READ), (0, READ | WRITE)])
@pytest.mark.parametrize("group", ["", "g"])
def test_the_permission_of_a_topic_counts_for_the_next_send(world: World, queues: int, perm: int, group: str) -> None:
    sent = message("F", message_group="g") if group else message()
    name = sent.topic.name
    assert world.send(sent).status.code == Code.OK
    changed = TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=queues, perm=perm)
    world.rig.broker.topics.put(changed, {})
    for each in ([sent], [sent, sent]):
        answer = world.send(*each)
        assert (answer.status.code, len(answer.entries)) == (Code.FORBIDDEN, 0)
        assert answer.status.message == f"topic {name!r} has no queue that can be written"
    world.rig.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES), {})
    assert world.send(sent).status.code == Code.OK
    assert len(world.records(name)) == 2


def test_types_are_not_compared_where_that_is_switched_off(tmp_path: Path) -> None:
    world = World(tmp_path, settings=MessagingSettings(checks_types=False))
    at = world.rig.clock.now_ms() // 1_000 + 60
    assert world.send(message("T", delivery_timestamp=Timestamp(seconds=at))).status.code == Code.OK
    assert world.send(message("Nowhere")).status.code == Code.TOPIC_NOT_FOUND
    world.rig.close()


OWN = MessagingSettings(
    body_bytes_max=5, user_properties_max=1, user_properties_bytes_max=6, message_group_bytes_end=4,
    recovery_seconds_max=2, delay_ms_max=60_000,
)  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(body=b"12345"), Code.OK),
        (message(body=b"123456"), Code.MESSAGE_BODY_TOO_LARGE),
        (message(keys=["123456"]), Code.OK),
        (message(keys=["1234567"]), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("F", message_group="123"), Code.OK),
        (message("F", message_group="1234"), Code.ILLEGAL_MESSAGE_GROUP),
        (message("D", delivery_timestamp=Timestamp(seconds=NOW_S + 60)), Code.OK),
        (message("D", delivery_timestamp=Timestamp(seconds=NOW_S + 61)), Code.ILLEGAL_DELIVERY_TIME),
        (message(message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3)), Code.BAD_REQUEST),
    ],
)  # fmt: skip
def test_what_a_broker_allows_is_its_own_choice(tmp_path: Path, sent: Message, code: Code) -> None:
    world = World(tmp_path, settings=OWN)
    assert world.send(sent).status.code == code
    world.rig.close()


def test_a_body_is_never_larger_than_the_store_takes(tmp_path: Path) -> None:
    stored = SMALL_STORE.max_message_size
    world = World(tmp_path, settings=MessagingSettings(body_bytes_max=stored + 10))
    assert world.send(message(body=bytes(stored))).status.code == Code.OK
    assert world.send(message(body=bytes(stored + 1))).status.code == Code.MESSAGE_BODY_TOO_LARGE
    world.rig.close()


def test_a_topic_is_not_made_by_a_send(world: World) -> None:
    assert world.send(message("Nowhere")).status.code == Code.TOPIC_NOT_FOUND
    assert "Nowhere" not in world.rig.broker.topics.names()


def test_a_message_group_has_one_queue_for_ever(world: World) -> None:
    for number in range(20):
        group = f"group-{number % 4}"
        world.send(message("F", message_id=f"id-{number}", message_group=group))
    queues: dict[str, set[int]] = {}
    for found in world.records("F"):
        queues.setdefault(decode_properties(found.properties)[Property.SHARDING_KEY], set()).add(found.queue_id)
    assert queues == {group: {queue_of_group(group, QUEUES)} for group in queues}


def test_messages_of_a_group_keep_their_order_when_several_come_in_a_request(world: World) -> None:
    world.rig.chosen_queue = queue_of_group("g", QUEUES) + 1
    for number in range(0, 12, 4):
        world.send(message("F", body=b"%d" % number, message_group="g"))
        several = [
            message("F", body=b"%d" % (number + more), message_id=f"{number + more}", message_group="g")
            for more in (1, 2, 3)
        ]
        world.send(*several, message("F", message_group="other", message_id="other"))
    queue = [record.body for record in world.rig.records("F", queue_of_group("g", QUEUES))]
    assert [body for body in queue if body != b"body"] == [b"%d" % number for number in range(12)]
    assert len(world.rig.records("F", queue_of_group("other", QUEUES))) >= 3


def test_each_message_of_a_request_has_its_entry_in_order(world: World) -> None:
    sent = [message(message_id=f"id-{number}", body=b"x" * (number + 1)) for number in range(5)]
    answer = world.send(*sent)
    assert answer.status.code == Code.OK
    assert [entry.message_id for entry in answer.entries] == [f"id-{number}" for number in range(5)]


def test_entries_that_differ_have_many_results_above_them(world: World) -> None:
    world.rig.broker.rooms.sends._unanswered_max = 1
    answer = world.send(message(message_id="first"), message(message_id="second"))
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.TOO_MANY_REQUESTS]
    assert answer.status.code == Code.MULTIPLE_RESULTS


def test_what_waited_too_long_is_refused_as_for_every_front(world: World) -> None:
    request = SendMessageRequest(messages=[message()]).SerializeToString()
    call = ListCall(Rpc.SEND_MESSAGE, world.rig.clock.monotonic_ns() - 10_000_000_000)
    world.front.message(call, request)
    assert world.ended(call).status.code == Code.TOO_MANY_REQUESTS


def test_a_wrong_request_stores_nothing(world: World) -> None:
    answer = world.send(message(message_id="good"), message(message_id="bad", body=b""))
    assert answer.status.code == Code.MESSAGE_BODY_EMPTY
    assert world.records("T") == []


def test_a_half_message_is_answered_with_its_transaction(tmp_path: Path) -> None:
    world = World(tmp_path, TransactionRig)
    (entry,) = world.send(message("X", message_id="half", message_type=MessageType.TRANSACTION)).entries
    assert (entry.message_id, entry.transaction_id) == ("half", "half")
    assert world.records("X") == []
    world.rig.close()


def test_excess_is_refused(world: World) -> None:
    call = ListCall(Rpc.SEND_MESSAGE, 0)
    world.front.excess(call, b"")
    assert world.ended(call).status.code == Code.TOO_MANY_REQUESTS


def test_a_call_without_a_client_id_is_told_so(world: World) -> None:
    assert world.send(message(), client_id=" ").status.code == Code.CLIENT_ID_REQUIRED
    call = world.call(Rpc.TELEMETRY, b"", client_id="")
    assert TelemetryCommand.FromString(call.answers[0]).status.code == Code.CLIENT_ID_REQUIRED


def test_bytes_that_are_no_request_end_the_call(world: World) -> None:
    call = world.call(Rpc.SEND_MESSAGE, b"\xff\xff")
    assert call.error is not None
    assert (call.error.status, call.ends) == (GrpcStatus.INTERNAL, 1)


def test_what_nobody_expected_is_logged_and_answered(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(world.rig.broker.rooms.sends, "send", fails)
    with caplog.at_level(logging.ERROR):
        assert world.send(message()).status.code == Code.INTERNAL_SERVER_ERROR
    assert "planted" in caplog.text


def test_a_message_over_remoting_and_one_over_grpc_lie_side_by_side(world: World) -> None:
    world.send(message(message_id="5.x", tag="paid"))
    world.rig.send("T", b"4.x")
    assert {found.body for found in world.records("T")} == {b"body", b"4.x"}


def test_a_group_moves_only_to_a_new_queue() -> None:
    for number in range(300):
        group = f"order-{number}"
        queues = [queue_of_group(group, count) for count in range(1, 30)]
        assert queues[0] == 0
        for count, (before, after) in enumerate(pairwise(queues), 1):
            assert after in (before, count)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (PutStatus.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
        (PutStatus.UNKNOWN, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_message_on_fewer_disks_than_was_asked_for_has_its_own_code(
    world: World, status: PutStatus, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world.rig.store), "wait_durable", lambda self, end, wait, done: done(status))
    answer = world.send(message())
    assert (answer.status.code, answer.entries[0].status.code, answer.entries[0].message_id) == (code, code, "")
