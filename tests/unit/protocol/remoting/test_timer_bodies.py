"""Bodies about pending timers: what is written can be read, absent members stay absent, and bad ones are refused."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.timer_bodies import (
    ChangeTimers,
    CountQuery,
    TimerAnswer,
    TimerAnswers,
    TimerCountsBody,
    TimerMessageBody,
    TimerPage,
    TimerQuery,
    TimerSelector,
    TimerViewBody,
    Verdict,
)

VIEW = TimerViewBody("T", "A1", "k1 k2", 1_795_228_422_001, 1_795_228_412_000, 206, "near", 3, "broker-a", "djE", None)


@pytest.mark.parametrize(
    "body",
    [
        ChangeTimers(TimerSelector(handle="djE")),
        ChangeTimers(TimerSelector(topic="T", key="k", all=True), deliver_ms=1_795_228_422_001),
        ChangeTimers(TimerSelector(topic="T", message_id="A1"), delay_ms=0),
        TimerAnswers([TimerAnswer(Verdict.RECALLED, VIEW), TimerAnswer(Verdict.NOT_FOUND)], 1),
        TimerQuery("T", 1, 2, None, "ord", "far", 7, "c"),
        TimerQuery(),
        TimerPage([VIEW], "next", 3),
        TimerMessageBody(Verdict.PENDING, VIEW, {"TAGS": "a", "ä": "ö"}, b"\x00\xff"),
        CountQuery("T", bucket_ms=60_000),
        TimerCountsBody(3, {"T": 2, "U": 1}, [(0, 1), (60_000, 2)], 2, 1, 5),
    ],
    ids=lambda body: type(body).__name__,
)
def test_what_is_written_is_read(body: JsonBody) -> None:
    assert type(body).decode(body.encode()) == body


def test_members_have_camel_case_and_absent_ones_are_left_out() -> None:
    assert (
        ChangeTimers(TimerSelector(topic="T", message_id="A1")).encode()
        == b'{"selector":{"messageId":"A1","topic":"T"}}'
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"selector":7}',
        b'{"selector":{"topic":["T"]}}',
        b'{"selector":{},"deliverMs":"soon"}',
        b'{"selector":{},"deliverMs":9223372036854775808}',
    ],
)
def test_what_is_no_change_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ChangeTimers.decode(data)
