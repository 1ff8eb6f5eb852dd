"""Transactions at a broker that becomes a slave and a master again: who checks, and what a cut of the log takes back."""

from __future__ import annotations

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, TransactionRig

from orbitmq.broker.transactions.records import Ending
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request

CHECKED_MS = 7_000
"""After this the first check is due."""


def decide(tx: TransactionRig, sent: Command, state: int) -> int:
    """Hand a decision over without ending the turn; answers where the log ended before."""
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": str(int(sent.fields["msgId"][16:], 16)),
        "msgId": sent.fields["transactionId"],
        "transactionId": sent.fields["transactionId"],
        "commitOrRollback": str(state),
    }
    before = tx.store.log.end
    assert tx.give(request(RequestCode.END_TRANSACTION, fields), tx.peer()) is None
    return before


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_decision_behind_a_cut_of_the_log_never_was(tx: TransactionRig, state: int) -> None:
    sent, other = tx.half(), tx.half()
    cut_at = decide(tx, sent, state)
    known = tx.transactions.undecided.at(int(sent.fields["msgId"][16:], 16))
    assert known is not None
    assert known.ending is not None
    tx.transactions.take_back(tx.store.log.end)
    assert known.ending is not None, "it lies before the cut"
    tx.transactions.take_back(cut_at)
    assert known.ending is None
    assert tx.transactions.next_due_ms is not None
    assert tx.transactions.undecided.at(int(other.fields["msgId"][16:], 16)) is not None


def test_a_slave_checks_nothing_and_the_next_master_does(tx: TransactionRig) -> None:
    producer = tx.producer()
    tx.half()
    tx.appenders.detach()
    end = tx.store.log.end
    tx.advance(10 * CHECKED_MS)
    assert tx.store.log.end == end
    assert tx.questions(producer) == []
    tx.heartbeat(producer, "client", producer=GROUP)
    producer.take()
    tx.appenders.attach()
    tx.advance(1)
    assert len(tx.questions(producer)) == 1
    assert tx.undecided == 1


def test_op_records_are_owed_until_somebody_may_write_them(tx: TransactionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = tx.half()
    tx.appenders.detach()
    with monkeypatch.context() as patch:
        patch.setattr("orbitmq.broker.transactions.ending.decision_record", lambda *_: None)
        tx.end(sent, COMMIT)
    tx.advance(1_000)
    assert (tx.ops(), len(tx.transactions.undecided.unnamed)) == ([], 1)
    tx.appenders.attach()
    tx.advance(1_000)
    assert (len(tx.ops()), len(tx.transactions.undecided.unnamed)) == (1, 0)


def test_what_was_being_given_up_when_checks_ended_is_given_up_by_the_next_master(tx: TransactionRig) -> None:
    tx.half()
    (known,) = tx.transactions.undecided
    known.check_count = 15
    taken = tx.transactions.take_due(tx.clock.now_ms() + 10**9, 10)
    assert len(taken) == 1
    known.ending = Ending.GIVEN_UP
    tx.appenders.detach()
    assert known.ending is None
    assert not tx.transactions.is_releasing
    tx.appenders.attach()
    tx.advance(60_000)
    assert tx.undecided == 0
    assert len(tx.records("TRANS_CHECK_MAX_TIME_TOPIC")) == 1
