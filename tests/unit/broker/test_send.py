"""Sending: what is stored, what is answered, what is refused and with which code."""

from __future__ import annotations

import pytest

from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.ids import decode_offset_id
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.remoting.bodies import LockBatchRequest, MessageQueue, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.store.settings import StoreSettings


def test_message_is_stored_as_sent_with_the_brokers_properties(rig):
    answer = rig.sent_ok(
        "T", b"body", {"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "0" * 32, "n": "v"}, queue_id=2, flag=7
    )
    (record,) = rig.records("T", 2)
    assert (record.body, record.flag, record.topic, record.queue_id) == (b"body", 7, "T", 2)
    assert record.store_host == rig.broker.core.facilities.store_host
    assert decode_properties(record.properties) == {
        "KEYS": "k1 k2",
        "TAGS": "a",
        "UNIQ_KEY": "0" * 32,
        "n": "v",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    host, offset = decode_offset_id(answer.fields["msgId"])
    assert (host, offset) == (rig.broker.core.facilities.store_host, record.physical_offset)
    assert answer.fields == {
        "msgId": answer.fields["msgId"],
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "0" * 32,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_both_headers_store_the_same(rig, code):
    rig.sent_ok("T", b"x", {"UNIQ_KEY": "A" * 32}, code=code, reconsumeTimes=3)
    (record,) = rig.records("T")
    assert record.reconsume_times == 3
    assert decode_properties(record.properties)["UNIQ_KEY"] == "A" * 32


def test_numbers_that_cannot_be_read_count_as_zero(rig):
    rig.sent_ok("T", b"x", flag="many", bornTimestamp="")
    assert rig.records("T")[0].flag == 0


def test_oneway_is_stored_and_not_answered(rig):
    assert rig.send("T", b"x", oneway=True) is None
    assert len(rig.records("T")) == 1


def test_refused_oneway_is_not_answered(rig):
    assert rig.send("SCHEDULE_TOPIC_XXXX", b"x", oneway=True) is None


def test_missing_unique_key_is_made(rig):
    answer = rig.sent_ok("T", b"x")
    key = decode_properties(rig.records("T")[0].properties)["UNIQ_KEY"]
    assert answer.fields["transactionId"] == key
    assert rig.store.query_by_key("T", key, 1, 0, 1 << 62) == [rig.records("T")[0].physical_offset]


def test_senders_cannot_set_what_the_broker_sets(rig):
    rig.sent_ok("T", b"x", {"POP_CK": "forged", "CLUSTER": "other", "MSG_REGION": "moon", "ORBITMQ_DUE_MS": "1"})
    stored = decode_properties(rig.records("T")[0].properties)
    assert (stored["CLUSTER"], stored["MSG_REGION"]) == ("DefaultCluster", "DefaultRegion")
    assert "POP_CK" not in stored
    assert "ORBITMQ_DUE_MS" not in stored


def test_untidy_properties_are_stored_tidy(rig):
    rig.sent_ok("T", b"x", text="a\x011\x02junk\x02b\x01\x02a\x012\x02")
    stored = decode_properties(rig.records("T")[0].properties)
    assert stored["a"] == "2"
    assert "b" not in stored


def test_properties_without_final_separator_keep_their_last_entry_apart(rig):
    rig.sent_ok("T", b"x", text="UNIQ_KEY\x01k\x02a\x01b")
    stored = decode_properties(rig.records("T")[0].properties)
    assert (stored["a"], stored["MSG_REGION"]) == ("b", "DefaultRegion")


def test_negative_queue_is_chosen_by_the_broker(rig):
    rig.sent_ok("T")
    rig.chosen_queue = 3
    assert rig.sent_ok("T", queue_id=-1).fields["queueId"] == "3"


def test_multi_tag_topic_marks_its_messages(rig):
    rig.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "M", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "MULTI_TAG"},
    )
    rig.sent_ok("M")
    assert rig.records("M")[0].sys_flag & 2


def test_host_bits_of_the_sender_are_ignored(rig):
    rig.sent_ok("T", sysFlag=0x30)
    assert rig.records("T")[0].sys_flag == 0


def test_order_within_a_queue_is_that_of_arrival(rig):
    for number in range(5):
        assert rig.sent_ok("T", str(number).encode()).fields["queueOffset"] == str(number)
    assert [record.body for record in rig.records("T")] == [b"0", b"1", b"2", b"3", b"4"]


class TestRefusals:
    def refused(self, answer, code, *words):
        assert answer.code == code
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        for word in words:
            assert word in answer.remark

    def test_topic_name(self, rig):
        self.refused(rig.send("no blank"), ResponseCode.INVALID_PARAMETER, "no blank")
        self.refused(rig.send(""), ResponseCode.INVALID_PARAMETER, "blank")
        self.refused(rig.send("x" * 128), ResponseCode.INVALID_PARAMETER, "128", "127")

    @pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
    def test_system_topic(self, rig, topic):
        self.refused(rig.send(topic), ResponseCode.NO_PERMISSION, topic)

    def test_unknown_topic_without_automatic_creation(self, make_rig):
        rig = make_rig(auto_create_topic_enable=False)
        self.refused(rig.send("T"), ResponseCode.TOPIC_NOT_EXIST, "'T'", "autoCreateTopicEnable")

    def test_queue_out_of_range(self, rig):
        rig.sent_ok("T")
        self.refused(rig.send("T", queue_id=4), ResponseCode.INVALID_PARAMETER, "queue 4", "4 write")

    def test_no_body(self, rig):
        self.refused(rig.send("T", b""), ResponseCode.SYSTEM_ERROR, "no body")

    def test_body_too_large(self, make_rig):
        rig = make_rig(store=StoreSettings(mapped_file_size_commit_log=1 << 24, max_message_size=100))
        rig.sent_ok("T", b"x" * 100)
        self.refused(rig.send("T", b"x" * 101), ResponseCode.MESSAGE_ILLEGAL, "101 bytes", "maxMessageSize")

    def test_properties_too_large(self, rig):
        self.refused(rig.send("T", b"x", {"p": "v" * 32_760}), ResponseCode.MESSAGE_ILLEGAL, "31743")

    def test_transaction(self, rig):
        self.refused(rig.send("T", b"x", {"TRAN_MSG": "true"}, sysFlag=4), ResponseCode.NO_PERMISSION, "transactional")
        self.refused(rig.send("T", b"x", sysFlag=8), ResponseCode.NO_PERMISSION, "transaction")

    def test_inner_batch(self, rig):
        self.refused(rig.send("T", b"x", sysFlag=0xC0), ResponseCode.MESSAGE_ILLEGAL, "inner batch")
        self.refused(rig.send("T", b"x", {"INNER_NUM": "3"}), ResponseCode.MESSAGE_ILLEGAL, "INNER_NUM")

    @pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
    def test_timer_where_there_are_none(self, rig, name):
        self.refused(rig.send("T", b"x", {name: "5"}), ResponseCode.SYSTEM_ERROR, name, "timerWheelEnable=false")

    def test_too_early(self, make_rig):
        rig = make_rig(start_accept_send_request_timestamp=1_700_000_000_001)
        self.refused(rig.send("T"), ResponseCode.SYSTEM_ERROR, "startAcceptSendRequestTimeStamp")
        rig.clock.advance(1)
        rig.sent_ok("T")

    def test_order_topic_on_a_broker_that_is_not_writable(self, make_rig):
        rig = make_rig(broker_permission=4)
        fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "O", "order": True, **fields})
        rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "P", "order": False, **fields})
        self.refused(rig.send("O"), ResponseCode.NO_PERMISSION, "brokerPermission=4")
        rig.sent_ok("P")

    def test_store_that_takes_nothing(self, rig):
        rig.sent_ok("T")
        rig.store.refuse("space", "the disk is full")
        self.refused(rig.send("T"), ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
        rig.store.allow("space")
        rig.sent_ok("T")

    def test_first_of_two_faults_is_reported(self, rig):
        rig.store.refuse("space", "the disk is full")
        self.refused(rig.send("T", b"x", {"TRAN_MSG": "true"}), ResponseCode.NO_PERMISSION)
        self.refused(rig.send("T", b"x", {"TIMER_DELAY_SEC": "1"}), ResponseCode.SERVICE_NOT_AVAILABLE)
        self.refused(rig.send("T", b"", queue_id=99), ResponseCode.INVALID_PARAMETER)

    def test_delay_level_that_is_no_number(self, rig):
        self.refused(rig.send("T", b"x", {"DELAY": "soon"}), ResponseCode.SYSTEM_ERROR, "'soon'")


class TestOverload:
    def test_request_that_waited_too_long(self, rig):
        peer = rig.peer()
        peer.waited_ms = 201
        answer = rig.send("T", peer=peer)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]")
        peer.waited_ms = 200
        rig.sent_ok("T", peer=peer)

    def test_too_many_unanswered(self, make_rig):
        rig = make_rig(send_thread_pool_queue_capacity=2)
        peer = rig.peer()
        rig.sent_ok("T", peer=peer)
        rig.broker.rooms.sends.unanswered_count = 2
        answer = rig.send("T", peer=peer)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark.startswith("[OVERLOAD]")

    def test_switched_off(self, make_rig):
        rig = make_rig(broker_fast_failure_enable=False)
        peer = rig.peer()
        peer.waited_ms = 60_000
        rig.sent_ok("T", peer=peer)


