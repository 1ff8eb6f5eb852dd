"""Looking at transactions: LIST_TRANSACTIONS and GET_TRANSACTION."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, ROLLBACK, MakeTransactions, TransactionRig

from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.transaction_bodies import (
    TransactionAnswer,
    TransactionName,
    TransactionPage,
    TransactionQuery,
    TransactionState,
    TransactionViewBody,
)


def ok(tx: TransactionRig, code: RequestCode, fields: dict[str, Any] | None = None, body: bytes = b"") -> bytes:
    """The body of an answer that is no refusal."""
    answer = tx.call(code, fields, body)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return bytes(answer.body)


def page(tx: TransactionRig, **query: Any) -> TransactionPage:
    return TransactionPage.decode(ok(tx, RequestCode.LIST_TRANSACTIONS, body=TransactionQuery(**query).encode()))


def shown(tx: TransactionRig, name: str) -> TransactionAnswer:
    return TransactionAnswer.decode(ok(tx, RequestCode.GET_TRANSACTION, body=TransactionName(name).encode()))


def only(tx: TransactionRig, name: str) -> TransactionViewBody:
    (view,) = shown(tx, name).transactions
    return view


def test_a_list_has_what_is_undecided_in_the_order_of_the_log(tx: TransactionRig) -> None:
    sent = [tx.half(body=b"%d" % number) for number in range(3)]
    tx.half("others", PGROUP="other")
    tx.end(sent[1], COMMIT)
    views = page(tx).transactions
    assert [(view.topic, view.group) for view in views] == [("orders", "pg"), ("orders", "pg"), ("others", "other")]
    assert [view.message_id for view in views[:2]] == [sent[0].fields["transactionId"], sent[2].fields["transactionId"]]
    assert {view.state for view in views} == {TransactionState.UNDECIDED}
    assert views[0].next_check_ms == views[0].stored_ms + 6_000
    assert [view.group for view in page(tx, topic="others").transactions] == ["other"]
    assert len(page(tx, group="pg").transactions) == 2
    assert page(tx, topic="nobody's").transactions == []


def test_pages_go_on_where_the_one_before_ended(tx: TransactionRig) -> None:
    sent = [tx.half().fields["transactionId"] for _ in range(5)]
    found: list[str] = []
    cursor = None
    while True:
        part = page(tx, limit=2, cursor=cursor)
        found += [view.message_id for view in part.transactions]
        cursor = part.cursor
        if cursor is None:
            break
    assert found == sent


def test_a_check_is_counted_and_the_offset_id_is_that_of_the_newest_copy(tx: TransactionRig) -> None:
    sent = tx.half()
    first = only(tx, sent.fields["transactionId"])
    tx.producer()
    tx.advance(6_000)
    checked = only(tx, sent.fields["transactionId"])
    assert (checked.check_count, checked.stored_ms) == (1, first.stored_ms)
    assert checked.offset_id != first.offset_id == sent.fields["msgId"]
    assert checked.next_check_ms == first.stored_ms + 36_000
    assert only(tx, first.offset_id) == checked, "any copy names the transaction"


def test_the_message_is_shown_whole(tx: TransactionRig) -> None:
    sent = tx.half(body=b"whole", colour="red")
    found = shown(tx, sent.fields["transactionId"])
    assert (found.body, found.properties["colour"]) == (b"whole", "red")


@pytest.mark.parametrize(
    ("decision", "state"), [(COMMIT, TransactionState.COMMITTED), (ROLLBACK, TransactionState.ROLLED_BACK)]
)
def test_what_was_decided_is_found_by_the_key_index(tx: TransactionRig, decision: int, state: TransactionState) -> None:
    sent = tx.half(body=b"decided")
    tx.end(sent, decision)
    for name in (sent.fields["transactionId"], sent.fields["msgId"]):
        found = shown(tx, name)
        assert ([view.state for view in found.transactions], found.body) == ([state], b"decided")
    assert page(tx).transactions == []


def test_what_was_given_up_is_shown_and_comes_back_by_its_offset_id(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(CheckRules(count_max=0))
    sent = tx.half()
    key = sent.fields["transactionId"]
    tx.advance(6_000)
    given_up = only(tx, key)
    assert (given_up.state, given_up.next_check_ms) == (TransactionState.GIVEN_UP, None)
    assert only(tx, given_up.offset_id) == given_up
    ok(tx, RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": given_up.offset_id})
    assert only(tx, key).state is TransactionState.UNDECIDED


def test_two_half_messages_of_one_send_are_both_shown(tx: TransactionRig) -> None:
    tx.half(UNIQ_KEY="TWICE")
    tx.half(UNIQ_KEY="TWICE")
    assert len(shown(tx, "TWICE").transactions) == 2


def test_what_is_not_known_is_no_error(tx: TransactionRig) -> None:
    plain = tx.sent_ok("orders", b"no transaction", {})
    for name in ("", "nobody's", plain.fields["msgId"], "F" * 32, "0" * 32, "é" * 5_000):
        assert shown(tx, name).transactions == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"limit":0}', b'{"limit":1001}', b'{"limit":"x"}', b'{"cursor":99999999999999999999}']
)
def test_a_list_that_cannot_be_is_refused(tx: TransactionRig, body: bytes) -> None:
    answer = tx.call(RequestCode.LIST_TRANSACTIONS, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert tx.call(RequestCode.GET_TRANSACTION, body=b"{}").code == ResponseCode.INVALID_PARAMETER
