"""Many pops at once, and a store that takes nothing: what a turn does is bounded, and nobody else waits for it."""

from __future__ import annotations

import logging

import msgspec
import pytest
from tests.unit.broker.pop.test_surviving import give, said

from orbitmq.broker.choosing.subscriptions import EVERYTHING
from orbitmq.broker.pop import checkpoints
from orbitmq.broker.pop.waiting import PopWaiters
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.pop import POP_ACKS_AT_ONCE_MAX, POP_LOOKS_AT_ONCE_MAX, POP_RETRY_MS, POP_WAKES_MAX
from orbitmq.protocol.pop_records import PopAcks
from orbitmq.protocol.remoting.bodies import BatchAckBody, BatchAckEntry, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.dispatch import Dispatched


class FullDisk:
    """A store that takes nothing, and counts how often it was asked."""

    def __init__(self, rig, monkeypatch):
        self.asked_count = 0
        self._store, self._monkeypatch = rig.store, monkeypatch
        monkeypatch.setattr(rig.store, "append", self._refuse)

    def _refuse(self, *message, **more):
        self.asked_count += 1
        raise StoreUnwritableError("the disk is full")

    def end(self):
        self._monkeypatch.undo()


def test_a_full_disk_is_asked_seldom_and_logged_seldom_whatever_waits(rig, popper, monkeypatch, caplog):
    give(rig, *(b"%d" % number for number in range(60)))
    for _ in range(30):
        popper.pop(maxMsgNums=1, invisibleTime=600_000)
    popper.pop(invisibleTime=5_000)
    disk = FullDisk(rig, monkeypatch)
    with caplog.at_level(logging.WARNING, logger="orbitmq.broker"):
        rig.advance(10 * POP_RETRY_MS)
    assert (disk.asked_count < 30, len(caplog.records) < 30) == (True, True)
    disk.end()
    rig.advance(5 * POP_RETRY_MS)
    assert len(rig.records("%RETRY%g_T")) == 30
    assert popper.committed() == 60, "each of the others has its checkpoint"


def test_pops_that_last_are_stored_in_steps(rig, popper, monkeypatch):
    monkeypatch.setattr(checkpoints, "POP_STORED_AT_ONCE_MAX", 4)
    give(rig, *(b"%d" % number for number in range(10)))
    for _ in range(10):
        popper.pop(maxMsgNums=1, invisibleTime=600_000)
    rig.clock.advance(20_000)
    rig.broker.tick()
    rig.broker.end_turn()
    assert len(said(rig)) == 4
    rig.advance(5_000)
    assert (len(said(rig)), popper.committed()) == (10, 10)


def test_what_is_forgotten_is_acknowledged_in_steps_and_all_of_it_before_a_stop(rig, popper, monkeypatch):
    monkeypatch.setattr(checkpoints, "POP_STORED_AT_ONCE_MAX", 4)
    give(rig, *(b"%d" % number for number in range(10)))
    popper.pop(invisibleTime=600_000)
    rig.advance(15_000)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert sum(isinstance(one, PopAcks) for one in said(rig)) == 4
    rig.reopen()
    assert sum(isinstance(one, PopAcks) for one in said(rig)) == 10


