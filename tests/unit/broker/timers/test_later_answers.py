"""Questions that are answered when the far tier was asked, of messages whose records are not in memory then."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerAnswers, TimerMessageBody, TimerSelector
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import OsFile
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarQuery

NOW = 1_700_000_000_000


class LaterFar:
    """A far tier with nothing in it, which says so in a later turn."""

    is_needed = True
    damaged_files = ()

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        return False

    def may_hold(self, until_ms: int) -> bool:
        return True

    def find(self, query: FarQuery, done: Any) -> None:
        self.answers.append(done)


@pytest.fixture
def far(rig, monkeypatch: pytest.MonkeyPatch) -> LaterFar:
    """Messages `old` was delivered, `gone` recalled, one copy of `both` delivered and one of it waits: nothing of them in memory."""
    far = LaterFar()
    for key, after_ms in (("old", 1_000), ("gone", 5_000), ("both", 1_000), ("both", 9_000)):
        rig.send_at(key, NOW + after_ms)
    assert rig.verdicts(RequestCode.RECALL_TIMERS, topic="T", message_id="gone") == ["recalled"]
    rig.clock.advance(2_000)
    rig.deliver()
    rig.admission_far(far)
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    return far


def ask(rig, far: LaterFar, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
    """The answer, when the far tier has been asked."""
    peer = rig.peer()
    assert rig.give(request(code, fields, body), peer) is None
    for done in far.answers:
        done(FarPage([], False))
    rig.broker.end_turn()
    assert len(peer.sent) == 1, "no answer"
    return peer.sent[0]


def selected(message_id: str) -> bytes:
    return ChangeTimers(TimerSelector(topic="T", message_id=message_id)).encode()


@pytest.mark.parametrize(
    ("message_id", "verdicts"),
    [
        ("old", ["already_delivered"]),
        ("gone", ["already_recalled"]),
        ("both", ["already_delivered", "pending"]),
        ("other", ["not_found"]),
    ],
)
def test_what_became_of_a_message_is_fetched_and_told(rig, far: LaterFar, message_id: str, verdicts: list[str]) -> None:
    answer = ask(rig, far, RequestCode.TIMER_STATUS, None, selected(message_id))
    assert [str(one.verdict) for one in TimerAnswers.decode(answer.body).answers] == verdicts


def test_a_message_that_does_not_wait_is_shown_as_what_it_became(rig, far: LaterFar) -> None:
    answer = ask(rig, far, RequestCode.GET_TIMER, None, selected("old"))
    assert str(TimerMessageBody.decode(answer.body).verdict) == "already_delivered"


def test_copies_are_recalled_once_and_the_one_that_has_left_is_told_of(rig, far: LaterFar) -> None:
    answer = ask(rig, far, RequestCode.RECALL_TIMERS, None, selected("both"))
    answers = TimerAnswers.decode(answer.body)
    assert (answers.changed, [str(one.verdict) for one in answers.answers]) == (1, ["already_delivered", "recalled"])
    assert rig.timers.pending_count == 0


@pytest.mark.parametrize("message_id", ["old", "both", "gone"])
def test_rocketmqs_recall_is_answered_too(rig, far: LaterFar, message_id: str) -> None:
    handle = rig.broker.rooms.admission.timers.handle_of("T", NOW + 9_000, message_id)
    fields = {"topic": "T", "recallHandle": handle, "producerGroup": "g"}
    answer = ask(rig, far, RequestCode.RECALL_MESSAGE, fields)
    expected = ResponseCode.SUCCESS if message_id == "gone" else ResponseCode.ILLEGAL_OPERATION
    assert answer.code == expected


def test_a_disk_that_fails_is_the_answer(rig, far: LaterFar, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: CommitLog, offset: int) -> bytes | None:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(CommitLog, "record", fail)
    answer = ask(rig, far, RequestCode.TIMER_STATUS, None, selected("old"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "bad sector" in (answer.remark or "")
