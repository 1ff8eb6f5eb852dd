"""Pulls with SQL92 expressions: what they get, where they go on, how they wait, and what is refused."""

from __future__ import annotations

import time

import pytest

from orbitmq.broker.choosing import filter_tests, wanted
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.broker import PULL_EXPRESSIONS_CHARS_MAX
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import CheckClientBody, ConsumeQueueBody, SubscriptionData
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

OWN, SUSPEND = 4, 2


def bodies(answer):
    return [record.body for record in iter_records(bytes(answer.body))]


def sql(rig, expression, offset=0, **more):
    return rig.pull("T", offset, subscription=expression, expressionType="SQL92", **more)


@pytest.fixture
def priced(rig):
    """Ten messages with the prices 0 to 9."""
    for price in range(10):
        rig.sent_ok("T", str(price).encode(), {"price": str(price), "TAGS": "even" if price % 2 == 0 else "odd"})
    return rig


def test_only_wanted_messages_come_and_the_rest_is_passed_over(priced):
    answer = sql(priced, "price BETWEEN 3 AND 5 OR price = 8")
    assert bodies(answer) == [b"3", b"4", b"5", b"8"]
    assert answer.fields["nextBeginOffset"] == "10"
    assert bodies(sql(priced, "TAGS = 'odd' AND price > 5")) == [b"7", b"9"]


def test_nothing_wanted_is_asked_again_at_once_behind_what_was_looked_at(priced):
    answer = sql(priced, "price > 100")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert answer.fields["nextBeginOffset"] == "10"


def test_bounds_of_an_answer_count_wanted_messages(priced):
    first = sql(priced, "price > 1", maxMsgNums=2)
    assert (bodies(first), first.fields["nextBeginOffset"]) == ([b"2", b"3"], "4")
    small = sql(priced, "price > 1", maxMsgBytes=1)
    assert (bodies(small), small.fields["nextBeginOffset"]) == ([b"2"], "3")


def test_a_read_looks_at_a_bounded_part_of_the_queue(priced, monkeypatch):
    monkeypatch.setattr(wanted, "SCAN_UNITS_MIN", 4)
    answer = sql(priced, "price = 9", maxMsgNums=1)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")
    assert bodies(sql(priced, "price = 9", 8, maxMsgNums=1)) == [b"9"]


def test_a_read_needs_a_bounded_number_of_operations(priced, monkeypatch):
    monkeypatch.setattr(wanted, "PULL_SCAN_STEPS_MAX", 6)
    answer = sql(priced, "price = 9")
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "3")
    answer = sql(priced, "price = 9 OR price = 2")
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")
    assert bodies(sql(priced, "price = 9 OR price = 2", 2)) == [b"2"]
    large = priced.sent_ok("T", b"large", {"price": "9", "text": "x" * 2_000}).fields["queueOffset"]
    priced.sent_ok("T", b"small", {"price": "9"})
    assert bodies(sql(priced, "price = 9", large)) == [b"large"]


def test_what_is_cold_is_filtered_when_it_was_read(priced):
    priced.reopen()
    answer = sql(priced, "price IN ('4', '6')")
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"4", b"6"], "10")
    assert sql(priced, "price > 100").code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_what_is_unknown_or_no_number_does_not_pass(rig):
    for properties in ({"price": "dear"}, {}, {"price": "7"}):
        rig.sent_ok("T", properties.get("price", "none").encode(), properties)
    assert bodies(sql(rig, "price > 5")) == [b"7"]
    assert bodies(sql(rig, "price IS NULL")) == [b"none"]


class TestWaiting:
    def test_only_a_wanted_message_ends_the_wait(self, priced):
        peer = priced.peer()
        assert sql(priced, "price > 50", 10, sysFlag=OWN | SUSPEND, peer=peer) is None
        priced.sent_ok("T", b"cheap", {"price": "10"})
        priced.sent_ok("T", b"no number", {"price": "x"})
        assert peer.take() == []
        priced.sent_ok("T", b"dear", {"price": "99"})
        [answer] = peer.take()
        assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"dear"], "13")

    def test_a_message_is_decoded_once_and_an_expression_asked_once(self, priced, monkeypatch):
        asked, decoded = [], []
        monkeypatch.setattr(wanted, "decode_properties", lambda stored: decoded.append(1) or decode_properties(stored))
        sound = wanted.PropertyFilter.accepts
        monkeypatch.setattr(
            wanted.PropertyFilter,
            "accepts",
            lambda self, properties: asked.append(self.expression) or sound(self, properties),
        )
        peers = [priced.peer() for _ in range(30)]
        for number, peer in enumerate(peers):
            assert sql(priced, f"price > {50 + number % 3}", 10, sysFlag=OWN | SUSPEND, peer=peer) is None
        priced.sent_ok("T", b"cheap", {"price": "10"})
        assert sorted(asked) == ["price > 50", "price > 51", "price > 52"]
        assert len(decoded) == 1

    def test_a_thousand_waiting_consumers_cost_an_arrival_little(self):
        tests = filter_tests.FilterTests()
        waiting = [
            wanted.WantedMessages(properties=tests.of_properties(f"price > {number % 100}")) for number in range(1_000)
        ]
        stored = encode_properties({"price": "50", "UNIQ_KEY": "0" * 32, "TAGS": "a", "WAIT": "true"})
        started = time.process_time()
        message = wanted.ArrivedMessage(0, stored)
        passed = sum(message.is_one_of(one) for one in waiting)
        assert passed == 500
        assert time.process_time() - started < 0.02, "0.3 ms where nothing else runs"


