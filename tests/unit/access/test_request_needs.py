"""What requests need, where it is not simply what stands in a field."""

from __future__ import annotations

import pytest
from tests.callers import BODIES, CLUSTER, led_to, needs_by_hand, sample

from orbitmq.access.gate import Denied
from orbitmq.access.needed import Needed
from orbitmq.access.request_needs import needs_of
from orbitmq.limits.access import JUDGED_BODY_BYTES_MAX
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.requests import REQUESTS, Action, NamedBy, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
Code = RequestCode


def needs(command: Command) -> list[tuple[ResourceType, str | None, set[str]]]:
    """Those of a request that leads to no record."""
    found = needs_of(command, REQUESTS[RequestCode(command.code)], CLUSTER, lambda _: [])
    return [(needed.resource, needed.name, {action.value for action in needed.actions}) for needed in found]


@pytest.mark.parametrize("row", REQUESTS.values(), ids=[code.name for code in REQUESTS])
def test_a_usual_request_needs_what_its_row_says_each_once(row):
    found = needs_of(sample(row), row, CLUSTER, led_to)
    assert (set(found), len(found)) == (needs_by_hand(row), len(needs_by_hand(row)))


def test_every_body_that_a_row_speaks_of_can_be_read():
    assert set(BODIES) == {code for code, row in REQUESTS.items() if any(n.named_by is NamedBy.BODY for n in row.needs)}


@pytest.mark.parametrize(
    ("topic", "group"),
    [("%RETRY%shop", "shop"), ("%DLQ%shop", "shop"), ("%RETRY%shop+orders", "shop"), ("%RETRY%%DLQ%x", "%DLQ%x")],
)
def test_a_retry_or_dead_letter_topic_stands_for_its_group(topic, group):
    assert needs(request(Code.SEND_MESSAGE, {"topic": topic})) == [(GROUP, group, {"Sub"})]
    assert needs(request(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})) == [(GROUP, group, {"Sub", "Get"})]
    assert needs(request(Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})) == [(GROUP, group, {"Delete"})]
    pull = {"topic": topic, "consumerGroup": "mine"}
    assert needs(request(Code.PULL_MESSAGE, pull)) == [(GROUP, group, {"Sub"}), (GROUP, "mine", {"Sub"})]


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "orbitmq_sys_recurring",
        "orbitmq_sys_quarantine",
    ],
)
def test_consuming_from_a_topic_of_the_broker_needs_all_topics(topic):
    pull = {"topic": topic, "consumerGroup": "mine"}
    assert needs(request(Code.PULL_MESSAGE, pull)) == [(TOPIC, None, {"Sub"}), (GROUP, "mine", {"Sub"})]
    assert needs(request(Code.POP_MESSAGE, pull)) == [(TOPIC, None, {"Sub"}), (GROUP, "mine", {"Sub"})]
    assert needs(request(Code.QUERY_MESSAGE, {"topic": topic})) == [(TOPIC, None, {"Sub", "Get"})]
    assert needs(request(Code.GET_TOPIC_STATS_INFO, {"topic": topic})) == [(TOPIC, topic, {"Get"})]


@pytest.mark.parametrize("topic", ["", "%RETRY%", "%DLQ%", "%RETRY%+orders"])
def test_a_name_that_is_empty_stands_for_nothing(topic):
    with pytest.raises(Denied, match="names no"):
        needs(request(Code.SEND_MESSAGE, {"topic": topic}))


def test_a_list_in_a_field_names_each_of_its_parts():
    fields = {"consumerGroup": "shop", "topicList": "a;b;;a"}
    assert needs(request(Code.GET_CONSUME_STATS, fields)) == [
        (GROUP, "shop", {"Get"}), (TOPIC, "a", {"Get"}), (TOPIC, "b", {"Get"}),
    ]  # fmt: skip
    assert needs(request(Code.GET_CONSUME_STATS, {"consumerGroup": "shop"})) == [(GROUP, "shop", {"Get"})]


def test_a_record_that_is_not_there_leaves_what_else_is_needed():
    row = REQUESTS[Code.RECALL_MESSAGE]
    command = request(Code.RECALL_MESSAGE, {"topic": "orders"})
    assert needs_of(command, row, CLUSTER, lambda _: []) == [Needed(TOPIC, "orders", frozenset({Action.PUB}))]
    with pytest.raises(Denied, match="names no topic"):
        needs_of(command, row, CLUSTER, None)


def test_a_batch_of_acknowledgements_needs_all_that_it_names():
    body = b'{"brokerName":"b","acks":[{"c":"g1","t":"t1"},{"c":"g2","t":"t2","r":"1"}]}'
    assert {(kind, name) for kind, name, _ in needs(request(Code.BATCH_ACK_MESSAGE, {}, body))} == {
        (TOPIC, "t1"), (TOPIC, "t2"), (GROUP, "g1"), (GROUP, "g2"),
    }  # fmt: skip


def test_a_body_that_nobody_would_send_is_not_read_to_judge_it():
    at_most = b'{"acks":[]}'.ljust(JUDGED_BODY_BYTES_MAX)
    assert needs(request(Code.BATCH_ACK_MESSAGE, {}, at_most)) == []
    with pytest.raises(Denied, match="is not read"):
        needs(request(Code.BATCH_ACK_MESSAGE, {}, at_most + b" "))
