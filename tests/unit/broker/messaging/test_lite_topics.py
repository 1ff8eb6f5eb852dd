"""Lite topics, which this broker has not: whatever names one is refused in one sentence, and nothing of it is done."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_consumers import GrpcConsumer

from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ClientType,
    Code,
    Duration,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    LiteSubscriptionAction,
    Message,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    Status,
    Subscription,
    SyncLiteSubscriptionRequest,
    SyncLiteSubscriptionResponse,
    SystemProperties,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.bodies import TopicConfig

SENTENCE = "lite topics of RocketMQ 5.5 are not part of this broker"
TOPIC, GROUP = Resource(name="T"), Resource(name="g")


@pytest.fixture
def rig(front_rig: FrontRig) -> FrontRig:
    front_rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
    return front_rig


def check_refused(status: Status) -> None:
    assert status.code == Code.NOT_IMPLEMENTED
    assert status.message.startswith(SENTENCE)


@pytest.mark.parametrize("action", list(LiteSubscriptionAction))
def test_there_is_nothing_to_subscribe_to(rig: FrontRig, action: LiteSubscriptionAction) -> None:
    request = SyncLiteSubscriptionRequest(action=action, topic=TOPIC, group=GROUP, lite_topic_set=["l"])
    check_refused(rig.client().call(Rpc.SYNC_LITE_SUBSCRIPTION, request, SyncLiteSubscriptionResponse).status)


@pytest.mark.parametrize("kind", [ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER])
def test_their_consumers_are_told_when_they_start(rig: FrontRig, kind: ClientType) -> None:
    client = rig.client()
    stream = client.connect(Settings(client_type=kind, subscription=Subscription(group=GROUP)))
    assert (stream.answers, stream.ends) == ([], 1)
    assert stream.error is not None
    assert stream.error.status is GrpcStatus.INVALID_ARGUMENT
    assert SENTENCE in str(stream.error)
    assert len(rig.front.sessions) == 0


def test_a_message_for_one_is_not_stored(rig: FrontRig) -> None:
    message = Message(topic=TOPIC, body=b"b", system_properties=SystemProperties(message_id="1", lite_topic="l"))
    answer = rig.client().call(Rpc.SEND_MESSAGE, SendMessageRequest(messages=[message]), SendMessageResponse)
    check_refused(answer.status)
    assert rig.records("T") == []


def settling(handle: str) -> list[tuple[Rpc, Any, Any]]:
    """What names a lite topic beside a sound handle, and its kind of answer."""
    named = {"topic": TOPIC, "group": GROUP, "message_id": "id-0", "receipt_handle": handle, "lite_topic": "l"}
    entry = AckMessageEntry(message_id="id-0", receipt_handle=handle, lite_topic="l")
    ack = AckMessageRequest(topic=TOPIC, group=GROUP, entries=[entry])
    change = ChangeInvisibleDurationRequest(invisible_duration=Duration(seconds=1), **named)
    forward = ForwardMessageToDeadLetterQueueRequest(**named)
    return [
        (Rpc.ACK_MESSAGE, ack, AckMessageResponse),
        (Rpc.CHANGE_INVISIBLE_DURATION, change, ChangeInvisibleDurationResponse),
        (Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, forward, ForwardMessageToDeadLetterQueueResponse),
    ]


@pytest.mark.parametrize("at", range(3))
def test_what_names_one_settles_nothing(rig: FrontRig, at: int) -> None:
    rig.sent_ok("T", b"a", {"UNIQ_KEY": "unique"})
    consumer = GrpcConsumer(rig.client())
    (handle,) = consumer.found()
    rpc, request, kind = settling(handle)[at]
    answer = rig.client().call(rpc, request, kind)
    if rpc is Rpc.ACK_MESSAGE:
        (entry,) = answer.entries
        check_refused(entry.status)
        assert answer.status.code == Code.NOT_IMPLEMENTED
    else:
        check_refused(answer.status)
    assert rig.broker.rooms.pops.in_flight.message_count == 1
    assert consumer.ack(handle).status.code == Code.OK, "its own handle still counts"
