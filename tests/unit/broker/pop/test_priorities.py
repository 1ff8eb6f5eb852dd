"""Priorities: the queue that a priority chooses, and the order in which pops read the queues."""

from __future__ import annotations

import pytest

from orbitmq.broker.pop.taking import PopTaker
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

ALL = {"queueId": -1}
PRIORITY = "_SYS_MSG_PRIORITY_"


def make_topic(rig, queues=4, kind="PRIORITY"):
    fields = {"defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    fields |= {"topic": "T", "topicFilterType": "SINGLE_TAG", "attributes": f"+message.type={kind}"}
    assert rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


def give(rig, *priorities):
    for priority in priorities:
        rig.sent_ok("T", str(priority).encode(), {PRIORITY: str(priority)})


def is_highest_first(bodies):
    return bodies == sorted(bodies, reverse=True)


class TestSending:
    @pytest.mark.parametrize("kind", ["PRIORITY", "NORMAL"])
    @pytest.mark.parametrize(("priority", "queue_id"), [("0", 0), ("2", 2), ("3", 3), ("99", 3)])
    def test_a_priority_chooses_the_queue_whatever_the_type_of_the_topic(self, rig, kind, priority, queue_id):
        make_topic(rig, kind=kind)
        for _ in range(2):  # the second time the topic is known
            assert rig.sent_ok("T", b"x", {PRIORITY: priority}, queue_id=1).fields["queueId"] == str(queue_id)
        assert decode_properties(rig.records("T", queue_id)[0].properties)[PRIORITY] == priority

    @pytest.mark.parametrize("text", ["-1", "soon", "1_0", " 1", "2147483648"])
    def test_what_is_no_priority_is_left_alone(self, rig, text):
        make_topic(rig)
        assert rig.sent_ok("T", b"x", {PRIORITY: text}, queue_id=1).fields["queueId"] == "1"
        assert decode_properties(rig.records("T", 1)[0].properties)[PRIORITY] == text

    @pytest.mark.parametrize("more", [{"__SHARDINGKEY": "k"}, {"DELAY": "0"}])
    def test_another_type_wins_and_the_priority_goes(self, rig, more):
        make_topic(rig)
        assert rig.sent_ok("T", b"x", {PRIORITY: "3", **more}, queue_id=1).fields["queueId"] == "1"
        assert PRIORITY not in decode_properties(rig.records("T", 1)[0].properties)


class TestPopping:
    def test_from_the_highest_down(self, rig, popper):
        make_topic(rig)
        give(rig, 1, 3, 0, 2, 3)
        assert popper.bodies(**ALL) == [b"3", b"3", b"2", b"1", b"0"]

    def test_a_reader_that_goes_upwards_is_caught(self, rig, popper, monkeypatch):
        make_topic(rig)
        monkeypatch.setattr(PopTaker, "_in_order", lambda self, count, *, by_priority: range(count))
        give(rig, 1, 3, 0, 2, 3)
        assert not is_highest_first(popper.bodies(**ALL))

    def test_the_other_way_round_when_0_is_the_highest(self, make_rig, make_popper):
        rig = make_rig(priority_order_asc=False)
        make_topic(rig)
        give(rig, 1, 3, 0, 2)
        assert make_popper(rig).bodies(**ALL) == [b"0", b"1", b"2", b"3"]

    def test_topics_of_other_types_are_read_from_any_queue_on(self, rig, popper):
        make_topic(rig, kind="NORMAL")
        give(rig, 1, 3, 0, 2)
        assert popper.bodies(**ALL) == [b"2", b"3", b"0", b"1"], "50 of 100, that is queue 2 of 4"

    @pytest.mark.parametrize(("factor", "ordered"), [("51", True), ("50", False), ("0", False)])
    def test_as_often_as_the_group_says(self, rig, popper, factor, ordered):
        make_topic(rig)
        config = SubscriptionGroupConfig(group_name="g", attributes={"+priority.factor": factor})
        assert rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode()).code == 0
        give(rig, 1, 3, 0, 2)
        assert is_highest_first(popper.bodies(**ALL)) is ordered

    def test_what_comes_back_comes_after_the_topic(self, rig, popper):
        make_topic(rig)
        rig.chosen_queue = 0  # by chance, a pop of another topic would take of the retry topic first
        give(rig, 0)
        popper.pop(**ALL, invisibleTime=1_000)
        give(rig, 1)
        rig.advance(1_000)
        assert popper.bodies(**ALL) == [b"1", b"0"]

    def test_with_retry_queues_of_their_own_it_keeps_its_priority(self, make_rig, make_popper):
        rig = make_rig(use_separate_retry_queue=True)
        popper = make_popper(rig)
        make_topic(rig)
        give(rig, 0, 2)
        popper.pop(**ALL, invisibleTime=1_000)
        rig.advance(1_000)
        assert [len(rig.records("%RETRY%g_T", number)) for number in range(4)] == [1, 0, 1, 0]
        assert popper.bodies(**ALL, invisibleTime=1_000) == [b"2", b"0"]
        rig.advance(1_000)
        rig.advance(1_000)
        assert [len(rig.records("%RETRY%g_T", number)) for number in range(4)] == [2, 0, 2, 0]

    def test_a_retry_topic_grows_with_its_topic(self, make_rig, make_popper):
        rig = make_rig(use_separate_retry_queue=True)
        popper = make_popper(rig)
        for queues in (2, 4):
            make_topic(rig, queues)
            give(rig, queues - 1)
            popper.pop(**ALL, invisibleTime=1_000)
            rig.advance(1_000)
            assert rig.broker.topics.get("%RETRY%g_T").read_queue_nums == queues
            assert popper.bodies(**ALL) == [str(queues - 1).encode()]
