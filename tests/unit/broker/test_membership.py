"""Heartbeats, member lists, notices, expiry, and queue locks, seen from the connections."""

from __future__ import annotations

from typing import ClassVar

import pytest

from orbitmq.broker import clients
from orbitmq.protocol.remoting.bodies import (
    CheckClientBody,
    ConsumerConnection,
    ConsumerIdList,
    LockBatchRequest,
    LockBatchResponse,
    MessageModel,
    MessageQueue,
    ProducerConnection,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode


def notices(peer):
    return [
        command.fields["consumerGroup"]
        for command in peer.take()
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and command.is_oneway
    ]


def members(rig, group="g"):
    answer = rig.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return ConsumerIdList.decode(answer.body).consumer_id_list if answer.code == 0 else answer


def test_heartbeat_registers_and_makes_what_it_needs(rig):
    answer = rig.heartbeat(rig.peer(), "c1", "g", ["T"], producer="p")
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert members(rig) == ["c1"]
    retry = rig.broker.topics.get("%RETRY%g")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert rig.broker.groups.known("g") is not None
    answer = rig.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert [one.client_id for one in ProducerConnection.decode(answer.body).connection_set] == ["c1"]


def test_retry_topic_has_as_many_queues_as_the_group_says(rig):
    config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=3)
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
    rig.heartbeat(rig.peer(), "c1", "g", ["T"])
    assert rig.broker.topics.get("%RETRY%g").write_queue_nums == 3


def test_unknown_group_is_passed_over_in_silence(make_rig):
    rig = make_rig(auto_create_subscription_group=False)
    assert rig.heartbeat(rig.peer(), "c1", "g", ["T"]).code == ResponseCode.SUCCESS
    assert members(rig).code == ResponseCode.SYSTEM_ERROR
    assert rig.broker.topics.get("%RETRY%g") is None


def test_broken_heartbeat_is_answered(rig):
    answer = rig.call(RequestCode.HEART_BEAT, None, b"{nonsense")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert rig.call(RequestCode.HEART_BEAT, None, b"{}").code == ResponseCode.SYSTEM_ERROR


def test_what_a_heartbeat_may_leave_behind_is_bounded(rig, monkeypatch):
    refused = ResponseCode.SYSTEM_ERROR
    assert rig.heartbeat(rig.peer(), "c" * 1_025, "g", ["T"]).code == refused
    assert rig.heartbeat(rig.peer(), "c", "g", ["T"], producer="p" * 256).code == refused
    assert members(rig).code == ResponseCode.SYSTEM_ERROR, "nothing of a refused heartbeat is kept"

    monkeypatch.setattr(clients, "CLIENT_GROUPS_PER_CONNECTION_MAX", 2)
    crowded = rig.peer()
    assert rig.heartbeat(crowded, "c", "g", ["T"], producer="p").code == ResponseCode.SUCCESS
    assert "2 groups" in rig.heartbeat(crowded, "c", "g2", ["T"]).remark
    assert rig.heartbeat(crowded, "c", "g", ["T"], producer="p").code == ResponseCode.SUCCESS


def test_subscriptions_of_all_groups_share_one_bound(rig, monkeypatch):
    monkeypatch.setattr(clients, "CLIENT_SUBSCRIPTIONS_BYTES_MAX", 2_000)
    first, second = rig.peer(), rig.peer()
    assert rig.heartbeat(first, "c1", "g1", ["T"], sub_string="a" * 1_000).code == ResponseCode.SUCCESS
    answer = rig.heartbeat(second, "c2", "g2", ["T"], sub_string="b" * 1_000)
    assert (answer.code, "does not fit" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    rig.broker.peer_closed(first)
    assert rig.heartbeat(second, "c2", "g2", ["T"], sub_string="b" * 1_000).code == ResponseCode.SUCCESS


def test_members_are_told_of_a_newcomer(rig):
    first, second = rig.peer(), rig.peer()
    rig.heartbeat(first, "c1", "g", ["T"])
    assert notices(first) == ["g"]
    rig.heartbeat(second, "c2", "g", ["T"])
    assert (notices(first), notices(second)) == (["g"], ["g"])
    rig.heartbeat(second, "c2", "g", ["T"])
    assert (notices(first), notices(second)) == ([], [])


def test_new_topic_is_a_change_and_a_new_expression_is_not(rig):
    peer = rig.peer()
    rig.heartbeat(peer, "c1", "g", ["T"])
    notices(peer)
    rig.heartbeat(peer, "c1", "g", ["T"], sub_string="a", sub_version=2)
    assert notices(peer) == []
    assert rig.broker.clients.consumer("g").subscriptions["T"].sub_string == "a"
    rig.heartbeat(peer, "c1", "g", ["T"], sub_string="old", sub_version=1)
    assert rig.broker.clients.consumer("g").subscriptions["T"].sub_string == "a"
    rig.heartbeat(peer, "c1", "g", ["T", "U"])
    assert notices(peer) == ["g"]
    rig.heartbeat(peer, "c1", "g", ["U"])
    assert notices(peer) == ["g"]
    assert list(rig.broker.clients.consumer("g").subscriptions) == ["U"]


@pytest.mark.parametrize("how", ["broadcasting", "group", "broker"])
def test_who_is_not_told(make_rig, how):
    rig = make_rig(notify_consumer_ids_changed_enable=how != "broker")
    if how == "group":
        config = SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)
        rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
    model = MessageModel.BROADCASTING if how == "broadcasting" else MessageModel.CLUSTERING
    peer = rig.peer()
    rig.heartbeat(peer, "c1", "g", ["T"], message_model=model)
    assert notices(peer) == []