class TestDelay:
    def test_record_waits_in_the_schedule_topic(self, rig):
        answer = rig.sent_ok("T", b"later", {"DELAY": "3", "TAGS": "a", "UNIQ_KEY": "u" * 32}, queue_id=1)
        assert rig.records("T", 1) == []
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 2)
        stored = decode_properties(record.properties)
        due = rig.clock.now_ms() + 1 + 10_000
        assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["DELAY"]) == ("T", "1", "3")
        assert stored["ORBITMQ_DUE_MS"] == str(due)
        assert rig.store.queues.get("SCHEDULE_TOPIC_XXXX", 2).unit(0)[2] == due
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "0")

    def test_level_above_the_highest_is_lowered_and_counted(self, rig):
        rig.sent_ok("T", b"x", {"DELAY": "99"})
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 17)
        assert decode_properties(record.properties)["DELAY"] == "18"
        assert rig.broker.rooms.admission.clamped_count == 1

    @pytest.mark.parametrize("level", ["0", "-1"])
    def test_no_level(self, rig, level):
        rig.sent_ok("T", b"x", {"DELAY": level})
        assert len(rig.records("T")) == 1

    def test_level_wins_over_timer_properties(self, rig):
        rig.sent_ok("T", b"x", {"DELAY": "1", "TIMER_DELAY_SEC": "99"})
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 0)
        assert "TIMER_DELAY_SEC" not in decode_properties(record.properties)

    def test_configured_levels(self, make_rig):
        rig = make_rig(message_delay_level="7s 2d")
        rig.sent_ok("T", b"x", {"DELAY": "2"})
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 1)
        due = int(decode_properties(record.properties)["ORBITMQ_DUE_MS"])
        assert due == rig.clock.now_ms() + 1 + 2 * 86_400_000


