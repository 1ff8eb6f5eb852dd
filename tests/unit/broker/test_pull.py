"""Pulling: statuses, filters, limits, refusals, and pulls that wait."""

from __future__ import annotations

import errno

import pytest

from orbitmq.broker.choosing import filter_tests
from orbitmq.limits.broker import HELD_CHECK_NS, SLAVE_PULL_PAUSE_MS, SLAVE_PULLS_MAX
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import MessageModel, SubscriptionGroupConfig
from orbitmq.protocol.remoting.commands import HEADERS, RequestCode, ResponseCode
from orbitmq.store import reading
from orbitmq.store.files import OsFile

SUSPEND = 2
HEADER = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag"}


def bodies(answer):
    return [record.body for record in iter_records(bytes(answer.body))]


def test_found_messages_come_as_stored(rig):
    for number in range(3):
        rig.sent_ok("T", str(number).encode())
    answer = rig.pull("T", 1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert bodies(answer) == [b"1", b"2"]
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


@pytest.mark.parametrize(
    ("sent", "offset", "code", "remark", "next_offset"),
    [
        (0, 0, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0),
        (0, 5, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0),
        (2, 2, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2),
        (2, 3, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 2),
        (2, -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_statuses(rig, sent, offset, code, remark, next_offset):
    rig.sent_ok("T", queue_id=1)
    for _ in range(sent):
        rig.sent_ok("T")
    answer = rig.pull("T", offset)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.fields["nextBeginOffset"] == str(next_offset)
    assert answer.fields.keys() == HEADER


def test_tags_are_filtered_by_hash(rig):
    for tag in ("a", "b", "c", "a"):
        rig.sent_ok("T", tag.encode(), {"TAGS": tag})
    assert bodies(rig.pull("T", subscription="a || c")) == [b"a", b"c", b"a"]
    nothing = rig.pull("T", subscription="z")
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert nothing.fields["nextBeginOffset"] == "4"


def test_limits_by_count_and_bytes(rig):
    for _ in range(40):
        rig.sent_ok("T", b"x" * 10_000)
    assert len(bodies(rig.pull("T", maxMsgNums=3))) == 3
    assert len(bodies(rig.pull("T", maxMsgNums=0))) == 1
    assert len(bodies(rig.pull("T", maxMsgNums=1_000))) == 25
    assert len(bodies(rig.pull("T", maxMsgNums=1_000, maxMsgBytes=1))) == 1


def test_offset_is_committed_with_the_pull(rig):
    rig.sent_ok("T")
    rig.pull("T", sysFlag=4 | 1, commitOffset=1)
    assert rig.broker.offsets.query("g", "T", 0) == 1
    rig.pull("T", sysFlag=4, commitOffset=7)
    assert rig.broker.offsets.query("g", "T", 0) == 1


def test_lite_pull_is_the_same(rig):
    rig.sent_ok("T", b"x")
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 20}
    assert bodies(rig.call(RequestCode.LITE_PULL_MESSAGE, fields)) == [b"x"]


def test_messages_that_became_cold_are_read_and_checked(rig):
    rig.sent_ok("T", b"old")
    rig.reopen()
    rig.sent_ok("T", b"new")
    first = rig.pull("T")
    assert bodies(first)[0] == b"old"
    rest = rig.pull("T", int(first.fields["nextBeginOffset"]))
    assert (bodies(first) + bodies(rest))[:2] == [b"old", b"new"]


class TestSubscriptionOfTheGroup:
    @pytest.fixture
    def member(self, rig):
        rig.sent_ok("T", b"x", {"TAGS": "a"})
        peer = rig.peer()
        rig.heartbeat(peer, "c", "g", ["T"], sub_string="a", sub_version=5)
        return peer

    def test_it_filters(self, rig, member):
        rig.sent_ok("T", b"y", {"TAGS": "b"})
        assert bodies(rig.pull("T", sysFlag=0, subVersion=5)) == [b"x"]

    def test_newer_one_at_the_client(self, rig, member):
        assert rig.pull("T", sysFlag=0, subVersion=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    def test_other_topic(self, rig, member):
        rig.sent_ok("U")
        assert rig.pull("U", sysFlag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    def test_nobody_registered(self, rig):
        rig.sent_ok("T")
        assert rig.pull("T", sysFlag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    def test_forbidden(self, rig, member):
        rig.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", "topic": "T", "readable": False})
        answer = rig.pull("T", sysFlag=0)
        assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "5")

    def test_broadcasting_not_allowed(self, rig):
        rig.sent_ok("T")
        config = SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False)
        rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
        rig.heartbeat(rig.peer(), "c", "g", ["T"], message_model=MessageModel.BROADCASTING)
        answer = rig.pull("T", sysFlag=0)
        assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


class TestRefusals:
    def test_broker(self, make_rig):
        rig = make_rig(broker_permission=2)
        rig.sent_ok("T")
        answer = rig.pull("T")
        assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")

    def test_lite_pull_switched_off(self, make_rig):
        rig = make_rig(lite_pull_message_enable=False)
        rig.sent_ok("T")
        names = [field.name for field in HEADERS[RequestCode.LITE_PULL_MESSAGE].request]
        answer = rig.call(
            RequestCode.LITE_PULL_MESSAGE, {**dict.fromkeys(names, 0), "consumerGroup": "g", "topic": "T", "sysFlag": 4}
        )
        assert answer.code == ResponseCode.NO_PERMISSION

    def test_unknown_group(self, make_rig):
        rig = make_rig(auto_create_subscription_group=False)
        rig.sent_ok("T")
        assert rig.pull("T").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def test_group_that_may_not_consume(self, rig):
        rig.sent_ok("T")
        config = SubscriptionGroupConfig(group_name="g", consume_enable=False)
        rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
        answer = rig.pull("T")
        assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "2")

    def test_unknown_topic(self, rig):
        assert rig.pull("T").code == ResponseCode.TOPIC_NOT_EXIST

    def test_topic_that_cannot_be_read(self, rig):
        fields = {"topic": "W", "readQueueNums": 1, "writeQueueNums": 1, "perm": 2, "topicFilterType": "SINGLE_TAG"}
        rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        answer = rig.pull("W")
        assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "3")

    @pytest.mark.parametrize("queue_id", [4, -1])
    def test_queue(self, rig, queue_id):
        rig.sent_ok("T")
        assert rig.pull("T", queue_id=queue_id).code == ResponseCode.INVALID_PARAMETER

    def test_expression(self, rig):
        rig.sent_ok("T")
        assert rig.pull("T", subscription="||").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        answer = rig.pull("T", expressionType="REGEX")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "REGEX" in answer.remark

    def test_expression_that_would_hold_the_loop(self, rig):
        rig.sent_ok("T")
        assert rig.pull("T", subscription="x" * 65_537).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert rig.pull("T", subscription="x" * 65_536).code == ResponseCode.PULL_RETRY_IMMEDIATELY

    def test_waited_too_long(self, rig):
        rig.sent_ok("T")
        peer = rig.peer()
        peer.waited_ms = 5_001
        answer = rig.pull("T", peer=peer)
        assert (answer.code, answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]")) == (ResponseCode.SYSTEM_BUSY, True)

    def test_stranger_where_pullers_must_be_registered(self, make_rig):
        rig = make_rig(reject_pull_consumer_enable=True)
        rig.sent_ok("T")
        assert rig.pull("T").code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert rig.pull("T", group="CID_RMQ_SYS_X").code == ResponseCode.SUCCESS


class TestWaiting:
    @pytest.fixture
    def waiting(self, rig):
        rig.sent_ok("T", b"0")
        peer = rig.peer()
        assert rig.pull("T", 1, sysFlag=4 | SUSPEND, peer=peer) is None
        return peer

    def test_arrival_answers_it(self, rig, waiting):
        rig.sent_ok("T", b"1")
        (answer,) = waiting.take()
        assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [b"1"])
        assert rig.broker.next_tick_ns is None

    def test_arrival_in_another_queue_does_not(self, rig, waiting):
        rig.sent_ok("T", b"1", queue_id=1)
        assert waiting.take() == []

    def test_time_out_answers_it(self, rig, waiting):
        rig.advance(14_999)
        assert waiting.take() == []
        rig.advance(1)
        (answer,) = waiting.take()
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert answer.fields.keys() == HEADER
        assert rig.broker.next_tick_ns is None

    def test_one_that_fails_is_told_so_and_stops_no_other(self, rig, waiting, monkeypatch):
        other = rig.peer()
        assert rig.pull("T", 1, sysFlag=4 | SUSPEND, peer=other, maxMsgNums=7) is None
        correct = rig.store.get

        def get(topic, queue_id, offset, max_count, *more):
            if max_count != 7:
                raise RuntimeError("planted")
            return correct(topic, queue_id, offset, max_count, *more)

        monkeypatch.setattr(rig.store, "get", get)
        rig.sent_ok("T", b"1")
        (answer,) = waiting.take()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "RuntimeError: planted")
        assert bodies(*other.take()) == [b"1"]
        assert rig.broker.statistics.failed_handler_count == 1

    def test_it_is_not_answered_twice(self, rig, waiting):
        rig.sent_ok("T", b"1")
        rig.sent_ok("T", b"2")
        rig.advance(60_000)
        assert len(waiting.take()) == 1

    def test_safety_check_runs_only_while_something_is_held(self, rig, waiting):
        rig.advance(60_000)
        assert rig.broker.deadlines.wakeups["held pulls"] == 3  # at 5, 10 and 15 s

    def test_safety_check_finds_what_no_arrival_told(self, rig, waiting):
        rig.store.arrival = None
        rig.sent_ok("T", b"1")
        assert waiting.take() == []
        rig.advance(HELD_CHECK_NS // 1_000_000)
        assert bodies(waiting.take()[0]) == [b"1"]

    def test_closed_connection_is_forgotten(self, rig, waiting):
        rig.broker.peer_closed(waiting)
        rig.broker.end_turn()
        rig.sent_ok("T", b"1")
        assert waiting.take() == []
        assert len(rig.broker.rooms.pulls.held) == 0

    def test_stop_answers_it(self, rig, waiting):
        rig.broker.close()
        assert [answer.code for answer in waiting.take()] == [ResponseCode.PULL_NOT_FOUND]

    def test_deleted_topic_answers_it(self, rig, waiting):
        rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert [answer.code for answer in waiting.take()] == [ResponseCode.PULL_OFFSET_MOVED]

    def test_only_a_matching_tag_wakes(self, rig):
        rig.sent_ok("T", b"0")
        peer = rig.peer()
        assert rig.pull("T", 1, sysFlag=4 | SUSPEND, subscription="a", peer=peer) is None
        rig.sent_ok("T", b"1", {"TAGS": "b"})
        assert peer.take() == []
        rig.sent_ok("T", b"2", {"TAGS": "a"})
        (answer,) = peer.take()
        assert bodies(answer) == [b"2"]

    def test_tags_of_all_waiting_pulls_are_bounded_together(self, rig, monkeypatch):
        """A million tags of held pulls would take gigabytes: each takes ten times its characters."""
        monkeypatch.setattr(filter_tests, "PULL_TAGS_MAX", 250)
        rig.sent_ok("T", b"0")
        peer = rig.peer()

        def hold(first, count, offset=1):
            tags = "||".join(f"{first + number:08}" for number in range(count))
            return rig.pull("T", offset, sysFlag=4 | SUSPEND, subscription=tags, peer=peer)

        assert hold(0, 100) is None
        assert hold(100, 100) is None
        assert hold(200, 100).code == ResponseCode.SYSTEM_BUSY
        assert hold(200, 4) is None
        rig.sent_ok("T", b"1", {"TAGS": "00000007"})
        assert len(peer.take()) == 1
        assert hold(200, 100, offset=2) is None

    def test_short_polling(self, make_rig):
        rig = make_rig(long_polling_enable=False)
        rig.sent_ok("T", b"0")
        peer = rig.peer()
        assert rig.pull("T", 1, sysFlag=4 | SUSPEND, peer=peer) is None
        rig.sent_ok("T", b"1")
        assert peer.take() == []
        rig.advance(1_000)
        assert bodies(peer.take()[0]) == [b"1"]

    def test_without_the_flag_the_answer_is_at_once(self, rig):
        rig.sent_ok("T")
        assert rig.pull("T", 1).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("is_cold", [False, True])
def test_messages_that_cannot_be_read_are_an_error_and_not_passed_over(rig, monkeypatch, is_cold):
    for number in range(3):
        rig.sent_ok("T", str(number).encode())
    rig.reopen()

    def broken(self, size, offset):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pread", broken)
        patch.setattr(OsFile, "pread_now", (lambda self, size, offset: None) if is_cold else broken)
        patch.setattr(reading, "is_in_memory", lambda view, begin, end: False)
        answer = rig.pull("T")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "T/0 cannot be read from offset 0 on: [Errno 5] Input/output error"
    assert bodies(rig.pull("T")) == [b"0", b"1", b"2"]
    assert rig.store.reads.damaged == 0


def test_a_defect_in_answering_what_was_read_from_the_disk_is_answered(rig, monkeypatch):
    rig.sent_ok("T", b"0")
    rig.reopen()

    def broken(*args, cold=False):
        assert cold, "this is about old messages"
        raise RuntimeError("planned")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
        patch.setattr(reading, "is_in_memory", lambda view, begin, end: False)
        patch.setattr(rig.broker.statistics, "pulled", broken)
        answer = rig.pull("T")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "RuntimeError: planned")
    assert rig.broker.statistics.failed_handler_count == 1
    assert not rig.broker.rooms.pulls.cold._running, "its place is free again"
    assert bodies(rig.pull("T")) == [b"0"]


