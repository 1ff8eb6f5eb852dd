"""Header blocks of any making: our reader and the library `hpack` read the same or both refuse, block after block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.worlds.header_pair import BlockMaker, HeaderPair, agree

from orbitmq.errors import HeaderListTooLarge
from orbitmq.protocol.http2 import huffman
from orbitmq.protocol.http2.hpack import HeaderDecoder, encode

CONNECTIONS = 2_000


def campaign() -> Counter[str]:
    maker = BlockMaker(1)
    return Counter(end for _ in range(CONNECTIONS) for end in agree(maker.connection()))


def test_both_read_the_same_or_refuse() -> None:
    ends = campaign()
    assert ends["read"] > 3 * ends["refused"] > 100, "most blocks are sound"
    assert ends["too large"] > 100


def test_what_is_encoded_needs_no_table_and_is_read_by_both() -> None:
    headers = [
        (b":status", b"200"),
        (b":status", b"415"),
        (b"content-type", b"application/grpc"),
        (b"grpc-message", b"m" * 5_000),
        (b"n" * 127, b""),
        (b"n" * 126, b"\x00\xff"),
    ]
    assert HeaderPair(0).decode(encode(headers)) == "read"
    assert HeaderDecoder(0).decode(encode(headers)) == headers


def keep_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is not evicted on a size update."""
    sound = HeaderDecoder._change_allowed

    def planted(self: HeaderDecoder, block: bytes, at: int, allowed: int) -> int:
        with pytest.MonkeyPatch.context() as without:
            without.setattr(HeaderDecoder, "_evict", lambda self: None)
            return sound(self, block, at, allowed)

    monkeypatch.setattr(HeaderDecoder, "_change_allowed", planted)


def take_the_end_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A string may have the mark of its end."""
    monkeypatch.setattr(huffman._REFUSED, "may_end", True)


def forget_refused_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a list that is too large puts into the table is lost."""
    sound = HeaderDecoder.decode

    def planted(self: HeaderDecoder, block: bytes) -> list[tuple[bytes, bytes]]:
        before = list(self._table), self._table_bytes
        try:
            return sound(self, block)
        except HeaderListTooLarge:
            self._table, self._table_bytes = before
            raise

    monkeypatch.setattr(HeaderDecoder, "decode", planted)


@pytest.mark.parametrize("plant", [keep_entries, take_the_end_mark, forget_refused_lists])
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        campaign()
