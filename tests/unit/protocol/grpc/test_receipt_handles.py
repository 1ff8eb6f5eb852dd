"""Receipt handles: what a client got it hands back, and anything else is none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.receipt_handles import ReceiptHandle, read_handle
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.pop_receipts import PopReceipt, PopSource

BY_A_PROXY = "39 1795266421111 60000 5 1 broker-a 2 40 129768"
POPPED_MS = 1_795_266_421_111
RECEIPT = PopReceipt(39, POPPED_MS, 60_000, 5, PopSource.RETRY_V1, "broker-a", 2, 40)


def test_a_handle_of_rocketmqs_proxy() -> None:
    handle = read_handle(BY_A_PROXY, POPPED_MS)
    assert handle == ReceiptHandle(RECEIPT, 129_768)
    assert handle.encode() == BY_A_PROXY


@pytest.mark.parametrize("end", ["", " -1"])
def test_a_handle_without_a_place_in_the_log(end: str) -> None:
    assert read_handle(RECEIPT.encode() + end, POPPED_MS).physical_offset == -1


def test_a_handle_counts_until_its_time_is_over() -> None:
    assert read_handle(BY_A_PROXY, POPPED_MS + 59_999).receipt == RECEIPT
    with pytest.raises(RpcError, match="over") as caught:
        read_handle(BY_A_PROXY, POPPED_MS + 60_000)
    assert caught.value.code is Code.INVALID_RECEIPT_HANDLE


def test_a_changed_invisible_time_makes_another_handle_of_the_same_place() -> None:
    renewed = read_handle(BY_A_PROXY, POPPED_MS).renewed(POPPED_MS + 5, 10, 7)
    assert renewed.encode() == "39 1795266421116 10 7 1 broker-a 2 40 129768"


@pytest.mark.parametrize("text", ["", "handle", BY_A_PROXY[3:], BY_A_PROXY + "x", BY_A_PROXY[:-6] + "-2", "9" * 3000])
def test_what_is_no_handle_has_its_code(text: str) -> None:
    with pytest.raises(RpcError) as caught:
        read_handle(text, POPPED_MS)
    assert caught.value.code is Code.INVALID_RECEIPT_HANDLE


@given(st.text() | st.lists(st.text("0123456789-broke\u0663"), min_size=7, max_size=10).map(" ".join))
def test_whatever_comes_is_a_handle_or_none(text: str) -> None:
    with suppress(RpcError):
        assert read_handle(text, -(10**19)).encode().startswith(text.split(" ")[0])