@pytest.mark.parametrize(
    "sets", [[b"\xff" * (POP_ACKS_AT_ONCE_MAX // 8 + 1)], [b"\x00" * 8_193], [b""] * POP_ACKS_AT_ONCE_MAX]
)
def test_a_batch_of_too_many_acknowledgements_settles_nothing(rig, popper, sets):
    give(rig, b"a")
    popped_ms = int(popper.pop()[0][2].split(" ")[1])
    entries = [
        BatchAckEntry(consumer_group="g", topic="T", retry="0", pop_time=popped_ms, bit_set=bits)
        for bits in [b"\x01", *sets]
    ]
    answer = rig.call(RequestCode.BATCH_ACK_MESSAGE, None, BatchAckBody(broker_name="broker-a", acks=entries).encode())
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.broker.rooms.pops.in_flight.message_count == 1


def test_acknowledgements_far_from_one_another_are_settled(rig, popper):
    give(rig, *(b"%d" % number for number in range(30)))
    found = popper.pop()
    popped_ms = int(found[0][2].split(" ")[1])
    entry = BatchAckEntry(
        consumer_group="g",
        topic="T",
        retry="0",
        pop_time=popped_ms,
        bit_set=(1 << 1 | 1 << 29 | 1 << 60_000).to_bytes(8_192, "little"),
    )
    rig.call(RequestCode.BATCH_ACK_MESSAGE, None, BatchAckBody(broker_name="broker-a", acks=[entry] * 2).encode())
    assert [offset for offset in range(30) if not _is_in_flight(rig, offset, popped_ms)] == [1, 29]


def _is_in_flight(rig, offset, popped_ms):
    return rig.broker.rooms.pops.in_flight.queues["T", "g", 0].has(offset, popped_ms)


def test_clients_do_not_write_to_the_revive_topic(rig):
    answer = rig.send("rmq_sys_REVIVE_LOG_DefaultCluster", b"{}", {"TAGS": "bAck"})
    assert answer.code == ResponseCode.NO_PERMISSION


def test_waking_a_group_looks_at_no_other_group(monkeypatch):
    released = []
    waiters = PopWaiters(released.append)
    for number in range(100):
        waiters.hold(number, "T", f"g{number}", -1, now_ns=0, wait_ns=10**9, wanted=EVERYTHING, owner=number)
    looked_at = []
    whole = waiters.polls.wake_one
    monkeypatch.setattr(waiters.polls, "wake_one", lambda name, *more: looked_at.append(name) or whole(name, *more))
    waiters.wake("T", "g7")
    assert (released, looked_at) == ([7], ["T@g7"])


AT_ONCE = POP_LOOKS_AT_ONCE_MAX // 64
"""Pops that a turn wakes."""


def together(rig, *bodies):
    """Messages that become visible in one turn."""
    whole, rig.broker.end_turn = rig.broker.end_turn, lambda: None
    for body in bodies:
        rig.send("T", body)
    rig.broker.end_turn = whole
    whole()


def test_groups_that_wait_for_one_topic_are_woken_in_steps_and_each_of_them(rig, make_popper):
    rig.broker.topics.put(TopicConfig(topic_name="T"), {})
    waiting = make_popper(rig), make_popper(rig)
    groups = [f"g{number}" for number in range(2 * AT_ONCE + 1)]
    for group in groups:
        assert waiting[0].ask(group=group, pollTime=15_000) is None
    together(rig, b"a")
    woken = [len(waiting[0].peer.sent)]
    assert waiting[1].bodies(group="other", initMode=0) == [b"a"], "who asks meanwhile is served"
    while rig.broker.next_tick_ns <= rig.clock.monotonic_ns():
        rig.broker.tick()
        woken.append(len(waiting[0].peer.sent))
    assert woken == [AT_ONCE, 2 * AT_ONCE, len(groups)]
    for group, answer in zip(groups, waiting[0].answers(), strict=True):
        assert [record.body for record, _, _ in waiting[0].read(answer, group=group)] == [b"a"]


def test_a_thousand_that_wait_in_one_group_each_get_one_of_a_thousand_messages(rig, popper):
    """One that is woken leaves the rest to the next: that is no matter of the depth of Python's stack."""
    rig.broker.topics.put(TopicConfig(topic_name="T"), {})
    for _ in range(1_000):
        assert popper.ask(maxMsgNums=1, pollTime=15_000) is None
    together(rig, *(b"%d" % number for number in range(1_000)))
    assert len(popper.peer.sent) == AT_ONCE
    while rig.broker.next_tick_ns <= rig.clock.monotonic_ns():
        rig.broker.tick()
    answers = popper.answers()
    assert rig.broker.statistics.failed_handler_count == 0
    bodies = [record.body for answer in answers for record, _, _ in popper.read(answer)]
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(1_000)]


def waiters_of(groups, released):
    """Two of each group, as (group, number)."""
    waiters = PopWaiters(released.append)
    for number in range(2):
        for group in groups:
            one = (group, number)
            waiters.hold(one, "T", group, -1, now_ns=0, wait_ns=10**9, wanted=EVERYTHING, owner=one)
    return waiters


ARRIVED = Dispatched(0, 100, "T", 0, 0, 0, 0, None, None, 0, 0, b"")


def test_who_goes_before_it_is_woken_leaves_its_place_to_the_next_of_its_group():
    released, groups = [], [f"g{number}" for number in range(AT_ONCE + 3)]
    waiters = waiters_of(groups, released)
    waiters.arrived([ARRIVED])
    assert released == [(group, 0) for group in groups[:AT_ONCE]]
    waiters.polls.drop_owner((groups[-1], 0))
    assert waiters.next_step()
    waiters.go_on()
    assert released[AT_ONCE:] == [(groups[-3], 0), (groups[-2], 0), (groups[-1], 1)]
    assert not waiters.next_step()


def test_another_message_is_not_kept_waiting_by_those_that_one_has_yet_to_wake():
    released = []
    waiters = waiters_of([f"g{number}" for number in range(AT_ONCE + 1)], released)
    waiters.hold("other", "U", "g", -1, now_ns=0, wait_ns=10**9, wanted=EVERYTHING, owner="other")
    waiters.arrived([ARRIVED])
    assert waiters.next_step()
    waiters.arrived([msgspec.structs.replace(ARRIVED, topic="U")])
    assert "other" in released


def test_messages_that_pops_are_to_be_woken_for_are_bounded():
    released = []
    waiters = waiters_of(["g"], released)
    waiters._left = 0
    waiters.arrived([ARRIVED] * POP_WAKES_MAX)
    assert (len(waiters._wakes), released) == (POP_WAKES_MAX, [])
    waiters.arrived([ARRIVED])
    assert released, "one more, and the turn goes on"
    assert len(waiters._wakes) <= POP_WAKES_MAX
