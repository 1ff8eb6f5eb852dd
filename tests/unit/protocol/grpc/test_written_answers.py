"""Answers that are written as bytes are those that protobuf writes of the same message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.grpc.messages import (
    AckMessageResponse,
    AckMessageResultEntry,
    Code,
    SendMessageResponse,
    SendResultEntry,
    Status,
)
from orbitmq.protocol.grpc.status import status_of, status_of_all
from orbitmq.protocol.grpc.written_answers import OK, ack_answer, send_answer, send_result, written_status

texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.integers(100, 40_000).map("x".__mul__)
statuses = st.builds(Status, code=st.sampled_from(Code), message=texts)


@given(st.lists(st.tuples(texts, texts, statuses), max_size=4))
def test_an_answer_to_acknowledgements_is_what_protobuf_writes(entries: list[tuple[str, str, Status]]) -> None:
    written = ack_answer([(message_id, handle, written_status(status)) for message_id, handle, status in entries])
    answer = AckMessageResponse(status=status_of_all(Code(status.code) for _, _, status in entries))
    for message_id, handle, status in entries:
        answer.entries.append(AckMessageResultEntry(message_id=message_id, receipt_handle=handle, status=status))
    assert written == answer.SerializeToString()


@pytest.mark.parametrize("count", [1, 2])
def test_what_went_well_has_a_status_that_says_so_above_it(count: int) -> None:
    answer = AckMessageResponse.FromString(ack_answer([("id", "handle", OK)] * count))
    assert [answer.status, *(entry.status for entry in answer.entries)] == [status_of(Code.OK)] * (count + 1)


def test_a_status_keeps_its_code() -> None:
    assert written_status(status_of(Code.FORBIDDEN, "no")).code is Code.FORBIDDEN


offsets = st.integers(0, 2**63 - 1) | st.integers(0, 300) | st.integers(16_000, 17_000)


@given(st.lists(st.tuples(statuses, texts, offsets, texts), min_size=1, max_size=4))
def test_an_answer_to_sends_is_what_protobuf_writes(entries: list[tuple[Status, str, int, str]]) -> None:
    results = [
        (written, send_result(written, message_id, offset, handle))
        for status, message_id, offset, handle in entries
        for written in [written_status(status)]
    ]
    above = entries[0][0] if len(entries) == 1 else status_of_all(Code(status.code) for status, _, _, _ in entries)
    answer = SendMessageResponse(status=above)
    for status, message_id, offset, handle in entries:
        entry = SendResultEntry(
            status=status, message_id=message_id, transaction_id=message_id, offset=offset, recall_handle=handle
        )
        answer.entries.append(entry)
    assert send_answer(results) == answer.SerializeToString()
