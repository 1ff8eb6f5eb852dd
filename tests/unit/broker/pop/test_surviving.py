"""What is in flight over stops and crashes: checkpoints, acknowledgements, and what the next start makes of them."""

from __future__ import annotations

import os

import msgspec
import pytest
from tests.unit.broker.conftest import SMALL_STORE

from orbitmq.broker.pop import checkpoints
from orbitmq.broker.timers import requests
from orbitmq.limits.store import PINNED_FILE_MS_MAX
from orbitmq.protocol.names import QUARANTINE_TOPIC, REVIVE_GROUP, TIMER_TOPIC
from orbitmq.protocol.pop_records import PopAcks, PopCheckpoint, decode_pop_record
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import TimerMetrics
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.files import OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.message import NewMessage

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
STAY_MS = 10_000


def give(rig, *bodies, topic="T"):
    for body in bodies:
        rig.sent_ok(topic, body)


def said(rig, topic=TIMER_TOPIC):
    """What the records for the revive topic say."""
    return [
        decode_pop_record(decode_properties(record.properties)["TAGS"], bytes(record.body))
        for record in rig.records(topic)
    ]


def kill(rig):
    """As a process that is killed when its tables have just been saved."""
    rig.store.commit()
    rig.broker.offsets.save()
    rig.kill()


# --- orderly stops --------------------------------------------------------------------------------------------------


def test_after_an_orderly_stop_nothing_acknowledged_returns_and_receipts_stay_good(rig, popper):
    give(rig, b"a", b"b", b"c")
    first, second, third = popper.pop(invisibleTime=10_000)
    popper.ack(second)
    rig.advance(4_000)
    rig.reopen()
    assert popper.committed() == 3, "a checkpoint says what is in flight"
    assert popper.bodies() == [], "all are hidden yet"
    popper.ack(first)
    rig.advance(5_999)
    assert popper.bodies() == []
    rig.advance(1)
    assert popper.bodies() == [b"c"]
    popper.ack(third)
    rig.advance(60_000)
    assert len(rig.records("%RETRY%g_T")) == 1


