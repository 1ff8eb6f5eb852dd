"""Header fields of the protocol: which ones the request of a code and its answer carry (the table is `requests`), and those that any may.

Unknown ext fields are ignored; `COMMON_FIELDS` may accompany any request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.protocol.remoting.codes import (
    OWN_CODES_FROM,
    RequestCode,
    ResponseCode,
    request_name,
    response_name,
)
from orbitmq.protocol.remoting.requests import REQUESTS, FieldType, HeaderField, HeaderSpec

__all__ = [
    "BY_TOOL",
    "COMMON_FIELDS",
    "COMMON_RESPONSE_FIELDS",
    "HEADERS",
    "OWN_CODES_FROM",
    "SEND_V1_FIELDS",
    "SEND_V2_FIELDS",
    "FieldType",
    "HeaderField",
    "HeaderSpec",
    "RequestCode",
    "ResponseCode",
    "absent_field",
    "header_of",
    "request_name",
    "response_name",
]


COMMON_FIELDS: Final = frozenset(
    {
        "ns",
        "nsd",
        "bname",
        "oway",
        "lo",
        "ReqT",
        "__ZONE_NAME",
        "__ZONE_MODE",
        "AccessKey",
        "Signature",
        "SecurityToken",
        "OnsChannel",
    }
)
"""Ext fields that any request may carry: namespace, broker name, stream marker, zone, signature."""

COMMON_RESPONSE_FIELDS: Final = frozenset({"MSG_REGION", "TRACE_ON"})
"""Ext fields that answers to sends and recalls carry beside those of their header."""

SEND_V2_FIELDS: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
"""Letters of the short send header and the names they stand for in the long one."""

BY_TOOL: Final = "orbitmqByTool"
"""Ours, of UPDATE_CONSUMER_OFFSET: somebody moves an offset by hand, no consumer commits. RocketMQ reads over it."""

SEND_V1_FIELDS: Final = {name: letter for letter, name in SEND_V2_FIELDS.items()}

HEADERS: Final[dict[RequestCode, HeaderSpec]] = {code: row.header for code, row in REQUESTS.items()}
"""Header fields of every request code."""


def header_of(code: int) -> HeaderSpec | None:
    """Header fields of a request code, None when the code is not known."""
    return HEADERS.get(code)  # type: ignore[call-overload, no-any-return]


def absent_field(code: int, fields: Mapping[str, str]) -> str | None:
    """The first mandatory field that a request lacks; None when it has them all, or the code is not known."""
    header = header_of(code)
    for field in header.request if header is not None else ():
        if field.mandatory and field.default is None and field.name not in fields:
            return field.name
    return None
