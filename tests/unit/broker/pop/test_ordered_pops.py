"""Ordered pops at a broker: nothing of a queue is given out while its earlier messages are in flight."""

from __future__ import annotations

import json

import pytest

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

FILE = "consumerOrderInfo.json"


def give(rig, *bodies, queue_id=0, **properties):
    for body in bodies:
        rig.sent_ok("T", body, properties, queue_id=queue_id)


def in_order(popper, **more):
    return popper.pop(order=True, **more)


def bodies(popped):
    return [record.body for record, _, _ in popped]


@pytest.fixture
def two(rig, popper):
    """Three messages, of which the first two are popped for ten seconds."""
    give(rig, b"a", b"b", b"c")
    return in_order(popper, maxMsgNums=2, invisibleTime=10_000, attemptId="first")


def test_a_queue_is_blocked_until_its_earlier_messages_are_acknowledged(popper, two):
    first, second = two
    assert (first[2].split(" ")[3], in_order(popper)) == ("999", [])
    assert popper.ack(second) == ResponseCode.SUCCESS
    assert (popper.committed(), in_order(popper)) == (0, [])
    popper.ack(first)
    assert popper.committed() == 2
    assert bodies(in_order(popper)) == [b"c"]


def test_another_queue_and_another_group_are_not_blocked(rig, popper, two):
    give(rig, b"x", queue_id=1)
    assert bodies(in_order(popper, queueId=-1)) == [b"x"]
    assert bodies(in_order(popper, group="other")) == [b"a", b"b", b"c"]


def test_after_the_invisible_time_everything_from_the_first_unacknowledged_on_comes_again(rig, popper, two):
    popper.ack(two[1])
    rig.advance(9_999)
    assert in_order(popper) == []
    rig.advance(1)
    answer = popper.ask(order=True)
    assert bodies(popper.read(answer)) == [b"a", b"b", b"c"]
    assert answer.fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 0"
    rig.advance(60_000)
    assert popper.ask(order=True, maxMsgNums=2).fields["orderCountInfo"] == "0 qo0%0 2;0 qo0%1 2;0 0 2"
    assert rig.records("%RETRY%g_T") == [], "nothing goes to a retry topic"


def test_an_acknowledgement_of_an_earlier_pop_settles_nothing(rig, popper, two):
    rig.advance(10_000)
    again = in_order(popper)
    assert popper.ack(two[0]) == popper.ack(two[1]) == ResponseCode.SUCCESS
    assert popper.committed() == 0
    popper.ack(again[0])
    assert popper.committed() == 1


def test_the_same_attempt_is_given_the_same_messages(popper, two):
    answer = popper.ask(order=True, maxMsgNums=2, attemptId="first")
    assert bodies(popper.read(answer)) == [b"a", b"b"]
    assert answer.fields["orderCountInfo"] == "0 0 0", "the answer was lost: that is no attempt"
    assert in_order(popper, attemptId="second") == []


def test_a_message_may_be_hidden_for_longer_and_for_less_with_the_same_receipt(rig, popper, two):
    first, second = two
    rig.advance(9_000)
    changed = popper.change(first, 5_000)
    assert changed.code == ResponseCode.SUCCESS
    popped_ms = int(first[2].split(" ")[1])
    assert changed.fields == {"popTime": str(popped_ms), "invisibleTime": "14000", "reviveQid": "999"}
    rig.advance(4_999)
    assert in_order(popper) == []
    popper.change(first, 0)
    popper.change(second, 0)
    assert bodies(in_order(popper)) == [b"a", b"b", b"c"]
    assert popper.change(first, 5_000).code == ResponseCode.NO_MESSAGE


def test_pops_that_wait_are_woken_when_the_queue_is_free(rig, popper, two):
    assert popper.ask(order=True, pollTime=60_000) is None
    give(rig, b"d")
    assert popper.answers() == [], "a new message does not unblock"
    popper.ack(two[0])
    assert popper.answers() == []
    popper.ack(two[1])
    (answer,) = popper.answers()
    assert bodies(popper.read(answer)) == [b"c", b"d"]