class TestRetryTopic:
    def test_consumers_own_resend(self, rig):
        rig.sent_ok("%RETRY%g", b"again", {"DELAY": "3", "UNIQ_KEY": "u" * 32}, reconsumeTimes=1, maxReconsumeTimes=16)
        (record,) = rig.records("SCHEDULE_TOPIC_XXXX", 2)
        assert decode_properties(record.properties)["REAL_TOPIC"] == "%RETRY%g"
        assert rig.broker.topics.get("%RETRY%g").write_queue_nums == 4

    @pytest.mark.parametrize(
        ("times", "limit", "dead"), [(16, None, False), (17, None, True), (3, 2, True), (2, 2, False)]
    )
    def test_limit(self, rig, times, limit, dead):
        more = {} if limit is None else {"maxReconsumeTimes": limit}
        rig.sent_ok("%RETRY%g", b"x", {"DELAY": "1"}, reconsumeTimes=times, **more)
        letters = rig.records("%DLQ%g")
        assert len(letters) == (1 if dead else 0)
        assert len(rig.records("SCHEDULE_TOPIC_XXXX", 0)) == (0 if dead else 1)
        if dead:
            assert decode_properties(letters[0].properties)["DELAY"] == "0"
            assert rig.broker.topics.get("%DLQ%g").perm == 6

    @pytest.mark.parametrize(("older", "dead"), [(1, False), (0, True)])
    def test_clients_before_3_4_9_do_not_set_the_limit(self, rig, older, dead):
        rig.client_version = version_ordinal("3.4.9") - older
        rig.sent_ok("%RETRY%g", b"x", {"DELAY": "1"}, reconsumeTimes=3, maxReconsumeTimes=2)
        assert len(rig.records("%DLQ%g")) == (1 if dead else 0)

    def test_group_that_locks_queues_sends_only_what_it_gave_up(self, rig):
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
        body = LockBatchRequest(client_id="c", consumer_group="g", mq_set=[queue]).encode()
        rig.call(RequestCode.LOCK_BATCH_MQ, None, body)
        rig.sent_ok("%RETRY%g", b"x", {"DELAY": "1"}, reconsumeTimes=1)
        assert len(rig.records("%DLQ%g")) == 1
        rig.clock.advance(60_000)
        rig.sent_ok("%RETRY%g", b"x", {"DELAY": "1"}, reconsumeTimes=1)
        assert len(rig.records("%DLQ%g")) == 1

    def test_unknown_group(self, make_rig):
        rig = make_rig(auto_create_subscription_group=False)
        answer = rig.send("%RETRY%g", b"x")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "'g'" in answer.remark


