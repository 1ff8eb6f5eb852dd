"""Weaknesses of RocketMQ's timers that begin at the broker's door, each by its number: T19, T20, T24."""

from __future__ import annotations

from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

NOW = 1_700_000_000_000
SLOT_LIMIT = 20


class TestT19FlowControl:
    """RocketMQ: off by default, inverted when on, and fed by an unreliable count."""

    def send(self, rig, deliver_ms: int) -> bool:
        answer = rig.send("T", b"x", {"TIMER_DELIVER_MS": str(deliver_ms)})
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            for word in ("timerCongestNumEachSlot=20", "40"):
                assert word in answer.remark
            return False
        return True

    def accepted(self, make_rig, draw: float) -> int:
        """How many messages one slot takes of 100, if every draw comes out like this."""
        rig = make_rig(timer_congest_num_each_slot=SLOT_LIMIT)
        rig.broker.rooms.admission.timers._draw = lambda: draw
        return sum(self.send(rig, NOW + 5_500) for _ in range(100))

    def test_up_to_the_limit_none_is_refused_and_beyond_twice_the_limit_every_one(self, make_rig) -> None:
        assert self.accepted(make_rig, 0.0) == SLOT_LIMIT + 1  # the next one sees more than the limit
        assert self.accepted(make_rig, 0.999_999) == 2 * SLOT_LIMIT

    def test_the_fuller_the_slot_the_likelier_a_refusal(self, make_rig) -> None:
        accepted = [self.accepted(make_rig, draw / 10) for draw in range(10)]
        assert accepted == sorted(accepted)
        assert accepted[5] == SLOT_LIMIT + SLOT_LIMIT // 2 + 1

    def test_the_count_is_exact(self, make_rig) -> None:
        """Recalled, rescheduled and delivered messages are not counted; cancel records never are."""
        rig = make_rig(timer_congest_num_each_slot=SLOT_LIMIT)
        rig.broker.rooms.admission.timers._draw = lambda: 0.0
        for number in range(SLOT_LIMIT + 1):
            rig.send_at(f"A{number}", NOW + 5_500)
        assert not self.send(rig, NOW + 5_900)
        assert self.send(rig, NOW + 6_500)  # another slot
        rig.change(RequestCode.RECALL_TIMERS, topic="T", message_id="A0")
        assert self.send(rig, NOW + 5_900)
        assert not self.send(rig, NOW + 5_900)
        rig.change(RequestCode.RESCHEDULE_TIMERS, topic="T", message_id="A1", deliver_ms=NOW + 60_000)
        assert self.send(rig, NOW + 5_900)
        assert not self.send(rig, NOW + 5_900)
        rig.clock.advance(5_600)
        rig.deliver()
        assert self.send(rig, NOW + 5_900)

    def test_a_batch_needs_room_for_all_of_it(self, make_rig) -> None:
        rig = make_rig(timer_congest_num_each_slot=SLOT_LIMIT)
        rig.broker.rooms.admission.timers._draw = lambda: 0.0
        due = encode_properties({"TIMER_DELIVER_MS": str(NOW + 5_500)})
        batch = encode_batch([BatchItem(0, b"x", due)] * SLOT_LIMIT)
        rig.sent_ok("T", batch, {}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        answer = rig.send("T", batch, {}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert rig.timers.pending_count == SLOT_LIMIT


class TestT20Cancel:
    """RocketMQ: same slot required, no answer whether it worked, off by default."""

    def test_on_by_default_and_the_answer_says_what_happened(self, rig) -> None:
        handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
        recall = {"topic": "T", "recallHandle": handle}
        assert rig.call(RequestCode.RECALL_MESSAGE, recall).code == ResponseCode.SUCCESS
        assert rig.status(handle=handle) == ["already_recalled"]
        late = rig.send_at("A2", NOW + 5_250).fields["recallHandle"]
        rig.clock.advance(6_000)
        rig.deliver()
        answer = rig.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": late})
        assert answer.code == ResponseCode.ILLEGAL_OPERATION

    def test_the_slot_does_not_matter_and_the_last_millisecond_is_early_enough(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        rig.clock.advance(5_249)
        assert rig.verdicts(RequestCode.RECALL_TIMERS, topic="T", message_id="A1") == ["recalled"]
        rig.clock.advance(1)
        rig.deliver()
        assert rig.records("T") == []

    def test_two_messages_of_one_slot_are_told_apart(self, rig) -> None:
        rig.send_at("A1", NOW + 5_250)
        rig.send_at("A2", NOW + 5_250)
        rig.change(RequestCode.RECALL_TIMERS, topic="T", message_id="A1")
        rig.clock.advance(6_000)
        rig.deliver()
        assert [decode_properties(record.properties)["UNIQ_KEY"] for record in rig.records("T")] == ["A2"]


def test_t24_a_batch_with_one_due_time_waits_for_it(rig) -> None:
    """RocketMQ does not look at the times inside a batch and delivers at once."""
    due = {"TIMER_DELIVER_MS": str(NOW + 5_250)}
    items = [BatchItem(0, b"%d" % number, encode_properties(due | {"UNIQ_KEY": f"A{number}"})) for number in range(3)]
    rig.sent_ok("T", encode_batch(items), {}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert rig.records("T") == []
    rig.clock.advance(5_249)
    rig.deliver()
    assert rig.records("T") == []
    rig.clock.advance(1)
    rig.deliver()
    assert [record.body for record in rig.records("T")] == [b"0", b"1", b"2"]


def test_t24_a_batch_with_mixed_times_is_refused_and_nothing_is_stored(rig) -> None:
    items = [BatchItem(0, b"x", encode_properties({"TIMER_DELAY_MS": str(ms)})) for ms in (5_000, 5_001)]
    answer = rig.send("T", encode_batch(items), {}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.store.log.written_end == 0
