"""Trace records: RocketMQ's layout, both ways, and what is no record."""

from __future__ import annotations

import pytest

from orbitmq.client.sending.trace import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    RecallTrace,
    SentTrace,
    Trace,
    TransactionTrace,
    UnknownTrace,
    attempt_id,
    decode_traces,
)


def text(*fields: str) -> str:
    return "\x01".join(fields) + "\x02"


SENT = SentTrace(
    1700, "R", "g", "T", "ID", "a", "k1 k2", "10.0.0.1:10911", 12, 3, MessageKind.DELAYED, "OFFSET", True
)  # fmt: skip
SENT_TEXT = text("Pub", "1700", "R", "g", "T", "ID", "a", "k1 k2", "10.0.0.1:10911", "12", "3", "3", "OFFSET", "true")
BEGUN = ConsumeBegun(1701, "R", "c", "REQ", "ID", 2, None)
BEGUN_TEXT = text("SubBefore", "1701", "R", "c", "REQ", "ID", "2", "null")
ENDED = ConsumeEnded("REQ", "ID", 7, False, "k", ConsumeOutcome.FAILED, 1708, "c")
ENDED_TEXT = text("SubAfter", "REQ", "ID", "7", "false", "k", "4", "1708", "c")


@pytest.mark.parametrize(("record", "expected"), [(SENT, SENT_TEXT), (BEGUN, BEGUN_TEXT), (ENDED, ENDED_TEXT)])
def test_records_are_written_in_the_layout_and_read_back(
    record: SentTrace | ConsumeBegun | ConsumeEnded, expected: str
) -> None:
    assert record.encoded() == expected
    assert decode_traces(expected.encode()) == [record]


def test_a_message_carries_any_number_of_records() -> None:
    assert decode_traces((SENT_TEXT + BEGUN_TEXT + ENDED_TEXT).encode()) == [SENT, BEGUN, ENDED]
    assert decode_traces(b"") == []


@pytest.mark.parametrize(
    ("written", "record"),
    [
        (
            text("Pub", "1", "R", "g", "T", "ID", "null", "", "h:1", "2", "3", "0", "true"),
            SentTrace(1, "R", "g", "T", "ID", None, "", "h:1", 2, 3, MessageKind.NORMAL, "", True),
        ),
        (
            text("Pub", "1", "R", "g", "T", "ID", "a", "k", "h:1", "2", "3", "1", "OFF", "false", "client:9"),
            SentTrace(1, "R", "g", "T", "ID", "a", "k", "h:1", 2, 3, MessageKind.HALF, "OFF", False, "client:9"),
        ),
        (
            text("SubAfter", "REQ", "ID", "5", "true", "k"),
            ConsumeEnded("REQ", "ID", 5, True, "k", ConsumeOutcome.SUCCESS),
        ),
        (
            text("SubAfter", "REQ", "ID", "5", "false", "k", "1"),
            ConsumeEnded("REQ", "ID", 5, False, "k", ConsumeOutcome.TIMED_OUT),
        ),
        (
            text("EndTransaction", "1", "R", "g", "T", "ID", "a", "k", "h:1", "2", "TX", "COMMIT_MESSAGE", "true"),
            TransactionTrace(1, "R", "g", "T", "ID", "a", "k", "h:1", MessageKind.COMMIT, "TX", "COMMIT_MESSAGE", True),
        ),
        (text("Recall", "1", "R", "g", "T", "ID", "true"), RecallTrace(1, "R", "g", "T", "ID", True)),
    ],
)
def test_older_and_newer_clients_have_fewer_and_more_fields(written: str, record: Trace) -> None:
    assert decode_traces(written.encode()) == [record]


@pytest.mark.parametrize(
    "written",
    ["rubbish\x02", "Pub\x011\x02", text("SubBefore", "x", "R", "c", "REQ", "ID", "2", "k"),
     text("SubAfter", "REQ", "ID", "5", "true", "k", "99")],
)  # fmt: skip
def test_what_is_no_record_is_shown_as_it_is(written: str) -> None:
    (record,) = decode_traces((written + BEGUN_TEXT).encode())[:1]
    assert record == UnknownTrace(tuple(written[:-1].split("\x01")))
    assert decode_traces((written + BEGUN_TEXT).encode())[1:] == [BEGUN]


def test_bytes_that_are_no_text_harm_nothing_else() -> None:
    assert decode_traces(b"\xff\xfe\x02" + BEGUN_TEXT.encode())[1:] == [BEGUN]


def test_attempts_have_ids_of_their_own() -> None:
    ids = {
        attempt_id(group, client, "ID", offset, again)
        for group in ("a", "b")
        for client in ("x", "y")
        for offset in (1, 2)
        for again in (0, 1)
    }
    assert len(ids) == 16
    assert attempt_id("a", "x", "ID", 1, 0) in ids
