"""Messages in flight whose topic or group is deleted, whose group is reset, or whose clock is set back."""

from __future__ import annotations

import pytest
from tests.unit.broker.pop.test_surviving import give, kill, said

from orbitmq.protocol.pop_records import PopAcks
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

HOUR_MS = 3_600_000
RETRY = "%RETRY%g_T"


def delete_topic(rig):
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS


def reset(rig):
    """The group begins with the first message again."""
    fields = {"topic": "T", "group": "g", "timestamp": 0, "isForce": True}
    assert rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == ResponseCode.SUCCESS


def consume_new_topic(rig, popper):
    """Messages of a topic with the same name are popped and acknowledged."""
    give(rig, b"x", b"y")
    found = popper.pop()
    assert [record.body for record, _, _ in found] == [b"x", b"y"]
    for popped in found:
        popper.ack(popped)


@pytest.mark.parametrize("end", [lambda rig: None, lambda rig: rig.reopen(), kill])
@pytest.mark.parametrize("in_flight_ms", [0, 15_000])
def test_what_was_in_flight_of_a_deleted_topic_touches_no_later_one(rig, popper, end, in_flight_ms):
    give(rig, b"a", b"b", b"c")
    popper.pop(invisibleTime=100_000)
    rig.advance(in_flight_ms)
    delete_topic(rig)
    end(rig)
    consume_new_topic(rig, popper)
    rig.reopen()
    rig.advance(200_000)
    assert (popper.bodies(), rig.records(RETRY)) == ([], [])


def test_what_is_popped_in_the_millisecond_of_a_deletion_is_told_apart_from_what_was_popped_before(rig, popper):
    give(rig, b"a")
    popped = popper.pop(invisibleTime=100_000)[0]
    rig.advance(15_000)  # it has a checkpoint, and the renewal gets one of its own
    assert popper.change(popped, 100_000).code == ResponseCode.SUCCESS
    delete_topic(rig)
    give(rig, b"x")
    assert popper.bodies(invisibleTime=100_000) == [b"x"]
    rig.reopen()
    rig.advance(100_001)
    assert popper.bodies() == [b"x"]


def test_a_checkpoint_of_a_deleted_topic_is_acknowledged_by_the_next_start(rig, popper):
    give(rig, b"a")
    popper.pop(invisibleTime=100_000)
    rig.reopen()
    rig.broker.offsets.drop_topic("T")
    kill(rig)
    rig.advance(1_000)
    assert [one.offsets for one in said(rig) if isinstance(one, PopAcks)] == [(0,)]


def test_a_copy_of_a_message_of_a_deleted_topic_passes_over_nothing(make_rig, make_popper):
    rig = make_rig(clear_retry_topic_when_delete_topic=False)
    popper = make_popper(rig)
    give(rig, b"a")
    popper.pop(invisibleTime=1_000)
    rig.advance(1_000)
    delete_topic(rig)
    give(rig, b"x")
    popper.pop(maxMsgNums=1, queueId=1)  # the group has an offset on the topic
    assert popper.committed() is None
    rig.broker.offsets.commit("g", "T", 0, 0)
    kill(rig)
    assert popper.bodies(maxMsgNums=1) == [b"x"]


def test_what_was_acknowledged_after_it_came_back_is_delivered_once_more_after_a_reset(rig, popper):
    give(rig, b"a", b"b")
    popper.ack(popper.pop(maxMsgNums=1)[0])
    popper.pop(invisibleTime=1_000)
    rig.advance(1_000)
    popper.ack(popper.pop()[0])
    reset(rig)
    rig.reopen()
    assert popper.bodies() == [b"a", b"b"]


def test_what_waits_in_the_retry_topic_is_not_delivered_beside_it_after_a_crash(make_rig, make_popper):
    rig = make_rig(use_separate_retry_queue=True)
    popper = make_popper(rig)
    rig.sent_ok("T", b"a", queue_id=2)
    rig.sent_ok("T", b"b", queue_id=2)
    popper.pop(queueId=2, maxMsgNums=1)  # holds the offset
    for _ in range(2):  # the copy becomes a copy in turn
        assert popper.bodies(queueId=2, invisibleTime=1_000) == [b"b"]
        rig.advance(1_000)
    kill(rig)
    assert sorted(popper.bodies(queueId=2) + popper.bodies(queueId=2)) == [b"a", b"b"]


def test_after_the_clock_was_set_back_messages_reappear_by_the_clock_as_it_is(rig, popper):
    give(rig, b"a", b"b")
    popper.pop()
    reset(rig)
    rig.clock.set_wall(rig.clock.now_ms() - HOUR_MS)
    first, _ = popper.pop(invisibleTime=5_000)
    rig.clock.set_wall(rig.clock.now_ms() - HOUR_MS)
    fields = popper.change(first, 7_000).fields
    assert int(fields["popTime"]) + int(fields["invisibleTime"]) == rig.clock.now_ms() + 7_000
    rig.advance(6_999)
    assert popper.bodies() == []
    rig.advance(1)
    assert popper.bodies() == [b"a"]


def test_pops_after_a_reset_differ_from_those_before_in_the_same_millisecond(rig, popper):
    give(rig, b"a")
    (before,) = popper.pop()
    reset(rig)
    (after,) = popper.pop()
    popper.ack(before)
    assert rig.broker.rooms.pops.in_flight.message_count == 1
    popper.ack(after)
    assert rig.broker.rooms.pops.in_flight.message_count == 0


def test_a_group_that_pops_of_anothers_retry_topic_adds_nothing_to_it(rig, popper):
    give(rig, b"a")
    popper.pop(invisibleTime=1_000)
    rig.advance(1_000)
    for _ in range(3):
        popper.ask(RETRY, group="other", invisibleTime=1_000)
        rig.advance(1_000)
    assert [record.body for record in rig.records(RETRY)] == [b"a"]
    answer = popper.ask(RETRY, group="other")
    assert answer.code == ResponseCode.SUCCESS, "it comes again for the group that popped it"
    assert answer.fields["msgOffsetInfo"] == "1 0 2"
