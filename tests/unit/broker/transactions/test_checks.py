"""Checks of undecided transactions: who is asked, when, with what, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, MakeTransactions, TransactionRig

from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request

OK = (ResponseCode.SUCCESS, None)
HOUR = 3_600_000


def test_the_producer_is_asked_after_the_time_out_with_the_place_of_the_copy(tx: TransactionRig) -> None:
    peer = tx.producer()
    sent = tx.half(UNIQ_KEY="U1", TAGS="red")
    tx.advance(5_999)
    assert tx.questions(peer) == []
    tx.advance(2)
    (question,) = tx.questions(peer)
    _, copy = tx.halves()
    assert question.is_oneway
    assert question.fields["msgId"] == question.fields["transactionId"] == "U1"
    assert (question.fields["tranStateTableOffset"], question.fields["commitLogOffset"]) == (
        "1",
        str(copy.physical_offset),
    )
    assert int(question.fields["offsetMsgId"][16:], 16) == copy.physical_offset
    shown = decode_record(bytes(question.body))
    assert (shown.topic, shown.queue_id, bytes(shown.body)) == ("orders", 0, b"half")
    assert decode_properties(shown.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert tx.ended(question, COMMIT) == OK
    assert tx.bodies() == [b"half"]
    assert tx.ended(sent, COMMIT) == OK
    assert tx.bodies() == [b"half"]


def test_nobody_is_asked_about_what_is_decided(tx: TransactionRig) -> None:
    peer = tx.producer()
    tx.ended(tx.half(), COMMIT)
    tx.ended(tx.half(), ROLLBACK)
    tx.advance(60_000)
    assert tx.questions(peer) == []
    assert len(tx.halves()) == 2


def test_the_first_offsets_decide_after_checks_as_well(tx: TransactionRig) -> None:
    sent = tx.half()
    tx.producer()
    tx.advance(100_000)
    assert len(tx.halves()) == 5
    assert tx.ended(sent, COMMIT) == OK
    assert tx.bodies() == [b"half"]
    assert tx.undecided == 0
    named = {int(one) for body, _ in tx.ops() for one in body.split(b",") if one}
    assert named == set(range(5))


def test_checks_come_at_the_interval_and_count_without_a_producer(tx: TransactionRig) -> None:
    tx.half()
    tx.advance(6_100)
    tx.advance(29_000)
    assert len(tx.halves()) == 2
    tx.advance(1_000)
    assert len(tx.halves()) == 3
    peer = tx.producer()
    tx.advance(30_000)
    (question,) = tx.questions(peer)
    assert decode_properties(decode_record(bytes(question.body)).properties)["TRANSACTION_CHECK_TIMES"] == "3"


def test_members_of_the_group_are_asked_in_turn(tx: TransactionRig) -> None:
    peers = [tx.producer(), tx.producer()]
    tx.half()
    tx.advance(6_000 + 3 * 30_000 + 100)
    assert [len(tx.questions(peer)) for peer in peers] == [2, 2]


def test_a_message_may_say_when_it_is_checked_first(tx: TransactionRig) -> None:
    peer = tx.producer()
    tx.half(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    tx.half(CHECK_IMMUNITY_TIME_IN_SECONDS="nonsense")
    tx.advance(6_100)
    assert len(tx.questions(peer)) == 1
    tx.advance(53_800)
    assert {question.fields["tranStateTableOffset"] for question in tx.questions(peer)}.isdisjoint({"0"})
    tx.advance(200)
    assert len(tx.questions(peer)) == 1


def test_what_nobody_decides_is_given_up_with_its_message(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(CheckRules(count_max=2))
    sent = tx.half(KEYS="k")
    tx.advance(6_000 + 2 * 30_000 + 100)
    assert (tx.undecided, tx.transactions.is_releasing) == (0, False)
    (given_up,) = tx.records(TRANS_CHECK_MAX_TIME_TOPIC)
    said = decode_properties(given_up.properties)
    assert (bytes(given_up.body), said["REAL_TOPIC"], said["KEYS"]) == (b"half", "orders", "k")
    code, remark = tx.ended(sent, COMMIT)
    assert (code, "given up" in str(remark)) == (ResponseCode.ILLEGAL_OPERATION, True)
    tx.kill()
    assert tx.undecided == 0


def test_what_is_older_than_the_files_are_kept_is_given_up_unasked(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(CheckRules(reserved_ms=HOUR))
    peer = tx.producer()
    tx.half()
    tx.half(CHECK_IMMUNITY_TIME_IN_SECONDS="999999")
    tx.close()
    tx.clock.advance(2 * HOUR)
    tx.open()
    tx.advance(10)
    assert tx.questions(peer) == []
    assert len(tx.records(TRANS_CHECK_MAX_TIME_TOPIC)) == 2
    assert tx.undecided == 0


def test_checks_may_be_resumed_once_for_what_was_given_up(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(CheckRules(count_max=1))
    tx.half(UNIQ_KEY="U1")
    tx.advance(40_000)
    (given_up,) = tx.records(TRANS_CHECK_MAX_TIME_TOPIC)
    place = f"{given_up.store_host.hex().upper()}{given_up.physical_offset:016X}"
    assert tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "x", "msgId": place}).code == 0
    assert tx.undecided == 1
    assert decode_properties(tx.halves()[-1].properties)["TRANSACTION_CHECK_TIMES"] == "0"
    again = tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "x", "msgId": place})
    assert (again.code, "resumed before" in str(again.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    peer = tx.producer()
    tx.advance(6_100)
    (question,) = tx.questions(peer)
    assert tx.ended(question, COMMIT) == OK
    assert tx.bodies() == [b"half"]


def test_two_that_resume_in_one_turn_resume_once(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(CheckRules(count_max=1))
    tx.half()
    tx.advance(40_000)
    (given_up,) = tx.records(TRANS_CHECK_MAX_TIME_TOPIC)
    place = f"{given_up.store_host.hex().upper()}{given_up.physical_offset:016X}"
    peer = tx.peer()
    assert tx.give(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": place}), peer) is None
    second = tx.give(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": place}), peer)
    tx.broker.end_turn()
    assert second is not None
    assert "resumed before" in str(second.remark)
    assert ([answer.code for answer in peer.take()], tx.undecided) == ([0], 1)


def test_times_of_checks_that_are_not_needed_any_more_are_thrown_away(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.transactions.check_times.STALE_TIMES_MAX", 50)
    tx.half()
    for _ in range(200):
        tx.ended(tx.half(CHECK_IMMUNITY_TIME_IN_SECONDS="86400"), ROLLBACK)
    assert len(tx.transactions.times) < 55
    peer = tx.producer()
    tx.advance(6_100)
    assert len(tx.questions(peer)) == 1


def test_resuming_an_undecided_transaction_forgets_its_checks(tx: TransactionRig) -> None:
    sent = tx.half()
    tx.advance(40_000)
    assert tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": sent.fields["msgId"]}).code == 0
    assert tx.undecided == 1
    assert decode_properties(tx.halves()[-1].properties)["TRANSACTION_CHECK_TIMES"] == "0"
    assert tx.ended(sent, ROLLBACK) == OK
    refused = tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": sent.fields["msgId"]})
    assert refused.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("message_id", ["", "x", "00" * 16, "FF" * 16, "00" * 28])
def test_nonsense_cannot_be_resumed(tx: TransactionRig, message_id: str) -> None:
    assert tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}).code == ResponseCode.SYSTEM_ERROR


def test_a_clock_that_was_set_back_puts_no_check_off_for_as_long(tx: TransactionRig) -> None:
    peer = tx.producer()
    tx.half()
    tx.clock.set_wall(tx.clock.now_ms() - 24 * HOUR)
    tx.advance(70_000)
    assert tx.questions(peer)


def test_nothing_polls_while_nothing_is_undecided(tx: TransactionRig) -> None:
    tx.ended(tx.half(), COMMIT)
    tx.advance(60_000)
    woken = tx.broker.deadlines.wakeups["transaction-checks"]
    tx.advance(HOUR)
    assert tx.broker.deadlines.wakeups["transaction-checks"] == woken <= 1


@pytest.mark.parametrize("way", ["reopen", "kill"])
def test_checks_go_on_where_they_were_after_a_restart(tx: TransactionRig, way: str, tmp_path: Path) -> None:
    sent = tx.half()
    other = tx.half(body=b"other")
    tx.advance(40_000)
    getattr(tx, way)()
    assert tx.undecided == 2
    peer = tx.producer()
    tx.advance(30_000)
    assert {
        decode_properties(decode_record(bytes(one.body)).properties)["TRANSACTION_CHECK_TIMES"]
        for one in tx.questions(peer)
    } == {"3"}
    assert tx.ended(sent, COMMIT) == OK
    assert tx.ended(other, ROLLBACK, producerGroup=GROUP) == OK
    assert (tx.bodies(), tx.undecided) == ([b"half"], 0)
