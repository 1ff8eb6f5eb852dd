"""Repeats of idempotent timer messages: the answer is the first answer, and what it names is there."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.timers.test_requests import LogFar

from orbitmq.protocol.recall_handles import decode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

NOW = 1_700_000_000_000
ONCE = {"ORBITMQ_SCOPE": "jobs", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k"}
DUE = NOW + 60_250


def send(rig, message_id: str, deliver_ms: int = DUE, **more: str):
    return rig.send_at(message_id, deliver_ms, **ONCE, **more)


def recall(rig, handle: str) -> None:
    answer = rig.call(RequestCode.RECALL_MESSAGE, {"producerGroup": "pg", "topic": "T", "recallHandle": handle})
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("later_ms", [0, 5_000])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_restarted_program_gets_the_first_id_handle_and_time(rig, reopened: bool, later_ms: int) -> None:
    first = send(rig, "A1")
    if reopened:
        rig.reopen()
    again = send(rig, "B1", DUE + later_ms)
    assert again.fields == first.fields | {"orbitmqRepeat": "stored", "orbitmqDeliverMs": str(DUE)}
    assert decode_handle(again.fields["recallHandle"]).message_id == "A1"
    assert rig.status(handle=again.fields["recallHandle"]) == ["pending"]
    assert rig.status(topic="T", message_id=again.fields["transactionId"]) == ["pending"]
    rig.change(RequestCode.RESCHEDULE_TIMERS, handle=again.fields["recallHandle"], delay_ms=120_000)
    recall(rig, again.fields["recallHandle"])
    assert rig.timers.pending_count == 0


def test_a_repeat_of_the_same_turn_gets_it_too(rig) -> None:
    rig.sent_ok("T")
    first, second = rig.peer(), rig.peer()
    turn, rig.broker.end_turn = rig.broker.end_turn, lambda: None
    for message_id, peer in (("A1", first), ("B1", second)):
        values = {"UNIQ_KEY": message_id, "TIMER_DELIVER_MS": str(DUE), **ONCE}
        assert rig.send("T", b"timed", values, peer=peer) is None
    rig.broker.end_turn = turn
    rig.broker.end_turn()
    assert second.sent[0].fields["recallHandle"] == first.sent[0].fields["recallHandle"]
    assert second.sent[0].fields["transactionId"] == "A1"


def test_a_late_retry_of_what_was_recalled_is_told_so_and_stores_nothing(rig) -> None:
    first = send(rig, "A1")
    recall(rig, first.fields["recallHandle"])
    for reopened in (False, True):
        if reopened:
            rig.reopen()
        again = send(rig, "A1")
        assert again.fields == first.fields | {"orbitmqRepeat": "recalled", "orbitmqDeliverMs": str(DUE)}
        assert rig.timers.pending_count == 0


@pytest.mark.parametrize("reopened", [False, True])
def test_after_a_recall_a_send_with_another_id_is_a_new_message(rig, reopened: bool) -> None:
    recall(rig, send(rig, "A1").fields["recallHandle"])
    if reopened:
        rig.reopen()
    second = send(rig, "B1")
    assert "orbitmqRepeat" not in second.fields
    assert rig.status(topic="T", message_id="B1") == ["pending"]
    for message_id in ("B1", "A1", "C1"):
        again = send(rig, message_id)
        assert again.fields == second.fields | {"orbitmqRepeat": "stored", "orbitmqDeliverMs": str(DUE)}
    if not reopened:
        rig.reopen()
        assert send(rig, "D1").fields["transactionId"] == "B1"
    assert rig.timers.pending_count == 1
    assert rig.idempotence.memory.key_count == 1


def test_without_a_key_index_what_does_not_wait_before_its_time_was_recalled(make_rig) -> None:
    rig = make_rig(store=msgspec.structs.replace(SMALL_STORE, message_index_enable=False))
    first = send(rig, "A1")
    assert send(rig, "B1").fields["orbitmqRepeat"] == "stored"
    recall(rig, first.fields["recallHandle"])
    assert send(rig, "A1").fields["orbitmqRepeat"] == "recalled"
    assert "orbitmqRepeat" not in send(rig, "B1").fields
    assert rig.status(topic="T", message_id="B1") == ["pending"]
    rig.clock.advance(90_000)
    rig.deliver()
    assert send(rig, "C1").fields["orbitmqRepeat"] == "stored"
    assert len(rig.records("T")) == 1


@pytest.mark.parametrize("deliver_ms", [NOW + 30_000, NOW + 90_000], ids=["near", "far"])
def test_beside_messages_in_the_far_tier_a_recall_without_a_key_index_counts_too(make_rig, deliver_ms: int) -> None:
    rig = make_rig(store=msgspec.structs.replace(SMALL_STORE, message_index_enable=False))
    far = LogFar(rig)
    rig.admission_far(far)
    rig.send_at("other", NOW + 120_000)
    first = send(rig, "A1", deliver_ms)
    assert send(rig, "B1", deliver_ms).fields["orbitmqRepeat"] == "stored"
    recall(rig, first.fields["recallHandle"])
    assert send(rig, "A1", deliver_ms).fields["orbitmqRepeat"] == "recalled"
    assert "orbitmqRepeat" not in send(rig, "B1", deliver_ms).fields
    assert rig.status(topic="T", message_id="B1") == ["pending"]
    assert send(rig, "C1", deliver_ms).fields["transactionId"] == "B1"


def test_what_was_moved_or_delivered_is_a_repeat(rig) -> None:
    first = send(rig, "A1")
    rig.change(RequestCode.RESCHEDULE_TIMERS, handle=first.fields["recallHandle"], delay_ms=1_000)
    assert send(rig, "B1").fields["orbitmqRepeat"] == "stored"
    rig.clock.advance(3_000)
    rig.deliver()
    again = send(rig, "B1")
    assert again.fields == first.fields | {"orbitmqRepeat": "stored", "orbitmqDeliverMs": str(DUE)}
    assert len(rig.records("T")) == 1


def test_a_timer_of_a_topic_that_was_deleted_is_no_first_send(rig) -> None:
    send(rig, "A1")
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    rig.reopen()
    assert "orbitmqRepeat" not in send(rig, "B1").fields
    assert rig.status(topic="T", message_id="B1") == ["pending"]
