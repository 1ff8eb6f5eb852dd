"""Every request of the broker with fields and bodies that make no sense: an answer in words, never a failing handler."""

from __future__ import annotations

import random

import pytest

from orbitmq.protocol.remoting.commands import HEADERS, RequestCode

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


def test_the_judge_finds_a_failing_handler(rig):
    """The control: a handler with a defect is counted."""
    rig.broker._handlers[RequestCode.GET_BROKER_CONFIG] = lambda command, peer: 1 / 0
    rig.try_call(RequestCode.GET_BROKER_CONFIG)
    assert rig.broker.statistics.failed_handler_count == 1
