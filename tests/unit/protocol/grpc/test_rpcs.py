"""The table of RPCs."""

from __future__ import annotations

from orbitmq.limits.grpc import REQUEST_BYTES_MAX, SEND_REQUEST_BYTES_MAX
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.rpcs import BY_PATH, RPCS, Rpc, Shape
from orbitmq.protocol.remoting.requests import REQUESTS


def test_every_rpc_has_a_row_and_its_messages_are_defined() -> None:
    assert set(RPCS) == set(Rpc)
    assert len(BY_PATH) == len(Rpc) == 17
    for rpc, row in RPCS.items():
        assert hasattr(messages, row.request)
        assert row.shape is Shape.BIDIRECTIONAL or hasattr(messages, f"{rpc}Response")


def test_every_rpc_needs_what_a_request_of_remoting_needs() -> None:
    assert all(REQUESTS[row.permission].signed for row in RPCS.values())


def test_receiving_is_a_stream_and_telemetry_two() -> None:
    shapes = {rpc: row.shape for rpc, row in RPCS.items() if row.shape is not Shape.UNARY}
    assert shapes == {
        Rpc.RECEIVE_MESSAGE: Shape.SERVER_STREAM,
        Rpc.PULL_MESSAGE: Shape.SERVER_STREAM,
        Rpc.TELEMETRY: Shape.BIDIRECTIONAL,
    }


def test_only_sends_are_large() -> None:
    assert {rpc for rpc, row in RPCS.items() if row.bytes_max != REQUEST_BYTES_MAX} == {Rpc.SEND_MESSAGE}
    assert RPCS[Rpc.SEND_MESSAGE].bytes_max == SEND_REQUEST_BYTES_MAX
