"""Consumer groups by request, and how far they have come."""

from __future__ import annotations

import pytest

from orbitmq.broker import groups
from orbitmq.protocol.remoting.bodies import (
    ConsumeStats,
    GroupForbidden,
    GroupList,
    ProducerTableInfo,
    QuerySubscriptionBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicList,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode


def put(rig, name, **more):
    body = SubscriptionGroupConfig(group_name=name, **more).encode()
    return rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


def table(rig):
    return SubscriptionGroupWrapper.decode(rig.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)


def test_groups_are_made_listed_and_deleted(rig):
    assert put(rig, "g", retry_max_times=3).code == ResponseCode.SUCCESS
    assert table(rig).subscription_group_table["g"].retry_max_times == 3
    answer = rig.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert SubscriptionGroupConfig.decode(answer.body).retry_max_times == 3
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert "g" not in table(rig).subscription_group_table
    assert rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}).code == ResponseCode.SUCCESS


def test_many_at_once(rig):
    configs = [SubscriptionGroupConfig(group_name="a"), SubscriptionGroupConfig(group_name="b")]
    body = SubscriptionGroupList(group_config_list=configs).encode()
    assert rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body).code == ResponseCode.SUCCESS
    assert {"a", "b"} <= table(rig).subscription_group_table.keys()


def test_illegal_name(rig):
    answer = put(rig, "a b")
    assert (answer.code, "'a b'" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)


def test_built_in_groups_always_exist(make_rig):
    rig = make_rig(auto_create_subscription_group=False)
    assert {"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= table(rig).subscription_group_table.keys()
    assert rig.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}).code == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    )


def test_groups_outlive_a_restart(rig):
    put(rig, "g", consume_enable=False)
    rig.reopen()
    assert rig.broker.groups.known("g").consume_enable is False


def test_forbidding_is_bounded(rig, monkeypatch):
    def forbid(topic, group="g", readable=False):
        fields = {"group": group, "topic": topic, "readable": readable}
        return rig.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)

    assert forbid("not legal").code == ResponseCode.INVALID_PARAMETER
    assert forbid("T", group="g" * 256).code == ResponseCode.INVALID_PARAMETER
    monkeypatch.setattr(groups, "FORBIDDEN_PAIRS_MAX", 2)
    assert [forbid(topic).code for topic in ("A", "B", "A")] == [0, 0, 0]
    assert "already forbidden for 2 pairs" in forbid("C").remark
    assert forbid("A", readable=True).code == 0


def test_attributes_of_a_group_are_changes(rig):
    put(rig, "g", attributes={"+priority.factor": "30"})
    assert rig.broker.groups.known("g").attributes == {"priority.factor": "30"}
    put(rig, "g", retry_max_times=3)
    assert rig.broker.groups.known("g").attributes == {"priority.factor": "30"}
    put(rig, "g", attributes={"-priority.factor": ""})
    assert rig.broker.groups.known("g").attributes == {}


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ({"+priority.factor": "101"}, "between 0 and 100, not 101"),
        ({"+priority.factor": "many"}, "is a number, not 'many'"),
        ({"priority.factor": "30"}, "must begin with + or -"),
        ({"+lite.sub.model": "Shared"}, "lite topics are not part of this broker"),
        ({"+nokey": "1"}, "known are priority.factor"),
    ],
)
def test_attributes_of_a_group_are_checked(rig, attributes, remark):
    answer = put(rig, "g", attributes=attributes)
    assert (answer.code, remark in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert rig.broker.groups.known("g") is None


def test_settings_of_a_group_have_a_size(rig):
    answer = put(rig, "g", attributes={"a": "x" * 70_000})
    assert (answer.code, "at most 65536" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert rig.broker.groups.known("g") is None


def test_forbidding(rig):
    def ask(**more):
        answer = rig.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", "topic": "T", **more})
        return GroupForbidden.decode(answer.body).readable

    assert [ask(), ask(readable=False), ask(), ask(readable=True), ask()] == [True, False, False, True, True]
    ask(readable=False)
    assert table(rig).forbidden_table == {"g": {"T": 4}}


def test_progress(rig):
    for _ in range(4):
        rig.sent_ok("T")
        rig.clock.advance(10)
    rig.heartbeat(rig.peer(), "c", "g", ["T", "%RETRY%g"])
    rig.pull("T", 1, maxMsgNums=2)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 2}
    rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    stats = ConsumeStats.decode(rig.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}).body)
    first = {queue.queue_id: one for queue, one in stats.offset_table.items() if queue.topic == "T"}[0]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (4, 2, 3)
    assert first.last_timestamp == rig.records("T")[1].store_timestamp
    stats = ConsumeStats.decode(rig.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "T"}).body)
    assert {queue.topic for queue in stats.offset_table} == {"T", "%RETRY%g"}


def test_who_reads_what(rig):
    rig.sent_ok("T")
    rig.heartbeat(rig.peer(), "c", "online", ["T"], sub_string="a")
    rig.broker.offsets.commit("offline", "T", 0, 1)
    answer = rig.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
    assert GroupList.decode(answer.body).group_list == ["offline", "online"]
    answer = rig.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "offline"})
    assert TopicList.decode(answer.body).topic_list == ["T"]
    answer = rig.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "online", "topic": "T"})
    assert QuerySubscriptionBody.decode(answer.body).subscription_data.sub_string == "a"
    answer = rig.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "offline", "topic": "T"})
    assert QuerySubscriptionBody.decode(answer.body).subscription_data is None


def test_producers_are_listed(rig):
    rig.heartbeat(rig.peer(), "c", producer="p")
    data = ProducerTableInfo.decode(rig.call(RequestCode.GET_ALL_PRODUCER_INFO).body).data
    assert [one.client_id for one in data["p"]] == ["c"]


def test_offsets_are_cloned(rig):
    rig.sent_ok("T")
    rig.broker.offsets.commit("from", "T", 0, 5)
    fields = {"srcGroup": "from", "destGroup": "to", "topic": "T", "offline": True}
    assert rig.call(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUCCESS
    assert rig.broker.offsets.query("to", "T", 0) == 5


def test_offsets_of_all_topics_are_cloned_or_none(rig):
    for topic in ("A", "B", "Z"):
        rig.sent_ok(topic)
        rig.broker.offsets.commit("from", topic, 0, 5)
    fields = {"srcGroup": "from", "destGroup": "to", "topic": "", "offline": True}
    gone = rig.broker.topics.get("B")
    rig.broker.topics.delete("B")
    assert rig.call(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.TOPIC_NOT_EXIST
    assert {group for group, _ in rig.broker.offsets.pairs()} == {"from"}, "nothing was changed for the others either"
    rig.broker.topics.put(gone, {})
    assert rig.call(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUCCESS
    assert [rig.broker.offsets.query("to", topic, 0) for topic in ("A", "B", "Z")] == [5, 5, 5]


@pytest.mark.parametrize("name", ["", "\0", "9" * 400, "a b"])
def test_a_group_that_cannot_be_gets_no_offsets(rig, name):
    rig.sent_ok("T")
    rig.broker.offsets.commit("from", "T", 0, 5)
    fields = {"srcGroup": "from", "destGroup": name, "topic": "T", "offline": True}
    assert rig.call(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert {group for group, _ in rig.broker.offsets.pairs()} == {"from"}
