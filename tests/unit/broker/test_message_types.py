"""What type a message is of, and which messages a topic takes where types are enforced."""

from __future__ import annotations

import pytest

from orbitmq.broker.message_properties import facts_of, read_facts
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

EXAMPLES = {
    MessageType.NORMAL: {"KEYS": "k", "n": "v"},
    MessageType.FIFO: {"__SHARDINGKEY": "order"},
    MessageType.DELAY: {"DELAY": "1"},
    MessageType.TRANSACTION: {"TRAN_MSG": "true", "PGROUP": "g"},
}
SHAPE = {"defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicFilterType": "SINGLE_TAG"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        *((values, kind) for kind, values in EXAMPLES.items()),
        ({"TRAN_MSG": "false"}, MessageType.NORMAL),
        ({"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "1"}, MessageType.DELAY),
        ({"__LITE_TOPIC": "x"}, MessageType.LITE),
        ({"TRAN_MSG": "TRUE", "DELAY": "1", "__SHARDINGKEY": "o"}, MessageType.TRANSACTION),
        ({"DELAY": "1", "__SHARDINGKEY": "o"}, MessageType.DELAY),
        ({"__SHARDINGKEY": "o", "__LITE_TOPIC": "x"}, MessageType.FIFO),
    ],
)
def test_the_first_type_that_fits(values, kind):
    assert facts_of(values).message_type is kind
    assert read_facts(encode_properties(values).decode()).message_type is kind


@pytest.fixture
def enforcing(make_rig):
    return make_rig(enforce_message_type=True, enable_mixed_message_type=True)


def make_topic(rig, kind):
    attributes = {} if kind is None else {"attributes": f"+message.type={kind}"}
    answer = rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "T", **SHAPE, **attributes})
    assert answer.code == ResponseCode.SUCCESS


def is_taken(rig, values):
    """Whether no type stands in the way of a message."""
    return "takes messages of type" not in (rig.send("T", b"x", values).remark or "")


@pytest.mark.parametrize("taken", [None, *EXAMPLES])
def test_a_topic_takes_its_type_and_no_other(enforcing, taken):
    make_topic(enforcing, taken)
    for _ in range(2):  # the second time it is known
        assert [kind for kind, values in EXAMPLES.items() if is_taken(enforcing, values)] == [taken or "NORMAL"]


def test_the_refusal_says_what_and_why_and_what_to_do(enforcing):
    make_topic(enforcing, MessageType.DELAY)
    remark = enforcing.send("T", b"x").remark
    assert remark == (
        "topic 'T' takes messages of type DELAY (message.type); this one is of type NORMAL, because it asks for nothing that makes "
        "it another one: send it to a topic of type NORMAL, or change the attribute. "
        "The broker checks types because of enforceMessageType=true"
    )


def test_a_mixed_topic_takes_all(enforcing):
    make_topic(enforcing, MessageType.MIXED)
    assert all(is_taken(enforcing, values) for values in EXAMPLES.values())


def test_each_message_of_a_batch_has_a_type(enforcing):
    make_topic(enforcing, MessageType.FIFO)
    ordered = [BatchItem(0, b"a", encode_properties(EXAMPLES[MessageType.FIFO]))]
    assert enforcing.send("T", encode_batch(ordered), batch=True).code == 0
    assert enforcing.send("T", encode_batch([*ordered, BatchItem(0, b"b", b"")]), batch=True).code == (
        ResponseCode.MESSAGE_ILLEGAL
    )


def test_types_are_not_checked_unless_it_is_asked_for(rig):
    make_topic(rig, MessageType.FIFO)
    assert all(is_taken(rig, values) for values in EXAMPLES.values())


def test_retry_topics_take_what_failed_elsewhere(enforcing):
    assert enforcing.send("%RETRY%g", b"x", EXAMPLES[MessageType.FIFO]).code == 0


def test_messages_for_lite_topics_are_refused_by_name(rig):
    assert "lite topics of RocketMQ 5.5" in rig.send("T", b"x", {"__LITE_TOPIC": "x"}).remark
    item = BatchItem(0, b"b", encode_properties({"__LITE_TOPIC": "x"}))
    assert "lite topics of RocketMQ 5.5" in rig.send("T", encode_batch([item]), batch=True).remark
