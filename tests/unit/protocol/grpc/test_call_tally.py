"""Calls are counted by method, and their failures by what stands in their answers."""

from __future__ import annotations

import pytest

from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.call_tally import CallTally, code_of_answer
from orbitmq.protocol.grpc.messages import (
    Code,
    Message,
    QueryRouteResponse,
    ReceiveMessageResponse,
    Status,
    TelemetryCommand,
    Timestamp,
)
from orbitmq.protocol.grpc.rpcs import Rpc


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("text", ["", "x" * 100, "x" * 20_000])
def test_the_code_of_an_answer_is_read_as_protobuf_reads_it(code: Code, text: str) -> None:
    answer = QueryRouteResponse(status=Status(code=code, message=text)).SerializeToString()
    assert code_of_answer(answer) == code
    tally = CallTally()
    tally.answered(Rpc.QUERY_ROUTE, answer)
    assert tally.failures_by_name() == ([] if code in (0, Code.OK) else [("QueryRoute", code.name, 1)])


@pytest.mark.parametrize(
    "item",
    [
        ReceiveMessageResponse(message=Message(body=b"x" * 100)),
        ReceiveMessageResponse(delivery_timestamp=Timestamp(seconds=1)),
        TelemetryCommand(),
        QueryRouteResponse(),
    ],
)
def test_a_message_without_a_status_is_no_failure(item: ReceiveMessageResponse) -> None:
    tally = CallTally()
    tally.answered(Rpc.RECEIVE_MESSAGE, item.SerializeToString())
    assert not tally.failures


def test_calls_that_came_are_shown_and_others_are_not() -> None:
    tally = CallTally()
    tally.begun[Rpc.HEARTBEAT] += 2
    assert tally.handled_by_name() == [("Heartbeat", 2)]


def test_a_status_of_grpc_counts_as_a_failure_and_an_unknown_method_as_unsupported() -> None:
    tally = CallTally()
    tally.failed(Rpc.TELEMETRY, CallError(GrpcStatus.INVALID_ARGUMENT, "no"))
    tally.failed(None, CallError(GrpcStatus.UNKNOWN, "no call"))
    tally.failed(None, CallError(GrpcStatus.UNIMPLEMENTED, "no such method"))
    assert tally.failures_by_name() == [("Telemetry", "INVALID_ARGUMENT", 1), ("(none)", "UNKNOWN", 1)]
    assert tally.unsupported == 1
