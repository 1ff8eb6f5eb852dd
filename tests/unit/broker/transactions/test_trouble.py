"""Transactions on a disk that is full, and half messages that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, TransactionRig

from orbitmq.protocol.names import QUARANTINE_TOPIC
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import read_cold

OK = (ResponseCode.SUCCESS, None)


def damage(tx: TransactionRig, physical_offset: int) -> None:
    """Flip a bit in the body of the record there."""
    (segment,) = (tx.root / "commitlog").iterdir()
    with open(segment, "r+b") as file:
        file.seek(physical_offset + 88)
        byte = file.read(1)[0]
        file.seek(physical_offset + 88)
        file.write(bytes([byte ^ 1]))


def test_what_was_taken_in_is_decided_also_while_no_new_messages_are(tx: TransactionRig) -> None:
    first, second = tx.half(), tx.half(body=b"second")
    tx.store.refuse("disk", "the disk is full")
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true", "PGROUP": GROUP})
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    resumed = tx.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": first.fields["msgId"]})
    assert resumed.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert tx.ended(first, COMMIT) == tx.ended(second, ROLLBACK) == OK
    assert (tx.bodies(), tx.undecided) == ([b"half"], 0)


def test_a_decision_that_cannot_be_written_leaves_the_transaction_undecided(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tx.half()

    def fail(self: CommitLog) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "write", fail)
        assert tx.ended(sent, COMMIT)[0] == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (tx.undecided, tx.bodies()) == (1, [])
    tx.kill()
    assert tx.ended(sent, ROLLBACK) == OK
    assert (tx.undecided, tx.bodies()) == (0, [])


def test_half_messages_that_were_read_when_the_store_stopped_wait_and_are_not_logged(
    tx: TransactionRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tx.half(body=b"secret")
    peer = tx.producer()

    def stopped_meanwhile(store: MessageStore, units: Sequence[tuple[int, int]], done: Callable[[Any], None]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "writes_accepted", False)
            read_cold(store, units, done)

    with monkeypatch.context() as patch:
        patch.setattr("orbitmq.broker.transactions.checks.read_cold", stopped_meanwhile)
        tx.advance(6_100)
    assert (tx.questions(peer), tx.undecided, "secret" in caplog.text) == ([], 1, False)
    tx.advance(1_000)
    assert len(tx.questions(peer)) == 1


def test_a_damaged_half_message_is_not_committed_and_goes_to_quarantine(
    tx: TransactionRig, caplog: pytest.LogCaptureFixture
) -> None:
    sent = tx.half()
    other = tx.half(body=b"other")
    tx.close()
    damage(tx, int(sent.fields["msgId"][16:], 16))
    tx.open()
    assert tx.undecided == 1
    assert "stays undecided and is forgotten" in caplog.text
    damage(tx, int(other.fields["msgId"][16:], 16))
    code, remark = tx.ended(other, COMMIT)
    assert (code, tx.bodies()) == (ResponseCode.SYSTEM_ERROR, [])
    assert "damaged" in str(remark)
    peer = tx.producer()
    tx.advance(6_100)
    assert tx.questions(peer) == []
    assert tx.store.max_offset(QUARANTINE_TOPIC, 0) == 1
    assert (tx.undecided, tx.transactions.is_releasing) == (0, False)


def test_a_decision_of_which_nobody_knows_whether_it_stays_is_not_refused(tx: TransactionRig) -> None:
    """Its producer keeps it for the question of whoever leads next."""
    sent = tx.half()
    tx.store.confirmation.hold_for_copies(tx.store.confirm_offset)
    peer = tx.peer()
    assert tx.end(sent, COMMIT, peer=peer) is None
    tx.store.confirmation.give_up_waiting()
    (answer,) = peer.take()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
