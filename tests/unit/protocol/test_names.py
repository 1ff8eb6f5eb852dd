"""Names, permissions, and what a broker creates at start."""

from __future__ import annotations

import pytest

from orbitmq.protocol.names import (
    BUILT_IN_GROUPS,
    READ_WRITE,
    TEMPLATE,
    Perm,
    SystemTopic,
    dlq_topic,
    group_name_problem,
    is_send_forbidden,
    is_system_group,
    is_system_topic,
    reply_topic,
    retry_topic,
    system_topics,
    topic_name_problem,
)


@pytest.mark.parametrize(
    "name", ["T", "a-b_c", "%RETRY%g", "ns%topic", "a|b", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%g"]
)
def test_legal_topics(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "characters"),
        ("a\n", "characters"),
        ("a+b", "characters"),
        ("ä", "characters"),
        ("a.b", "characters"),
        ("x" * 128, "128 characters, at most 127"),
        ("%RETRY%" + "g" * 249, "256 characters, at most 255"),
    ],
)
def test_illegal_topics(name: str, problem: str) -> None:
    assert problem in str(topic_name_problem(name))


def test_groups_follow_the_same_characters_up_to_255() -> None:
    assert group_name_problem("g" * 255) is None
    assert "at most 255" in str(group_name_problem("g" * 256))
    assert "blank" in str(group_name_problem(" "))
    assert "characters" in str(group_name_problem("a/b"))


def test_derived_names() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


def test_system_topics_are_recognised() -> None:
    for name in [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "rmq_sys_anything",
        "orbitmq_sys_anything",
        "CHECKPOINT_TOPIC",
    ]:
        assert is_system_topic(name)
    assert not is_system_topic("DefaultCluster")
    assert is_system_topic("DefaultCluster", cluster="DefaultCluster")
    assert is_system_topic("DefaultCluster_REPLY_TOPIC", cluster="DefaultCluster")
    assert is_system_topic("broker-a", broker="broker-a")
    assert not is_system_topic("TopicTest", cluster="DefaultCluster", broker="broker-a")


def test_sending_is_forbidden_where_only_the_broker_writes() -> None:
    assert is_send_forbidden("SCHEDULE_TOPIC_XXXX")
    assert is_send_forbidden("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert is_send_forbidden("orbitmq_sys_anything")
    assert is_send_forbidden("rmq_sys_REVIVE_LOG_DefaultCluster")
    assert not is_send_forbidden("TBW102")
    assert not is_send_forbidden("BenchmarkTest")


def test_system_groups() -> None:
    assert is_system_group("CID_RMQ_SYS_anything")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("OneMoreGroup")
    assert len(BUILT_IN_GROUPS) == 8
    assert sum(group.consume_broadcast for group in BUILT_IN_GROUPS) == 5


def test_permission_numbers() -> None:
    assert READ_WRITE == 6
    assert TEMPLATE == 7
    assert Perm.PRIORITY == 8


def test_topics_at_start() -> None:
    topics = {topic.name: topic for topic in system_topics("C", "b")}
    assert topics["TBW102"] == SystemTopic("TBW102", 8, TEMPLATE)
    assert topics["SCHEDULE_TOPIC_XXXX"] == SystemTopic("SCHEDULE_TOPIC_XXXX", 18, READ_WRITE)
    assert topics["BenchmarkTest"].queues == 1024
    assert topics["C"] == SystemTopic("C", 16, TEMPLATE)
    assert topics["b"] == SystemTopic("b", 1, TEMPLATE)
    assert topics["rmq_sys_REVIVE_LOG_C"].queues == 8
    assert topics["rmq_sys_SYNC_BROKER_MEMBER_b"].perm == 1
    assert "RMQ_SYS_TRACE_TOPIC" not in topics
    assert "TRANS_CHECK_MAX_TIME_TOPIC" not in topics
    assert all(is_system_topic(name, cluster="C", broker="b") for name in topics)
    assert all(topic_name_problem(name) is None for name in topics)


def test_switches_of_the_topics_at_start() -> None:
    topics = {
        topic.name: topic
        for topic in system_topics(
            "C",
            "b",
            auto_create_queues=None,
            cluster_topic=False,
            broker_topic=False,
            trace_topic="trace",
            timer_wheel=False,
        )
    }
    assert "TBW102" not in topics
    assert "rmq_sys_wheel_timer" not in topics
    assert topics["C"].perm == topics["b"].perm == Perm.INHERIT
    assert topics["trace"] == SystemTopic("trace", 1, READ_WRITE)
