"""Popping at a broker: what is handed out, hidden, acknowledged, and comes back."""

from __future__ import annotations

import base64

import msgspec
import pytest

from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.files import OsFile


def give(rig, *bodies, topic="T", queue_id=0, **properties):
    for body in bodies:
        rig.sent_ok(topic, body, properties, queue_id=queue_id)


def question(rig, popper, **more):
    """The answer to a NOTIFICATION of group `g` about every queue of topic `T`; None while it waits."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 500, "bornTime": rig.clock.now_ms()}
    return rig.try_call(RequestCode.NOTIFICATION, fields | more, peer=popper.peer)


def test_a_popped_message_is_hidden_from_the_group_and_from_no_other(rig, popper):
    give(rig, b"a", b"b")
    assert popper.bodies() == [b"a", b"b"]
    assert popper.bodies() == []
    assert popper.bodies(group="other") == [b"a", b"b"]


def test_the_committed_offset_stays_before_what_is_not_acknowledged(rig, popper):
    give(rig, b"a", b"b", b"c")
    first, second, third = popper.pop()
    assert popper.committed() == 0
    assert popper.ack(second) == popper.ack(third) == ResponseCode.SUCCESS
    assert popper.committed() == 0
    popper.ack(first)
    assert popper.committed() == 3
    assert not rig.broker.rooms.all[4].in_flight.queues


def test_an_unacknowledged_message_reappears_at_its_millisecond_in_the_retry_topic(rig, popper):
    give(rig, b"a", b"b", KEYS="k", TAGS="t")
    popped_ms = rig.clock.now_ms()
    first, second = popper.pop(invisibleTime=5_000)
    popper.ack(second)
    rig.advance(4_999)
    assert (popper.bodies(), rig.records("%RETRY%g_T"), popper.committed()) == ([], [], 0)
    rig.advance(1)
    (copy,) = rig.records("%RETRY%g_T")
    assert (copy.reconsume_times, copy.body) == (1, b"a")
    assert copy.prepared_transaction_offset == first[0].physical_offset + 1
    assert copy.store_timestamp == popped_ms + 5_000
    assert popper.committed() == 2
    ((again, topic, receipt),) = popper.pop()
    assert (again.topic, again.body, again.reconsume_times) == ("T", b"a", 1)
    values = decode_properties(again.properties)
    assert (values["1ST_POP_TIME"], values["KEYS"], values["TAGS"]) == (str(popped_ms), "k", "t")
    assert (topic, receipt.split(" ")[4]) == ("%RETRY%g_T", "1")
    config = rig.broker.topics.get("%RETRY%g_T")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_each_attempt_counts_and_the_first_pop_is_remembered(rig, popper):
    give(rig, b"a")
    began = rig.clock.now_ms()
    popper.pop(invisibleTime=1_000)
    for attempt in range(1, 4):
        rig.advance(1_000)
        ((record, _, _),) = popper.pop(invisibleTime=1_000)
        assert record.reconsume_times == attempt
        assert decode_properties(record.properties)["1ST_POP_TIME"] == str(began)
    assert rig.broker.topics.get("%RETRY%g_%RETRY%g_T") is None


def test_a_message_whose_time_has_come_does_not_wait_again_and_still_says_when_that_was(rig, popper):
    due_ms = rig.clock.now_ms() + 2_000
    rig.sent_ok("T", b"timed", {"TIMER_DELIVER_MS": str(due_ms)})
    rig.sent_ok("T", b"delayed", {"DELAY": "0"})
    rig.advance(3_000)
    assert len(popper.pop(invisibleTime=10)) == 2
    rig.advance(10)
    copies = {bytes(copy.body): decode_properties(copy.properties) for copy in rig.records("%RETRY%g_T")}
    assert copies.keys() == {b"timed", b"delayed"}
    assert copies[b"timed"]["TIMER_DELIVER_MS"] == str(due_ms)
    assert "DELAY" not in copies[b"delayed"]


def test_a_late_acknowledgement_settles_nothing_of_the_new_attempt(rig, popper):
    give(rig, b"a")
    (late,) = popper.pop(invisibleTime=1_000)
    rig.advance(1_000)
    (again,) = popper.pop(invisibleTime=1_000)
    assert popper.ack(late) == ResponseCode.SUCCESS
    assert popper.committed("%RETRY%g_T") == 0
    popper.ack(again)
    assert popper.committed("%RETRY%g_T") == 1


def test_a_changed_invisible_time_counts_from_now_and_has_a_receipt_of_its_own(rig, popper):
    give(rig, b"a")
    (popped,) = popper.pop(invisibleTime=5_000)
    rig.advance(2_000)
    answer = popper.change(popped, 10_000)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields["popTime"] == str(rig.clock.now_ms())
    assert popper.ack(popped) == ResponseCode.SUCCESS, "the old receipt"
    assert popper.committed() == 0
    rig.advance(9_999)
    assert popper.bodies() == []
    rig.advance(1)
    assert popper.bodies() == [b"a"]
    assert popper.change(popped, 10_000).code == ResponseCode.NO_MESSAGE


def test_a_suspended_message_comes_back_without_an_attempt_more_once(rig, popper):
    give(rig, b"a", b"b")
    first, second = popper.pop()
    popper.change(first, 1_000, suspend=True)
    popper.change(second, 1_000, suspend=False)
    rig.advance(1_001)
    again = popper.pop(invisibleTime=1_000)
    assert {record.body: record.reconsume_times for record, _, _ in again} == {b"a": 0, b"b": 1}
    rig.advance(1_000)
    assert {record.body: record.reconsume_times for record, _, _ in popper.pop()} == {b"a": 1, b"b": 2}


def test_the_last_renewal_says_whether_an_attempt_counts(rig, popper):
    give(rig, b"a")
    (popped,) = popper.pop()
    popper.change(popper.renewed(popped, popper.change(popped, 5_000, suspend=True).fields), 1_000)
    rig.advance(1_002)
    ((record, _, _),) = popper.pop()
    assert record.reconsume_times == 1


def test_a_renewed_message_is_acknowledged_with_its_new_receipt(rig, popper):
    give(rig, b"a")
    (popped,) = popper.pop()
    popper.ack(popper.renewed(popped, popper.change(popped, 10_000).fields))
    assert popper.committed() == 1


def test_batches_of_acknowledgements_are_bits_from_the_start_offset_on(rig, popper):
    give(rig, *(str(number).encode() for number in range(12)))
    popped = popper.pop()
    words = popped[0][2].split(" ")
    entry = {
        "c": "g", "t": "T", "r": "0", "so": int(words[0]), "q": 0, "rq": 0,
        "pt": int(words[1]), "it": 60_000, "b": base64.b64encode(bytes([0b11111111, 0b1011])).decode(),
    }  # fmt: skip

    def acked(**changes):
        body = msgspec.json.encode({"brokerName": "broker-a", "acks": [entry | changes]})
        return rig.call(RequestCode.BATCH_ACK_MESSAGE, None, body).code

    assert acked(t="unknown") == acked(q=77) == acked(r="5") == acked(pt=1) == ResponseCode.SUCCESS
    assert popper.committed() == 0
    assert acked() == ResponseCode.SUCCESS
    assert popper.committed() == 10
    empty = msgspec.json.encode({"brokerName": "broker-a", "acks": []})
    assert rig.call(RequestCode.BATCH_ACK_MESSAGE, None, empty).code == ResponseCode.NO_MESSAGE


def test_tags_that_the_group_does_not_want_are_passed_for_good(rig, popper):
    for number in range(100):
        rig.sent_ok("T", str(number).encode(), {"TAGS": "yes" if number == 90 else "no"})
    (popped,) = popper.pop(exp="yes")
    assert popped[0].body == b"90"
    popper.ack(popped)
    assert popper.committed() >= 91
    assert popper.ask(exp="yes", pollTime=15_000) is None, "it waits"
    assert popper.committed() == 100


@pytest.mark.parametrize("is_cold", [False, True])
def test_properties_that_the_group_does_not_want_are_passed_for_good(rig, popper, is_cold):
    for number in range(40):
        rig.sent_ok("T", str(number).encode(), {"price": str(number)})
    if is_cold:
        rig.reopen()
    found = popper.pop(exp="price >= 30", expType="SQL92", maxMsgNums=4)
    assert [record.body for record, _, _ in found] == [b"30", b"31", b"32", b"33"]
    assert popper.committed() == 30
    assert popper.ask(exp="price > 100", expType="SQL92", pollTime=15_000) is None
    rig.sent_ok("T", b"cheap", {"price": "50"})
    assert popper.answers() == []
    rig.sent_ok("T", b"dear", {"price": "101"})
    (answer,) = popper.answers()
    assert [record.body for record, _, _ in popper.read(answer)] == [b"dear"]
    assert popper.ask(exp="price >", expType="SQL92").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_old_messages_are_read_from_the_disk(rig, popper, monkeypatch):
    give(rig, b"a", b"b")
    rig.reopen()
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    first, _ = popper.pop(invisibleTime=1_000)
    popper.ack(first)
    rig.advance(1_000)
    assert popper.bodies() == [b"b"]
    assert (popper.committed(), popper.committed("%RETRY%g_T")) == (2, 0)


def test_all_queues_give_until_there_is_enough(rig, popper):
    for queue_id in range(4):
        give(rig, b"a", b"b", b"c", queue_id=queue_id)
    answer = popper.ask(queueId=-1, maxMsgNums=8)
    assert len(popper.read(answer)) == 8
    assert answer.fields["restNum"] == "4"
    assert len(answer.fields["startOffsetInfo"].split(";")) == 3
    assert len(popper.pop(queueId=-1)) == 4


def test_a_share_of_the_pops_takes_retried_messages_first(rig, popper):
    give(rig, b"old")
    popper.pop(invisibleTime=10)
    rig.advance(10)
    give(rig, b"new")
    rig.chosen_queue = 0
    assert popper.bodies(maxMsgNums=1) == [b"old"]
    rig.chosen_queue = 20
    assert popper.bodies(maxMsgNums=1) == [b"new"]


def test_retry_topics_of_the_second_form(make_rig, make_popper):
    rig = make_rig(enable_retry_topic_v2=True)
    popper = make_popper(rig)
    give(rig, b"a")
    popper.pop(invisibleTime=10)
    rig.advance(10)
    ((record, topic, receipt),) = popper.pop()
    assert (record.topic, topic, receipt.split(" ")[4]) == ("T", "%RETRY%g+T", "2")
    assert popper.ack((record, topic, receipt)) == ResponseCode.SUCCESS
    assert popper.committed("%RETRY%g+T") == 1


def test_a_group_that_begins_at_the_end_gets_the_last_message_of_an_old_queue(make_rig, make_popper):
    rig = make_rig(init_pop_offset_by_check_msg_in_mem=False)
    popper = make_popper(rig)
    give(rig, b"a", b"b", b"c")
    assert popper.bodies(initMode=1) == [b"c"]
    assert popper.bodies(group="young", initMode=0) == [b"a", b"b", b"c"]


def test_a_group_that_begins_at_the_end_gets_all_of_a_young_queue(rig, popper):
    give(rig, b"a", b"b", b"c")
    assert popper.bodies(initMode=1) == [b"a", b"b", b"c"]


def test_a_reset_forgets_what_is_in_flight(rig, popper):
    give(rig, b"a", b"b")
    before = popper.pop()
    fields = {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "timestamp": 0, "isForce": True}
    assert rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == ResponseCode.SUCCESS
    again = popper.pop()
    assert [record.body for record, _, _ in again] == [b"a", b"b"]
    for popped in before:
        popper.ack(popped)
    assert popper.committed() == 0, "receipts from before the reset settle nothing"
    for popped in again:
        popper.ack(popped)
    assert popper.committed() == 2


def test_what_was_in_flight_goes_with_its_topic(rig, popper):
    give(rig, b"a", b"b", b"c")
    (first, *_) = popper.pop(invisibleTime=1_000)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    give(rig, b"new")
    rig.advance(1_000)
    assert popper.committed() is None
    assert popper.bodies() == [b"new"]
    popper.ack(first)
    assert popper.committed() == 0


def test_a_full_store_delays_the_return_and_loses_nothing(rig, popper):
    give(rig, b"a")
    popper.pop(invisibleTime=1_000)
    rig.store.refuse("test", "no room")
    rig.advance(1_000)
    assert (rig.records("%RETRY%g_T"), popper.committed()) == ([], 0)
    rig.store.allow("test")
    rig.advance(5_000)
    assert popper.bodies() == [b"a"]


# --- waiting --------------------------------------------------------------------------------------------------------


def test_a_pop_waits_for_a_message_of_its_tags(rig, popper):
    give(rig, b"x")
    popper.pop()
    assert popper.ask(pollTime=15_000, exp="a") is None
    give(rig, b"b", TAGS="b")
    assert popper.answers() == []
    give(rig, b"a", TAGS="a")
    (answer,) = popper.answers()
    assert [record.body for record, _, _ in popper.read(answer)] == [b"a"]


def test_one_message_wakes_one_pop(rig, popper):
    give(rig, b"x")
    popper.pop()
    for _ in range(3):
        assert popper.ask(pollTime=15_000, queueId=-1) is None
    info = {"consumerGroup": "g", "topic": "T", "queueId": -1}
    assert rig.call(RequestCode.POLLING_INFO, info).fields["pollingNum"] == "3"
    give(rig, b"a", queue_id=2)
    assert len(popper.answers()) == 1
    assert rig.call(RequestCode.POLLING_INFO, info).fields["pollingNum"] == "2"
    rig.advance(15_000)
    assert [answer.code for answer in popper.answers()] == [ResponseCode.POLLING_TIMEOUT] * 2


def test_a_message_that_reappears_wakes_a_pop(rig, popper):
    give(rig, b"a")
    popper.pop(invisibleTime=3_000)
    assert popper.ask(pollTime=15_000) is None
    rig.advance(3_000)
    (answer,) = popper.answers()
    assert [record.body for record, _, _ in popper.read(answer)] == [b"a"]


def test_too_many_waiting_pops_are_told(rig, popper):
    give(rig, b"x")
    popper.pop()
    for _ in range(1_024):
        assert popper.ask(pollTime=15_000) is None
    answer = popper.ask(pollTime=15_000)
    assert answer.code == ResponseCode.POLLING_FULL
    assert answer.fields["restNum"] == "0"


def test_a_closed_connection_takes_nothing(rig, popper):
    give(rig, b"x")
    popper.pop()
    popper.ask(pollTime=15_000)
    rig.broker.peer_closed(popper.peer)
    give(rig, b"a")
    assert popper.answers() == []
    popper.peer = rig.peer()
    assert popper.bodies() == [b"a"]


def test_a_reset_wakes_a_pop_that_waits(rig, popper):
    give(rig, b"a")
    popper.pop()
    assert popper.ask(pollTime=15_000) is None
    fields = {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "timestamp": 0, "isForce": True}
    rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    (answer,) = popper.answers()
    assert [record.body for record, _, _ in popper.read(answer)] == [b"a"]


# --- questions ------------------------------------------------------------------------------------------------------


def test_a_look_takes_nothing(rig, popper):
    give(rig, b"a", b"b")
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "maxMsgNums": 1}
    answer = rig.call(RequestCode.PEEK_MESSAGE, fields)
    assert [record.body for record in iter_records(bytes(answer.body))] == [b"a"]
    assert answer.fields["restNum"] == "2"
    assert popper.committed() is None
    assert popper.bodies() == [b"a", b"b"]
    assert rig.call(RequestCode.PEEK_MESSAGE, fields).code == ResponseCode.PULL_NOT_FOUND


def test_a_notification_comes_with_the_first_message(rig, popper):
    give(rig, b"x")
    popper.pop()
    assert question(rig, popper) is None
    give(rig, b"a")
    (told,) = popper.answers()
    assert (told.code, told.fields) == (ResponseCode.SUCCESS, {"hasMsg": "true", "pollingFull": "false"})
    assert question(rig, popper).fields["hasMsg"] == "true"
    popper.pop()
    assert question(rig, popper) is None
    rig.advance(500)
    (told,) = popper.answers()
    assert told.fields["hasMsg"] == "false"


@pytest.mark.parametrize(("kind", "expression"), [("TAG", "wanted"), ("SQL92", "TAGS = 'wanted'")])
def test_a_notification_waits_for_a_message_that_passes_its_filter(rig, popper, kind, expression):
    give(rig, b"x")
    popper.pop()
    assert question(rig, popper, exp=expression, expType=kind) is None
    give(rig, b"a", TAGS="other")
    assert popper.answers() == []
    give(rig, b"b", TAGS="wanted")
    (told,) = popper.answers()
    assert told.fields["hasMsg"] == "true"
    assert question(rig, popper, exp=expression, expType=kind).fields["hasMsg"] == "true"


def test_a_notification_by_tags_asks_what_is_there_already(rig, popper):
    give(rig, *(b"a" for _ in range(64)), TAGS="other")
    assert question(rig, popper, exp="wanted", expType="TAG") is None
    assert question(rig, popper, exp="wanted || other", expType="TAG").fields["hasMsg"] == "true"
    give(rig, b"a", TAGS="other")
    assert question(rig, popper, exp="wanted", expType="TAG").fields["hasMsg"] == "true", "the pop will see"


def test_a_notification_asks_from_where_the_queue_begins_now(rig, popper, monkeypatch):
    give(rig, b"a", TAGS="other")
    popper.pop(maxMsgNums=1)
    give(rig, b"b", b"c", TAGS="wanted")
    monkeypatch.setattr(rig.store.queues.get("T", 0), "min_offset", 2)
    assert question(rig, popper, exp="wanted", expType="TAG").fields["hasMsg"] == "true"
    assert question(rig, popper, exp="other", expType="TAG") is None


def test_a_notification_asks_of_retried_messages_as_its_pop_does(rig, popper):
    give(rig, b"a", TAGS="other")
    popper.pop(invisibleTime=10)
    rig.advance(10)
    assert question(rig, popper, exp="wanted", expType="TAG") is None
    assert question(rig, popper).fields["hasMsg"] == "true"
    assert popper.bodies(exp="wanted") == []
    assert question(rig, popper) is None


def test_a_notification_whose_expression_does_not_compile_is_refused(rig, popper):
    give(rig, b"a")
    assert question(rig, popper, exp="a >", expType="SQL92").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert question(rig, popper, exp="a >").fields["hasMsg"] == "true", "an expression without a type is none"


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -2}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 259_200_001}, ResponseCode.INVALID_PARAMETER),
        ({"order": True, "attemptId": 129 * "x"}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"group": "g" * 250}, ResponseCode.INVALID_PARAMETER),
        ({"pollTime": 1_000, "bornTime": 1_699_999_998_499}, ResponseCode.POLLING_TIMEOUT),
    ],
)
def test_pops_that_cannot_be_served(rig, popper, changes, code):
    give(rig, b"a")
    answer = popper.ask(**changes)
    assert answer.code == code, answer.remark


def test_a_topic_that_may_not_be_read_is_refused(rig, popper):
    give(rig, b"a")
    config = rig.broker.topics.get("T")
    rig.broker.topics.put(msgspec.structs.replace(config, perm=2), {})
    assert popper.ask().code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 77}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": 5}, ResponseCode.NO_MESSAGE),
        ({"offset": 1}, ResponseCode.SUCCESS),
        ({"extraInfo": "0 1 2"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 1 60000 999 0 broker-a 0 0"}, ResponseCode.SUCCESS),
        ({"extraInfo": "0 1 60000 0 0 broker-a 0 0"}, ResponseCode.SUCCESS),
        ({"extraInfo": "0 1700000000000 60000 0 0 broker-b 0 0"}, ResponseCode.SUCCESS),
    ],
)
def test_acknowledgements_that_settle_nothing(rig, popper, changes, code):
    give(rig, b"a")
    (popped,) = popper.pop()
    assert popper.ack(popped, **changes) == code
    assert popper.committed() == 0


def test_a_pop_that_waits_is_answered_at_a_stop_and_takes_nothing(rig, popper):
    give(rig, b"x")
    (popped,) = popper.pop()
    popper.ack(popped)
    popper.ask(pollTime=15_000)
    rig.reopen()
    (answer,) = popper.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT


# --- settings -------------------------------------------------------------------------------------------------------


def test_messages_of_a_retry_topic_may_keep_its_name(make_rig, make_popper):
    rig = make_rig(pop_response_return_actual_retry_topic=True)
    popper = make_popper(rig)
    give(rig, b"a")
    popper.pop(invisibleTime=1_000)
    rig.advance(1_000)
    answer = popper.ask()
    (record,) = iter_records(bytes(answer.body))
    assert (record.topic, record.body) == ("%RETRY%g_T", b"a")
    assert "POP_CK" not in decode_properties(record.properties)
    assert answer.fields["startOffsetInfo"] == "1 0 0"


def test_a_group_with_too_much_in_flight_gets_nothing_more(make_rig, make_popper):
    rig = make_rig(enable_pop_message_threshold=True, pop_inflight_message_threshold=2)
    popper = make_popper(rig)
    give(rig, *(b"%d" % number for number in range(6)))
    first, second = popper.pop(maxMsgNums=2)
    assert popper.bodies(maxMsgNums=2) == [b"2", b"3"], "two are not too many"
    popper.ack(first)
    assert popper.bodies() == [], "three are"
    popper.ack(second)
    assert popper.bodies() == [b"4", b"5"]
    assert popper.bodies(group="other", maxMsgNums=1) == [b"0"]


@pytest.mark.parametrize("clears", [True, False])
def test_a_retry_topic_goes_with_its_topic(make_rig, make_popper, clears):
    rig = make_rig(clear_retry_topic_when_delete_topic=clears)
    popper = make_popper(rig)
    give(rig, b"a")
    popper.pop(invisibleTime=1_000)
    popper.pop(group="g2", invisibleTime=60_000)
    rig.advance(1_000)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (rig.broker.topics.get("%RETRY%g_T") is None) is clears
    assert (rig.records("%RETRY%g_T") == []) is clears
    assert rig.broker.topics.get("T") is None


# --- groups that are deleted ----------------------------------------------------------------------------------------


def delete_group(rig, group, **more):
    assert rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group} | more).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("second_form", [False, True])
def test_retry_topics_go_with_the_offsets_of_their_group_and_what_is_in_flight_ends(make_rig, make_popper, second_form):
    rig = make_rig(enable_retry_topic_v2=second_form)
    popper = make_popper(rig)
    give(rig, b"a", b"b")
    popper.pop(invisibleTime=1_000, maxMsgNums=1)
    popper.pop(invisibleTime=1_000, maxMsgNums=1, group="other")
    rig.advance(1_000)
    popper.pop(invisibleTime=60_000)
    sign = "+" if second_form else "_"
    assert rig.records(f"%RETRY%g{sign}T")
    delete_group(rig, "g", cleanOffset=True)
    assert rig.broker.topics.get(f"%RETRY%g{sign}T") is None
    assert rig.records(f"%RETRY%g{sign}T") == []
    assert rig.records(f"%RETRY%other{sign}T")
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    assert popper.bodies() == [b"a", b"b"], "a new group of that name begins anew"


def test_what_an_ordered_pop_gave_out_ends_with_its_group(rig, popper):
    give(rig, b"a")
    popper.pop(order=True)
    delete_group(rig, "g", cleanOffset=True)
    assert len(rig.broker.rooms.pops.orders) == 0


def test_a_group_whose_offsets_stay_goes_on_when_it_is_made_again(rig, popper):
    give(rig, b"a", b"b")
    popper.pop(invisibleTime=1_000)
    delete_group(rig, "g")
    rig.advance(1_000)
    assert sorted(popper.bodies()) == [b"a", b"b"]


def test_a_retry_topic_that_another_group_reads_stays(rig, popper):
    """`%RETRY%g_T_x` is of group `g` and topic `T_x`, or of group `g_T` and topic `x`."""
    give(rig, b"a", topic="T_x")
    give(rig, b"b", topic="x")
    popper.pop(invisibleTime=1_000, topic="T_x")
    popper.pop(invisibleTime=1_000, topic="x", group="g_T")
    rig.advance(1_000)
    popper.pop(topic="x", group="g_T")
    delete_group(rig, "g", cleanOffset=True)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T_x"})
    assert len(rig.records("%RETRY%g_T_x")) == 2
    delete_group(rig, "g_T", cleanOffset=True)
    assert rig.records("%RETRY%g_T_x") == []
