"""Members of a group that differ, or share a client id: found, worded, logged once, shown to tools."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker import clients
from orbitmq.broker.agreement import Voice, disagreements, wishes_of
from orbitmq.limits.broker import GROUP_WARNINGS_MAX, MEMBERS_COMPARED_MAX, WISHES_COMPARED_MAX
from orbitmq.protocol.remoting.bodies import (
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.remoting.commands import RequestCode


def wishes(*topics: tuple[str, str], **more: object):
    subscriptions = [SubscriptionData(topic=topic, sub_string=expression) for topic, expression in topics]
    return wishes_of(ConsumerData(group_name="g", subscription_data_set=subscriptions, **more))


def voices(*each):
    return [Voice(f"c{number}", f"10.0.0.{number}:1", one) for number, one in enumerate(each)]


class TestWhatIsSaid:
    def test_members_that_want_the_same_agree(self):
        same = wishes(("T", "a || b"), ("U", "*"))
        assert disagreements(voices(same, wishes(("U", "*"), ("T", "b||a")), same)) == ()
        assert disagreements([]) == ()

    def test_different_tags_are_told_with_who_wants_which(self):
        (said,) = disagreements(voices(wishes(("T", "a")), wishes(("T", "b")), wishes(("T", "a"))))
        assert said == "clients differ about topic 'T': tags 'a' by c0, c2; tags 'b' by c1"

    def test_a_topic_that_only_one_wants(self):
        (said,) = disagreements(voices(wishes(("T", "*")), wishes(("T", "*"), ("U", "*"))))
        assert said == "clients differ about topic 'U': nothing by c0; tags '*' by c1"

    def test_model_and_type_count_as_well(self):
        said = disagreements(
            voices(
                wishes(),
                wishes(message_model=MessageModel.BROADCASTING),
                wishes(consume_type=ConsumeType.CONSUME_ACTIVELY),
            )
        )
        assert [one.split(":")[0] for one in said] == [
            "clients differ about the consume type",
            "clients differ about the message model",
        ]

    def test_retry_topics_do_not_count(self):
        assert disagreements(voices(wishes(("%RETRY%g", "*")), wishes())) == ()

    def test_two_connections_with_one_client_id(self):
        one = wishes(("T", "*"))
        (said,) = disagreements([Voice("c", "10.0.0.1:1", one), Voice("c", "10.0.0.2:1", one)])
        assert said.startswith("client id 'c' is used by 2 connections (10.0.0.1:1, 10.0.0.2:1)")

    def test_a_member_that_has_not_spoken_yet_is_not_compared(self):
        assert disagreements(voices(wishes(("T", "a")), None)) == ()

    def test_sentences_and_names_are_bounded(self):
        many = [wishes(*((f"T{n}-{'x' * 300}", str(who)) for n in range(40))) for who in range(9)]
        said = disagreements(voices(*many))
        assert len(said) == GROUP_WARNINGS_MAX
        assert said[-1] == f"and {40 - GROUP_WARNINGS_MAX + 1} more"
        assert max(map(len, said)) < 800

    def test_as_many_members_as_may_be_are_compared(self):
        other = wishes(("T", "b"))
        many = [wishes(("T", "a"))] * (MEMBERS_COMPARED_MAX - 1)
        assert len(disagreements(voices(*many, other))) == 1
        assert disagreements(voices(*many, many[0], other)) == ()

    def test_what_lies_beyond_the_compared_topics_is_compared_as_a_whole(self):
        topics = [(f"T{number:04}", "*") for number in range(WISHES_COMPARED_MAX + 3)]
        same, other = wishes(*topics), wishes(*topics[:-1], (topics[-1][0], "a"))
        assert len(same) <= WISHES_COMPARED_MAX + 3
        assert disagreements(voices(same, same)) == ()
        assert "further topics" in disagreements(voices(same, other))[0]


class TestInTheBroker:
    @pytest.fixture
    def shown(self, rig):
        def shown() -> list[str] | None:
            answer = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
            return ConsumerConnection.decode(answer.body).orbitmq_warnings

        return shown

    def test_a_difference_is_logged_once_and_shown_while_it_lasts(self, rig, shown, caplog):
        caplog.set_level(logging.INFO, "orbitmq.broker")
        first, second = rig.peer(), rig.peer()
        rig.heartbeat(first, "c1", "g", ["T"], sub_string="a")
        assert shown() is None
        for _ in range(3):
            rig.heartbeat(second, "c2", "g", ["T"], sub_string="b", sub_version=2)
            rig.heartbeat(first, "c1", "g", ["T"], sub_string="a", sub_version=3)
        assert len(shown()) == 1
        said = [record.getMessage() for record in caplog.records if "does not agree" in record.getMessage()]
        assert said == [f"group g does not agree, the last heartbeat counts: {shown()[0]}"]
        rig.heartbeat(second, "c2", "g", ["T"], sub_string="a", sub_version=4)
        assert shown() is None
        assert caplog.records[-1].getMessage() == "group g agrees again"

    def test_it_ends_when_the_other_leaves(self, rig, shown):
        first, second = rig.peer(), rig.peer()
        rig.heartbeat(first, "c1", "g", ["T"], sub_string="a")
        rig.heartbeat(second, "c2", "g", ["T"], sub_string="b")
        assert shown() is not None
        rig.broker.peer_closed(second)
        assert shown() is None

    def test_two_programs_with_one_client_id_are_both_members_and_one_name(self, rig, shown):
        """The list that queues are allocated by names the client once: each of the two then takes every queue, rather than
        half of the queues being nobody's."""
        rig.heartbeat(rig.peer(), "same", "g", ["T"])
        rig.heartbeat(rig.peer(), "same", "g", ["T"])
        assert "is used by 2 connections" in shown()[0]
        answer = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        assert [one.client_id for one in ConsumerConnection.decode(answer.body).connection_set] == ["same", "same"]
        assert rig.broker.clients.consumer("g").client_ids() == ["same"]

    def test_heartbeats_without_subscriptions_keep_what_was_said(self, rig, shown):
        first, second = rig.peer(), rig.peer()
        rig.heartbeat(first, "c1", "g", ["T"], sub_string="a", fingerprint=1)
        rig.heartbeat(second, "c2", "g", ["T"], sub_string="b", fingerprint=2)
        rig.heartbeat(first, "c1", "g", fingerprint=1, without_sub=True)
        assert len(shown()) == 1