def test_a_slave_that_serves_no_pulls_says_so_after_a_while(rig):
    """Its client asks again as soon as it is told."""
    rig.sent_ok("T")
    rig.store.only_copy("it copies another one")
    peer = rig.peer()
    assert rig.pull("T", peer=peer) is None
    rig.advance(SLAVE_PULL_PAUSE_MS - 1)
    assert not peer.sent
    rig.advance(1)
    (answer,) = peer.sent
    assert (answer.code, "pull from the master" in answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, True)


def test_a_slave_that_is_behind_takes_no_consumer_back(make_rig):
    """It read on at the master; as with RocketMQ's `offsetCheckInSlave=false` it is told to ask there."""
    rig = make_rig(slave_read_enable=True)
    for _ in range(3):
        rig.sent_ok("T")
    rig.store.only_copy("it copies another one")
    assert rig.pull("T", offset=1).code == ResponseCode.SUCCESS
    peer = rig.peer()
    for offset in (4, 900):
        assert rig.pull("T", offset=offset, peer=peer) is None
        rig.advance(SLAVE_PULL_PAUSE_MS)
        answer = peer.sent.pop()
        assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, str(offset))


def test_of_too_many_pulls_at_a_slave_the_last_ones_are_answered_at_once(rig, monkeypatch):
    monkeypatch.setattr("orbitmq.broker.pull.SLAVE_PULLS_MAX", 2)
    assert SLAVE_PULLS_MAX > 2
    rig.sent_ok("T")
    rig.store.only_copy("it copies another one")
    assert [rig.pull("T") is None for _ in range(3)] == [True, True, False]