def test_pops_that_wait_are_woken_when_the_invisible_time_has_passed(rig, popper, two):
    assert popper.ask(order=True, pollTime=60_000) is None
    rig.advance(9_999)
    assert popper.answers() == []
    rig.advance(1)
    (answer,) = popper.answers()
    assert bodies(popper.read(answer)) == [b"a", b"b", b"c"]


def test_a_question_in_order_knows_of_blocked_queues(rig, popper, two):
    fields = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 0, "order": True}
    assert rig.call(RequestCode.NOTIFICATION, fields).fields["hasMsg"] == "false"
    assert rig.call(RequestCode.NOTIFICATION, fields | {"attemptId": "first"}).fields["hasMsg"] == "true"
    for popped in two:
        popper.ack(popped)
    assert rig.call(RequestCode.NOTIFICATION, fields).fields["hasMsg"] == "true"


def test_messages_that_the_group_does_not_want_are_passed_over(rig, popper):
    give(rig, b"x", b"y", TAGS="other")
    give(rig, b"a", TAGS="t")
    (popped,) = in_order(popper, exp="t")
    popper.ack(popped)
    assert popper.committed() == 3
    give(rig, b"z", TAGS="other")
    assert in_order(popper, exp="t") == []
    assert popper.committed() == 4


def test_a_reset_frees_a_queue(rig, popper, two):
    fields = {"group": "g", "topic": "T", "queueId": 0, "offset": 1, "timestamp": 0, "isForce": True}
    rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert bodies(in_order(popper)) == [b"b", b"c"]
    popper.ack(two[0])
    assert popper.committed() == 1


def test_a_message_that_the_pop_did_not_bring_is_refused(popper, two):
    assert popper.ack(two[0], offset=2) == ResponseCode.MESSAGE_ILLEGAL
    assert popper.committed() == 0


def test_what_is_blocked_stays_blocked_over_a_stop(rig, popper, two):
    popper.ack(two[1])
    rig.advance(4_000)
    rig.reopen()
    rig.advance(5_999)
    assert in_order(popper) == []
    popper.ack(two[0])
    assert popper.committed() == 2
    assert bodies(in_order(popper)) == [b"c"]


def test_the_file_is_rocketmqs(rig, popper, two):
    popper.ack(two[1])
    rig.close()
    popped_ms = int(two[0][2].split(" ")[1])
    document = json.loads((rig.root / "config" / FILE).read_text())
    assert document["table"]["T@g"]["0"] == {
        "popTime": popped_ms, "i": 10_000, "l": rig.clock.now_ms(), "o": [0, 1], "cm": 2, "a": "first",
        "ot": {"0": popped_ms + 10_000}, "oc": {},
    }  # fmt: skip


def test_what_rocketmq_wrote_is_taken_over(rig, popper):
    give(rig, b"a", b"b", b"c")
    popper.ack(popper.pop(maxMsgNums=1)[0])
    rig.close()
    popped_ms = rig.clock.now_ms()
    (rig.root / "config" / FILE).write_text(
        f'{{"table":{{"T@g":{{0:{{"popTime":{popped_ms},"i":5000,"o":[0,1,2],"cm":0,"oc":{{1:3}},"l":1,"a":"x"}},'
        '1:{"popTime":1,"o":[]}},"gone@g":{0:{"popTime":1,"i":5000,"o":[0]}}}}'
    )
    rig.open()
    assert in_order(popper) == []
    rig.advance(5_000)
    answer = popper.ask(order=True)
    assert bodies(popper.read(answer)) == [b"b", b"c"]
    assert answer.fields["orderCountInfo"] == "0 qo0%1 4;0 qo0%2 1;0 0 1"
