"""Receipts of pops: RocketMQ's form, byte for byte, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.pop_receipts import (
    PoppedQueue,
    PopReceipt,
    PopSource,
    decode_receipt,
    message_offset_info,
    pop_retry_topic,
    start_offset_info,
)

RECORDED = "12 1795265728410 60000 1 0 broker-a 3 12"
BY_A_PROXY = "39 1795266421111 60000 5 1 broker-a 2 40 129768"


def test_a_recorded_receipt_is_read_and_written_again() -> None:
    receipt = decode_receipt(RECORDED)
    assert receipt == PopReceipt(12, 1795265728410, 60000, 1, PopSource.NORMAL, "broker-a", 3, 12)
    assert receipt.encode() == RECORDED


def test_what_a_proxy_adds_is_passed_over() -> None:
    receipt = decode_receipt(BY_A_PROXY)
    assert (receipt.source, receipt.queue_id, receipt.queue_offset) == (PopSource.RETRY_V1, 2, 40)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        RECORDED.rsplit(" ", 1)[0],
        RECORDED.replace(" ", "  "),
        RECORDED.replace(" 0 ", " 3 "),
        RECORDED.replace("12", "-1", 1),
        RECORDED.replace("12", "1_2", 1),
        RECORDED.replace("12", "\u0661", 1),
        RECORDED.replace("12", "9" * 19, 1),
        RECORDED.replace("broker-a", "b" * 4_000),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_receipt(text)


numbers = st.integers(0, 10**18 - 1)
receipts = st.builds(
    PopReceipt,
    numbers,
    numbers,
    st.integers(-(10**17), 10**17),
    numbers,
    st.sampled_from(PopSource),
    st.text(st.characters(exclude_characters=" ", codec="utf-8"), max_size=30),
    numbers,
    numbers,
)


@given(receipts)
def test_every_receipt_comes_back(receipt: PopReceipt) -> None:
    assert decode_receipt(receipt.encode()) == receipt


@given(st.one_of(st.text(), st.lists(st.text("0123456789- ab\x00", max_size=20), max_size=10).map(" ".join)))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    try:
        decoded = decode_receipt(text)
    except ProtocolError:
        return
    assert decode_receipt(decoded.encode()) == decoded


def test_each_queue_stands_in_both_fields_with_its_offsets_rising() -> None:
    queues = [
        PoppedQueue(PopSource.RETRY_V1, 0, 7, [7, 9]),
        PoppedQueue(PopSource.NORMAL, 3, 100, [101]),
    ]
    assert start_offset_info(queues) == "1 0 7;0 3 100"
    assert message_offset_info(queues) == "1 0 7,9;0 3 101"


def test_retry_topics_have_two_forms_of_names() -> None:
    assert pop_retry_topic("g", "T", PopSource.NORMAL) == "T"
    assert pop_retry_topic("g", "T", PopSource.RETRY_V1) == "%RETRY%g_T"
    assert pop_retry_topic("g", "T", PopSource.RETRY_V2) == "%RETRY%g+T"
