"""Pull requests and answers against the protocol's fields."""

from __future__ import annotations

import pytest

from orbitmq.client.consuming.pull_plan import PullStatus
from orbitmq.client.pulling.pull_request import PullRequest, read_answer
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.commands import HEADERS
from orbitmq.protocol.remoting.frame import Command, request, response

QUEUE = MessageQueue("T", "b-a", 3)
FOUND = {"nextBeginOffset": "9", "minOffset": "2", "maxOffset": "20", "suggestWhichBrokerId": "1"}


def pull(**changes: object) -> PullRequest:
    fields: dict[str, object] = {"group": "g", "queue": QUEUE, "offset": 7, "count": 32, "bytes_count": 1000, **changes}
    return PullRequest(**fields)  # type: ignore[arg-type]


def answer(code: ResponseCode, fields: dict[str, str], body: bytes = b"") -> Command:
    return response(request(RequestCode.PULL_MESSAGE), code, fields=fields, body=body)


def test_a_pull_at_once_brings_its_own_expression_and_commits_nothing() -> None:
    made = pull(expression="a || b", version=5)
    assert made.code is RequestCode.PULL_MESSAGE
    assert made.fields() == {
        "topic": "T",
        "queueId": "3",
        "bname": "b-a",
        "consumerGroup": "g",
        "queueOffset": "7",
        "maxMsgNums": "32",
        "maxMsgBytes": "1000",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "a || b",
        "subVersion": "5",
        "expressionType": "TAG",
    }


def test_a_held_lite_pull_has_the_flags_and_the_code_of_lite_consumers() -> None:
    made = pull(lite=True, hold_ms=20_000)
    assert made.code is RequestCode.LITE_PULL_MESSAGE
    fields = made.fields()
    assert (fields["sysFlag"], fields["suspendTimeoutMillis"], fields["ReqT"]) == ("22", "20000", "0")


def test_every_field_the_protocol_requires_is_there() -> None:
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        required = {field.name for field in HEADERS[code].request if field.mandatory}
        assert required <= set(pull(lite=code is RequestCode.LITE_PULL_MESSAGE).fields())


def test_an_answer_is_read() -> None:
    read = read_answer(pull(), answer(ResponseCode.SUCCESS, {**FOUND, "offsetDelta": "4"}, b"records"))
    assert read == (PullStatus.FOUND, b"records", 9, 2, 20, 1, 4)
    missing = read_answer(pull(), answer(ResponseCode.PULL_OFFSET_MOVED, FOUND, b"noise"))
    assert (missing.status, missing.data, missing.next_offset) == (PullStatus.OFFSET_ILLEGAL, b"", 9)


@pytest.mark.parametrize("fields", [{}, {"nextBeginOffset": "-1"}], ids=["missing", "negative"])
def test_an_answer_without_a_next_offset_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="T b-a/3 names no next offset"):
        read_answer(pull(), answer(ResponseCode.PULL_NOT_FOUND, fields))


def test_found_messages_must_lead_on() -> None:
    with pytest.raises(ClientError, match="at offset 9 would lead back to 9"):
        read_answer(pull(offset=9), answer(ResponseCode.SUCCESS, FOUND))
    assert read_answer(pull(offset=9), answer(ResponseCode.PULL_NOT_FOUND, FOUND)).next_offset == 9
