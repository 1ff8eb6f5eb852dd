"""Topics: made by use and by request, changed, listed, deleted, and kept over a restart."""

from __future__ import annotations

import json

import pytest

from orbitmq.protocol.remoting.bodies import (
    TopicConfig,
    TopicConfigList,
    TopicConfigWrapper,
    TopicList,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

SHAPE = {"defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicFilterType": "SINGLE_TAG"}


def put(rig, topic="T", **more):
    return rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": topic, **SHAPE, **more})


def saved(rig):
    return json.loads((rig.root / "config" / "topics.json").read_bytes())


class TestAutomaticCreation:
    @pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (99, 8), (-3, 0)])
    def test_in_the_image_of_the_template(self, rig, wanted, queues):
        rig.send("T", defaultTopicQueueNums=wanted)
        topic = rig.broker.topics.get("T")
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (queues, queues, 6)

    def test_template_must_be_heritable(self, rig):
        put(rig, "plain")
        assert rig.send("T", defaultTopic="plain").code == ResponseCode.TOPIC_NOT_EXIST
        put(rig, "model", perm=7, writeQueueNums=3)
        rig.sent_ok("T", defaultTopic="model")
        assert rig.broker.topics.get("T").write_queue_nums == 3

    def test_it_is_announced_once_and_saved_before_the_answer(self, rig):
        announced = []
        rig.broker.topics.on_change = lambda config: announced.append(config.topic_name)
        before = rig.broker.topics.version.counter
        rig.sent_ok("T")
        rig.sent_ok("T")
        assert announced == ["T"]
        assert rig.broker.topics.version.counter == before + 1
        assert saved(rig)["topicConfigTable"]["T"]["writeQueueNums"] == 4

    def test_retry_topic_has_one_queue_without_a_template(self, make_rig):
        rig = make_rig(auto_create_topic_enable=False)
        rig.sent_ok("%RETRY%g", defaultTopic="")
        assert rig.broker.topics.get("%RETRY%g").write_queue_nums == 1


class TestPut:
    def test_new_topic(self, rig):
        assert put(rig, order=True, attributes="+message.type=DELAY").code == ResponseCode.SUCCESS
        topic = TopicConfig.decode(rig.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"}).body)
        assert (topic.read_queue_nums, topic.order, topic.attributes) == (8, True, {"message.type": "DELAY"})

    def test_same_again_changes_nothing(self, rig):
        put(rig)
        version = rig.broker.topics.version
        put(rig)
        assert rig.broker.topics.version == version

    def test_change(self, rig):
        put(rig)
        put(rig, writeQueueNums=4)
        assert rig.broker.topics.get("T").write_queue_nums == 4

    def test_it_is_answered_when_the_name_servers_know(self, rig):
        pending = []
        rig.broker.rooms.administration.topics.after_registration = pending.append
        peer = rig.peer()
        assert rig.try_call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "T", **SHAPE}, peer=peer) is None
        pending.pop()()
        assert [answer.code for answer in peer.take()] == [ResponseCode.SUCCESS]
        assert put(rig).code == ResponseCode.SUCCESS  # nothing changed: at once

    @pytest.mark.parametrize(
        ("fields", "code", "word"),
        [
            ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "a b"),
            ({"topic": ""}, ResponseCode.INVALID_PARAMETER, "blank"),
            ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.INVALID_PARAMETER, "system topic"),
            ({"topic": "DefaultCluster"}, ResponseCode.INVALID_PARAMETER, "system topic"),
            ({"topic": "rmq_sys_any"}, ResponseCode.INVALID_PARAMETER, "system topic"),
            ({"topicFilterType": "X"}, ResponseCode.SYSTEM_ERROR, "topicFilterType"),
            ({"writeQueueNums": -1}, ResponseCode.INVALID_PARAMETER, "writeQueueNums"),
            ({"readQueueNums": 1 << 30}, ResponseCode.INVALID_PARAMETER, "readQueueNums"),
            ({"perm": 8}, ResponseCode.INVALID_PARAMETER, "perm"),
            ({"attributes": "message.type=DELAY"}, ResponseCode.SYSTEM_ERROR, "+ (set)"),
            ({"attributes": "+nokey=1"}, ResponseCode.SYSTEM_ERROR, "nokey"),
            ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR, "being created"),
            ({"attributes": "+message.type=DELAY,+message.type=FIFO"}, ResponseCode.SYSTEM_ERROR, "twice"),
            ({"attributes": "+message.type=SOMETIMES"}, ResponseCode.SYSTEM_ERROR, "SOMETIMES"),
            ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER, "MIXED"),
            ({"attributes": "+reserve.time=soon"}, ResponseCode.SYSTEM_ERROR, "soon"),
            ({"attributes": "+queue.type=BatchCQ"}, ResponseCode.SYSTEM_ERROR, "not part of this broker"),
            (
                {"attributes": "+message.type=LITE"},
                ResponseCode.SYSTEM_ERROR,
                "lite topics are not part of this broker",
            ),
            ({"attributes": "+lite.topic.expiration=5"}, ResponseCode.SYSTEM_ERROR, "lite topics are not part"),
        ],
    )
    def test_refused(self, rig, fields, code, word):
        before = rig.broker.topics.version
        answer = put(rig, **{"topic": "T", **fields})
        assert (answer.code, word in answer.remark) == (code, True)
        assert rig.broker.topics.version == before

    def test_attributes_of_an_existing_topic(self, rig):
        put(rig, attributes="+queue.type=SimpleCQ,+message.type=DELAY")
        assert put(rig, attributes="+queue.type=SimpleCQ").code == ResponseCode.SUCCESS
        assert put(rig, attributes="-queue.type").code == ResponseCode.SYSTEM_ERROR
        assert put(rig, attributes="-reserve.time").code == ResponseCode.SYSTEM_ERROR
        assert put(rig, attributes="-message.type").code == ResponseCode.SUCCESS
        assert rig.broker.topics.get("T").attributes == {"queue.type": "SimpleCQ"}

    def test_list(self, rig):
        topics = [TopicConfig(topic_name="A"), TopicConfig(topic_name="B", attributes={"+message.type": "FIFO"})]
        body = TopicConfigList(topic_config_list=topics).encode()
        assert rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body).code == ResponseCode.SUCCESS
        assert rig.broker.topics.get("B").attributes == {"message.type": "FIFO"}
        bad = TopicConfigList(topic_config_list=[TopicConfig(topic_name="C"), TopicConfig(topic_name="d e")]).encode()
        assert rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, bad).code == ResponseCode.INVALID_PARAMETER
        assert rig.broker.topics.get("C") is None


