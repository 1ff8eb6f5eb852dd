"""Where the timers stand: checkpoint, counts by topic, runtime information."""

from __future__ import annotations

from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.protocol.remoting.bodies import KVTable, TimerMetrics
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint

NOW = 1_700_000_000_000


def runtime(rig) -> dict[str, str]:
    return KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def test_the_checkpoint_says_what_is_durable_and_what_has_left(rig) -> None:
    rig.send_at("A1", NOW + 5_000)
    body = rig.call(RequestCode.GET_TIMER_CHECK_POINT).body
    assert TimerCheckpoint.decode(bytes(body)) == TimerCheckpoint(5_000, 0, 1, 1, 0, NOW, 0)


def test_what_is_pending_is_told_by_topic(rig) -> None:
    rig.send_at("A1", NOW + 5_000)
    rig.send_at("A2", NOW + 5_000)
    rig.send_at("B1", NOW + 5_000, topic="U")
    answer = rig.call(RequestCode.GET_TIMER_METRICS)
    assert answer.code == ResponseCode.SUCCESS
    counts = TimerMetrics.decode(answer.body).timing_count
    assert {topic: count.count for topic, count in counts.items()} == {"T": 2, "U": 1}


def test_counts_that_are_being_made_are_no_counts(rig, monkeypatch) -> None:
    def not_ready(*_: object) -> None:
        raise TimerIndexIncompleteError("the index is being made ready")

    monkeypatch.setattr(rig.broker.rooms.timers.index, "counts", not_ready)
    assert rig.call(RequestCode.GET_TIMER_METRICS).code == ResponseCode.SYSTEM_BUSY


def test_runtime_information_follows_the_timers(rig) -> None:
    before = runtime(rig)
    assert [before[name] for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")] == ["0", "0", "0"]
    assert (before["timerEnqueueTps"], before["timerDequeueTps"]) == ("0.0", "0.0")
    for number in range(30):
        rig.send_at(f"A{number}", NOW + 5_000)
    rig.change(RequestCode.RECALL_TIMERS, topic="T", message_id="A0")
    rig.clock.advance(8_500)
    facts = runtime(rig)
    assert (facts["timerCongestNum"], facts["timerReadBehind"]) == ("29", "3")
    assert float(facts["timerEnqueueTps"]) > 0
    assert facts["timerDequeueTps"] == "0.0"
    rig.deliver()
    facts = runtime(rig)
    assert (facts["timerCongestNum"], facts["timerReadBehind"]) == ("0", "0")
    assert float(facts["timerDequeueTps"]) > 0


def test_a_change_is_neither_taken_nor_delivered(rig) -> None:
    traffic = rig.broker.rooms.timers.traffic
    rig.send_at("A1", NOW + 65_000)
    rig.change(RequestCode.RESCHEDULE_TIMERS, topic="T", message_id="A1", delay_ms=9_000)
    rig.change(RequestCode.RECALL_TIMERS, topic="T", message_id="A1")
    assert [(topic, counter.count) for topic, counter in traffic.taken] == [("T", 1)]
    assert list(traffic.delivered) == []
    assert (traffic.asked_ms.count, traffic.asked_ms.total) == (1, 65_000)


def test_crowded_slots_are_counted(make_rig) -> None:
    rig = make_rig(timer_congest_num_each_slot=1)
    for _ in range(4):
        rig.send("T", b"x", {"TIMER_DELIVER_MS": str(NOW + 5_000)})
    assert int(runtime(rig)["orbitmqCrowdedTimerSlots"]) == rig.broker.rooms.admission.timers.congested_count >= 2
