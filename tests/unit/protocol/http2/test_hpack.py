"""Header blocks: the examples of RFC 7541, what is refused, and what a hostile peer can make of them."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from tests.worlds.header_pair import indexed, integer, string

from orbitmq.errors import HeaderListTooLarge, HpackError
from orbitmq.limits.grpc import HEADER_INTEGER_BYTES_MAX, HEADER_LIST_BYTES_MAX, HEADER_TABLE_BYTES_MAX
from orbitmq.protocol.http2.hpack import ENTRY_BYTES, HeaderDecoder, encode

Fields = list[tuple[bytes, bytes]]

GET = (b":method", b"GET")
DATE = b"Mon, 21 Oct 2013 20:13:2%d GMT"
COOKIE = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"

REQUESTS = (
    ([GET, (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")], 57),
    ([GET, (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com"), (b"cache-control", b"no-cache")], 110),
    (
        [GET, (b":scheme", b"https"), (b":path", b"/index.html"), (b":authority", b"www.example.com"), (b"custom-key", b"custom-value")],
        164,
    ),
)  # fmt: skip
ANSWERS = (
    ([(b":status", b"302"), (b"cache-control", b"private"), (b"date", DATE % 1), (b"location", b"https://www.example.com")], 222),
    ([(b":status", b"307"), (b"cache-control", b"private"), (b"date", DATE % 1), (b"location", b"https://www.example.com")], 222),
    (
        [(b":status", b"200"), (b"cache-control", b"private"), (b"date", DATE % 2), (b"location", b"https://www.example.com"),
         (b"content-encoding", b"gzip"), (b"set-cookie", COOKIE)],
        215,
    ),
)  # fmt: skip
"""Fields of each block in the examples, and the size of the table after it."""

EXAMPLES = {
    "C.3 requests": (REQUESTS, 4096, (
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    )),
    "C.4 requests in Huffman code": (REQUESTS, 4096, (
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    )),
    "C.5 answers with evictions": (ANSWERS, 256, (
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f777777"
        "2e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f"
        "5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
    )),
    "C.6 answers in Huffman code": (ANSWERS, 256, (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1"
        "ab270fb5291f9587316065c003ed4ee5b1063d5007",
    )),
}  # fmt: skip


def literal(name: bytes, value: bytes, *, kept: bool) -> bytes:
    return (b"\x40" if kept else b"\x00") + string(name) + string(value)


def resized(size: int) -> bytes:
    return integer(size, 0x1F, 0x20)


def size_of(fields: Fields) -> int:
    return sum(len(name) + len(value) + ENTRY_BYTES for name, value in fields)


def table_of(decoder: HeaderDecoder) -> Fields:
    """What a peer can refer to beyond the static table, the newest first."""
    entries: Fields = []
    while True:
        try:
            entries += decoder.decode(indexed(62 + len(entries)))
        except HpackError:
            return entries


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_dialogues_of_the_rfc(example: str) -> None:
    expected, table_bytes, blocks = EXAMPLES[example]
    decoder = HeaderDecoder(table_bytes)
    for (fields, size), block in zip(expected, blocks, strict=True):
        assert decoder.decode(bytes.fromhex(block)) == fields
        assert size_of(table_of(decoder)) == size


@pytest.mark.parametrize(
    ("block", "field", "kept"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header"), True),
        ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), False),
        ("100870617373776f726406736563726574", (b"password", b"secret"), False),
        ("82", GET, False),
    ],
)
def test_the_fields_of_the_rfc(block: str, field: tuple[bytes, bytes], kept: bool) -> None:
    decoder = HeaderDecoder()
    assert decoder.decode(bytes.fromhex(block)) == [field]
    assert table_of(decoder) == [field] * kept


def test_the_integers_of_the_rfc() -> None:
    assert HeaderDecoder(1337).decode(bytes.fromhex("3f9a0a")) == []  # 1337 behind three bits
    with pytest.raises(HpackError, match="1337"):
        HeaderDecoder(1336).decode(bytes.fromhex("3f9a0a"))
    with pytest.raises(HpackError, match="10 bytes"):
        HeaderDecoder(9).decode(b"\x2a")


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_oldest_entries_leave_for_a_new_one() -> None:
    decoder = HeaderDecoder(3 * 34)
    for name in (b"a", b"b", b"c", b"d"):
        decoder.decode(literal(name, b"1", kept=True))
    assert [name for name, _ in table_of(decoder)] == [b"d", b"c", b"b"]
    decoder.decode(literal(b"e" * 33, b"12", kept=True))
    assert [name[:1] for name, _ in table_of(decoder)] == [b"e", b"d"]


def test_an_entry_larger_than_the_table_empties_it_and_is_read_all_the_same() -> None:
    decoder = HeaderDecoder(100)
    decoder.decode(literal(b"a", b"1", kept=True))
    assert decoder.decode(literal(b"b", b"2" * 68, kept=True)) == [(b"b", b"2" * 68)]
    assert table_of(decoder) == []
    assert decoder.decode(literal(b"b", b"2" * 67, kept=True) + indexed(62)) == [(b"b", b"2" * 67)] * 2


def test_a_name_may_come_from_the_entry_that_leaves() -> None:
    decoder = HeaderDecoder(40)
    decoder.decode(literal(b"name", b"1", kept=True))
    assert decoder.decode(integer(62, 0x3F, 0x40) + string(b"2222")) == [(b"name", b"2222")]
    assert table_of(decoder) == [(b"name", b"2222")]


def test_a_smaller_table_lets_the_oldest_go_and_a_larger_one_brings_none_back() -> None:
    decoder = HeaderDecoder()
    decoder.decode(literal(b"a", b"1", kept=True) + literal(b"b", b"2", kept=True))
    assert decoder.decode(resized(34) + resized(4096)) == []
    assert table_of(decoder) == [(b"b", b"2")]
    decoder.decode(resized(0))
    assert decoder.decode(literal(b"c", b"3", kept=True)) == [(b"c", b"3")]
    assert table_of(decoder) == []


def test_a_table_larger_than_was_allowed_is_refused() -> None:
    HeaderDecoder().decode(resized(HEADER_TABLE_BYTES_MAX))
    with pytest.raises(HpackError, match="4097"):
        HeaderDecoder().decode(resized(HEADER_TABLE_BYTES_MAX + 1))


def test_the_size_changes_before_the_first_field_only() -> None:
    with pytest.raises(HpackError, match="after the first field"):
        HeaderDecoder().decode(b"\x82" + resized(100))


# --- what is malformed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        indexed(62),
        indexed(2**31),
        integer(62, 0x3F, 0x40) + string(b"v"),
        integer(70, 0x0F) + string(b"v"),
        b"\xff",
        b"\xff\x80",
        b"\x40",
        b"\x41",
        b"\x40\x01",
        b"\x40\x01n",
        b"\x40\x01n\x01",
        b"\x41\x05valu",
        b"\x40\x02n",
        b"\x3f",
        b"\x41\x7f\x80",
        b"\x41\xff\xff\xff\xff\x0f\x00",
        b"\x41\x81\x07\x00",
    ],
)
def test_what_refers_to_nothing_or_is_cut_short_is_refused(block: bytes) -> None:
    with pytest.raises(HpackError):
        HeaderDecoder().decode(block)
    with pytest.raises(HpackError):
        HeaderDecoder().decode(b"\x82" + block)


def test_every_beginning_of_a_field_is_refused() -> None:
    whole = literal(b"name", b"v" * 200, kept=True)
    for end in range(1, len(whole)):
        with pytest.raises(HpackError):
            HeaderDecoder().decode(whole[:end])


@pytest.mark.parametrize("size", [0x1F, 4096])
def test_numbers_may_be_longer_than_needed_but_not_without_end(size: int) -> None:
    shortest = len(resized(size))
    for padding in range(12):
        number = integer(size, 0x1F, 0x20, padding=padding)
        if shortest + padding <= HEADER_INTEGER_BYTES_MAX:
            assert HeaderDecoder().decode(number) == []
        else:
            with pytest.raises(HpackError, match="longer than 6 bytes"):
                HeaderDecoder().decode(number)


# --- lists that are too large ----------------------------------------------------------------------------------------


def test_a_list_may_have_16_kib_and_not_a_byte_more() -> None:
    room = HEADER_LIST_BYTES_MAX - ENTRY_BYTES - 1
    assert size_of(HeaderDecoder().decode(literal(b"n", b"v" * room, kept=False))) == HEADER_LIST_BYTES_MAX
    with pytest.raises(HeaderListTooLarge, match="16385"):
        HeaderDecoder().decode(literal(b"n", b"v" * (room + 1), kept=False))


def test_the_table_is_in_step_after_a_list_that_was_too_large() -> None:
    decoder = HeaderDecoder(4096, 100)
    large = literal(b"n", b"v" * 100, kept=False)
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(resized(200) + literal(b"a", b"1", kept=True) + large + literal(b"b", b"2", kept=True))
    assert table_of(decoder) == [(b"b", b"2"), (b"a", b"1")]
    with pytest.raises(HpackError):
        decoder.decode(large + indexed(64))


def test_references_to_one_large_entry_cost_neither_memory_nor_time() -> None:
    decoder = HeaderDecoder()
    decoder.decode(literal(b"n", b"v" * 4000, kept=True))
    bomb = indexed(62) * 65_536  # of 264 MB
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(bomb)
    assert time.process_time() - began < 2
    assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    tracemalloc.stop()


def test_a_large_field_that_came_earlier_makes_no_list_too_large() -> None:
    decoder = HeaderDecoder(list_bytes_max=300)
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(literal(b"n", b"v" * 300, kept=False))
    small = literal(b"a", b"1", kept=True)
    assert len(decoder.decode(small * 8)) == 8
    with pytest.raises(HeaderListTooLarge, match="306"):
        decoder.decode(indexed(62) * 9)


def test_a_block_of_nothing_but_changes_of_the_size_is_read_in_time() -> None:
    decoder = HeaderDecoder()
    began = time.process_time()
    assert decoder.decode((resized(0) + resized(4096)) * 16_384) == []
    assert time.process_time() - began < 2


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_what_is_encoded_leaves_no_trace_in_the_table() -> None:
    headers = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"0")]
    block = encode(headers)
    assert block == b"\x88" + b"\x0f\x10\x10application/grpc" + b"\x00\x0bgrpc-status\x010"
    decoder = HeaderDecoder()
    assert decoder.decode(block) == decoder.decode(block) == headers
    assert table_of(decoder) == []


@pytest.mark.parametrize("length", [0, 126, 127, 128, 254, 255, 16_000])
def test_strings_of_any_length_are_encoded(length: int) -> None:
    headers = [(b"n" * length, b"v" * (16_000 - length))]
    assert HeaderDecoder().decode(encode(headers)) == headers