def test_delete_removes_the_messages_too(rig):
    rig.sent_ok("T")
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    assert rig.broker.topics.get("T") is None
    assert "T" not in saved(rig)["topicConfigTable"]
    rig.sent_ok("T", b"new")
    assert [(record.body, record.queue_offset) for record in rig.records("T")] == [(b"new", 0)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [("unknown", 0), ("", ResponseCode.INVALID_PARAMETER), ("SELF_TEST_TOPIC", ResponseCode.INVALID_PARAMETER)],
)
def test_delete_of_what_cannot_be_deleted(rig, topic, code):
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == code


def test_lists(rig):
    put(rig)
    answer = rig.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.has_fields
    assert "T" in TopicConfigWrapper.decode(answer.body).topic_config_table
    system = TopicList.decode(rig.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} <= set(system)
    assert "T" not in system
    assert rig.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "no"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_statistics(rig):
    rig.sent_ok("T")
    rig.sent_ok("T")
    table = TopicStatsTable.decode(rig.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}).body).offset_table
    shown = {
        queue.queue_id: (one.min_offset, one.max_offset, one.last_update_timestamp) for queue, one in table.items()
    }
    assert shown == {0: (0, 2, rig.clock.now_ms()), 1: (0, 0, 0), 2: (0, 0, 0), 3: (0, 0, 0)}
    assert rig.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "no"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_topics_outlive_a_restart(rig):
    put(rig, attributes="+message.type=DELAY")
    version = rig.broker.topics.version
    rig.reopen()
    assert rig.broker.topics.get("T").attributes == {"message.type": "DELAY"}
    assert rig.broker.topics.version == version


def test_registration_cuts_permissions_by_the_brokers(make_rig):
    rig = make_rig(broker_permission=4)
    announced = rig.broker.topics.wrapper(["BenchmarkTest", "unknown"], registration=True).topic_config_table
    assert {name: topic.perm for name, topic in announced.items()} == {"BenchmarkTest": 4}
    assert rig.broker.topics.get("BenchmarkTest").perm == 6


def test_table_that_cannot_be_saved_is_refused_and_tried_again(rig):
    real = rig.broker.topics._file

    class Failing:
        load = staticmethod(real.load)

        @staticmethod
        def save(document):
            raise OSError("disk on fire")

    rig.broker.topics._snapshots._file = Failing
    answer = put(rig)
    assert (answer.code, "disk on fire" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    rig.broker.topics._snapshots._file = real
    rig.advance(5_000)
    assert "T" in saved(rig)["topicConfigTable"]
    assert rig.broker.next_tick_ns is None
