"""How long a receive waits: the arithmetic of RocketMQ's proxy."""

from __future__ import annotations

import pytest

from orbitmq.broker.messaging.polling_time import polling_ns
from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.status import RpcError


def polling_ms(
    left_ms: int | None, wish_ms: int | None = None, timeout_ms: int = 10_000, version: str = "5.2.0"
) -> int:
    left_ns = None if left_ms is None else left_ms * 1_000_000
    return polling_ns(left_ns, wish_ms, timeout_ms, version, 5_000, 20_000) // 1_000_000


@pytest.mark.parametrize(
    ("left_ms", "wish_ms", "timeout_ms", "waits_ms"),
    [
        (
            20_000,
            None,
            10_000,
            15_000,
        ),  # the suite of RocketMQ's clients: it waits 10 s, with a request timeout of 10 s
        (60_000, None, 3_000, 20_000),
        (6_000, None, 3_000, 5_000),
        (5_000, None, 3_000, 5_000),
        (30_000, 10_000, 3_000, 10_000),
        (30_000, 1, 3_000, 5_000),
        (30_000, -(10**9), 3_000, 5_000),
        (30_000, 10**15, 3_000, 20_000),
        (7_500, 20_000, 3_000, 7_500),
        (30_000, None, -(10**15), 20_000),
        (None, None, 3_000, 20_000),
        (None, 8_000, 3_000, 8_000),
    ],
)
def test_how_long_a_receive_waits(left_ms: int | None, wish_ms: int | None, timeout_ms: int, waits_ms: int) -> None:
    assert polling_ms(left_ms, wish_ms, timeout_ms) == waits_ms


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.2.0", Code.ILLEGAL_POLLING_TIME),
        ("5.0.10", Code.BAD_REQUEST),  # as texts are compared
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
def test_a_deadline_that_leaves_too_little_is_refused(version: str, code: Code) -> None:
    for left_ms in (4_999, 0, -3_000):
        with pytest.raises(RpcError, match="waits for 5000 ms at least") as caught:
            polling_ms(left_ms, version=version)
        assert caught.value.code is code