def test_a_checkpoint_names_what_its_receipts_name(rig, popper):
    give(rig, b"a", b"b", b"c", b"d")
    popper.ack(popper.pop(maxMsgNums=1)[0])
    popped_ms = rig.clock.now_ms()
    _, second, _ = popper.pop(invisibleTime=10_000)
    popper.ack(second)
    rig.reopen()
    (stored,) = said(rig)
    assert stored == PopCheckpoint("T", "g", 0, 1, popped_ms, popped_ms + 10_000, "broker-a", (1, 3))
    (record,) = rig.records(TIMER_TOPIC)
    assert decode_properties(record.properties) == {
        "TIMER_DELIVER_MS": str(popped_ms + 9_000),
        "UNIQ_KEY": f"T@0@1@g@{popped_ms}@broker-a@ck",
        "TAGS": "ck",
        "TIMER_OUT_MS": str((popped_ms + 8_999) // 1000 * 1000),
        "REAL_TOPIC": REVIVE,
        "REAL_QID": "0",
    }


def test_a_stop_without_messages_in_flight_stores_nothing(rig, popper):
    give(rig, b"a")
    popper.ack(popper.pop()[0])
    rig.reopen()
    assert rig.records(TIMER_TOPIC) == []


def test_stop_after_stop_keeps_what_is_in_flight(rig, popper):
    give(rig, b"a", b"b")
    first, second = popper.pop(invisibleTime=60_000)
    for _ in range(3):
        rig.advance(1_000)
        rig.reopen()
    popper.ack(first)
    rig.reopen()
    assert len([one for one in said(rig) if isinstance(one, PopCheckpoint)]) == 1
    rig.advance(57_000)
    assert popper.bodies() == [b"b"]
    assert popper.ack(second) == ResponseCode.SUCCESS
    rig.reopen()
    assert [record.body for record in rig.records("%RETRY%g_T")] == [b"b"]


# --- pops that last -------------------------------------------------------------------------------------------------


def test_a_pop_that_lasts_is_stored_once_and_holds_the_offset_no_more(rig, popper):
    give(rig, b"a", b"b")
    popper.pop()
    rig.advance(STAY_MS - 1)
    assert (said(rig), popper.committed()) == ([], 0)
    rig.advance(3_000)
    assert ([one.offsets for one in said(rig)], popper.committed()) == ([(0, 1)], 2)
    rig.advance(30_000)
    assert len(said(rig)) == 1


def test_what_is_settled_before_leaves_nothing(rig, popper):
    give(rig, b"a", b"b")
    popper.ack(popper.pop(maxMsgNums=1, invisibleTime=60_000)[0])
    popper.pop(invisibleTime=5_000)
    rig.advance(STAY_MS - 1_000)
    popper.ack(popper.pop()[0])
    rig.advance(3 * STAY_MS)
    assert rig.records(TIMER_TOPIC) == []


def test_a_checkpoint_counts_when_it_is_durable(rig, popper, monkeypatch):
    give(rig, b"a")
    popper.pop()
    monkeypatch.setattr(rig.store._flushing, "_stopped", lambda: True)  # the disk takes its time
    rig.advance(2 * STAY_MS)
    assert (len(said(rig)), popper.committed()) == (1, 0)
    monkeypatch.undo()
    rig.store._flushing.start()
    rig.advance(1_000)
    assert popper.committed() == 1


def test_what_is_settled_while_its_checkpoint_becomes_durable_does_not_return(rig, popper, monkeypatch):
    give(rig, b"a", b"b")
    first, _ = popper.pop(invisibleTime=60_000)
    monkeypatch.setattr(rig.store._flushing, "_stopped", lambda: True)
    rig.advance(STAY_MS + 2_000)
    popper.ack(first)
    assert len(said(rig)) == 1
    monkeypatch.undo()
    rig.reopen()
    rig.advance(60_000)
    assert popper.bodies() == [b"b"]


def test_beyond_the_bound_the_oldest_pops_are_stored_at_once(rig, popper, monkeypatch):
    monkeypatch.setattr(checkpoints, "POP_UNSTORED_MAX", 2)
    give(rig, b"a", b"b", b"c", b"d")
    for _ in range(4):
        popper.pop(maxMsgNums=1)
    assert [one.offsets for one in said(rig)] == [(0,), (1,)]


def test_a_store_that_takes_nothing_delays_the_checkpoint(rig, popper):
    give(rig, b"a")
    popper.pop()
    rig.store._writability.stop("test", "full")
    rig.advance(STAY_MS + 2_000)
    rig.store._writability.stops.clear()
    rig.advance(STAY_MS + 2_000)
    assert ([one.offsets for one in said(rig)], popper.committed()) == ([(0,)], 1)


# --- crashes --------------------------------------------------------------------------------------------------------


def test_after_a_crash_what_no_checkpoint_covers_is_delivered_again(rig, popper):
    give(rig, b"a", b"b", b"c")
    first, _, third = popper.pop()
    popper.ack(first)
    popper.ack(third)
    kill(rig)
    assert popper.bodies() == [b"b", b"c"]


def test_after_a_crash_covered_messages_reappear_at_their_time_and_once(rig, popper):
    give(rig, b"a", b"b", b"c")
    began = rig.clock.now_ms()
    popper.pop(maxMsgNums=2, invisibleTime=60_000)
    rig.advance(STAY_MS + 2_000)
    kill(rig)
    assert popper.bodies(invisibleTime=200_000) == [b"c"]
    rig.advance(60_000 - 1 - (rig.clock.now_ms() - began))
    assert popper.bodies() == []
    rig.advance(1)
    assert popper.bodies() == [b"a", b"b"]
    rig.advance(120_000)
    assert [record.body for record in rig.records("%RETRY%g_T")] == [b"a", b"b"] * 2, "each attempt once"


def test_a_stored_acknowledgement_survives_a_crash(rig, popper):
    give(rig, b"a", b"b", b"c")
    first, second, _ = popper.pop(invisibleTime=60_000)
    rig.advance(STAY_MS + 2_000)
    popper.ack(second)
    popper.ack(first)
    kill(rig)
    rig.advance(60_000)
    assert popper.bodies() == [b"c"]


def test_an_offset_that_was_saved_before_the_checkpoint_does_not_bring_covered_messages_back(rig, popper):
    give(rig, *(b"%d" % number for number in range(8)))
    early = popper.pop(maxMsgNums=3, invisibleTime=600_000)
    rig.broker.offsets.save()
    late = popper.pop(maxMsgNums=3, invisibleTime=60_000)
    for popped in early:
        popper.ack(popped)
    rig.advance(STAY_MS + 2_000)
    popper.ack(late[1])
    rig.store.commit()
    table = rig.broker.offsets
    table.save = lambda: None
    table.commit("g", "T", 0, 0)
    type(table).save(table)  # the offset of long ago
    rig.kill()
    assert popper.bodies(maxMsgNums=2) == [b"0", b"1"]
    assert popper.bodies() == [b"2", b"4", b"6", b"7"], (
        "3 and 5 are hidden; what is acknowledged is known by the offset"
    )
    rig.advance(59_000 - STAY_MS)
    assert sorted(popper.bodies()) == [b"3", b"5"]


def test_a_message_that_was_stored_again_does_not_return_after_a_crash(rig, popper):
    give(rig, b"a", b"b")
    popper.pop(invisibleTime=20_000)
    rig.advance(20_000)
    assert sorted(popper.bodies()) == [b"a", b"b"]
    kill(rig)
    rig.advance(1_000)
    assert len(rig.records("%RETRY%g_T")) == 2
    assert sorted(popper.bodies()) == [b"a", b"b"]
    assert popper.bodies() == []


def test_a_renewed_message_is_hidden_by_its_new_pop_after_a_crash(rig, popper):
    give(rig, b"a", b"b")
    first, second = popper.pop(invisibleTime=30_000)
    rig.advance(STAY_MS + 2_000)
    fields = popper.change(first, 100_000).fields
    popper.ack(first)
    rig.advance(10)
    kill(rig)
    rig.advance(30_000)
    assert popper.bodies() == [b"b"], "its own time has come"
    popper.ack(second)
    popper.ack(popper.renewed(first, fields))
    kill(rig)
    rig.advance(200_000)
    assert [record.body for record in rig.records("%RETRY%g_T")].count(b"a") == 0


def test_a_suspended_message_counts_no_attempt_after_a_crash(rig, popper):
    give(rig, b"early", b"late")
    early, late = popper.pop(invisibleTime=30_000)
    popper.change(early, 100_000, suspend=True)
    rig.advance(STAY_MS + 2_000)
    popper.change(late, 100_000, suspend=True)
    rig.advance(10)
    kill(rig)
    rig.advance(101_000)
    assert {record.body: record.reconsume_times for record, _, _ in popper.pop()} == {b"early": 0, b"late": 0}


def test_a_covered_message_is_not_renewed_when_that_cannot_be_stored(rig, popper):
    give(rig, b"a")
    (popped,) = popper.pop(invisibleTime=30_000)
    rig.advance(STAY_MS + 2_000)
    rig.store._writability.stop("test", "full")
    assert popper.change(popped, 100_000).code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.store._writability.stops.clear()
    assert popper.ack(popped) == ResponseCode.SUCCESS
    kill(rig)
    rig.advance(60_000)
    assert popper.bodies() == []


def test_after_a_reset_covered_messages_are_the_resets_business_whatever_crashes(rig, popper):
    give(rig, b"a", b"b")
    popper.pop(invisibleTime=30_000)
    rig.advance(STAY_MS + 2_000)
    rig.call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "T", "group": "g", "queueId": 0, "offset": 1, "timestamp": 0, "isForce": True},
    )
    kill(rig)
    assert popper.bodies(invisibleTime=200_000) == [b"b"]
    rig.advance(60_000)
    assert popper.bodies() == []