class TestBatch:
    def body(self, *bodies: bytes, **properties: str) -> bytes:
        return encode_batch(
            [
                BatchItem(index, body, encode_properties({"UNIQ_KEY": f"{index:032d}", **properties}))
                for index, body in enumerate(bodies)
            ]
        )

    def test_messages_are_stored_one_by_one(self, rig):
        answer = rig.sent_ok(
            "T", self.body(b"a", b"b", b"c", TAGS="t"), {"UNIQ_KEY": "B" * 32, "WAIT": "true"},
            batch=True, code=RequestCode.SEND_BATCH_MESSAGE, queue_id=1,
        )  # fmt: skip
        records = rig.records("T", 1)
        assert [(record.body, record.flag, record.queue_offset) for record in records] == [
            (b"a", 0, 0),
            (b"b", 1, 1),
            (b"c", 2, 2),
        ]
        stored = decode_properties(records[1].properties)
        assert (stored["UNIQ_KEY"], stored["TAGS"], stored["WAIT"]) == (f"{1:032d}", "t", "true")
        assert [decode_offset_id(text)[1] for text in answer.fields["msgId"].split(",")] == [
            record.physical_offset for record in records
        ]
        assert (answer.fields["queueOffset"], answer.fields["transactionId"]) == ("0", "B" * 32)

    def test_batch_is_decided_by_the_field_not_the_code(self, rig):
        rig.sent_ok("T", self.body(b"a", b"b"), batch=True)
        assert len(rig.records("T")) == 2
        rig.sent_ok("S", b"one", code=RequestCode.SEND_BATCH_MESSAGE)
        assert rig.records("S")[0].body == b"one"

    @pytest.mark.parametrize(
        ("topic", "body", "properties", "words"),
        [
            ("%RETRY%g", None, {}, "retry topic"),
            ("T", b"", {}, "no message"),
            ("T", b"\x00\x00\x00\x10broken", {}, "cannot be read"),
            ("T", None, {"DELAY": "1"}, "delayed"),
            ("T", None, {"TRAN_MSG": "true"}, "transactional"),
        ],
    )
    def test_refused(self, rig, topic, body, properties, words):
        answer = rig.send(topic, self.body(b"a") if body is None else body, properties, batch=True)
        assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION)
        assert words in answer.remark

    def test_delayed_message_inside(self, rig):
        answer = rig.send("T", self.body(b"a", DELAY="2"), batch=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert rig.records("T") == []


def test_an_ordered_topic_of_a_broker_that_may_not_write_takes_nothing(make_rig):
    rig = make_rig(broker_permission=4)
    rig.broker.topics.put(
        TopicConfig(topic_name="Ordered", read_queue_nums=1, write_queue_nums=1, perm=6, order=True), {}
    )
    for properties in ({}, {"UNIQ_KEY": "0A" * 16}):  # as it comes, and as a client sends it: the short way
        answer = rig.send("Ordered", properties=properties)
        assert answer.code == ResponseCode.NO_PERMISSION
    assert rig.store.max_offset("Ordered", 0) == 0
