"""Requests about timer messages that wait: every verdict, by handle, by message id and by key."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest
from tests.unit.broker.conftest import SMALL_STORE

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.timers import TIMER_CHANGES_PER_REQUEST_MAX, TIMER_PAGE_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.recall_handles import decode_handle, encode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.timer_bodies import (
    ChangeTimers,
    CountQuery,
    TimerAnswers,
    TimerCountsBody,
    TimerPage,
    TimerQuery,
    TimerSelector,
    TimerViewBody,
    Verdict,
)
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.timing.far.far_timers import FarStatus
from orbitmq.timing.far.queries import FarPage, far_record, matches
from orbitmq.timing.far.tier import FarQuery

NOW = 1_700_000_000_000
RECALL, RESCHEDULE, STATUS = RequestCode.RECALL_TIMERS, RequestCode.RESCHEDULE_TIMERS, RequestCode.TIMER_STATUS


def handle_of(answer) -> str:
    return answer.fields["recallHandle"]


class TestRecall:
    @pytest.mark.parametrize("by", ["handle", "message_id", "key"])
    def test_what_waits_is_recalled_and_not_delivered(self, rig, by: str) -> None:
        sent = rig.send_at("A1", NOW + 5_250, KEYS="order-1 x")
        selector = {
            "handle": {"handle": handle_of(sent)},
            "message_id": {"topic": "T", "message_id": "A1"},
            "key": {"topic": "T", "key": "order-1"},
        }[by]
        assert rig.status(**selector) == ["pending"]
        answers = rig.change(RECALL, **selector)
        assert answers.changed == 1
        (answer,) = answers.answers
        assert answer.verdict is Verdict.RECALLED
        assert answer.timer == TimerViewBody(
            "T", "A1", "order-1 x", NOW + 5_250, NOW, answer.timer.size, "near", 0, "broker-a", handle_of(sent)
        )
        rig.clock.advance(9_000)
        rig.deliver()
        assert rig.records("T") == []

    def test_the_record_is_rocketmqs_and_names_its_source(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        rig.change(RECALL, topic="T", message_id="A1")
        sent, cancel = rig.records(TIMER_TOPIC)
        assert cancel.prepared_transaction_offset == sent.physical_offset + 1
        assert decode_properties(cancel.properties)["TIMER_DEL_UNIQKEY"] == "T+A1"

    def test_twice_is_recalled_already(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["already_recalled"]
        assert rig.status(topic="T", message_id="A1") == ["already_recalled"]
        assert len(rig.records(TIMER_TOPIC)) == 2

    def test_twice_in_one_turn_the_second_is_too_late(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        body = ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode()
        peer = rig.peer()
        assert rig.give(request(RECALL, None, body), peer) is None
        second = rig.give(request(RECALL, None, body), peer)
        assert TimerAnswers.decode(second.body).answers[0].verdict is Verdict.TOO_LATE
        assert peer.sent == []
        rig.broker.end_turn()
        (first,) = peer.take()
        assert TimerAnswers.decode(first.body).answers[0].verdict is Verdict.RECALLED

    def test_after_delivery_it_is_delivered_already(self, rig) -> None:
        sent = rig.send_at("A1", NOW + 5_250, KEYS="order-1")
        rig.clock.advance(6_000)
        rig.deliver()
        for selector in (
            {"handle": handle_of(sent)},
            {"topic": "T", "message_id": "A1"},
            {"topic": "T", "key": "order-1"},
        ):
            (answer,) = rig.change(RECALL, **selector).answers
            assert answer.verdict is Verdict.ALREADY_DELIVERED
            assert (answer.timer.message_id, answer.timer.delivered_ms) == ("A1", NOW + 6_000)
            assert answer.timer.deliver_ms == NOW + 5_250

    def test_what_was_never_a_timer_message_is_no_delivered_one_by_its_key(self, rig) -> None:
        rig.sent_ok("T", b"x", {"UNIQ_KEY": "A1", "KEYS": "order-1"})
        assert rig.status(topic="T", key="order-1") == ["not_found"]
        assert rig.status(topic="T", message_id="A1") == ["already_delivered"]

    def test_what_is_unknown_is_not_found(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250, KEYS="order-1")
        rig.sent_ok("U")
        assert rig.verdicts(RECALL, topic="T", message_id="A2") == ["not_found"]
        assert rig.verdicts(RECALL, topic="U", message_id="A1") == ["not_found"]
        assert rig.verdicts(RECALL, topic="T", key="order") == ["not_found"]
        assert rig.status(topic="T", message_id="A1") == ["pending"]

    def test_a_key_with_several_matches_changes_nothing_without_all(self, rig) -> None:
        for number in range(3):
            rig.send_at(f"A{number}", NOW + 5_250 + number, KEYS="order-1 other")
        answers = rig.change(RECALL, topic="T", key="order-1")
        assert [str(answer.verdict) for answer in answers.answers] == ["ambiguous"] * 3
        assert [answer.timer.message_id for answer in answers.answers] == ["A0", "A1", "A2"]
        assert answers.changed == 0
        assert rig.timers.pending_count == 3
        answers = rig.change(RECALL, topic="T", key="order-1", all=True)
        assert [str(answer.verdict) for answer in answers.answers] == ["recalled"] * 3
        assert answers.changed == 3
        assert rig.timers.pending_count == 0

    def test_a_request_changes_so_many_and_says_that_there_are_more(self, rig) -> None:
        for number in range(TIMER_CHANGES_PER_REQUEST_MAX + 2):
            rig.send_at(f"A{number}", NOW + 5_250, KEYS="order-1")
        answers = rig.change(RECALL, topic="T", key="order-1", all=True)
        assert (answers.changed, answers.more) == (TIMER_CHANGES_PER_REQUEST_MAX, True)
        answers = rig.change(RECALL, topic="T", key="order-1", all=True)
        assert (answers.changed, answers.more) == (2, False)

    def test_a_oneway_recall_is_done_and_not_answered(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        body = ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode()
        assert rig.try_call(RECALL, None, body, oneway=True) is None
        assert rig.timers.pending_count == 0

    def test_with_synchronous_flush_the_answer_waits_for_the_sync(self, make_rig) -> None:
        rig = make_rig(store=StoreSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH))
        rig.send_at("A1", NOW + 5_250)
        synced = rig.store.log.synced_end
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]
        assert rig.store.log.synced_end > synced

    def test_a_store_that_takes_nothing_refuses(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        rig.timers.refuse = StoreUnwritableError("full")
        answer = rig.ask(RECALL, ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode())
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert rig.status(topic="T", message_id="A1") == ["pending"]

    def test_a_write_that_fails_for_some_says_for_how_many(self, rig, monkeypatch) -> None:
        for key in ("A1", "A2", "A3"):
            rig.send_at(key, NOW + 5_250, KEYS="k")
        statuses = [PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.PUT_OK]
        asked = []

        def later(source, messages, *, wait, on_done) -> None:
            asked.append(on_done)

        monkeypatch.setattr(rig.timers, "change", later)
        peer = rig.peer()
        body = ChangeTimers(TimerSelector(topic="T", key="k", all=True)).encode()
        assert rig.try_call(RECALL, None, body, peer=peer) is None
        for on_done, status in zip(asked, statuses, strict=True):
            on_done(status)
        (answer,) = peer.sent
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark.startswith("1 of 3 changes could not be written, 2 are done")

    def test_a_write_that_fails_leaves_it_pending(self, rig, monkeypatch) -> None:
        rig.send_at("A1", NOW + 5_250)

        def fails(source, messages, *, wait, on_done) -> None:
            on_done(PutStatus.SERVICE_NOT_AVAILABLE)

        monkeypatch.setattr(rig.timers, "change", fails)
        peer = rig.peer()
        body = ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode()
        answer = rig.call(RECALL, None, body, peer=peer)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "nothing was changed" in answer.remark

    def test_switched_off(self, make_rig) -> None:
        rig = make_rig(recall_message_enable=False)
        for code in (RECALL, RESCHEDULE):
            answer = rig.ask(code, ChangeTimers(TimerSelector(topic="T", message_id="A1"), delay_ms=5).encode())
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "recallMessageEnable" in answer.remark


class TestReschedule:
    def test_the_due_time_moves_and_the_message_comes_once(self, rig) -> None:
        sent = rig.send_at("A1", NOW + 5_250, TAGS="t", user="v")
        answers = rig.change(RESCHEDULE, topic="T", message_id="A1", deliver_ms=NOW + 60_001)
        (answer,) = answers.answers
        assert (answer.verdict, answers.changed) == (Verdict.RESCHEDULED, 1)
        assert answer.timer.deliver_ms == NOW + 60_001
        assert decode_handle(answer.timer.handle).timestamp_ms == NOW + 60_001
        assert rig.status(handle=handle_of(sent)) == ["pending"]  # the first handle goes on to work
        assert rig.show(topic="T", message_id="A1").timer.deliver_ms == NOW + 60_001
        rig.clock.advance(59_000)
        rig.deliver()
        assert rig.records("T") == []
        rig.clock.advance(2_000)
        rig.deliver()
        (record,) = rig.records("T")
        assert decode_properties(record.properties)["user"] == "v"

    def test_earlier_within_the_same_slot_keeps_its_key_for_the_sender(self, rig) -> None:
        rig.send_at("A1", NOW + 5_900)
        rig.change(RESCHEDULE, topic="T", message_id="A1", deliver_ms=NOW + 5_100)
        assert rig.status(topic="T", message_id="A1") == ["pending"]
        rig.clock.advance(5_100)
        rig.deliver()
        (record,) = rig.records("T")
        assert decode_properties(record.properties)["UNIQ_KEY"] == "A1"
        assert rig.status(topic="T", message_id="A1") == ["already_delivered"]

    def test_again_and_again_and_then_recalled(self, rig) -> None:
        rig.send_at("A1", NOW + 5_900)
        for delay_ms in (50_000, 900, 20_000, 900):
            assert rig.verdicts(RESCHEDULE, topic="T", message_id="A1", delay_ms=delay_ms) == ["rescheduled"]
            assert rig.timers.pending_count == 1
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]
        assert rig.status(topic="T", message_id="A1") == ["already_recalled"]
        assert rig.timers.pending_count == 0

    def test_a_delay_counts_from_now(self, rig) -> None:
        rig.send_at("A1", NOW + 5_900)
        rig.clock.advance(1_000)
        (answer,) = rig.change(RESCHEDULE, topic="T", message_id="A1", delay_ms=500).answers
        assert answer.timer.deliver_ms == NOW + 1_501

    @pytest.mark.parametrize("time", [{"deliver_ms": NOW - 5}, {"deliver_ms": 0}, {"delay_ms": 0}, {"delay_ms": -1}])
    def test_what_has_passed_means_now(self, rig, time: dict[str, int]) -> None:
        rig.send_at("A1", NOW + 5_900)
        (answer,) = rig.change(RESCHEDULE, topic="T", message_id="A1", **time).answers
        assert (answer.verdict, answer.timer.deliver_ms) == (Verdict.RESCHEDULED, NOW)
        rig.deliver()
        assert len(rig.records("T")) == 1

    @pytest.mark.parametrize("times", [{}, {"deliver_ms": NOW + 9_000, "delay_ms": 5}])
    def test_it_has_one_new_time(self, rig, times: dict[str, int]) -> None:
        answer = rig.ask(RESCHEDULE, ChangeTimers(TimerSelector(topic="T", message_id="A1"), **times).encode())
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_NOT_EXIST)
        rig.send_at("A1", NOW + 5_900)
        answer = rig.ask(RESCHEDULE, ChangeTimers(TimerSelector(topic="T", message_id="A1"), **times).encode())
        assert answer.code == ResponseCode.INVALID_PARAMETER

    def test_too_far_is_refused_with_the_limit(self, make_rig) -> None:
        rig = make_rig(timer_max_delay_sec=60)
        rig.send_at("A1", NOW + 5_900)
        answer = rig.ask(RESCHEDULE, ChangeTimers(TimerSelector(topic="T", message_id="A1"), delay_ms=60_001).encode())
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "timerMaxDelaySec" in answer.remark
        assert len(rig.records(TIMER_TOPIC)) == 1

    def test_a_crowded_slot_refuses_a_reschedule_too(self, make_rig) -> None:
        rig = make_rig(timer_congest_num_each_slot=1)
        rig.send_at("A1", NOW + 5_900)
        rig.send_at("A2", NOW + 5_900)
        rig.send_at("B", NOW + 9_900)
        answer = rig.ask(RESCHEDULE, ChangeTimers(TimerSelector(topic="T", message_id="B"), NOW + 5_500).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert rig.status(topic="T", message_id="B") == ["pending"]

    def test_properties_that_no_longer_fit(self, rig) -> None:
        rig.send_at("A1", NOW + 5_900)
        rig.timers.refuse = RecordError("the properties have too many bytes")
        answer = rig.ask(RESCHEDULE, ChangeTimers(TimerSelector(topic="T", message_id="A1"), delay_ms=5).encode())
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL

    def test_of_several_what_could_not_be_changed_is_told_as_pending(self, rig, monkeypatch) -> None:
        rig.send_at("A1", NOW + 5_900, KEYS="k")
        rig.send_at("A2", NOW + 5_901, KEYS="k")
        change = rig.timers.change

        def first_only(source, messages, **more) -> None:
            if source.unique_key == "A2":
                raise RecordError("too large")
            change(source, messages, **more)

        monkeypatch.setattr(rig.timers, "change", first_only)
        assert rig.verdicts(RESCHEDULE, topic="T", key="k", all=True, delay_ms=50_000) == ["rescheduled", "pending"]


class TestCopies:
    """A sender that tried again has stored its message twice, under one unique key."""

    def test_all_of_them_are_recalled(self, rig) -> None:
        sent = rig.send_at("A1", NOW + 5_250)
        rig.send_at("A1", NOW + 5_250)
        answers = rig.change(RECALL, handle=handle_of(sent))
        assert ([each.verdict for each in answers.answers], answers.changed) == ([Verdict.RECALLED] * 2, 2)
        rig.clock.advance(9_000)
        rig.deliver()
        assert rig.records("T") == []
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["already_recalled"]

    def test_by_their_key_they_are_one_message_too(self, rig) -> None:
        for _ in range(2):
            rig.send_at("A1", NOW + 5_250, KEYS="k")
        assert rig.verdicts(RECALL, topic="T", key="k") == ["recalled", "recalled"]

    def test_without_a_unique_key_nobody_knows_that_they_are_copies(self, rig) -> None:
        for _ in range(2):
            rig.send_at("", NOW + 5_250, KEYS="k")
        assert rig.verdicts(RECALL, topic="T", key="k") == ["ambiguous", "ambiguous"]

    def test_all_of_them_move_and_none_is_cancelled_by_it(self, rig) -> None:
        for _ in range(2):
            rig.send_at("A1", NOW + 5_250)
        for deliver_ms in (NOW + 5_900, NOW + 5_400, NOW + 20_000):  # within the slot, and out of it
            answers = rig.change(RESCHEDULE, topic="T", message_id="A1", deliver_ms=deliver_ms)
            assert [(each.verdict, each.timer.deliver_ms) for each in answers.answers] == [
                (Verdict.RESCHEDULED, deliver_ms)
            ] * 2
        assert rig.timers.pending_count == 2
        rig.clock.advance(20_000)
        rig.deliver()
        assert len(rig.records("T")) == 2

    def test_one_that_has_left_is_told_of_and_the_others_are_recalled(self, rig) -> None:
        rig.send_at("A1", NOW + 5_000)
        rig.send_at("A1", NOW + 8_000)
        rig.clock.advance(6_000)
        rig.deliver()
        assert rig.status(topic="T", message_id="A1") == ["already_delivered", "pending"]
        answers = rig.change(RECALL, topic="T", message_id="A1")
        assert [str(each.verdict) for each in answers.answers] == ["already_delivered", "recalled"]
        assert (answers.changed, rig.timers.pending_count) == (1, 0)
        assert rig.status(topic="T", message_id="A1") == ["already_delivered"], "whatever was recalled of it"

    def test_one_that_moved_far_away_after_another_had_left(self, rig) -> None:
        rig.send_at("A1", NOW + 5_000)
        rig.send_at("A1", NOW + 8_000)
        rig.clock.advance(6_000)
        rig.deliver()
        rig.change(RESCHEDULE, topic="T", message_id="A1", deliver_ms=NOW + 30 * 86_400_000)
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["already_delivered", "recalled"]

    def test_what_is_due_much_later_asks_nothing_of_the_past(self, rig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig.send_at("A1", NOW + 30 * 86_400_000)
        monkeypatch.setattr(rig.store, "query_by_key", None)
        assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]

    def test_one_copy_is_shown(self, rig) -> None:
        for _ in range(2):
            rig.send_at("A1", NOW + 5_250)
        assert rig.show(topic="T", message_id="A1").verdict is Verdict.PENDING


class TestSelectors:
    @pytest.mark.parametrize(
        ("selector", "word"),
        [
            ({}, "none"),
            ({"topic": "T"}, "none"),
            ({"message_id": "A1"}, "name the topic"),
            ({"key": "k"}, "name the topic"),
            ({"topic": "T", "key": ""}, "empty"),
            ({"topic": "T", "key": "two words"}, "blanks"),
            ({"topic": "T", "key": "k", "message_id": "A1"}, "one of"),
            ({"handle": "nonsense"}, "recall handle"),
            ({"handle": encode_handle("T", "broker-b", 5, "A1")}, "broker-b"),
            ({"handle": encode_handle("T", "broker-a", 5, "A1"), "topic": "U"}, "'U'"),
        ],
    )
    @pytest.mark.parametrize("code", [RECALL, STATUS, RequestCode.GET_TIMER])
    def test_one_that_says_nothing_or_too_much_is_refused(self, rig, code: int, selector: dict, word: str) -> None:
        rig.sent_ok("T")
        answer = rig.ask(code, ChangeTimers(TimerSelector(**selector)).encode())
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert word in answer.remark

    @pytest.mark.parametrize("code", [RECALL, RESCHEDULE, STATUS, RequestCode.GET_TIMER])
    @pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b'{"selector":{"all":"perhaps"}}'])
    def test_a_body_that_is_none_is_refused(self, rig, code: int, body: bytes) -> None:
        assert rig.ask(code, body).code == ResponseCode.INVALID_PARAMETER

    def test_an_unknown_topic(self, rig) -> None:
        answer = rig.ask(STATUS, ChangeTimers(TimerSelector(topic="nowhere", message_id="A1")).encode())
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    def test_only_a_reschedule_has_a_time(self, rig) -> None:
        rig.sent_ok("T")
        for code in (RECALL, STATUS, RequestCode.GET_TIMER):
            answer = rig.ask(code, ChangeTimers(TimerSelector(topic="T", message_id="A1"), delay_ms=5).encode())
            assert answer.code == ResponseCode.INVALID_PARAMETER


class TestLooking:
    def test_status_tells_of_each_match(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250, KEYS="k")
        rig.send_at("A2", NOW + 5_251, KEYS="k")
        assert rig.status(topic="T", key="k") == ["pending", "pending"]

    def test_one_message_in_full(self, rig) -> None:
        rig.sent_ok("T", b"\x00\xffbody", {"UNIQ_KEY": "A1", "TIMER_DELIVER_MS": str(NOW + 5_250), "user": "ü"})
        shown = rig.show(topic="T", message_id="A1")
        assert (shown.verdict, shown.body, shown.properties["user"]) == (Verdict.PENDING, b"\x00\xffbody", "ü")
        assert shown.timer.deliver_ms == NOW + 5_250
        assert rig.show(topic="T", message_id="A2").verdict is Verdict.NOT_FOUND

    def test_of_several_none_is_shown(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250, KEYS="k")
        rig.send_at("A2", NOW + 5_251, KEYS="k")
        assert rig.show(topic="T", key="k").verdict is Verdict.AMBIGUOUS

    def page(self, rig, **query) -> TimerPage:
        answer = rig.ask(RequestCode.LIST_TIMERS, TimerQuery(**query).encode())
        assert answer.code == ResponseCode.SUCCESS
        return TimerPage.decode(answer.body)

    def test_pages_come_earliest_first(self, rig) -> None:
        for number in range(5):
            rig.send_at(f"A{number}", NOW + 9_000 - number)
        page = self.page(rig, limit=2)
        assert [timer.message_id for timer in page.timers] == ["A4", "A3"]
        rest = self.page(rig, limit=5, cursor=page.cursor)
        assert [timer.message_id for timer in rest.timers] == ["A2", "A1", "A0"]
        assert rest.cursor is None

    def test_what_a_page_reads_is_fetched_together(self, rig) -> None:
        for number in range(5):
            rig.send_at(f"A{number}", NOW + 9_000 + number, KEYS="k")
        assert len(self.page(rig, limit=3).timers) == 3
        assert len(rig.timers.announced) == 3
        rig.timers.announced.clear()
        assert rig.show(topic="T", key="k").verdict is Verdict.AMBIGUOUS
        assert len(rig.timers.announced) == 2, "no more than are read"

    def test_what_only_looks_alike_is_left_out(self, rig) -> None:
        rig.send_at("A1", NOW + 5_000, KEYS="order-1")
        rig.send_at("A2", NOW + 5_000, KEYS="order-2 x")
        rig.send_at("A3", NOW + 5_000, KEYS="other", topic="U")
        assert [one.message_id for one in self.page(rig, topic="T", key="order-1").timers] == ["A1"]
        assert [one.message_id for one in self.page(rig, topic="T", key_prefix="order-").timers] == ["A1", "A2"]
        assert [one.message_id for one in self.page(rig, topic="U").timers] == ["A3"]
        assert self.page(rig, tier="far").timers == []

    @pytest.mark.parametrize("limit", [1, 2, 50])
    def test_a_message_with_several_keys_that_fit_is_listed_once(self, rig, limit: int) -> None:
        rig.send_at("A1", NOW + 5_000, KEYS="order-2 x order-1 order-12")
        rig.send_at("A2", NOW + 6_000, KEYS="order-3")
        found, cursor = [], None
        while True:
            page = self.page(rig, topic="T", key_prefix="order-", limit=limit, cursor=cursor)
            found += [one.message_id for one in page.timers]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ["A1", "A2"]

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": 0},
            {"limit": TIMER_PAGE_MAX + 1},
            {"tier": "middle"},
            {"key": "k"},
            {"key_prefix": "k"},
            {"topic": "T", "key": "k", "key_prefix": "k"},
            {"cursor": "nonsense"},
        ],
    )
    def test_a_page_that_cannot_be_is_refused(self, rig, query: dict) -> None:
        assert rig.ask(RequestCode.LIST_TIMERS, TimerQuery(**query).encode()).code == ResponseCode.INVALID_PARAMETER

    def test_counts(self, rig) -> None:
        rig.send_at("A1", NOW + 1_000)
        rig.send_at("A2", NOW + 61_000, topic="U")
        answer = rig.ask(RequestCode.COUNT_TIMERS, CountQuery(bucket_ms=60_000).encode())
        counts = TimerCountsBody.decode(answer.body)
        assert (counts.pending, counts.near, counts.far) == (2, 2, 0)
        assert counts.by_topic == {"T": 1, "U": 1}
        assert sum(count for _, count in counts.buckets) == 2
        assert counts.next_due_ms == NOW + 1_000
        refused = rig.ask(RequestCode.COUNT_TIMERS, CountQuery(bucket_ms=-1).encode())
        assert refused.code == ResponseCode.INVALID_PARAMETER

    def test_nothing_pending(self, rig) -> None:
        counts = TimerCountsBody.decode(rig.ask(RequestCode.COUNT_TIMERS, CountQuery().encode()).body)
        assert counts == TimerCountsBody()
        assert self.page(rig) == TimerPage([])


def test_what_waits_for_a_topic_that_was_deleted_is_recalled(rig) -> None:
    rig.send_at("A1", NOW + 5_000, KEYS="k")
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    assert rig.status(topic="T", key="k") == ["pending"]
    assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]
    assert rig.status(topic="T", message_id="A1") == ["already_recalled"]
    body = ChangeTimers(TimerSelector(topic="T", message_id="B")).encode()
    assert rig.ask(RECALL, body).code == ResponseCode.TOPIC_NOT_EXIST


def test_what_was_delivered_to_a_topic_that_was_deleted_since(rig) -> None:
    rig.send_at("A1", NOW + 5_000)
    rig.clock.advance(6_000)
    rig.deliver()
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    assert rig.status(topic="T", message_id="A1") == ["already_delivered"]


def test_without_a_key_index_what_waits_is_known_and_of_the_past_nothing_is_said(make_rig) -> None:
    rig = make_rig(store=msgspec.structs.replace(SMALL_STORE, message_index_enable=False))
    handle = handle_of(rig.send_at("A1", NOW + 5_250, KEYS="k"))
    assert rig.status(topic="T", message_id="A1") == ["pending"]
    assert rig.verdicts(RECALL, topic="T", key="k") == ["recalled"]
    for code in (RECALL, STATUS):
        answer = rig.ask(code, ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode())
        assert (answer.code, "messageIndexEnable=false" in answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    again = rig.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle, "producerGroup": "g"})
    assert "messageIndexEnable=false" in again.remark


def test_what_the_indexes_do_not_know_yet_is_not_called_unknown(rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(entries: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(rig.timers, "apply", full)
        handle = handle_of(rig.send_at("A1", NOW + 5_000))
    body = ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode()
    for code in (RECALL, STATUS):
        answer = rig.ask(code, body)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "disk is full" in answer.remark
    recall = {"topic": "T", "recallHandle": handle, "producerGroup": "g"}
    assert rig.call(RequestCode.RECALL_MESSAGE, recall).code == ResponseCode.SYSTEM_BUSY
    rig.clock.advance(1_000)
    rig.store.run_due(rig.clock.monotonic_ns())
    assert rig.status(topic="T", message_id="A1") == ["pending"]
    assert rig.status(topic="T", message_id="B") == ["not_found"]


class DamagedFar:
    """A far tier that cannot read two of its files."""

    is_needed = True
    damaged_files = ("far/a.parquet", "far/b.parquet")

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        return False

    def may_hold(self, until_ms: int) -> bool:
        return True

    def find(self, query: FarQuery, done: Any) -> None:
        done(FarPage([], False, 7))


class LogFar:
    """A far tier whose messages all lie in the log, and are looked for at once."""

    is_needed = True
    damaged_files = ()

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.asked: list[FarQuery] = []
        self.gone: set[int] = set()

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        return deliver_ms >= NOW + 60_000

    def may_hold(self, until_ms: int) -> bool:
        return until_ms > NOW + 60_000

    def find(self, query: FarQuery, done: Any) -> None:
        self.asked.append(query)
        found = [far_record(record, record.total_size) for record in self.rig.records(FAR_TIMER_TOPIC)]
        done(FarPage([one for one in found if one.source not in self.gone and matches(one, query)], False))

    def status(self, source: int) -> FarStatus:
        return FarStatus.GONE if source in self.gone else FarStatus.PENDING

    def change(self, record: Any, messages: Any, *, wait: bool, on_done: Any) -> None:
        self.gone.add(record.physical_offset + 1)
        self.rig.store.wait_durable(self.rig.store.append_batch(list(messages))[-1].end_offset, wait, on_done)


def test_a_copy_in_the_far_tier_is_recalled_with_the_one_that_is_near(rig) -> None:
    far = LogFar(rig)
    rig.admission_far(far)
    for deliver_ms in (NOW + 59_000, NOW + 61_000):  # a retry with a delay
        handle = handle_of(rig.send_at("A1", deliver_ms))
    assert len(rig.records(FAR_TIMER_TOPIC)) == 1
    assert rig.status(topic="T", message_id="A1") == ["pending", "pending"]
    recall = {"topic": "T", "recallHandle": handle, "producerGroup": "g"}
    assert rig.call(RequestCode.RECALL_MESSAGE, recall).code == ResponseCode.SUCCESS
    assert (rig.timers.pending_count, len(far.gone)) == (0, 1)


def test_what_is_due_long_before_the_far_tier_does_not_ask_it(rig) -> None:
    far = LogFar(rig)
    rig.admission_far(far)
    far.may_hold = lambda until_ms: False
    rig.send_at("A1", NOW + 59_000)
    assert rig.verdicts(RECALL, topic="T", message_id="A1") == ["recalled"]
    assert far.asked == []


def test_a_page_says_how_many_messages_it_cannot_show(rig) -> None:
    rig.admission_far(DamagedFar())
    answer = rig.ask(RequestCode.LIST_TIMERS, TimerQuery(tier="far").encode())
    assert TimerPage.decode(answer.body) == TimerPage([], None, 7)
    answer = rig.ask(RequestCode.LIST_TIMERS, TimerQuery(tier="near").encode())
    assert TimerPage.decode(answer.body) == TimerPage([])


def test_what_may_lie_in_a_damaged_file_is_not_called_unknown(rig) -> None:
    rig.send_at("A1", NOW + 5_000)
    rig.admission_far(DamagedFar())
    rig.send_at("A2", NOW + 5_000)
    assert rig.verdicts(RECALL, topic="T", message_id="A2") == ["recalled"]
    assert rig.verdicts(RECALL, topic="T", message_id="A2") == ["already_recalled"]
    for code in (RECALL, STATUS):
        answer = rig.ask(code, ChangeTimers(TimerSelector(topic="T", message_id="B")).encode())
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "far/a.parquet and 1 others" in answer.remark
