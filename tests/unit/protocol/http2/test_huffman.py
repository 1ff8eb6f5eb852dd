"""The Huffman code: every octet has its code, and only proper padding ends a string."""

from __future__ import annotations

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from orbitmq.errors import HpackError
from orbitmq.protocol.http2.huffman import decode

encode = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode
END_MARK = "1" * 30


def packed(bits: str) -> bytes:
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
        ("a8eb10649cbf", b"no-cache"),
        ("25a849e95ba97d7f", b"custom-key"),
        ("6402", b"302"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        ("", b""),
    ],
)
def test_strings_of_rfc_7541(code: str, text: bytes) -> None:
    assert decode(bytes.fromhex(code)) == text


def test_every_octet_in_every_place_of_a_byte() -> None:
    for octet in range(256):
        for before in (b"", b"0", b"00", b"000", b"0000", b"00000", b"000000", b"0000000"):
            text = before + bytes((octet,)) + b"z"
            assert decode(encode(text)) == text


def test_padding_is_up_to_seven_ones() -> None:
    zero, colon, ampersand = "00000", "1011100", "11111000"  # of five, seven and eight bits
    for count, bits in ((0, ampersand), (1, colon), (3, zero), (6, zero * 2), (7, zero * 5)):
        assert len(bits) + count in (8, 16, 32)
        assert decode(packed(bits + "1" * count))


@pytest.mark.parametrize("bits", ["11111000" + "1" * 8, "00000" + "1" * 11, "1" * 8, "1" * 16, "1" * 24])
def test_longer_padding_is_refused(bits: str) -> None:
    with pytest.raises(HpackError, match="padding"):
        decode(packed(bits))


@pytest.mark.parametrize("bits", ["00000110", "00000000", "1011100" + "0", "11111000" + "1111111" + "0"])
def test_padding_of_anything_but_ones_is_refused(bits: str) -> None:
    with pytest.raises(HpackError):
        decode(packed(bits))


@pytest.mark.parametrize("before", ["", "00000", "0000000000"])
@pytest.mark.parametrize("after", ["", "00000", "00000" * 3, "1" * 30])
def test_the_mark_of_the_end_is_refused_wherever_it_stands(before: str, after: str) -> None:
    bits = before + END_MARK + after
    with pytest.raises(HpackError):
        decode(packed(bits + "1" * (-len(bits) % 8)))
