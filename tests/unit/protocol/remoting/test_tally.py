"""Requests counted by code and by how they end."""

from __future__ import annotations

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.tally import Tally


def test_what_came_is_named_and_what_did_not_is_left_out() -> None:
    tally = Tally()
    tally.serve([RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE, 30_999])
    tally.requests[RequestCode.SEND_MESSAGE] += 2
    tally.requests[30_999] += 1
    tally.failed(RequestCode.SEND_MESSAGE, ResponseCode.SYSTEM_BUSY)
    tally.failed(RequestCode.SEND_MESSAGE, 31_000)
    assert tally.handled_by_name() == [("SEND_MESSAGE", 2), ("30999", 1)]
    assert tally.failures_by_name() == [("SEND_MESSAGE", "SYSTEM_BUSY", 1), ("SEND_MESSAGE", "31000", 1)]