def test_unregistering_and_closing_leave_the_group(rig):
    peers = [rig.peer() for _ in range(3)]
    for index, peer in enumerate(peers):
        rig.heartbeat(peer, f"c{index}", "g", ["T"], producer="p")
    for peer in peers:
        notices(peer)
    rig.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "c0", "consumerGroup": "g"}, peer=peers[0])
    assert members(rig) == ["c1", "c2"]
    assert [notices(peer) for peer in peers] == [[], ["g"], ["g"]]
    rig.broker.peer_closed(peers[1])
    assert members(rig) == ["c2"]
    assert [notices(peer) for peer in peers] == [[], [], ["g"]]
    assert {one.client_id for one in rig.broker.clients.producer("p")} == {"c0", "c2"}
    rig.broker.peer_closed(peers[2])
    assert members(rig).code == ResponseCode.SYSTEM_ERROR


def test_silent_client_is_closed_after_two_minutes(rig):
    silent, alive = rig.peer(), rig.peer()
    rig.heartbeat(silent, "c1", "g", ["T"])
    for _ in range(4):
        rig.advance(30_000 - 1)
        rig.heartbeat(alive, "c2", "g", ["T"])
    assert silent.closed is None
    rig.advance(10)
    assert silent.closed is not None
    assert alive.closed is None


def test_without_clients_nothing_is_planned(rig):
    peer = rig.peer()
    rig.heartbeat(peer, "c1", "g", ["T"])
    assert rig.broker.next_tick_ns is not None
    rig.broker.peer_closed(peer)
    rig.advance(300_000)
    assert rig.broker.next_tick_ns is None


class TestVersion2:
    def test_first_and_changed_fingerprints_ask_for_the_full_form(self, rig):
        peer = rig.peer()
        changed = [
            rig.heartbeat(peer, "c1", "g", ["T"], fingerprint=number).fields["IS_SUB_CHANGE"] for number in (7, 7, 8, 8)
        ]
        assert changed == ["true", "false", "true", "false"]

    def test_without_subscriptions_the_known_ones_stay(self, rig):
        peer = rig.peer()
        rig.heartbeat(peer, "c1", "g", ["T"], fingerprint=7)
        rig.heartbeat(peer, "c1", "g", [], fingerprint=7, without_sub=True)
        assert list(rig.broker.clients.consumer("g").subscriptions) == ["T"]

    def test_after_a_restart_the_full_form_is_asked_for(self, rig):
        rig.heartbeat(rig.peer(), "c1", "g", ["T"], fingerprint=7)
        rig.reopen()
        answer = rig.heartbeat(rig.peer(), "c1", "g", [], fingerprint=7, without_sub=True)
        assert answer.fields["IS_SUB_CHANGE"] == "true"


def test_connections_are_listed(rig):
    peer = rig.peer()
    rig.heartbeat(peer, "c1", "g", ["T"], sub_string="a||b")
    answer = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    listed = ConsumerConnection.decode(answer.body)
    assert listed.subscription_table["T"].sub_string == "a||b"
    assert [one.client_addr for one in listed.connection_set] == [f"10.0.0.9:{peer.address[1]}"]
    offline = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "h"})
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert rig.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "h"}).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("a||b", "TAG", 0),
        ("||", "TAG", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a > 1", "SQL92", 0),
        ("a > ", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a > 1", "REGEX", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_subscription_is_checked_before_a_consumer_starts(rig, expression, kind, code):
    subscription = SubscriptionData(topic="T", sub_string=expression, expression_type=kind)
    body = CheckClientBody(client_id="c", group="g", subscription_data=subscription)
    assert rig.call(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode()).code == code


class TestQueueLocks:
    QUEUES: ClassVar = [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(3)]

    def lock(self, rig, client, queues):
        body = LockBatchRequest(client_id=client, consumer_group="g", mq_set=queues).encode()
        answer = rig.call(RequestCode.LOCK_BATCH_MQ, None, body)
        return sorted(queue.queue_id for queue in LockBatchResponse.decode(answer.body).lock_ok_mq_set)

    def unlock(self, rig, client, queues):
        body = LockBatchRequest(client_id=client, consumer_group="g", mq_set=queues).encode()
        assert rig.call(RequestCode.UNLOCK_BATCH_MQ, None, body).code == 0

    def test_first_come_first_served(self, rig):
        assert self.lock(rig, "a", self.QUEUES[:2]) == [0, 1]
        assert self.lock(rig, "b", self.QUEUES) == [2]
        assert self.lock(rig, "a", self.QUEUES) == [0, 1]

    def test_a_lock_lives_60_s_after_its_renewal(self, rig):
        self.lock(rig, "a", self.QUEUES[:1])
        rig.clock.advance(59_999)
        assert self.lock(rig, "b", self.QUEUES[:1]) == []
        self.lock(rig, "a", self.QUEUES[:1])
        rig.clock.advance(60_000)
        assert self.lock(rig, "b", self.QUEUES[:1]) == [0]

    def test_only_the_owner_unlocks(self, rig):
        self.lock(rig, "a", self.QUEUES[:1])
        self.unlock(rig, "b", self.QUEUES[:1])
        assert self.lock(rig, "b", self.QUEUES[:1]) == []
        self.unlock(rig, "a", self.QUEUES[:1])
        assert self.lock(rig, "b", self.QUEUES[:1]) == [0]
