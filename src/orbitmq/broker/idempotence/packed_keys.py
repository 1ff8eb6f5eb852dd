"""Keys in a quarter of the memory of a dictionary: pages of digests and places, found by the low bits of the digest.

Extendible hashing: a directory of 2^n entries says which page holds a digest; a full page is divided in two, and the directory is
doubled when a page has no bit left that it could be divided by. So growth never holds the loop: a page is divided in some 60 us, and the
directory of ten million keys is doubled in half a millisecond.

Rules of this file
1. A page is two runs of bytes, 16 for each digest and 20 for each place, in the order of arrival.
2. Digests are spread evenly. Where they are not, pages grow instead of the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.limits.broker import KEY_DIRECTORY_BITS_MAX

PAGE_KEYS: Final = 128
"""2 KB of digests, which are searched in less than a microsecond."""


PACKED_KEY_BYTES: Final = 48
"""Memory of one key. Measured: 42 to 46."""

_DIGEST: Final = 16
_PLACE: Final = 20


class Page:
    __slots__ = ("bits", "digests", "places")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        """So many low bits are the same in all of its digests."""
        self.digests = bytearray()
        self.places = bytearray()

    def find(self, key: bytes) -> int:
        """The number of a digest in the page, -1 for one that is not in it."""
        digests = self.digests
        at = digests.find(key)
        while at >= 0 and at % _DIGEST:
            at = digests.find(key, at + 1)
        return at // _DIGEST if at >= 0 else -1


class PackedKeys:
    __slots__ = ("_directory", "_mask", "count")

    def __init__(self) -> None:
        self._directory = [Page(0)]
        self._mask = 0
        self.count = 0

    def get(self, digest: int) -> int | None:
        """Cost: about 0.6 us."""
        page = self._directory[digest & self._mask]
        at = page.find(digest.to_bytes(_DIGEST)) * _PLACE
        return None if at < 0 else int.from_bytes(page.places[at : at + _PLACE])

    def put(self, digest: int, place: int) -> bool:
        """Whether the key is new here. Cost: about 1 us, and now and then a page is divided."""
        key, value = digest.to_bytes(_DIGEST), place.to_bytes(_PLACE)
        page = self._directory[digest & self._mask]
        at = page.find(key) * _PLACE
        if at >= 0:
            page.places[at : at + _PLACE] = value
            return False
        while len(page.digests) >= PAGE_KEYS * _DIGEST and page.bits < KEY_DIRECTORY_BITS_MAX:
            self._divide(page, digest)
            page = self._directory[digest & self._mask]
        page.digests += key
        page.places += value
        self.count += 1
        return True

    def remove(self, digest: int, place: int) -> bool:
        """Whether the key was there with that place."""
        page = self._directory[digest & self._mask]
        number = page.find(digest.to_bytes(_DIGEST))
        at = number * _PLACE
        if number < 0 or page.places[at : at + _PLACE] != place.to_bytes(_PLACE):
            return False
        del page.digests[number * _DIGEST : (number + 1) * _DIGEST]
        del page.places[at : at + _PLACE]
        self.count -= 1
        return True

    def items(self) -> Iterator[tuple[int, int]]:
        for page in self.pages():
            for number in range(len(page.digests) // _DIGEST):
                digest = page.digests[number * _DIGEST : (number + 1) * _DIGEST]
                yield int.from_bytes(digest), int.from_bytes(page.places[number * _PLACE : (number + 1) * _PLACE])

    def pages(self) -> list[Page]:
        return list({id(page): page for page in self._directory}.values())

    def _divide(self, page: Page, digest: int) -> None:
        """Put the members of a page into two, by the first bit that it does not share."""
        directory = self._directory
        if 1 << page.bits > self._mask:
            directory += directory
            self._mask = len(directory) - 1
        bit = 1 << page.bits
        halves = Page(page.bits + 1), Page(page.bits + 1)
        digests, places = page.digests, page.places
        byte, in_byte = _DIGEST - 1 - page.bits // 8, 1 << page.bits % 8
        for number in range(len(digests) // _DIGEST):
            begin = number * _DIGEST
            half = halves[digests[begin + byte] & in_byte > 0]
            half.digests += digests[begin : begin + _DIGEST]
            half.places += places[number * _PLACE : (number + 1) * _PLACE]
        for at in range(digest & (bit - 1), len(directory), bit):
            directory[at] = halves[at & bit > 0]
