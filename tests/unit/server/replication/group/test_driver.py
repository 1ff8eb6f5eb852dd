"""What a driver does with the effects of the core: in order, with a store that is real and everything else in the hands of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.group import GROUP_KEEP_RETRY_MS, GROUP_TICK_MS, UNCONFIRMED_MS
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import KeptEpoch, ReplicaRole
from orbitmq.replication.view import View, first_view
from orbitmq.server.replication.group.driver import Driver
from orbitmq.server.replication.group.group_log import GroupLog
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.writability import COPY

Kept = Callable[[str], None]


class Member:
    """`said` is everything that left the driver, in order; `keeping` and `asked` wait for the test."""

    def __init__(self, root: Path, name: str = "a", kept: KeptEpoch | None = None) -> None:
        self.little = LittleStore(root / name, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        self.said: list[object] = []
        self.keeping: list[tuple[KeptEpoch, Kept]] = []
        self.asked: list[steps.AskEngine] = []
        store, clock = self.little.store, self.little.clock
        self.log = GroupLog(store, (), clock)
        replica = Replica(
            name,
            f"{name}-life",
            ("a", "b"),
            kept or KeptEpoch(boot=""),
            self.log.state(),
            store.confirm_offset,
            boot="boot",
        )
        self.driver = Driver(
            replica, self.log, self, self, lambda epoch, done: self.keeping.append((epoch, done)), self.asked.append,
            clock, store.deadlines,
        )  # fmt: skip
        self.driver.start()

    @property
    def replica(self) -> Replica:
        return self.driver.replica

    # --- links and duties ---------------------------------------------------------------------------------------------

    def send(self, to: str, message: steps.Message) -> None:
        self.said.append((to, message))

    def stream(self, to: str, session: steps.FollowSession, position: int) -> None:
        self.said.append(("stream", to, position))

    def end_stream(self, to: str) -> None:
        self.said.append(("end stream", to))

    def log_grew(self) -> None:
        pass

    def close(self) -> None:
        self.said.append("closed")

    def serve(self, epoch: int) -> None:
        self.said.append(("serves", epoch))
        self.little.store.allow(COPY)

    def stand_still(self) -> None:
        self.said.append("stands still")
        self.little.store.only_copy("another one is to lead")

    def go_on(self) -> None:
        self.said.append("goes on")
        self.little.store.allow(COPY)

    def step_down(self) -> None:
        self.said.append("steps down")
        self.little.store.only_copy("it follows")

    def refuse(self, reason: str) -> None:
        self.said.append(("refuses", reason))

    def stop(self, reason: str) -> None:
        self.said.append("stopped")

    # --- what the test does ---------------------------------------------------------------------------------------------

    def holds(self, view: View | None, revision: int = 1) -> None:
        """The engine answers."""
        self.driver.tell(steps.EngineHolds(self.asked[-1].number, view, revision))

    def put(self, revision: int = 2) -> View:
        """The engine takes what was asked."""
        view = self.asked[-1].view
        assert view is not None
        self.holds(view, revision)
        return view

    def kept(self, why_not: str = "") -> KeptEpoch:
        epoch, done = self.keeping.pop(0)
        done(why_not)
        return epoch

    def turn(self) -> None:
        self.little.turn()
        self.driver.log_changed()

    def wait(self, ms: int) -> None:
        """In looks of the driver."""
        for _ in range(0, ms, GROUP_TICK_MS):
            self.little.clock.advance(GROUP_TICK_MS)
            self.little.store.run_due(self.little.clock.monotonic_ns())
            self.sync()

    def sync(self) -> None:
        self.turn()
        while self.little.worker.step():
            self.turn()
        self.turn()


def leads(member: Member) -> Member:
    """Alone in its group."""
    member.holds(first_view("a", ("b",)))
    member.kept()
    member.wait(GROUP_TICK_MS)
    while member.asked[-1].view is None:
        member.holds(first_view("a", ("b",)))
        member.wait(500)
    member.put()
    member.kept()
    member.sync()
    assert member.replica.serves, member.said
    return member


def test_nothing_is_said_in_an_epoch_that_is_not_on_the_disk(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.said.clear()
    member.driver.tell(steps.Heard(steps.Hello("b", 7, ("b-life", 1))))
    member.holds(View(epoch=7, serial=9, leader="b", claim="b-life", in_sync=("a", "b")))
    assert member.said == [], "the epoch is on its way to the disk"
    assert [epoch.epoch for epoch, _ in member.keeping] == [7]
    member.kept()
    assert ("b", steps.Hello("a", 7, member.replica.session)) in member.said


def test_an_epoch_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.holds(View(epoch=7, serial=9, leader="b", claim="b-life", in_sync=("a", "b")))
    member.kept("the disk is full")
    member.said.clear()
    assert not member.keeping
    member.wait(GROUP_KEEP_RETRY_MS)
    assert not [one for one in member.said if isinstance(one, tuple) and isinstance(one[1], steps.Hello)]
    assert member.kept().epoch == 7
    assert ("b", steps.Hello("a", 7, member.replica.session)) in member.said


def test_a_leader_writes_its_marker_first_and_serves_when_that_is_confirmed(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    assert ("serves", 1) in member.said
    assert member.log.marks == (EpochMark(1, 0, member.replica.life),)
    assert member.little.store.confirm_offset == member.little.store.log.written_end > 0
    again = GroupLog(member.little.store, (), member.little.clock)
    assert again.marks == member.log.marks, "a start reads them from the log"


def test_a_marker_that_cannot_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(tmp_path)
    written = member.log.append_marker

    def full(epoch: int, claim: str) -> None:
        raise StoreUnwritableError("no room")

    monkeypatch.setattr(member.log, "append_marker", full)
    with pytest.raises(AssertionError):
        leads(member)
    assert member.replica.role is ReplicaRole.LEADING
    monkeypatch.setattr(member.log, "append_marker", written)
    member.wait(2 * GROUP_TICK_MS)
    assert member.replica.serves


def test_who_waits_too_long_is_told_that_nobody_knows(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    little = member.little
    member.driver.tell(steps.Heard(steps.Hello("b", 1, ("b-life", 1))))
    member.driver.tell(steps.Heard(steps.Follow("b", 1, ("b-life", 1), 0)))
    member.driver.tell(steps.Heard(steps.Report("b", 1, ("b-life", 1), little.store.log.written_end)))
    if member.asked[-1].view is None:
        member.holds(member.replica.view, 2)
    member.wait(500)
    assert member.put(3).in_sync == ("a", "b"), "it has caught up"
    little.send(body=b"b does not have it")
    member.turn()
    member.wait(UNCONFIRMED_MS - 500)
    assert little.statuses == []
    member.wait(1_000)
    assert little.statuses == [PutStatus.UNKNOWN]


def test_a_deposed_leader_answers_at_once_and_appends_no_more(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    member.said.clear()
    member.driver.tell(steps.Heard(steps.Hello("b", 5, ("b-life", 1))))
    member.holds(View(epoch=5, serial=9, leader="b", claim="b-life", in_sync=("b",), learners=("a",)), 9)
    assert member.said[0] == "steps down"
    assert member.little.store.is_copy


def test_bytes_that_cannot_be_appended_are_asked_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some time later, and a full disk is told once."""
    leader, follower = leads(Member(tmp_path)), Member(tmp_path, "b")
    view = leader.replica.view
    assert view is not None
    follower.holds(view, 2)
    follower.kept()
    session, end = follower.replica.session, leader.log.state().written
    follower.driver.tell(steps.Heard(steps.Welcome("a", 1, session, leader.log.marks, end)))
    assert ("a", steps.Follow("b", 1, session, 0)) in follower.said
    data = leader.little.log_bytes()
    broken = data[:4] + b"\xff" + data[5:]
    follower.driver.tell(steps.Heard(steps.Records("a", 1, session, 0, broken, 0, 0)))
    assert follower.log.state().written == 0
    for _ in range(2):
        follower.said.clear()
        follower.wait(GROUP_TICK_MS)
        assert not [one for one in follower.said if isinstance(one[1], steps.Hello)], "not at once"
        follower.wait(GROUP_KEEP_RETRY_MS)
        session = follower.replica.session
        assert ("a", steps.Hello("b", 1, session)) in follower.said
        follower.driver.tell(steps.Heard(steps.Welcome("a", 1, session, leader.log.marks, end)))
        follower.driver.tell(steps.Heard(steps.Records("a", 1, session, 0, broken, 0, 0)))
    assert caplog.text.count("are not in the log, asking for them again") == 1
    follower.wait(GROUP_KEEP_RETRY_MS)
    session = follower.replica.session
    follower.driver.tell(steps.Heard(steps.Welcome("a", 1, session, leader.log.marks, end)))
    follower.driver.tell(steps.Heard(steps.Records("a", 1, session, 0, data, end, 0)))
    follower.sync()
    assert follower.little.log_bytes() == data
    assert follower.log.marks == leader.log.marks
    assert ("a", steps.Report("b", 1, session, end, is_clock_off=True)) in follower.said
    assert follower.little.store.confirm_offset == end


