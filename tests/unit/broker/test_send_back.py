"""Sending back: retry levels, the dead-letter topic, and what the copy keeps."""

from __future__ import annotations

import pytest

from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.versions import version_ordinal


def send_back(rig, record, level=0, **more):
    fields = {
        "offset": record.physical_offset,
        "group": "g",
        "delayLevel": level,
        "originMsgId": "",
        "originTopic": record.topic,
        **more,
    }
    return rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


@pytest.fixture
def record(rig):
    rig.sent_ok("T", b"hard", {"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "u" * 32}, flag=9, queue_id=2)
    return rig.records("T", 2)[0]


def test_copy_waits_in_the_third_level_first(rig, record):
    assert send_back(rig, record).code == ResponseCode.SUCCESS
    (copy,) = rig.records("SCHEDULE_TOPIC_XXXX", 2)
    stored = decode_properties(copy.properties)
    assert (copy.body, copy.flag, copy.born_timestamp, copy.born_host) == (
        record.body, record.flag, record.born_timestamp, record.born_host,
    )  # fmt: skip
    assert copy.reconsume_times == 1
    assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["DELAY"]) == ("%RETRY%g", "0", "3")
    assert stored["RETRY_TOPIC"] == "T"
    assert stored["ORIGIN_MESSAGE_ID"] == encode_offset_id(
        rig.broker.core.facilities.store_host, record.physical_offset
    )
    assert (stored["WAIT"], stored["TAGS"], stored["UNIQ_KEY"]) == ("false", "a", "u" * 32)
    assert stored["ORBITMQ_DUE_MS"] == str(rig.clock.now_ms() + 1 + 10_000)


def test_every_round_waits_longer_and_keeps_the_origin(rig, record):
    first = encode_offset_id(rig.broker.core.facilities.store_host, record.physical_offset)
    for round_number in range(1, 5):
        send_back(rig, record)
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 1 + round_number)
        stored = decode_properties(record.properties)
        assert (record.reconsume_times, stored["DELAY"]) == (round_number, str(2 + round_number))
        assert (stored["RETRY_TOPIC"], stored["ORIGIN_MESSAGE_ID"]) == ("T", first)


def test_level_of_the_consumer_is_taken(rig, record):
    send_back(rig, record, 5)
    assert len(rig.records("SCHEDULE_TOPIC_XXXX", 4)) == 1


@pytest.mark.parametrize("fields", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}])
def test_dead_letter(rig, record, fields):
    assert send_back(rig, record, **fields).code == ResponseCode.SUCCESS
    (letter,) = rig.records("%DLQ%g")
    stored = decode_properties(letter.properties)
    assert (letter.body, letter.reconsume_times) == (b"hard", 1)
    assert (stored["DELAY"], stored["RETRY_TOPIC"]) == ("0", "T")
    assert (rig.broker.topics.get("%DLQ%g").write_queue_nums, rig.broker.topics.get("%DLQ%g").perm) == (1, 6)
    assert rig.broker.statistics.dead_letter_count == 1


@pytest.mark.parametrize(("older", "dead"), [(1, False), (0, True)])
def test_clients_before_3_4_9_do_not_set_the_limit(rig, record, older, dead):
    rig.client_version = version_ordinal("3.4.9") - older
    send_back(rig, record, maxReconsumeTimes=0)
    assert len(rig.records("%DLQ%g")) == (1 if dead else 0)


def test_group_decides_the_number_of_attempts(rig, record):
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=1)
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
    send_back(rig, record)
    (copy,) = rig.records("SCHEDULE_TOPIC_XXXX", 2)
    send_back(rig, copy)
    assert len(rig.records("%DLQ%g")) == 1


def test_group_without_retry_queues_drops(rig, record):
    config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=0)
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
    assert send_back(rig, record).code == ResponseCode.SUCCESS
    assert rig.broker.topics.get("%RETRY%g") is None


def test_refusals(make_rig):
    rig = make_rig(auto_create_subscription_group=False)
    rig.sent_ok("T")
    record = rig.records("T")[0]
    assert send_back(rig, record).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(group_name="g").encode())
    missing = send_back(rig, record, offset=record.physical_offset + 1)
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert str(record.physical_offset + 1) in missing.remark
    rig.store.refuse("space", "the disk is full")
    assert send_back(rig, record).code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.store.allow("space")
    fields = {"topic": "%RETRY%g", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4, "topicFilterType": "SINGLE_TAG"}
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert send_back(rig, record).code == ResponseCode.NO_PERMISSION


def test_broker_that_is_not_writable(make_rig):
    rig = make_rig(broker_permission=4)
    rig.sent_ok("T")
    assert send_back(rig, rig.records("T")[0]).code == ResponseCode.NO_PERMISSION