class TestOffsetsBeyondTheEnd:
    def commit(self, rig, offset):
        fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}
        return rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def test_they_are_stored_counted_and_logged_once(self, rig, caplog):
        rig.sent_ok("T")
        rig.heartbeat(rig.peer(), "c", "g", ["T"])
        self.commit(rig, 1)
        assert rig.broker.offsets.beyond_end_count == 0
        for offset in (5, 6):
            assert self.commit(rig, offset).code == 0
        assert rig.broker.offsets.beyond_end_count == 2
        assert rig.broker.offsets.query("g", "T", 0) == 6
        said = [record.getMessage() for record in caplog.records if "committed offset" in record.getMessage()]
        assert len(said) == 1
        assert "committed offset 5 on queue 0 of T, which ends at 1" in said[0]

    def test_the_pull_that_follows_is_sent_to_the_end(self, rig):
        rig.sent_ok("T")
        answer = rig.pull("T", 6)
        assert answer.code == 21  # PULL_OFFSET_MOVED
        assert answer.integer("nextBeginOffset") == 1

    def test_a_negative_offset_counts_as_none(self, rig):
        rig.sent_ok("T")
        rig.heartbeat(rig.peer(), "c", "g", ["T"])
        self.commit(rig, -1)
        assert rig.broker.offsets.query("g", "T", 0) is None
        assert rig.broker.offsets.beyond_end_count == 0


class TestWhatIsKept:
    """Comparing needs memory: members that want the same share it, and all together have a bound."""

    def test_members_that_want_the_same_share_their_wishes(self, rig):
        for number in range(20):
            rig.heartbeat(rig.peer(), f"c{number}", "g", ["T", "U"])
        group = rig.broker.clients.consumer("g")
        assert len({id(member.wishes) for member in group.members.values()}) == 1
        assert rig.broker.clients._wish_count == 4  # two topics, the model, the type

    def test_beyond_the_bound_members_are_served_but_not_compared(self, rig, monkeypatch):
        monkeypatch.setattr(clients, "CLIENT_WISHES_MAX", 8)
        peers = [rig.peer() for _ in range(4)]
        for number, peer in enumerate(peers):
            assert rig.heartbeat(peer, f"c{number}", "g", ["T"], sub_string=f"tag{number}").code == 0
        group = rig.broker.clients.consumer("g")
        assert [member.wishes is None for member in group.members.values()] == [False, False, True, True]
        assert len(group.client_ids()) == 4

    def test_who_changes_its_mind_or_its_name_keeps_no_room_for_what_it_wanted(self, rig):
        peer = rig.peer()
        for client, tags in (("c", "a"), ("c", "b"), ("d", "b")):
            rig.heartbeat(peer, client, "g", ["T"], sub_string=tags)
        assert rig.broker.clients._wish_count == 3
        rig.broker.peer_closed(peer)
        assert rig.broker.clients._wish_count == 0

    def test_room_comes_back_with_members_that_leave(self, rig):
        peers = [rig.peer() for _ in range(3)]
        for number, peer in enumerate(peers):
            rig.heartbeat(peer, f"c{number}", "g", ["T"], sub_string=f"tag{number}")
        assert rig.broker.clients._wish_count == 9
        rig.broker.peer_closed(peers[0])
        assert rig.broker.clients._wish_count == 6
        for peer in peers[1:]:
            rig.broker.peer_closed(peer)
        assert rig.broker.clients._wish_count == 0
