"""The short way of writing a send writes what the general encoder writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.sending.outgoing import Outgoing, request_fields
from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import encode_head, request
from orbitmq.protocol.remoting.send_request import SendRequest, SendTemplate

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(
    TEXT, TEXT, st.integers(1, 65_535), INT32, TEXT, TEXT, st.binary(max_size=50), INT32, st.integers(0, 2**62), INT32
)
def test_it_is_the_general_encoding_byte_for_byte(
    group: str,
    topic: str,
    queues_count: int,
    queue_id: int,
    broker_name: str,
    properties: str,
    body: bytes,
    sys_flag: int,
    born_ms: int,
    flag: int,
) -> None:
    outgoing = Outgoing(topic, body, properties, ("id",), sys_flag, flag)
    fields = request_fields(outgoing, MessageQueue(topic, broker_name, queue_id), group, queues_count, born_ms)
    expected = encode_head(request(RequestCode.SEND_MESSAGE_V2, fields, body, opaque=77), len(body))
    template = SendTemplate(group, topic, queues_count)
    short = SendRequest(template, queue_id, broker_name, properties, body, sys_flag, born_ms, flag, 77)
    assert short.head() == expected
    assert short.code == RequestCode.SEND_MESSAGE_V2


def test_what_the_protocol_cannot_carry_is_refused() -> None:
    template = SendTemplate("g", "T", 4)
    with pytest.raises(ProtocolError, match="protocol allows"):
        SendRequest(template, 0, "b", "", bytes(FRAME_BYTES_MAX), 0, 0, 0).head()
    with pytest.raises(ProtocolError, match="UTF-8"):
        SendRequest(template, 0, "b", "\ud800", b"x", 0, 0, 0).head()
