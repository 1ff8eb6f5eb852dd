"""While the index of timers is being made ready: what waits is delivered, questions about it are to be asked again."""

from __future__ import annotations

import pytest

from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector

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


def test_every_question_is_asked_again(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250, KEYS="k").fields["recallHandle"]
    for wanted in ({"topic": "T", "message_id": "A1"}, {"topic": "T", "key": "k"}, {"handle": handle}):
        assert answer_code(rig, RECALL, **wanted) == ResponseCode.SYSTEM_BUSY
        assert answer_code(rig, STATUS, **wanted) == ResponseCode.SYSTEM_BUSY


def test_rocketmqs_recall_is_asked_again(rig) -> None:
    handle = rig.send_at("A1", NOW + 5_250).fields["recallHandle"]
    answer = rig.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle, "producerGroup": "g"})
    assert answer.code == ResponseCode.SYSTEM_BUSY


def test_what_is_sent_meanwhile_is_delivered(rig) -> None:
    rig.send_at("A1", NOW + 5_250)
    rig.clock.advance(9_000)
    rig.deliver()
    assert [bytes(record.body) for record in rig.records("T")] == [b"timed"]