def test_an_empty_log_begins_where_its_leaders_does_and_knows_who_wrote_before(tmp_path: Path) -> None:
    follower = Member(tmp_path, "b")
    follower.holds(View(epoch=7, serial=9, leader="a", claim="a-life", in_sync=("a",), learners=("b",)), 2)
    follower.kept()
    session, start = follower.replica.session, 16 * 1024
    marks = (EpochMark(3, 0), EpochMark(6, 900), EpochMark(7, start + 500))
    follower.driver.tell(steps.Heard(steps.Welcome("a", 7, session, marks, start + 1_000, start)))
    assert ("a", steps.Follow("b", 7, session, start)) in follower.said
    assert follower.log.marks == marks[:2]
    assert follower.keeping, "a start finds them, as their records are gone"


def test_what_no_leader_confirmed_is_cut_with_its_marker(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    confirmed = member.little.store.confirm_offset
    member.little.store.only_copy("for the test")
    member.log.append_marker(3, "another-life")
    assert [mark.epoch for mark in member.log.marks] == [1, 3]
    assert member.log.cut(confirmed) == 1
    assert [mark.epoch for mark in member.log.marks] == [1]


def test_a_store_that_has_failed_ends_the_member(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    member.said.clear()
    member.little.store._sync_failed(OSError("the disk is gone"))
    member.wait(GROUP_TICK_MS)
    assert member.said[:2] == ["stopped", "closed"], "whoever follows is refused"
    assert "the disk is gone" in member.driver.stopped


def test_a_switch_stands_still_first_and_goes_on_where_nobody_leads(tmp_path: Path) -> None:
    member = leads(Member(tmp_path))
    assert not member.driver.switch_to("b"), "b is not in sync"
    view = member.replica.view
    assert view is not None
    member.driver.tell(steps.ReadEngine())
    member.holds(view._next(in_sync=("a", "b"), learners=()), 3)
    member.said.clear()
    assert member.driver.switch_to("b")
    assert member.said[0] == "stands still"
    member.wait(6_000)
    assert "goes on" in member.said


def test_a_leader_whose_disk_hangs_asks_another_one_to_lead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    member = leads(Member(tmp_path))
    view = member.replica.view
    assert view is not None
    member.driver.tell(steps.ReadEngine())
    member.holds(view._next(in_sync=("a", "b"), learners=()), 3)
    member.driver.tell(steps.Heard(steps.Hello("b", 1, ("b-life", 1))))
    member.little.send(body=b"synced by b alone")
    member.turn()
    end = member.log.store.log.written_end
    member.said.clear()
    for _ in range(60):  # the sync does not come back
        member.driver.tell(steps.Heard(steps.Report("b", 1, ("b-life", 1), end)))
        if member.replica.switching_to:
            break
        member.little.clock.advance(GROUP_TICK_MS)
        member.little.store.run_due(member.little.clock.monotonic_ns())
    assert member.replica.switching_to == "b"
    assert member.said.index("stands still") < member.said.index(("b", steps.YourTurn("a", 1)))
    assert "b is asked to lead: " in caplog.text
    assert "were not synced for" in caplog.text
