"""Names are judged once for all lists that have them, values wherever one may be none, also when the table brings it again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds.header_pair import indexed, integer, string
from tests.worlds.http2_frames import FIELDS, REQUEST, connected, frame, headers, kinds, resets

from orbitmq.limits.grpc import FIELD_NAME_LISTS_CACHED
from orbitmq.protocol.http2.frames import END_HEADERS, END_STREAM, ErrorCode
from orbitmq.protocol.http2.hpack import HeaderDecoder, encode
from orbitmq.protocol.http2.request_fields import RequestFields, are_trailers, read_request

ODD = (b" leading", b"trailing ", b"\ttab", b"tab\t", b"a\nb", b"a\rb", b"a\0b", b"\n", b" ")


def block(stream_id: int, content: bytes) -> bytes:
    return frame(1, END_HEADERS | END_STREAM, stream_id, content)


def kept(name: bytes, value: bytes) -> bytes:
    """A literal that goes into the table."""
    return integer(0, 0x3F, 0x40) + string(name) + string(value)


@pytest.mark.parametrize("value", ODD)
def test_a_value_that_is_none_is_found_again_in_the_table(value: bytes) -> None:
    connection = connected()
    for stream_id, last in ((1, kept(b"n", value)), (3, indexed(62)), (5, indexed(62))):
        assert connection.receive_data(block(stream_id, encode(REQUEST) + last)) == []
        assert resets(connection) == [(stream_id, ErrorCode.PROTOCOL_ERROR)]
    assert kinds(connection.receive_data(headers(7, end=True))) == ["RequestStarted"], "and nothing else is refused"


@pytest.mark.parametrize("value", ODD)
def test_trailers_are_judged_whatever_came_before(value: bytes) -> None:
    assert not are_trailers([(b"checksum", value)])
    assert are_trailers([(b"checksum", b"1")])


@given(st.binary(max_size=6), st.booleans())
def test_the_decoder_knows_every_value_that_may_be_none(value: bytes, is_kept: bool) -> None:
    """It may take a sound one for odd, but not the other way round."""
    decoder = HeaderDecoder()
    fields = decoder.decode(encode(REQUEST) + (kept(b"n", value) if is_kept else encode([(b"n", value)])))
    judged = read_request(fields, has_odd_values=True)
    assert (judged is not None) == (value.strip(b" \t") == value and not set(value) & set(b"\n\r\0"))
    if not decoder.has_odd_values:
        assert judged is not None
    decoder.decode(encode(REQUEST))
    assert decoder.has_odd_values or judged is not None, "what is odd is not forgotten"


def test_more_lists_of_names_than_are_remembered() -> None:
    for _ in range(2):
        for number in range(FIELD_NAME_LISTS_CACHED + 10):
            fields = [*REQUEST, (b"n%d" % number, b"v")]
            read = read_request(fields, has_odd_values=False)
            assert read == (RequestFields.made(fields), -1)
            assert read_request([*fields, (b"Upper", b"v")], has_odd_values=False) is None


def test_the_last_of_a_name_that_stands_twice_counts() -> None:
    fields = RequestFields.made([*REQUEST, (b"n", b"1"), (b"n", b"2")])
    assert fields.get(b"n") == b"2"
    assert (fields.get(b"missing"), fields.get(b"missing", b"")) == (None, b"")
    read = read_request(fields.pairs, has_odd_values=False)
    assert read is not None
    assert read[0] == fields


def test_an_announced_length_is_part_of_what_is_read() -> None:
    assert read_request([*REQUEST, (b"content-length", b"7")], has_odd_values=False) == (
        RequestFields.made([*REQUEST, (b"content-length", b"7")]),
        7,
    )
    assert read_request(REQUEST, has_odd_values=False) == (FIELDS, -1)