# --- retention --------------------------------------------------------------------------------------------------------


def test_retention_leaves_what_is_in_flight(make_rig, make_popper):
    rig = make_rig(store=msgspec.structs.replace(SMALL_STORE, mapped_file_size_commit_log=16 * 1024))
    rig.clock.set_wall(4_000_000_000_000)  # every file has expired
    popper = make_popper(rig)
    keeper = Housekeeping(
        rig.store, rig.root, OsFiles(), rig.clock, pins=[lambda: rig.broker.rooms.pops.lowest_needed()]
    )
    give(rig, b"a", b"b")
    first, second = popper.pop(invisibleTime=60_000)
    popper.ack(first)
    for _ in range(20):
        give(rig, bytes(5_000), topic="Other")
    keeper.request()
    rig.advance(STAY_MS + 2_000)
    assert (rig.store.log.start, keeper.removed.total()) == (0, 0)
    popper.ack(second)
    assert rig.broker.rooms.pops.lowest_needed() is None
    keeper.request()
    rig.advance(2_000)
    assert keeper.removed.total()


def test_a_consumer_that_renews_for_ever_does_not_keep_a_file_for_ever(make_rig, make_popper):
    rig = make_rig(store=msgspec.structs.replace(SMALL_STORE, mapped_file_size_commit_log=16 * 1024))
    popper = make_popper(rig)
    pops = rig.broker.rooms.pops
    keeper = Housekeeping(rig.store, rig.root, OsFiles(), rig.clock, pins=[pops.lowest_needed])
    pops.settling.overdue_below = lambda: keeper.overdue_below
    give(rig, b"a")
    (popped,) = popper.pop(invisibleTime=60_000)
    for _ in range(20):
        give(rig, bytes(5_000), topic="Other")
    give(rig, b"young")
    young = popper.pop(invisibleTime=60_000)[-1]
    reserved_ms = rig.store.settings.file_reserved_time_hours * 3_600_000
    written_s = (rig.clock.now_ms() + 30_000 - reserved_ms - PINNED_FILE_MS_MAX) / 1_000
    for path in rig.root.glob("commitlog/*"):
        os.utime(path, (written_s, written_s))
    keeper.request()
    rig.advance(10)
    answer = popper.change(popped, 60_000)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    popped = popper.renewed(popped, answer.fields)
    rig.advance(40_000)
    keeper.request()
    rig.advance(10)
    assert popper.change(popped, 60_000).code == ResponseCode.NO_MESSAGE
    assert popper.change(young, 60_000).code == ResponseCode.SUCCESS, "it lies in the last file"
    assert keeper.removed.total() == 0
    rig.advance(30_000)
    assert popper.bodies() == [b"a"]
    keeper.request()
    rig.advance(2_000)
    assert keeper.removed.total()


