"""Session of a follower: compare the logs, cut what is ours alone, take bytes in their order."""

from __future__ import annotations

from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.following import FollowerSession
from orbitmq.replication.replica_steps import LogIs, Records, StopMember, Welcome

OURS = ("b1", 1)


def log_of(written: int, *marks: tuple[int, int]) -> LogIs:
    return LogIs(written, written, tuple(EpochMark(*mark) for mark in marks))


def leader_of(end: int, *marks: tuple[int, int]) -> Welcome:
    return Welcome("a", 5, OURS, tuple(EpochMark(*mark) for mark in marks), end)


def records(position: int, data: bytes = b"12345678", confirmed: int = 0) -> Records:
    return Records("a", 5, OURS, position, data, confirmed, 0)


def compared(log: LogIs, leader: Welcome, confirmed: int = 0) -> int | StopMember:
    return FollowerSession(log.written).compare(log, confirmed, leader)


def test_a_log_that_is_a_beginning_of_the_leaders_is_kept() -> None:
    assert compared(log_of(40, (1, 0)), leader_of(90, (1, 0))) == 40
    assert compared(log_of(40, (1, 0)), leader_of(90, (1, 0), (2, 40))) == 40


def test_what_the_leader_before_wrote_alone_is_cut() -> None:
    assert compared(log_of(60, (1, 0)), leader_of(90, (1, 0), (2, 40))) == 40
    assert compared(log_of(60, (1, 0), (2, 40)), leader_of(90, (1, 0), (3, 50))) == 40


def test_a_longer_log_of_the_same_writer_is_cut_at_the_leaders_end() -> None:
    assert compared(log_of(60, (1, 0)), leader_of(50, (1, 0))) == 50


def test_logs_of_one_length_and_two_writers_are_two_logs() -> None:
    assert compared(log_of(60, (1, 0), (2, 40)), leader_of(60, (1, 0), (3, 40))) == 40


def test_two_writers_of_one_epoch_are_told_apart() -> None:
    """An engine that was put back to a backup gave it a second time, while one of them was away."""
    ours = LogIs(60, 60, (EpochMark(4, 0, "x"), EpochMark(5, 40, "x")))
    leader = Welcome("a", 5, OURS, (EpochMark(4, 0, "x"), EpochMark(5, 40, "y")), 90)
    assert compared(ours, leader, confirmed=40) == 40, "what nobody confirmed is cut"
    refused = compared(ours, leader, confirmed=60)
    assert isinstance(refused, StopMember), "and what somebody did is not"
    assert "another one from 40 on" in refused.reason


def test_an_empty_log_takes_everything() -> None:
    assert compared(log_of(0), leader_of(90, (1, 0))) == 0


def test_what_the_founder_had_before_the_first_epoch_is_the_same_everywhere() -> None:
    """A member that was sent a part of it goes on there."""
    assert compared(log_of(40), leader_of(900, (1, 500)), confirmed=40) == 40
    assert compared(log_of(40), leader_of(500), confirmed=40) == 40, "its leader has not marked its epoch yet"
    assert compared(log_of(500), leader_of(900, (2, 500)), confirmed=500) == 500


def test_what_was_confirmed_here_is_never_cut() -> None:
    log, leader = log_of(60, (1, 0)), leader_of(90, (1, 0), (2, 40))
    assert compared(log, leader, confirmed=40) == 40
    refused = compared(log, leader, confirmed=48)
    assert isinstance(refused, StopMember)
    assert "another one from 40 on, and 48 was confirmed" in refused.reason


def test_a_log_of_another_group_does_not_follow() -> None:
    refused = compared(log_of(60, (1, 0)), leader_of(90, (2, 0)))
    assert isinstance(refused, StopMember)
    assert "nothing in common" in refused.reason


def test_bytes_are_taken_at_our_end_only_and_once() -> None:
    session = FollowerSession(40)
    assert session.takes(records(40))
    assert not session.takes(records(40))  # repeated
    assert not session.takes(records(56))  # something between was lost
    assert session.takes(records(48))


def test_a_heartbeat_says_what_is_confirmed_and_brings_nothing() -> None:
    session = FollowerSession(40)
    assert not session.takes(records(40, b"", confirmed=32))
    assert (session.confirmed, session.expected) == (32, 40)


def test_what_a_late_message_says_is_confirmed_takes_nothing_back() -> None:
    session = FollowerSession(40)
    session.takes(records(40, confirmed=40))
    session.takes(records(40, confirmed=32))
    assert session.confirmed == 40


def test_a_cut_is_over_when_the_log_ends_where_it_was_to() -> None:
    session = FollowerSession(60)
    assert not session.has_cut(40)  # none was asked for
    session.cutting = 40
    assert not session.has_cut(60)
    assert session.has_cut(40)


def test_a_session_begins_unmatched_and_its_match_knows_nothing_confirmed_yet() -> None:
    session = FollowerSession(40)
    session.begin()
    session.takes(records(40, confirmed=40))
    session.match(48)
    assert (session.is_matched, session.expected, session.confirmed) == (True, 48, 0)
    session.begin()
    assert (session.is_matched, session.number) == (False, 2)
