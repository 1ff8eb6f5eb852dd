"""Who is late, who has caught up, and who leads next."""

from __future__ import annotations

from orbitmq.limits.group import (
    LEAD_ASK_MS,
    LEAD_STEP_MS,
    LEADER_SILENT_MS,
    MEMBER_LATE_MS,
    MEMBER_LEVEL_MS,
    SWITCH_MS,
)
from orbitmq.replication.attendance import Attendance, LeaderWatch
from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.member import TimedReplica
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import (
    AskEngine,
    ConfirmTo,
    DispatchedTo,
    Effect,
    EngineHolds,
    Heard,
    Hello,
    KeptEpoch,
    LogIs,
    ReadEngine,
    Report,
    SendMessage,
    Standing,
    SwitchTo,
    Welcome,
    YourTurn,
)
from orbitmq.replication.view import View
from orbitmq.units import NS_PER_MS

BEGIN_NS = 5_000 * NS_PER_MS


def after(ms: float) -> int:
    return BEGIN_NS + int(ms * NS_PER_MS)


def stands(name: str, end: int, *, epoch: int = 3, last: int = 2, goes_last: bool = False) -> Standing:
    return Standing(name, epoch, goes_last, last, end)


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
    assert waits_ms(stands("a", 300, goes_last=True), b, c) == 2 * LEAD_STEP_MS
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


LEARNING = View(epoch=3, serial=5, leader="a", claim="life", in_sync=("a", "b"), learners=("c",))


def leads(view: View) -> TimedReplica:
    """a, which serves, with b and c; all have the log up to 90."""
    replica = Replica("a", "life", view.members, KeptEpoch(3, 5, ""), LogIs(0, 0, ()), 0, boot="boot")
    member = TimedReplica(replica, BEGIN_NS)
    (read,) = (one for one in member.step(ReadEngine(), BEGIN_NS, 0) if isinstance(one, AskEngine))
    member.step(EngineHolds(read.number, view, 7), BEGIN_NS, 0)
    member.step(LogIs(90, 90, (EpochMark(3, 0, "life"),)), BEGIN_NS, 0)
    for name in ("b", "c"):
        member.step(Heard(Hello(name, 3, (name, 1))), BEGIN_NS, 0)
        member.step(Heard(Report(name, 3, (name, 1), 90)), BEGIN_NS, 0)
    member.step(DispatchedTo(90), BEGIN_NS, 0)
    assert not replica.refusal
    return member


def hands_over(to: str) -> TimedReplica:
    """A leader that has asked that one to lead."""
    member = leads(View(epoch=3, serial=5, leader="a", claim="life", in_sync=("a", "b", "c")))
    member.step(SwitchTo(to), BEGIN_NS, 0)
    assert member.replica.refusal == f"{to} is to lead"
    return member


def test_a_leader_waits_no_longer_for_one_that_cannot_lead_any_more() -> None:
    member = hands_over("b")
    member.tick(after(SWITCH_MS - 1))
    assert member.replica.switching_to == "b", "it may yet lead"
    member.tick(after(SWITCH_MS))
    assert not member.replica.refusal, "this one goes on"

    member = hands_over("b")
    member.gone("c")
    member.tick(after(100))
    assert member.replica.switching_to == "b", "another one is gone"
    member.gone("b")
    member.tick(after(200))
    assert not member.replica.refusal, "its process is gone"

    member = hands_over("b")
    (read,) = (one for one in member.step(ReadEngine(), after(100), 0) if isinstance(one, AskEngine))
    assert member.replica.view is not None
    member.step(EngineHolds(read.number, member.replica.view.leave("b"), 8), after(100), 0)
    member.tick(after(200))
    assert not member.replica.refusal, "it has left the set"


def test_a_member_without_room_leads_last_and_not_because_it_is_asked() -> None:
    view = View(epoch=3, serial=5, leader="a", claim="a1", in_sync=("a", "b", "c"))
    log = LogIs(300, 300, (EpochMark(3, 0, "a1"),))
    replica = Replica("b", "life", view.in_sync, KeptEpoch(3, 5, ""), log, 0, boot="boot")
    member = TimedReplica(replica, BEGIN_NS)
    (read,) = (one for one in member.step(ReadEngine(), BEGIN_NS, 0) if isinstance(one, AskEngine))
    member.step(EngineHolds(read.number, view, 7), BEGIN_NS, 0)
    member.step(Heard(Welcome("a", 3, replica.session, log.marks, 300)), BEGIN_NS, 0)
    assert replica.following.is_matched
    member.lacks_room = lambda: True
    assert member.step(Heard(YourTurn("a", 3)), BEGIN_NS, 0) == []
    member.gone("a")
    said = [one.message for one in member.tick(after(100)) if isinstance(one, SendMessage)]
    assert stands("b", 300, last=3, goes_last=True) in said
    member.lacks_room = lambda: False
    assert any(isinstance(one, AskEngine) for one in member.step(Heard(YourTurn("a", 3)), after(100), 0))


def test_a_learner_that_is_slower_than_the_set_joins_while_messages_flow() -> None:
    member, mark = leads(LEARNING), (EpochMark(3, 0, "life"),)
    replica, asked = member.replica, list[View]()
    for ms in range(0, 1_000, 10):
        end = 100 + ms
        effects = member.step(LogIs(end, end, mark), after(ms), 0)
        effects += member.step(Heard(Report("b", 3, ("b", 1), end)), after(ms + 1), 0)
        effects += member.step(Heard(Report("c", 3, ("c", 1), max(end - 50, 90))), after(ms + 2), 0)
        effects += member.tick(after(ms + 3)) if ms % 100 == 0 else []
        asked += [one.view for one in effects if isinstance(one, AskEngine) and one.view is not None]
    assert [view.in_sync for view in asked] == [("a", "b", "c")]
    assert replica.counting.end_of("c") == replica.confirmed, "it is waited for, and has all that is confirmed"


def test_a_learner_that_falls_back_is_waited_for_no_longer() -> None:
    member, mark = leads(LEARNING), (EpochMark(3, 0, "life"),)
    replica = member.replica
    member.step(LogIs(110, 110, mark), after(10), 0)
    member.step(Heard(Report("b", 3, ("b", 1), 110)), after(11), 0)
    member.tick(after(100))
    assert replica.counting.joining == "c"
    member.step(LogIs(120, 120, mark), after(101), 0)
    member.step(Heard(Report("b", 3, ("b", 1), 120)), after(102), 0)
    assert replica.confirmed == 110
    effects = member.tick(after(101 + MEMBER_LEVEL_MS + 100))
    assert ConfirmTo(120) in effects, "nothing of it comes"
