"""Bodies: what different clients write, defaults, exact writing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting import bodies
from orbitmq.protocol.remoting.bodies import (
    BatchAckBody,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerStatusBody,
    ConsumeStats,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    KVTable,
    LockBatchRequest,
    LockBatchResponse,
    MessageModel,
    MessageQueue,
    OffsetProgress,
    QueryAssignmentResponse,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
    TopicStatsTable,
)

QUEUE = MessageQueue("T", "b-a", 0)
QUEUE_JSON = '{"brokerName":"b-a","queueId":0,"topic":"T"}'
ALL = [
    kind
    for name in dir(bodies)
    if isinstance(kind := getattr(bodies, name), type)
    and issubclass(kind, bodies.JsonBody)
    and not set(kind.__struct_fields__) & {"message_queue"}
]


@pytest.mark.parametrize("kind", ALL)
def test_an_empty_object_gives_the_defaults(kind: type[bodies.JsonBody]) -> None:
    body = kind.decode(b"{}")
    assert body == kind()
    assert kind.decode(body.encode()) == body
    assert None not in json.loads(body.encode()).values()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"null", b"{", b"[" * 10_000])
def test_what_is_no_body(kind: type[bodies.JsonBody], data: bytes) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(data)


def test_heartbeat_of_the_cpp_client() -> None:
    beat = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"codeSet":[0,0],"subString":"A || B","subVersion":"1795264852886","tagsSet":["A","B"],'
        b'"topic":"T"}]}]}\n'
    )
    (consumer,) = beat.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    (subscription,) = consumer.subscription_data_set
    assert subscription == SubscriptionData("T", "A || B", ["A", "B"], [0, 0], 1795264852886)
    assert beat.producer_data_set == []


def test_constants_and_ordinals_not_known_here_get_the_default() -> None:
    for constant in ("CONSUME_BY_MAGIC", 17, -1):
        beat = HeartbeatData.decode(
            json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g", "consumeType": constant}]}).encode()
        )
        assert beat.consumer_data_set[0].consume_type is ConsumeType.CONSUME_PASSIVELY


def test_nulls_are_absent() -> None:
    beat = HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[null,{"groupName":null}]}')
    assert beat.consumer_data_set == []
    assert [producer.group_name for producer in beat.producer_data_set] == [""]


def test_a_subscription_written_once_and_referred_to() -> None:
    beat = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"a"}]},'
        b'{"groupName":"h","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}]}'
    )
    assert [consumer.subscription_data_set[0].topic for consumer in beat.consumer_data_set] == ["T", "T"]


def test_default_heartbeat_is_written_as_java_does() -> None:
    assert json.loads(HeartbeatData("c").encode()) == {
        "clientID": "c",
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "producerDataSet": [],
        "withoutSub": False,
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{' + QUEUE_JSON + ":42}}",
        '{"offsetTable":{' + json.dumps(QUEUE_JSON) + ":42}}",
        "{'offsetTable':{{'topic':'T','queueId':0,'brokerName':'b-a'}:'42'}}",
    ],
)
def test_maps_keyed_by_queues(text: str) -> None:
    assert ResetOffsetBody.decode(text.encode()) == ResetOffsetBody({QUEUE: 42})


def test_maps_keyed_by_queues_are_written_with_object_keys() -> None:
    assert ResetOffsetBody({QUEUE: 42}).encode().decode() == '{"offsetTable":{' + QUEUE_JSON + ":42}}"
    stats = ConsumeStats({QUEUE: OffsetProgress(10, 7, 8, 1)}, 1.5)
    assert ConsumeStats.decode(stats.encode()) == stats
    status = ConsumerStatusBody({QUEUE: 1}, {"c": {QUEUE: 2}})
    assert ConsumerStatusBody.decode(status.encode()) == status
    assert TopicStatsTable().encode() == b'{"offsetTable":{}}'


def test_keys_that_look_like_objects_stay_text_where_no_queue_is_meant() -> None:
    table = KVTable({"{}": "x", QUEUE_JSON: "y"})
    assert KVTable.decode(table.encode()) == table
    assert KVTable.decode(b'{"table":{0:"x",\'{"a":1}\':"y"}}') == KVTable({"0": "x", '{"a":1}': "y"})


def test_route_keys_bare_and_quoted() -> None:
    for key in ("0", '"0"'):
        route = TopicRouteData.decode(
            b'{"brokerDatas":[{"brokerAddrs":{%b:"h:1"},"brokerName":"b"}],"queueDatas":[]}' % key.encode()
        )
        assert route.broker_datas[0].broker_addrs == {0: "h:1"}
        assert b'"brokerAddrs":{"0":"h:1"}' in route.encode()


def test_absent_and_empty_assignments_differ() -> None:
    assert QueryAssignmentResponse().encode() == b"{}"
    assert QueryAssignmentResponse([]).encode() == b'{"messageQueueAssignments":[]}'
    assert QueryAssignmentResponse.decode(b"{}").message_queue_assignments is None


def test_lock_bodies() -> None:
    asked = LockBatchRequest.decode(b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_JSON.encode() + b"]}")
    assert asked.mq_set == [QUEUE]
    assert LockBatchResponse([QUEUE]).encode().decode() == '{"lockOKMQSet":[' + QUEUE_JSON + "]}"


def test_ack_bits_are_base64() -> None:
    ack = BatchAckBody.decode(b'{"acks":[{"b":"AQI=","c":"g","so":"100"}],"brokerName":"b"}').acks[0]
    assert (ack.bit_set, ack.consumer_group, ack.start_offset) == (b"\x01\x02", "g", 100)


def test_defaults_of_settings() -> None:
    group = SubscriptionGroupConfig.decode(b'{"groupName":"g","brokerId":0,"retryMaxTimes":3}')
    assert (group.retry_max_times, group.consume_timeout_minute, group.group_retry_policy.type) == (3, 15, "CUSTOMIZED")
    assert json.loads(TopicConfig("T").encode())["attributes"] == {}


def test_optional_members_are_absent_when_none() -> None:
    assert b"consumeType" not in ConsumerConnection().encode()
    assert DataVersion(3, 0, 5).encode() == b'{"counter":3,"stateVersion":0,"timestamp":5}'


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TopicConfig, {"perm": 2**31}),
        (TopicConfig, {"perm": "x"}),
        (TopicConfig, {"topicName": 5}),
        (DataVersion, {"counter": 2**63}),
        (HeartbeatData, {"consumerDataSet": {}}),
        (HeartbeatData, {"consumerDataSet": [5]}),
        (KVTable, {"table": {"a": []}}),
        (ResetOffsetBody, {"offsetTable": {"T": 1}}),
        (ResetOffsetBody, {"offsetTable": {"{}": 1}}),
    ],
)
def test_members_of_a_wrong_type(kind: type[bodies.JsonBody], value: Any) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(json.dumps(value).encode())


def test_every_body_is_found_in_its_module() -> None:
    for name in dir(bodies):
        assert getattr(bodies, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_body"):
        _ = bodies.no_such_body
