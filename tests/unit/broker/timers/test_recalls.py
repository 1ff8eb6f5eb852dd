"""RocketMQ's recall request: its checks in its order, its codes, and a truthful answer."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from orbitmq.errors import StoreUnwritableError
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus

NOW = 1_700_000_000_000


def recall(rig, handle: str, topic: str = "T"):
    return rig.call(RequestCode.RECALL_MESSAGE, {"producerGroup": "pg", "topic": topic, "recallHandle": handle})


def test_a_recall_by_handle_answers_the_message_id(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    answer = recall(rig, handle)
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "A1")
    assert rig.timers.pending_count == 0
    rig.clock.advance(9_000)
    rig.deliver()
    assert rig.records("T") == []


def test_a_second_recall_is_a_success_as_well(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    assert recall(rig, handle).fields == recall(rig, handle).fields == {"msgId": "A1"}


def test_a_handle_works_after_a_reschedule_and_beyond_its_own_time(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.change(RequestCode.RESCHEDULE_TIMERS, handle=handle, delay_ms=60_000)
    rig.clock.advance(10_000)
    assert recall(rig, handle).code == ResponseCode.SUCCESS
    assert rig.timers.pending_count == 0


def test_what_was_delivered_is_not_recalled(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.clock.advance(6_000)
    rig.deliver()
    answer = recall(rig, handle)
    assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, "the message has been delivered already")


def test_what_is_leaving_is_not_recalled(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.timers.leaving.add(0)
    answer = recall(rig, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "right now" in answer.remark


def test_a_second_recall_is_no_safer_than_the_first(rig) -> None:
    """Without a copy of the first the next master may not know of it."""
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    gate = rig.store.confirmation
    gate.let_pass(later=PutStatus.SLAVE_NOT_AVAILABLE)
    first, again = recall(rig, handle), recall(rig, handle)
    assert first.code == again.code != ResponseCode.SUCCESS
    asked = ChangeTimers(TimerSelector(handle=handle)).encode()
    assert rig.ask(RequestCode.RECALL_TIMERS, asked).code == ResponseCode.SLAVE_NOT_AVAILABLE
    gate.let_pass(later=PutStatus.PUT_OK)
    assert recall(rig, handle).code == ResponseCode.SUCCESS


def test_every_copy_that_a_senders_retry_stored_is_recalled(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.send_at("A1", NOW + 5_250)
    rig.send_at("A1", NOW + 9_250)
    answer = recall(rig, handle)
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"msgId": "A1"})
    assert rig.timers.pending_count == 0
    rig.clock.advance(20_000)
    rig.deliver()
    assert rig.records("T") == []


def test_a_copy_that_has_left_is_no_success_and_the_others_are_recalled(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.send_at("A1", NOW + 9_250)
    rig.clock.advance(6_000)
    rig.deliver()
    for _ in range(2):
        answer = recall(rig, handle)
        assert (answer.code, rig.timers.pending_count) == (ResponseCode.ILLEGAL_OPERATION, 0)
        assert "has been delivered already" in answer.remark


def test_a_copy_that_is_leaving_is_no_success_and_the_others_are_recalled(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.send_at("A1", NOW + 9_250)
    rig.timers.leaving.add(0)
    answer = recall(rig, handle)
    assert (answer.code, list(rig.timers.facts)) == (ResponseCode.ILLEGAL_OPERATION, [0])
    assert "right now" in answer.remark
    assert "1 that waited" in answer.remark


def test_copies_of_which_some_cannot_be_recalled(rig, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    rig.send_at("A1", NOW + 9_250)
    change = rig.timers.change

    def first_only(source, messages, **more) -> None:
        if source.queue_offset:
            raise StoreUnwritableError("full")
        change(source, messages, **more)

    monkeypatch.setattr(rig.timers, "change", first_only)
    answer = recall(rig, handle)
    assert (answer.code, rig.timers.pending_count) == (ResponseCode.SERVICE_NOT_AVAILABLE, 1)
    assert "1 of 2 copies" in answer.remark


@pytest.mark.parametrize(
    ("error", "code"), [(EIO, ResponseCode.SYSTEM_ERROR), (ENOSPC, ResponseCode.SERVICE_NOT_AVAILABLE)]
)
def test_a_recall_is_not_known_where_the_disk_failed_with_it_and_is_none_where_that_is_full(
    rig, monkeypatch: pytest.MonkeyPatch, error: int, code: ResponseCode
) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]

    def broken(log: CommitLog) -> None:
        log.discard()
        raise OSError(error, "planned")

    monkeypatch.setattr(CommitLog, "write", broken)
    assert recall(rig, handle).code == code
    assert recall(rig, handle).code == ResponseCode.SERVICE_NOT_AVAILABLE, "a second one is not even tried"


@pytest.mark.parametrize(
    ("handle", "word"),
    [
        ("", "recall handle"),
        ("nonsense", "recall handle"),
        (encode_handle("U", "broker-a", NOW + 5_000, "A1"), "'U'"),
        (encode_handle("T", "broker-b", NOW + 5_000, "A1"), "broker-b"),
        (encode_handle("T", "broker-a", NOW + 5_000, "A2"), "pending"),
        (encode_handle("T", "broker-a", NOW - 1_000, "A2"), "has passed"),
    ],
)
def test_a_handle_that_means_nothing_here(rig, handle: str, word: str) -> None:
    rig.send_at("A1", NOW + 5_250)
    answer = recall(rig, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert word in answer.remark
    assert rig.timers.pending_count == 1


def test_checks_come_in_rocketmqs_order(make_rig) -> None:
    off = make_rig(recall_message_enable=False, start_accept_send_request_timestamp=NOW + 1)
    assert recall(off, "", "nowhere").code == ResponseCode.NO_PERMISSION
    early = make_rig(start_accept_send_request_timestamp=NOW + 1)
    assert recall(early, "", "nowhere").code == ResponseCode.SERVICE_NOT_AVAILABLE
    closed = make_rig(broker_permission=4, allow_recall_when_broker_not_writeable=False)
    assert recall(closed, "", "nowhere").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert recall(make_rig(broker_permission=4), "", "nowhere").code == ResponseCode.TOPIC_NOT_EXIST
