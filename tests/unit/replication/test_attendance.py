"""Who is late, who has caught up, and who leads next."""

from __future__ import annotations

from orbitmq.limits.group import LEAD_ASK_MS, LEAD_STEP_MS, LEADER_SILENT_MS, MEMBER_LATE_MS, MEMBER_LEVEL_MS
from orbitmq.replication.attendance import Attendance, LeaderWatch
from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.member import TimedReplica
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import (
    AskEngine,
    Effect,
    EngineHolds,
    Heard,
    KeptEpoch,
    LogIs,
    ReadEngine,
    Report,
    Standing,
)
from orbitmq.replication.view import View
from orbitmq.units import NS_PER_MS

BEGIN_NS = 5_000 * NS_PER_MS


def after(ms: float) -> int:
    return BEGIN_NS + int(ms * NS_PER_MS)


def stands(name: str, end: int, *, epoch: int = 3, last: int = 2, is_clock_off: bool = False) -> Standing:
    return Standing(name, epoch, is_clock_off, last, end)


def test_a_member_is_late_when_it_was_silent_for_two_seconds() -> None:
    seen = Attendance(100, BEGIN_NS)
    assert not seen.is_late("b", None, after(MEMBER_LATE_MS - 1)), "a new leader gives everybody that time"
    assert seen.is_late("b", 100, after(MEMBER_LATE_MS + 1))
    seen.heard("b", after(1_000))
    assert not seen.is_late("b", 100, after(MEMBER_LATE_MS + 1))
    assert seen.is_late("b", 100, after(MEMBER_LATE_MS + 1_001))


def test_a_member_that_was_silent_for_as_long_as_it_would_wait_is_not_spoken_to() -> None:
    seen = Attendance(100, BEGIN_NS)
    assert not seen.is_silent("b", after(LEADER_SILENT_MS - 1))
    assert seen.is_silent("b", after(LEADER_SILENT_MS + 1))
    seen.heard("b", after(1_000))
    assert not seen.is_silent("b", after(LEADER_SILENT_MS + 1))


def test_a_member_is_late_when_it_lacks_what_was_written_two_seconds_ago() -> None:
    seen = Attendance(100, BEGIN_NS)
    seen.log_is(200, after(1_000))
    for ms in range(0, 4_000, 500):
        seen.heard("b", after(ms))
    assert not seen.is_late("b", 100, after(900 + MEMBER_LATE_MS))
    assert seen.is_late("b", 199, after(1_100 + MEMBER_LATE_MS))
    assert not seen.is_late("b", 200, after(1_100 + MEMBER_LATE_MS))
    assert seen.is_late("b", None, after(1_100 + MEMBER_LATE_MS)), "its session has reported nothing"


def test_a_learner_has_caught_up_with_what_was_written_a_moment_ago() -> None:
    seen = Attendance(100, BEGIN_NS)
    seen.log_is(200, after(3_000))
    seen.heard("b", after(3_000))
    assert seen.is_level("b", 100, after(3_000))
    assert not seen.is_level("b", 100, after(3_100 + MEMBER_LEVEL_MS))
    assert not seen.is_level("b", None, after(3_000))
    assert not seen.is_level("b", 200, after(5_000)), "it is silent"


def test_a_leader_is_missed_when_silent_or_gone() -> None:
    watch = LeaderWatch(BEGIN_NS)
    assert not watch.misses(after(LEADER_SILENT_MS - 1), has_leader=True)
    assert watch.misses(after(LEADER_SILENT_MS), has_leader=True)
    watch.heard(after(LEADER_SILENT_MS))
    assert not watch.misses(after(LEADER_SILENT_MS + 1), has_leader=True)
    watch.is_gone = True
    assert watch.misses(after(LEADER_SILENT_MS + 1), has_leader=True)
    assert LeaderWatch(BEGIN_NS).misses(BEGIN_NS, has_leader=False)


def test_the_longest_log_goes_first_and_a_wrong_clock_last() -> None:
    def waits_ms(ours: Standing, *others: Standing) -> int:
        watch = LeaderWatch(BEGIN_NS)
        watch.misses(BEGIN_NS, has_leader=False)
        for one in others:
            watch.stands(one, BEGIN_NS)
        names = ("b", "c")
        return next(ms for ms in range(0, 5_000, 50) if watch.is_turn(ours, names, after(ms)))

    a, b, c = stands("a", 300), stands("b", 200), stands("c", 900, last=1)
    assert waits_ms(a, b, c) == 0, "the newest epoch counts before the length"
    assert waits_ms(a, b) == LEAD_ASK_MS, "who has said nothing is waited for, a moment"
    assert waits_ms(stands("a", 300, is_clock_off=True), b, c) == 2 * LEAD_STEP_MS
    assert waits_ms(a, stands("b", 900, epoch=2), c) == LEAD_ASK_MS, "what was said in an older epoch does not count"


def test_a_read_of_the_engine_keeps_nobody_from_claiming_the_lead_when_its_turn_comes() -> None:
    def asked(effects: list[Effect]) -> AskEngine:
        (question,) = [one for one in effects if isinstance(one, AskEngine)]
        return question

    view = View(epoch=3, serial=5, leader="a", claim="life of a", in_sync=("a", "b", "c"))
    log = LogIs(300, 300, (EpochMark(2, 0),))
    replica = Replica("b", "life", ("a", "b", "c"), KeptEpoch(3, 5, ""), log, 0, boot="boot")
    member = TimedReplica(replica, BEGIN_NS)
    read = asked(member.step(ReadEngine(), BEGIN_NS, 0))
    member.step(EngineHolds(read.number, view, 7), BEGIN_NS, 0)
    member.gone("a")
    read = asked(member.tick(after(601)))
    member.step(EngineHolds(read.number, view, 7), after(602), 0)
    assert not any(isinstance(one, AskEngine) for one in member.tick(after(603))), "c has not said where it stands"
    seek = asked(member.step(Heard(stands("c", 200)), after(604), 0))
    claim = asked(member.step(EngineHolds(seek.number, view, 7), after(606), 0)).view
    assert claim is not None
    assert claim.leader == "b"


def test_a_leader_that_lets_another_one_lead_prefers_a_right_clock() -> None:
    log = LogIs(90, 90, (EpochMark(1, 0),))
    member = TimedReplica(Replica("a", "life", ("a", "b", "c"), KeptEpoch(1, 1, ""), log, 0, boot="boot"), 0)
    assert member.successor([]) == ""
    for name, end in (("b", 80), ("c", 40)):
        member.replica.counting.hello(name, (name, 1))
        member.replica.counting.report(name, end)
    assert member.successor(["b", "c"]) == "b", "it has most"
    member.step(Heard(Report("b", 1, ("b", 1), 80, is_clock_off=True)), 0, 0)
    assert member.has_clock_off("b")
    assert member.successor(["b", "c"]) == "c"
    member.step(Heard(Report("b", 1, ("b", 1), 80)), 0, 0)
    assert member.successor(["b", "c"]) == "b"
