"""Frames: layout, tolerant reading, strict writing, refusals."""

from __future__ import annotations

import json

import pytest

from orbitmq.errors import FrameError, ProtocolError
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.frame import (
    Command,
    PackedCommand,
    Serialize,
    decode,
    encode,
    encode_head,
    request,
    response,
)
from orbitmq.protocol.remoting.versions import Language

BINARY_FRAME = bytes.fromhex(
    "00000025 01000021 0069 00 018f 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54"
)


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    raw = header.encode() if isinstance(header, str) else header
    return (4 + len(raw) + len(body)).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw + body


def binary_frame(header: bytes, body: bytes = b"") -> bytes:
    mark = 1 << 24 | len(header)
    return (4 + len(header) + len(body)).to_bytes(4, "big") + mark.to_bytes(4, "big") + header + body


# --- layout -------------------------------------------------------------------------------------------------------


def test_json_example() -> None:
    header = (
        '{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
        '"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    command = Command(105, 7, 0, Language.JAVA, 399, None, {"topic": "T"}, True)
    assert encode(command) == bytes.fromhex("0000007f0000007b") + header.encode()
    assert decode(encode(command)) == command
    assert encode_head(command, 1) + b"B" == bytes.fromhex("000000800000007b") + header.encode() + b"B"


def test_binary_example() -> None:
    command = Command(105, 7, 0, Language.JAVA, 399, None, {"topic": "T"}, True, b"", Serialize.BINARY)
    assert decode(BINARY_FRAME) == command
    assert encode(command) == BINARY_FRAME
    command.body = b"B"
    assert encode(command) == b"\0\0\0\x26" + BINARY_FRAME[4:] + b"B"


def test_request_and_response() -> None:
    asked = request(11, {"topic": "T"}, b"x", opaque=5)
    assert not asked.is_response
    assert not asked.is_oneway
    assert request(15, oneway=True).is_oneway
    answer = response(asked, 0, None, {"a": "1"})
    assert answer.is_response
    assert answer.opaque == 5
    assert encode(answer)[8:] == (
        b'{"code":0,"extFields":{"a":"1"},"flag":1,"language":"JAVA","opaque":5,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_absent_and_empty_ext_fields_differ_in_json() -> None:
    asked = request(34)
    assert b"extFields" not in encode(response(asked, 0))
    assert b'"extFields":{}' in encode(response(asked, 0, fields={}))
    assert decode(json_frame('{"code":1,"extFields":{}}')).has_fields
    assert not decode(json_frame('{"code":1}')).has_fields


def test_answers_are_json_whatever_the_request_was() -> None:
    assert response(decode(BINARY_FRAME), 0).serialize is Serialize.JSON


def test_text_is_escaped_and_kept() -> None:
    text = 'a\u0001b\u0002"\\\n\u2028é标签😀'
    for serialize in Serialize:
        command = Command(1, remark=text, fields={text: text}, has_fields=True, serialize=serialize)
        assert decode(encode(command)) == command


def test_body_of_a_decoded_frame_is_a_copy() -> None:
    data = bytearray(json_frame('{"code":1}', b"body"))
    command = decode(memoryview(data))
    data[-4:] = b"gone"
    assert command.body == b"body"


# --- tolerant reading ---------------------------------------------------------------------------------------------


def test_any_text_form_of_ext_values() -> None:
    command = decode(
        json_frame(
            '{"extFields":{"i":-3,"t":true,"f":false,"d":1.5,"n":null,"s":"x","big":9223372036854775807},"code":1}'
        )
    )
    assert command.fields == {"i": "-3", "t": "true", "f": "false", "d": "1.5", "s": "x", "big": "9223372036854775807"}


@pytest.mark.parametrize(
    ("member", "language"),
    [
        ("", Language.JAVA),
        (',"language":"CPP"', Language.CPP),
        (',"language":"KLINGON"', None),
        (',"language":null', None),
        (',"language":9', Language.GO),
        (',"language":99', None),
        (',"language":-1', None),
        (',"language":true', None),
    ],
)
def test_languages(member: str, language: Language | None) -> None:
    assert decode(json_frame(f'{{"code":1{member}}}')).language is language


def test_line_feed_blanks_unknown_members_and_order() -> None:
    command = decode(json_frame('\n { "zzz" : [1,{"a":2}] , "opaque" : 3 ,\t"code":10,"remark":"" }\n'))
    assert (command.code, command.opaque, command.remark, command.version, command.flag) == (10, 3, "", 0, 0)


def test_null_members_and_numbers_as_text() -> None:
    command = decode(json_frame('{"code":"10","opaque":null,"remark":null,"extFields":null,"version":63}'))
    assert (command.code, command.opaque, command.remark, command.has_fields) == (10, 0, None, False)


def test_duplicates_the_last_wins() -> None:
    assert decode(json_frame('{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}')).fields == {"a": "2"}
    assert decode(json_frame('{"code":1,"code":2}')).code == 2
    assert decode(json_frame('{"code":1,"extFields":{"a":1,"a":2}}')).fields == {"a": "2"}
    block = bytes.fromhex("0001 61 00000001 31 0001 61 00000001 32")
    header = bytes(17) + bytes(3) + b"\x10" + block
    assert decode(binary_frame(header)).fields == {"a": "2"}


def test_binary_code_stays_cut() -> None:
    header = (200050 & 0xFFFF).to_bytes(2, "big") + bytes(19)
    assert decode(binary_frame(header)).code == 3442
    assert decode(binary_frame((99999 & 0xFFFF).to_bytes(2, "big") + bytes(19))).code == -31073


def test_unknown_binary_language() -> None:
    assert decode(binary_frame(b"\0\x01\x63" + bytes(18))).language is None
    assert decode(encode(Command(1, language=None, serialize=Serialize.BINARY))).language is Language.OTHER


# --- reading fields -----------------------------------------------------------------------------------------------


def test_field_readers() -> None:
    command = Command(
        1, fields={"t": "x", "i": "-7", "b": "TRUE", "big": str(2**63), "max": str(2**63 - 1), "w": "1_0", "p": "+007"}
    )
    assert command.text("t") == "x"
    assert command.text("none") == ""
    assert command.text("none", "d") == "d"
    assert command.integer("i") == -7
    assert command.integer("t", 5) == 5
    assert command.integer("none", 5) == 5
    assert command.integer("big") == 0
    assert command.integer("p") == 7
    assert command.integer("max") == 2**63 - 1
    assert command.int32("max", 9) == 9
    assert command.int32("i") == -7
    assert command.optional_integer("none") is None
    assert command.optional_integer("w") is None
    assert command.boolean("b")
    assert not command.boolean("t")
    assert command.boolean("none", True)


@pytest.mark.parametrize("text", ["", " ", "1 ", " 1", "0x1", "1.0", "1e3", "--1", "+", "-", "²", "9" * 5000])
def test_texts_that_are_no_java_number(text: str) -> None:
    assert Command(1, fields={"n": text}).optional_integer("n") is None


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "shorter"),
        (bytes(7), "shorter"),
        (bytes(8), "frame length 0 at byte 0"),
        (b"\xff\xff\xff\xff\0\0\0\0", "frame length -1 at byte 0"),
        (b"\x80\0\0\0\0\0\0\0", "frame length -2147483648"),
        (b"\0\0\0\x03\0\0\0", "shorter"),
        (b"\0\0\0\x03\0\0\0\0", "frame length 3"),
        (b"\x7f\xff\xff\xff\0\0\0\0", "over the limit"),
        ((FRAME_BYTES_MAX - 3).to_bytes(4, "big") + bytes(4), "over the limit"),
        (b"\0\0\0\x04\0\0\0\x01", "longer than its frame"),
        (b"\0\0\0\x04\x02\0\0\0", "unknown serialize type 2"),
        (b"\0\0\0\x04\xff\0\0\0", "unknown serialize type 255"),
        (b"\0\0\0\x05\0\0\0\0", "length field says 5"),
        (b"\0\0\0\x04\0\0\0\0\0", "length field says 4"),
        (json_frame(""), "cannot be read"),
        (json_frame("{"), "cannot be read"),
        (json_frame('{"code":1}x'), "cannot be read"),
        (json_frame("[1]"), "not an object"),
        (json_frame("null"), "not an object"),
        (json_frame("{}"), "no code"),
        (json_frame('{"code":"x"}'), "code"),
        (json_frame('{"code":1.5}'), "code"),
        (json_frame('{"code":true}'), "code"),
        (json_frame('{"code":2147483648}'), "code"),
        (json_frame('{"code":1,"opaque":-2147483649}'), "opaque"),
        (json_frame('{"code":1,"extFields":[]}'), "extFields"),
        (json_frame('{"code":1,"extFields":"x"}'), "extFields"),
        (json_frame(b'{"code":1,"remark":"\xff"}'), "cannot be read"),
        (json_frame(b'{"code":1,"extFields":{"a":"\xc3"}}'), "cannot be read"),
        (json_frame('{"code":1,"remark":"\\ud800"}'), "cannot be read"),
        (json_frame('{"code":1,"x":' + "[" * 100_000), "cannot be read"),
        (binary_frame(bytes(20)), "shorter than its 21 fixed bytes"),
        (binary_frame(bytes(13) + b"\xff\xff\xff\xff" + bytes(4)), "remark length -1"),
        (binary_frame(bytes(13) + b"\0\0\0\x01" + bytes(4)), "remark length 1"),
        (binary_frame(bytes(13) + b"\0\0\0\x01\xff" + bytes(4)), "not UTF-8"),
        (binary_frame(bytes(17) + b"\0\0\0\x01"), "block length 1"),
        (binary_frame(bytes(17) + b"\xff\xff\xff\xff"), "block length -1"),
        (binary_frame(bytes(17) + b"\0\0\0\x02\0\x01"), "name at byte 29"),
        (binary_frame(bytes(17) + b"\0\0\0\x02\xff\xff"), "name at byte 29"),
        (binary_frame(bytes(17) + b"\0\0\0\x07\0\x01a\0\0\0\x01"), "value of ext field 'a'"),
        (binary_frame(bytes(17) + b"\0\0\0\x07\0\x01a\xff\xff\xff\xff"), "value of ext field 'a'"),
    ],
)
def test_malformed_frames(frame: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        decode(frame)


def test_every_cut_of_a_frame_is_refused() -> None:
    frame = encode(Command(10, fields={"topic": "T"}, has_fields=True, body=b"body", serialize=Serialize.BINARY))
    for whole in (frame, encode(Command(10, fields={"topic": "T"}, has_fields=True, body=b"body"))):
        for size in range(len(whole)):
            with pytest.raises(FrameError):
                decode(whole[:size])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (Command(200050, serialize=Serialize.BINARY), "binary header"),
        (Command(1, version=40_000, serialize=Serialize.BINARY), "binary header"),
        (Command(1, fields={"x" * 40_000: ""}, serialize=Serialize.BINARY), "ext field"),
        (Command(1, remark="\ud800"), "UTF-8"),
        (Command(1, fields={"a": "\ud800"}), "UTF-8"),
        (Command(1, remark="\ud800", serialize=Serialize.BINARY), "UTF-8"),
        (Command(1, body=bytes(FRAME_BYTES_MAX)), "protocol allows"),
        (Command(1, fields={"a": "x" * FRAME_BYTES_MAX}), "protocol allows"),
    ],
)
def test_what_cannot_be_written(command: Command, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        encode(command)


def test_largest_frame_passes() -> None:
    head = encode_head(Command(1), 0)
    body = bytes(FRAME_BYTES_MAX - len(head))
    frame = encode(Command(1, body=body))
    assert len(frame) == FRAME_BYTES_MAX
    assert decode(frame).body == body
    with pytest.raises(ProtocolError):
        encode_head(Command(1), len(body) + 1)


def test_json_header_keeps_the_alphabetical_order_of_java() -> None:
    header = json.loads(encode(Command(1, remark="r", fields={"a": "b"}, has_fields=True))[8:])
    assert list(header) == sorted(header)


@pytest.mark.parametrize(
    "command",
    [
        request(11, {"topic": "orders", "queueOffset": "7", "subscription": ""}, opaque=2**31 - 1),
        Command(-1, -5, 3, None, 0, "why \N{SNOWMAN}", {}, False, b"body", Serialize.BINARY),
        Command(0, fields={}, has_fields=True),
    ],
)
def test_a_packed_command_comes_back_as_it_was_and_takes_less(command: Command) -> None:
    packed = PackedCommand.of(command)
    assert packed.unpacked() == command
    assert packed.memory_bytes < command.memory_bytes
