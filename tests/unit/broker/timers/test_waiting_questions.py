"""Questions that come while the index of timers is being made ready: they wait, and each is answered, whatever becomes of the others."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.limits.timers import TIMER_QUESTION_LOOK_MS, TIMER_QUESTION_WAITS_MS
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerAnswers, TimerSelector
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import OsFile

NOW = 1_700_000_000_000


@pytest.fixture
def ready(rig, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Message `old` was delivered, `here` waits; what waits is not known before this is called."""
    for key, after_ms in (("old", 1_000), ("here", 5_000)):
        rig.send_at(key, NOW + after_ms)
    rig.clock.advance(2_000)
    rig.deliver()
    index = rig.broker.rooms.timers.index
    index.is_ready = False
    find = index.find_id

    def refuse(*arguments: Any) -> Any:
        if not index.is_ready:
            raise TimerIndexIncompleteError("the index is being made ready")
        return find(*arguments)

    monkeypatch.setattr(index, "find_id", refuse)
    return lambda: setattr(index, "is_ready", True)


def ask(rig, message_id: str) -> Any:
    """The peer that gets the answer to a question that has to wait."""
    peer = rig.peer()
    body = ChangeTimers(TimerSelector(topic="T", message_id=message_id)).encode()
    assert rig.give(request(RequestCode.TIMER_STATUS, None, body), peer) is None
    assert peer.sent == []
    return peer


def later(rig, ms: int) -> None:
    rig.clock.advance(ms)
    rig.store.run_due(rig.clock.monotonic_ns())
    rig.broker.end_turn()


def verdicts(answer: Command) -> list[str]:
    return [str(one.verdict) for one in TimerAnswers.decode(answer.body).answers]


def test_a_question_is_answered_when_it_is_known_what_waits(rig, ready: Callable[[], None]) -> None:
    peer = ask(rig, "here")
    later(rig, TIMER_QUESTION_WAITS_MS - 1)
    assert peer.sent == []
    ready()
    later(rig, TIMER_QUESTION_LOOK_MS)
    assert [verdicts(answer) for answer in peer.sent] == [["pending"]]


def test_a_question_is_refused_after_two_seconds(rig, ready: Callable[[], None]) -> None:
    peer = ask(rig, "here")
    later(rig, TIMER_QUESTION_WAITS_MS)
    assert [answer.code for answer in peer.sent] == [ResponseCode.SYSTEM_BUSY]


def test_a_question_is_refused_when_the_broker_stops(rig, ready: Callable[[], None]) -> None:
    peer = ask(rig, "here")
    rig.broker.close()
    assert [answer.code for answer in peer.sent] == [ResponseCode.SYSTEM_BUSY]


def test_old_records_are_fetched_for_a_question_that_has_waited(
    rig, ready: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    peers = [ask(rig, "old"), ask(rig, "here")]
    ready()
    later(rig, TIMER_QUESTION_LOOK_MS)
    assert [verdicts(answer) for peer in peers for answer in peer.sent] == [["already_delivered"], ["pending"]]


def test_a_question_that_fails_takes_no_other_with_it(
    rig, ready: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad sector")

    peers = [ask(rig, "old"), ask(rig, "here")]
    monkeypatch.setattr(CommitLog, "record_now", fail)
    ready()
    later(rig, TIMER_QUESTION_LOOK_MS)
    assert [len(peer.sent) for peer in peers] == [1, 1]
    assert peers[0].sent[0].code == ResponseCode.SYSTEM_ERROR
