"""The table of codes and header fields."""

from __future__ import annotations

import pytest

from orbitmq.protocol.remoting.commands import (
    HEADERS,
    OWN_CODES_FROM,
    SEND_V1_FIELDS,
    SEND_V2_FIELDS,
    FieldType,
    HeaderField,
    RequestCode,
    header_of,
    request_name,
    response_name,
)


def field(code: RequestCode, name: str) -> HeaderField:
    return next(field for field in HEADERS[code].request if field.name == name)


def test_every_code_has_a_row() -> None:
    assert set(HEADERS) == set(RequestCode)
    assert header_of(310) is HEADERS[RequestCode.SEND_MESSAGE_V2]
    assert header_of(99999) is None


def test_the_notation() -> None:
    assert field(RequestCode.PULL_MESSAGE, "topic") == HeaderField("topic", FieldType.TEXT, True, None)
    assert field(RequestCode.PULL_MESSAGE, "queueOffset") == HeaderField("queueOffset", FieldType.LONG, True, None)
    assert field(RequestCode.UPDATE_AND_CREATE_TOPIC, "order") == HeaderField("order", FieldType.BOOLEAN, True, "false")
    assert field(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "boundaryType").default == "LOWER"
    assert field(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "queueId") == HeaderField(
        "queueId", FieldType.INT, False, "-1"
    )


def test_short_send_header_has_the_fields_of_the_long_one() -> None:
    long = {field.name: field for field in HEADERS[RequestCode.SEND_MESSAGE].request}
    for short in HEADERS[RequestCode.SEND_MESSAGE_V2].request:
        name = SEND_V2_FIELDS[short.name]
        if name == "bname":
            continue
        assert short.type is long[name].type
        assert short.mandatory is long[name].mandatory
        assert SEND_V1_FIELDS[name] == short.name
    assert "".join(SEND_V2_FIELDS) == "abcdefghijklmn"


@pytest.mark.parametrize("code", RequestCode)
def test_no_field_stands_twice(code: RequestCode) -> None:
    for side in HEADERS[code]:
        names = [field.name for field in side]
        assert len(names) == len(set(names))
        for item in side:
            if item.default is not None and item.type in (FieldType.INT, FieldType.LONG):
                int(item.default)


def test_own_codes_have_their_range() -> None:
    own = {code.name for code in RequestCode if OWN_CODES_FROM <= code < 30_000}
    assert own >= {"RECALL_TIMERS", "RESCHEDULE_TIMERS", "TIMER_STATUS", "LIST_TIMERS", "COUNT_TIMERS", "GET_TIMER"}


def test_names() -> None:
    assert request_name(310) == "SEND_MESSAGE_V2"
    assert request_name(-31073) == "-31073"
    assert response_name(0) == "SUCCESS"
    assert response_name(424242) == "424242"