class TestRegisteredSubscriptions:
    def test_it_filters(self, priced):
        priced.heartbeat(priced.peer(), "c", "g", ["T"], sub_string="price < 2", kind="SQL92", sub_version=5)
        assert bodies(priced.pull("T", sysFlag=0, subVersion=5)) == [b"0", b"1"]
        assert priced.pull("T", sysFlag=0, subVersion=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    def test_a_newer_one_replaces_it(self, priced):
        peer = priced.peer()
        priced.heartbeat(peer, "c", "g", ["T"], sub_string="price < 2", kind="SQL92", sub_version=5)
        priced.heartbeat(peer, "c", "g", ["T"], sub_string="price > 8", kind="SQL92", sub_version=6)
        assert bodies(priced.pull("T", sysFlag=0, subVersion=6)) == [b"9"]

    def test_one_that_does_not_compile_has_no_filter_data(self, priced):
        priced.heartbeat(priced.peer(), "c", "g", ["T"], sub_string="price <", kind="SQL92")
        answer = priced.pull("T", sysFlag=0, subVersion=1)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "at character 7" in answer.remark

    def test_units_of_a_queue_say_what_a_pull_would_give(self, priced):
        priced.heartbeat(priced.peer(), "c", "g", ["T"], sub_string="price < 2", kind="SQL92")
        fields = {"topic": "T", "queueId": 0, "index": 0, "count": 4, "consumerGroup": "g"}
        for _ in range(2):
            body = ConsumeQueueBody.decode(priced.call(RequestCode.QUERY_CONSUME_QUEUE, fields).body)
            assert [unit.eval for unit in body.queue_data] == [True, True, False, False]
            priced.reopen()
            priced.heartbeat(priced.peer(), "c", "g", ["T"], sub_string="price < 2", kind="SQL92")

    def test_retry_topics_are_not_filtered(self, priced):
        priced.heartbeat(priced.peer(), "c", "g", ["T"])
        priced.sent_ok("%RETRY%g", b"again")
        answer = priced.pull("%RETRY%g", subscription="price > 5", expressionType="SQL92")
        assert bodies(answer) == [b"again"]


class TestRetries:
    """With filterSupportRetry."""

    @pytest.fixture
    def retried(self, make_rig):
        """Three messages that came back, of two topics."""
        rig = make_rig(filter_support_retry=True)
        rig.heartbeat(rig.peer(), "c", "g", ["T", "%RETRY%g"], sub_string="price > 5", kind="SQL92")
        rig.heartbeat(rig.peer(), "d", "other", ["T"])
        for body, topic, price in ((b"dear", "T", "9"), (b"cheap", "T", "1"), (b"of another", "U", "1")):
            rig.sent_ok("%RETRY%g", body, {"RETRY_TOPIC": topic, "price": price})
        return rig

    def test_a_message_passes_by_what_its_group_wants_of_its_topic(self, retried):
        assert bodies(retried.pull("%RETRY%g")) == [b"dear", b"of another"]
        assert bodies(retried.pull("%RETRY%g", sysFlag=0, subVersion=1)) == [b"dear", b"of another"]
        assert len(bodies(retried.pull("%RETRY%g", group="other"))) == 3, "that group wants all of the topic"

    def test_an_arriving_one_wakes_only_if_it_passes(self, retried):
        peer = retried.peer()
        assert retried.pull("%RETRY%g", 3, sysFlag=OWN | SUSPEND, peer=peer) is None
        retried.sent_ok("%RETRY%g", b"cheap", {"RETRY_TOPIC": "T", "price": "2"})
        assert peer.take() == []
        retried.sent_ok("%RETRY%g", b"dear", {"RETRY_TOPIC": "T", "price": "8"})
        assert [bodies(answer) for answer in peer.take()] == [[b"dear"]]

    def test_an_expression_that_does_not_compile_holds_nothing_back(self, retried):
        retried.heartbeat(retried.peer(), "c", "g", ["T"], sub_string="price >", kind="SQL92", sub_version=2)
        assert len(bodies(retried.pull("%RETRY%g"))) == 3


HUGE = [
    "(" * 10_000 + "a = 5" + ")" * 10_000,
    "a = 5 OR " * 8_000 + "a = 5",
    "x" * 65_536,
    "'" + "\u00e9" * 65_536,
    "-" * 65_536,
]


class TestRefused:
    @pytest.mark.parametrize("expression", HUGE, ids=range(len(HUGE)))
    def test_a_huge_expression_is_refused_by_every_request_that_may_carry_one(self, priced, expression):
        refused = sql(priced, expression)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert len(refused.remark) < 500
        priced.heartbeat(priced.peer(), "c", "g", ["T"], sub_string=expression, kind="SQL92", sub_version=5)
        assert priced.pull("T", sysFlag=0, subVersion=5).code == ResponseCode.FILTER_DATA_NOT_EXIST
        body = CheckClientBody(
            subscription_data=SubscriptionData(topic="T", sub_string=expression, expression_type="SQL92")
        )
        assert (
            priced.call(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode()).code
            == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        )
        fields = {"topic": "T", "queueId": 0, "index": 0, "count": 4, "consumerGroup": "g"}
        shown = ConsumeQueueBody.decode(priced.call(RequestCode.QUERY_CONSUME_QUEUE, fields).body)
        assert "does not compile" in shown.filter_data
        assert bodies(sql(priced, "price = 3")) == [b"3"]
        assert priced.broker.statistics.failed_handler_count == 0

    def test_what_does_not_compile(self, priced):
        answer = sql(priced, "price # 5")
        assert (answer.code, "at character 6" in answer.remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)
        assert sql(priced, "price # 5").remark == answer.remark, "a refusal is remembered as well"
        assert sql(priced, "").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    def test_switched_off(self, make_rig):
        rig = make_rig(enable_property_filter=False)
        rig.sent_ok("T")
        answer = sql(rig, "price > 5")
        assert (answer.code, "enablePropertyFilter" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert sql(rig, "price >").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        body = CheckClientBody(
            subscription_data=SubscriptionData(topic="T", sub_string="price >", expression_type="SQL92")
        )
        assert rig.call(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode()).code == ResponseCode.SYSTEM_ERROR

    def test_expressions_of_all_pulls_have_a_bound(self, priced, monkeypatch):
        monkeypatch.setattr(filter_tests, "PULL_EXPRESSIONS_CHARS_MAX", 100)
        monkeypatch.setattr(filter_tests, "EXPRESSIONS_CACHED_CHARS_MAX", 0)
        peer = priced.peer()
        long = "price > 50" + " " * 50
        assert sql(priced, long, 10, sysFlag=OWN | SUSPEND, peer=peer) is None
        refused = sql(priced, long + " ", 10, sysFlag=OWN | SUSPEND, peer=peer)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert sql(priced, "price > 60", 10, sysFlag=OWN | SUSPEND, peer=peer) is None
        priced.sent_ok("T", b"dear", {"price": "55"})
        assert len(peer.take()) == 1
        assert sql(priced, long + " ", 11, sysFlag=OWN | SUSPEND, peer=peer) is None


def test_an_expression_that_is_never_read_is_no_matter_of_room():
    """At SYSTEM_BUSY a client tries again, for ever."""
    with pytest.raises(Refusal) as caught:
        filter_tests.FilterTests().of_properties("a = 1 " * PULL_EXPRESSIONS_CHARS_MAX)
    assert caught.value.code is ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_the_cache_forgets_what_was_not_used_for_longest(monkeypatch):
    monkeypatch.setattr(filter_tests, "EXPRESSIONS_CACHED_CHARS_MAX", 14)
    tests = filter_tests.FilterTests()
    first, second = tests.of_properties("a = 1"), tests.of_properties("b = 2")
    assert tests.of_properties("a = 1") is first
    tests.of_properties("c = 3")
    assert tests.of_properties("a = 1") is first
    assert tests.of_properties("b = 2") is not second


def test_an_expression_that_is_too_long_takes_nobodys_place() -> None:
    tests = filter_tests.FilterTests()
    kept = tests.of_properties("a = 1")
    for _ in range(20):
        with pytest.raises(Refusal, match="16384 at most"):
            tests.of_properties("a = 1" + " " * 200_000)
    assert tests.of_properties("a = 1") is kept