# --- the revive topic -----------------------------------------------------------------------------------------------


def done(rig, queue_id=0):
    return rig.broker.offsets.query(REVIVE_GROUP, REVIVE, queue_id)


def test_the_offset_of_the_revive_topic_follows_what_is_settled(rig, popper):
    give(rig, b"a", b"b")
    first, _ = popper.pop(invisibleTime=30_000)
    rig.advance(29_500)
    popper.ack(first)
    assert ([one.offsets for one in said(rig, REVIVE)], done(rig)) == ([(0, 1)], None), "b is in flight"
    rig.advance(1_000)
    assert len(said(rig, REVIVE)) == 3
    assert done(rig) == 2
    assert rig.timers.pending_count == 0
    kill(rig)
    assert rig.broker.rooms.all[4].in_flight.message_count == 0


def test_a_store_of_rocketmq_is_carried_on(rig, popper):
    """Its checkpoint came into a revive queue of its choice; acknowledgements are there, or wait as timer messages."""
    give(rig, *(b"%d" % number for number in range(6)))
    popper.ack(popper.pop(maxMsgNums=1)[0])
    now_ms = rig.clock.now_ms()
    rig.broker.offsets.commit("g", "T", 0, 6)
    stored = PopCheckpoint("T", "g", 0, 1, now_ms - 500, now_ms + 500, "broker-a", (1, 2, 3, 4, 5))
    acks = PopAcks("T", "g", 0, 1, now_ms - 500, "broker-a", (2,))
    batch = acks.encode().replace(b'"ao":2', b'"ao":0,"aol":[3,5]')
    for tag, body in [("ck", stored.encode()), ("ack", acks.encode()), ("bAck", batch)]:
        rig.store.append(NewMessage(REVIVE, 5, body, f"TAGS\x01{tag}\x02".encode()))
    kill(rig)
    assert popper.bodies() == []
    rig.advance(500)
    assert popper.bodies() == [b"1", b"4"]
    assert done(rig, 5) == 2


def test_a_record_that_says_nothing_goes_to_quarantine_and_the_others_go_on(rig, popper):
    give(rig, b"a", b"b")
    popper.pop(invisibleTime=30_000)
    rig.store.append(NewMessage(REVIVE, 0, b"{", b"TAGS\x01ck\x02"))
    rig.advance(STAY_MS + 2_000)
    assert [decode_properties(one.properties)["TAGS"] for one in rig.records(QUARANTINE_TOPIC)] == ["ck"]
    assert done(rig) == 0
    kill(rig)
    rig.advance(30_000)
    assert popper.bodies() == [b"a", b"b"]
    assert len(rig.records(QUARANTINE_TOPIC)) == 1


