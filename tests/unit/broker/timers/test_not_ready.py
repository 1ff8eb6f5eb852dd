"""While the index of timers is being made ready: a recall handle says where to look, other questions are asked again."""

from __future__ import annotations

import pytest

from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector, Verdict

NOW = 1_700_000_000_000
RECALL, STATUS = RequestCode.RECALL_TIMERS, RequestCode.TIMER_STATUS


@pytest.fixture(autouse=True)
def not_ready(rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TimerIndexIncompleteError("the index is being made ready")

    for name in ("find_id", "find_key", "page", "counts"):
        monkeypatch.setattr(rig.broker.rooms.timers.index, name, refuse)


def answer_code(rig, code: int, **selector: str) -> int:
    return rig.ask(code, ChangeTimers(TimerSelector(**selector)).encode()).code


def test_a_handle_recalls(rig) -> None:
    rig.send_at("A0", NOW + 5_100)
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    assert rig.status(handle=handle) == ["pending"]
    answers = rig.change(RECALL, handle=handle)
    assert [answer.verdict for answer in answers.answers] == [Verdict.RECALLED]
    rig.clock.advance(9_000)
    rig.deliver()
    assert [bytes(record.body) for record in rig.records("T")] == [b"timed"]


def test_rocketmqs_recall_as_well(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    answer = rig.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle, "producerGroup": "g"})
    assert answer.code == ResponseCode.SUCCESS


def test_a_handle_of_what_is_not_in_its_slot_says_nothing_yet(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    assert rig.change(RECALL, handle=handle).changed == 1
    assert answer_code(rig, STATUS, handle=handle) == ResponseCode.SYSTEM_BUSY


def test_without_a_handle_a_question_is_asked_again(rig) -> None:
    rig.send_at("A1", NOW + 5_250, KEYS="k")
    assert answer_code(rig, RECALL, topic="T", message_id="A1") == ResponseCode.SYSTEM_BUSY
    assert answer_code(rig, STATUS, topic="T", key="k") == ResponseCode.SYSTEM_BUSY
