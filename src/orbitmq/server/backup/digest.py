"""The digest of a file with holes, which can be continued when the file has grown.

A file is looked at in pieces of `BACKUP_PIECE_BYTES`. Zeros at the end of a piece do not count, nor does a piece of zeros: so the digest
does not depend on where a file system has holes, and holes are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final

from orbitmq.limits.store import BACKUP_PIECE_BYTES
from orbitmq.store.files import File

_HEAD: Final = Struct(">QI")
DIGEST_BYTES: Final = 32


def pieces(file: File, end: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Number and content of the pieces from number `first` on that lie below `end`, without zeros at their ends, and without those that are
    nothing else. Raises OSError."""
    following = first
    for begin, stop in file.data_ranges(first * BACKUP_PIECE_BYTES):
        for number in range(max(following, begin // BACKUP_PIECE_BYTES), -(-min(stop, end) // BACKUP_PIECE_BYTES)):
            at = number * BACKUP_PIECE_BYTES
            data = file.pread(min(BACKUP_PIECE_BYTES, end - at), at).rstrip(b"\0")
            following = number + 1
            if data:
                yield number, data
        if stop >= end:
            return


class PieceDigest:
    """The digest of a file up to where it was taken."""

    def __init__(self) -> None:
        self._whole = blake2b(digest_size=DIGEST_BYTES)
        self._next = 0
        """Pieces before this one are in `_whole`: they do not change when the file grows."""
        self.end = -1
        """Up to where it was taken last; -1 before that."""
        self.text = ""
        self.written_bytes = 0

    def take(self, source: File, end: int, target: File | None = None) -> str:
        """The digest of `source` up to `end`, from where the call before ended on; what is looked at is written to the same places of
        `target`. `end` does not go down. 2 ms of CPU a megabyte. Raises OSError."""
        if end == self.end:
            return self.text
        last = end // BACKUP_PIECE_BYTES
        state = self._whole
        for number, data in pieces(source, end, self._next):
            if number == last:
                state = self._whole.copy()
            state.update(_HEAD.pack(number, len(data)))
            state.update(data)
            if target is not None:
                target.pwrite(data, number * BACKUP_PIECE_BYTES)
                self.written_bytes += len(data)
        self._next, self.end, self.text = last, end, state.hexdigest()
        return self.text