def test_a_record_that_says_nothing_is_counted_once(rig, popper):
    give(rig, b"a")
    popper.pop(invisibleTime=30_000)
    rig.advance(STAY_MS + 2_000)
    (stored,) = rig.records(TIMER_TOPIC)
    properties = stored.properties.replace(b"TAGS\x01ck", b"TAGS\x01no")
    rig.store.append(NewMessage(TIMER_TOPIC, 0, b"{", properties, unique_key="other"))
    kill(rig)
    rig.advance(30_000)
    assert len(rig.records(QUARANTINE_TOPIC)) == 1
    assert rig.broker.rooms.pops.facts()["orbitmqPopRecordsUnread"] == 1


@pytest.mark.parametrize(
    ("other", "record_count"),
    [({"topic": "gone"}, 2), ({"group": "gone"}, 2), ({"broker_name": "other"}, 1), ({"offsets": (7,)}, 1)],
)
def test_checkpoints_of_others_and_of_what_is_gone_are_passed_over(rig, popper, other, record_count):
    give(rig, b"a")
    popper.ack(popper.pop()[0])
    now_ms = rig.clock.now_ms()
    stored = PopCheckpoint("T", "g", 0, 0, now_ms, now_ms + 50, "broker-a", (0,))._replace(**other)
    rig.store.append(NewMessage(REVIVE, 0, stored.encode(), b"TAGS\x01ck\x02"))
    kill(rig)
    assert rig.broker.rooms.all[4].in_flight.queues == {}
    rig.advance(1_000)
    assert (popper.bodies(), done(rig)) == ([], record_count - 1), "what is gone has an acknowledgement too"


def test_a_message_that_was_stored_again_is_not_popped_once_more_where_the_offset_was_saved_before(rig, popper):
    give(rig, b"a", b"b", b"c")
    first = popper.pop(maxMsgNums=1)[0]
    rig.broker.offsets.save()
    popper.pop(maxMsgNums=1, invisibleTime=2_000)
    rig.advance(2_000)
    rig.store.commit()
    assert [record.body for record in rig.records("%RETRY%g_T")] == [b"b"]
    rig.kill()
    assert popper.bodies() == [b"a", b"c", b"b"]
    assert popper.ack(first) == ResponseCode.SUCCESS


def test_a_checkpoint_that_is_delivered_before_it_is_durable_is_not_left_behind(rig, popper, monkeypatch):
    give(rig, b"a")
    popper.pop(invisibleTime=STAY_MS + 2_000)
    monkeypatch.setattr(rig.store._flushing, "_stopped", lambda: True)
    rig.advance(STAY_MS + 1_500)
    assert ([one.offsets for one in said(rig, REVIVE)], done(rig)) == ([(0,)], None)


# --- nobody's messages ----------------------------------------------------------------------------------------------


def test_lists_and_counts_of_timers_do_not_tell_of_pops(rig, popper, monkeypatch):
    give(rig, b"a")
    popper.pop(invisibleTime=30_000)
    rig.advance(STAY_MS + 2_000)
    assert len(rig.records(TIMER_TOPIC)) == 1

    def counted():
        body = wire.CountQuery(bucket_ms=60_000).encode()
        return wire.TimerCountsBody.decode(rig.call(RequestCode.COUNT_TIMERS, {}, body).body)

    assert counted() == wire.TimerCountsBody()
    now_ms = rig.clock.now_ms()
    for topic, due_ms in (("T", now_ms + 300_000), ("U", now_ms + 200_000)):
        rig.sent_ok(topic, b"x", {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": topic * 32})
    assert counted().by_topic == {"T": 1, "U": 1}
    assert [count for _, count in counted().buckets] == [1, 1]
    assert counted().next_due_ms == now_ms + 200_000
    told = TimerMetrics.decode(rig.call(RequestCode.GET_TIMER_METRICS).body)
    assert set(told.timing_count) == {"T", "U"}
    monkeypatch.setattr(requests, "TIMER_TOPICS_ASKED_MAX", 1)
    assert counted().next_due_ms < now_ms + 30_000, "nothing is due before it"
