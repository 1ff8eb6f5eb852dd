"""Every request of the broker with fields and bodies that make no sense: an answer in words, never a failing handler."""

from __future__ import annotations

import random

import pytest

from orbitmq.protocol.remoting.commands import HEADERS, RequestCode, ResponseCode, absent_field

BODIES = [b"", b"{", b"[]", b"null", b"{}", b'{"a":', b"\xff\xfe", b'{"mqSet":3}', b"=\n=", b'{"topicConfigList":[{}]}']
TEXTS = [
    "",
    " ",
    "-1",
    "0",
    "9" * 30,
    "x",
    "T",
    "g",
    "true",
    "%RETRY%g",
    "a@b",
    "../../x",
    "\u0000",
    "é" * 300,
    "1,2;3||4",
]


@pytest.mark.parametrize("seed", range(3))
def test_nonsense_is_answered_in_words(rig, seed):
    chance = random.Random(seed)
    rig.sent_ok("T")
    rig.heartbeat(rig.peer(), "c", "g", ["T"])
    for code in sorted(rig.broker._handlers):
        names = [field.name for field in HEADERS[RequestCode(code)].request]
        for _ in range(12):
            fields = {name: chance.choice(TEXTS) for name in names if chance.random() < 0.8}
            rig.try_call(code, fields, chance.choice(BODIES))
            assert rig.broker.statistics.failed_handler_count == 0, (code, fields)


@pytest.mark.parametrize("fields", [None, {}])
def test_a_request_without_its_mandatory_fields_is_answered_as_rocketmq_does(rig, fields):
    """Code 1, whatever else would be wrong with it: RocketMQ fails in reading the header."""
    rig.sent_ok("T")
    for code in sorted(rig.broker._handlers):
        name = absent_field(code, {})
        answer = rig.try_call(code, fields) if name is not None else None
        if answer is not None and answer.code:
            assert answer.code == ResponseCode.SYSTEM_ERROR, RequestCode(code)
    answer = rig.call(RequestCode.PULL_MESSAGE, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <consumerGroup> is null")


def test_one_absent_field_is_named_and_one_of_a_wrong_type_is_judged_by_the_handler(rig):
    rig.sent_ok("T")
    rig.heartbeat(rig.peer(), "c", "g", ["T"])
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
    for name in fields:
        answer = rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, {key: fields[key] for key in fields if key != name})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    wrong = rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "queueId": "x"})
    assert wrong.code == ResponseCode.INVALID_PARAMETER


def test_the_judge_finds_a_failing_handler(rig):
    """The control: a handler with a defect is counted."""
    rig.broker._handlers[RequestCode.GET_BROKER_CONFIG] = lambda command, peer: 1 / 0
    rig.try_call(RequestCode.GET_BROKER_CONFIG)
    assert rig.broker.statistics.failed_handler_count == 1
