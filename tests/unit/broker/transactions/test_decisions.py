"""Decisions about half messages, by frames: what is stored, what is answered, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, UNKNOWN, MakeTransactions, TransactionRig

from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.protocol.sysflag import TransactionType, transaction_type
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import level_due_time

OK = (ResponseCode.SUCCESS, None)


def test_a_half_message_waits_where_no_consumer_looks(tx: TransactionRig) -> None:
    sent = tx.half(KEYS="k", UNIQ_KEY="U1")
    (half,) = tx.halves()
    said = decode_properties(half.properties)
    assert (half.topic, half.queue_id, half.sys_flag & 0xC, half.prepared_transaction_offset) == (HALF_TOPIC, 0, 0, 0)
    assert (said["REAL_TOPIC"], said["REAL_QID"], said["__transactionId__"]) == ("orders", "0", "U1")
    assert (sent.fields["queueOffset"], sent.fields["transactionId"]) == ("0", "U1")
    assert tx.bodies() == []
    assert tx.undecided == 1


def test_a_commit_stores_the_message_and_names_the_half_message(tx: TransactionRig) -> None:
    sent = tx.half(TAGS="red", KEYS="k", UNIQ_KEY="U1")
    assert tx.ended(sent, COMMIT) == OK
    (message,), (half,) = tx.records("orders"), tx.halves()
    said = decode_properties(message.properties)
    assert bytes(message.body) == b"half"
    assert transaction_type(message.sys_flag) is TransactionType.COMMIT
    assert message.prepared_transaction_offset == half.physical_offset
    assert (message.born_timestamp, message.born_host) == (half.born_timestamp, half.born_host)
    names = ("TAGS", "KEYS", "UNIQ_KEY", "TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "__transactionId__")
    assert {name: said[name] for name in names} == {
        "TAGS": "red", "KEYS": "k", "UNIQ_KEY": "U1", "TRAN_MSG": "true", "PGROUP": GROUP, "REAL_TOPIC": "orders", "REAL_QID": "0",
        "__transactionId__": "U1",
    }  # fmt: skip
    assert tx.ops() == [(b"0,", "committed")]
    assert tx.undecided == 0


def test_a_rollback_stores_the_op_record_alone(tx: TransactionRig) -> None:
    assert tx.ended(tx.half(), ROLLBACK) == OK
    assert tx.bodies() == []
    assert tx.ops() == [(b"0,", "rolled back")]
    assert tx.undecided == 0


def test_a_state_that_is_not_known_yet_has_no_answer_and_no_effect(tx: TransactionRig) -> None:
    sent = tx.half()
    assert tx.end(sent, UNKNOWN) is None
    assert (tx.undecided, tx.ops()) == (1, [])


@pytest.mark.parametrize(("first", "other"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
@pytest.mark.parametrize("between", ["nothing", "a restart", "a kill"])
def test_a_repeated_decision_stores_nothing_and_the_contrary_is_refused(
    tx: TransactionRig, first: int, other: int, between: str
) -> None:
    sent = tx.half()
    assert tx.ended(sent, first) == OK
    if between == "a restart":
        tx.reopen()
    elif between == "a kill":
        tx.kill()
    before = tx.store.log.end
    assert tx.ended(sent, first) == OK
    code, remark = tx.ended(sent, other)
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert "cannot be" in str(remark)
    assert tx.store.log.end == before


def test_what_a_half_message_says_of_checks_and_copies_is_not_believed(tx: TransactionRig) -> None:
    sent = tx.half(body=b"mine")
    tx.half(
        "other",
        b"theirs",
        PGROUP="theirs",
        TRAN_PREPARED_QUEUE_OFFSET=sent.fields["queueOffset"],
        TRANSACTION_CHECK_TIMES="15",
    )
    assert tx.undecided == 2
    assert tx.ended(sent, COMMIT) == OK
    assert tx.bodies() == [b"mine"]
    (waiting,) = tx.transactions.undecided
    assert (waiting.topic, waiting.check_count) == ("other", 0)


def test_a_decision_is_known_before_its_op_record_is_written(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tx.half()
    monkeypatch.setattr("orbitmq.broker.transactions.ending.decision_record", lambda *_: None)
    assert tx.ended(sent, COMMIT) == OK
    assert (len(tx.transactions.undecided.unnamed), tx.ops()) == (1, [])
    assert tx.ended(sent, COMMIT) == OK
    assert tx.ended(sent, ROLLBACK)[0] == ResponseCode.ILLEGAL_OPERATION


def test_what_ended_without_an_op_record_has_ended_where_the_queues_are_read(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.transactions.transactions.MARKED_UNDECIDED_MAX", 0)
    waiting, sent = tx.half(), tx.half()
    with monkeypatch.context() as patch:
        patch.setattr("orbitmq.broker.transactions.ending.decision_record", lambda *_: None)
        assert tx.ended(sent, COMMIT) == OK
    saved, log = tx.transactions.state(), tx.store.log
    restored = Transactions(ConfigFile(OsFiles(), tx.root / "none.json"), level_due_time(DelayLevels.parse()), tx.rules)
    restored.restore(log, tx.store.queues, saved, log.end)
    assert [known.place.queue_offset for known in restored.undecided] == [int(waiting.fields["queueOffset"])]


def test_decisions_of_one_turn_are_one_decision(tx: TransactionRig) -> None:
    sent = tx.half()
    fields = {
        "producerGroup": GROUP, "tranStateTableOffset": "0", "commitLogOffset": str(int(sent.fields["msgId"][16:], 16)),
        "msgId": sent.fields["transactionId"], "commitOrRollback": "8",
    }  # fmt: skip
    peer = tx.peer()
    tx.give(request(RequestCode.END_TRANSACTION, dict(fields)), peer)
    tx.give(request(RequestCode.END_TRANSACTION, dict(fields)), peer)
    refused = tx.give(request(RequestCode.END_TRANSACTION, fields | {"commitOrRollback": "12"}), peer)
    tx.broker.end_turn()
    assert refused is not None
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert [answer.code for answer in peer.take()] == [0, 0]
    assert (tx.bodies(), len(tx.ops())) == ([b"half"], 1)


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"producerGroup": "others"}, ResponseCode.SYSTEM_ERROR, "another producer group"),
        ({"tranStateTableOffset": 7}, ResponseCode.SYSTEM_ERROR, "tranStateTableOffset"),
        ({"commitLogOffset": 1}, ResponseCode.SYSTEM_ERROR, "no half message"),
        ({"commitLogOffset": -5}, ResponseCode.SYSTEM_ERROR, "no half message"),
        ({"commitLogOffset": 1 << 62}, ResponseCode.SYSTEM_ERROR, "no half message"),
        ({"commitLogOffset": "x"}, ResponseCode.SYSTEM_ERROR, "no half message"),
        ({"transactionId": "other", "msgId": "another"}, ResponseCode.SYSTEM_ERROR, "another half message"),
        ({"commitOrRollback": 4}, ResponseCode.SYSTEM_ERROR, "commitOrRollback"),
        ({"commitOrRollback": "x"}, ResponseCode.SYSTEM_ERROR, "commitOrRollback"),
    ],
)
def test_what_a_decision_gets_wrong_is_said_and_changes_nothing(
    tx: TransactionRig, changes: dict[str, Any], code: int, says: str
) -> None:
    tx.sent_ok("orders")
    sent = tx.half()
    refused, remark = tx.ended(sent, COMMIT, **changes)
    assert refused == code
    assert says in str(remark)
    assert (tx.undecided, tx.ops(), tx.bodies()) == (1, [], [b"hello"])


def test_a_record_that_is_no_half_message_cannot_be_committed(tx: TransactionRig) -> None:
    plain = tx.sent_ok("orders")
    assert "no half message" in str(tx.ended(plain, COMMIT)[1])
    sent = tx.half()
    assert tx.ended(sent, COMMIT) == OK
    committed = tx.records("orders")[1]
    code, remark = tx.ended(sent, COMMIT, commitLogOffset=committed.physical_offset)
    assert (code, "no half message" in str(remark)) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_half_message_names_its_group(tx: TransactionRig) -> None:
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true"})
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "PGROUP" in str(answer.remark)


def test_transaction_bits_alone_are_refused_by_name(tx: TransactionRig) -> None:
    answer = tx.send("orders", b"x", sysFlag=4)
    assert answer is not None
    assert (answer.code, "TRAN_MSG" in str(answer.remark)) == (ResponseCode.NO_PERMISSION, True)


def test_half_messages_may_be_switched_off(make_transactions: MakeTransactions) -> None:
    tx = make_transactions(reject_transaction_message=True)
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true", "PGROUP": GROUP})
    assert answer is not None
    assert answer.code == ResponseCode.NO_PERMISSION


def test_too_many_undecided_transactions_are_refused_until_some_are_decided(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.admission.UNDECIDED_MAX", 2)
    first, _ = tx.half(), tx.half()
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true", "PGROUP": GROUP})
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    tx.sent_ok("orders")
    assert tx.ended(first, ROLLBACK) == OK
    tx.half()


def test_a_topic_that_is_gone_leaves_its_transaction_undecided(tx: TransactionRig) -> None:
    sent = tx.half()
    tx.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert tx.ended(sent, COMMIT)[0] == ResponseCode.TOPIC_NOT_EXIST
    assert tx.undecided == 1
    assert tx.ended(sent, ROLLBACK) == OK


def test_a_message_that_asks_when_it_is_checked_is_decided_by_checks_once_that_has_passed(tx: TransactionRig) -> None:
    sent = tx.half(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    peer = tx.producer()
    tx.advance(10_001)
    assert tx.ended(sent, COMMIT)[0] == ResponseCode.ILLEGAL_OPERATION
    (question,) = tx.questions(peer)
    assert tx.ended(question, COMMIT) == OK
    assert tx.bodies() == [b"half"]


def test_a_commit_without_its_op_record_decides_also_where_the_log_begins(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tx.half()
    with monkeypatch.context() as patch:
        patch.setattr("orbitmq.broker.transactions.ending.decision_record", lambda *_: None)
        assert tx.ended(sent, COMMIT) == OK
    assert (tx.undecided, tx.ops()) == (0, [])
    tx.kill()
    assert tx.undecided == 0
    tx.advance(10)
    assert tx.ops() == [(b"0,", "committed")]
    assert tx.ended(sent, COMMIT) == OK
    assert tx.bodies() == [b"half"]


# --- times to wait for --------------------------------------------------------------------------------------------------


def test_a_level_that_is_no_number_is_refused_with_the_half_message(tx: TransactionRig) -> None:
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true", "PGROUP": GROUP, "DELAY": "soon"}, sysFlag=4)
    assert answer is not None
    assert (answer.code, "DELAY" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert tx.undecided == 0


def test_a_half_message_that_was_taken_is_committed_however_large_it_is(tx: TransactionRig) -> None:
    for room in range(0, 200, 20):
        said = {"TRAN_MSG": "true", "PGROUP": GROUP, "DELAY": "1", "text": "x" * (31_500 - room)}
        sent = tx.send("orders", b"large", said, sysFlag=4)
        assert sent is not None
        if sent.code == 0:
            tx.store.refuse("disk", "the disk is full")
            assert tx.ended(sent, COMMIT) == OK
            tx.store.allow("disk")
            break
    tx.advance(2_000)
    assert tx.bodies() == [b"large"]


def test_a_delay_level_counts_from_the_commit(tx: TransactionRig) -> None:
    sent = tx.half(DELAY="2")
    tx.advance(4_000)
    assert tx.ended(sent, COMMIT) == OK
    (waiting,), (half,) = tx.records(SCHEDULE_TOPIC, 1), tx.halves()
    assert transaction_type(waiting.sys_flag) is TransactionType.COMMIT
    assert waiting.prepared_transaction_offset == half.physical_offset
    tx.advance(4_900)
    assert tx.bodies() == []
    tx.advance(200)
    (message,) = tx.records("orders")
    assert transaction_type(message.sys_flag) is TransactionType.NOT
    assert message.prepared_transaction_offset == waiting.physical_offset + 1


def test_a_delayed_commit_is_delivered_once_whatever_is_killed(tx: TransactionRig) -> None:
    sent = tx.half(DELAY="1")
    tx.kill()
    assert tx.ended(sent, COMMIT) == OK
    tx.kill()
    assert tx.undecided == 0
    tx.advance(1_100)
    assert tx.bodies() == [b"half"]
    tx.kill()
    tx.advance(60_000)
    assert tx.bodies() == [b"half"]
    assert tx.levels.pending_count == 0
    assert tx.ended(sent, COMMIT) == OK
    assert tx.ended(sent, ROLLBACK)[0] == ResponseCode.ILLEGAL_OPERATION


# --- idempotent sends -----------------------------------------------------------------------------------------------------


def test_the_repeat_of_an_idempotent_half_message_gets_the_place_of_the_first(tx: TransactionRig) -> None:
    once = {Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: "1", Property.ONCE_KEY: "k"}
    first = tx.half(**once)
    again = tx.half(**once)
    assert again.fields["msgId"] == first.fields["msgId"]
    assert tx.ended(again, COMMIT) == OK
    tx.kill()
    late = tx.half(**once)
    assert late.fields["msgId"] == first.fields["msgId"]
    assert tx.ended(late, COMMIT) == OK
    assert (tx.bodies(), len(tx.halves())) == ([b"half"], 1)
