"""What clients hear of records that are on fewer disks than was asked for, or that nobody can promise."""

from __future__ import annotations

import pytest

from orbitmq.broker.put_answers import ANSWERS, IN_PART
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.durability import PutStatus

COPY_LATE, NO_COPY = PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE


def held(rig):
    """The gate of the copies, which holds from now on."""
    gate = rig.store.confirmation
    gate.hold_for_copies(rig.store.confirm_offset, 3_000, lambda: gate.let_pass(COPY_LATE, NO_COPY))
    return gate


def pass_time(rig, ms):
    rig.clock.advance(ms)
    rig.store.run_due(rig.clock.monotonic_ns())


def test_every_status_has_its_answer_and_what_is_kept_in_part_its_words():
    assert set(ANSWERS) == set(PutStatus)
    assert set(IN_PART) == {status for status in PutStatus if status.is_kept} - {PutStatus.PUT_OK}


def test_a_send_waits_for_the_copies_then_hears_that_they_are_late_then_that_there_are_none(rig):
    rig.sent_ok("T")
    held(rig)
    peer = rig.peer()
    assert rig.send("T", b"late", peer=peer) is None
    pass_time(rig, 3_000)
    (late,) = peer.take()
    assert (late.code, late.fields["queueOffset"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "1")
    assert "no copy of the broker said in time" in late.remark
    alone = rig.send("T", b"alone")
    assert (alone.code, alone.fields["queueOffset"]) == (ResponseCode.SLAVE_NOT_AVAILABLE, "2")
    assert rig.store.max_offset("T", 0) == 3, "both are delivered"


def test_a_batch_hears_the_same(rig):
    rig.sent_ok("T")
    held(rig)
    peer = rig.peer()
    body = encode_batch([BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")])
    assert rig.send("T", body, peer=peer, batch=True, code=RequestCode.SEND_BATCH_MESSAGE) is None
    pass_time(rig, 3_000)
    (answer,) = peer.take()
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert answer.fields["msgId"].count(",") == 1


def test_a_send_of_a_broker_that_leads_no_more_may_be_stored_or_not(rig):
    rig.sent_ok("T")
    gate = held(rig)
    peer = rig.peer()
    rig.send("T", b"perhaps", peer=peer)
    gate.give_up_waiting()
    (answer,) = peer.take()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "it may stay or not" in answer.remark
    assert len(rig.records("T")) == 1


def test_a_message_sent_back_without_a_copy_is_not_sent_back_again(rig):
    rig.sent_ok("T", b"x")
    rig.store.confirmation.let_pass(later=NO_COPY)
    (record,) = rig.records("T")
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}')
    answer = rig.call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {"group": "g", "offset": record.physical_offset, "delayLevel": 1, "originMsgId": "", "originTopic": "T"},
    )
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("status", list(PutStatus))
def test_the_flush_mode_is_satisfied_by_what_only_copies_lack(status):
    assert status.satisfies_flush == (status in (PutStatus.PUT_OK, COPY_LATE, NO_COPY))
    assert status.is_kept or not status.satisfies_flush
