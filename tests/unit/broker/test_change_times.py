"""How long changes by request take, by outcome."""

from __future__ import annotations

import pytest

from orbitmq.broker.counting.change_times import ChangeTimes
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer

PEER: Peer = None  # type: ignore[assignment]


def change(topic: str) -> Command:
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": topic})


def test_each_outcome_has_its_histogram() -> None:
    clock = ManualClock()
    times = ChangeTimes(clock)

    def put(command: Command, peer: Peer) -> Command | None:
        clock.advance(50)
        if command.text("topic") == "refused":
            raise Refusal(ResponseCode.NO_PERMISSION, "no")
        if command.text("topic") == "failed":
            return response(command, ResponseCode.SYSTEM_ERROR, "no")
        return None  # answered later

    measured = times.of_topics(put, lambda topic: topic.startswith("rmq_sys"))
    measured(change("orders"), PEER)
    measured(change("rmq_sys_x"), PEER)
    assert measured(change("failed"), PEER) is not None
    with pytest.raises(Refusal):
        measured(change("refused"), PEER)
    assert {key: (one.count, one.total) for key, one in times.topics.items()} == {
        ("success", "false"): (1, 50),
        ("success", "true"): (1, 50),
        ("failure", "false"): (2, 100),
    }
    assert times.groups == {}
