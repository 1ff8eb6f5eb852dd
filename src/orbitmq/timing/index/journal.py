"""Entries that are in no run yet, in a file of blocks: so that a start finds them again without reading the log.

One journal belongs to one gathering. A block holds columns as they stand in memory, so writing and reading it costs a tenth of a
microsecond an entry.

Rules of this file
1. A journal is synced with every durable save. What a power failure takes of it the log says again: recovery reads it from there.
2. Every block says which queue offsets it completes, and which record was the last one it knew: a log that holds another
   record there is another log.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.store.blocks import MAGIC_BYTES, BlockFile, decode_blocks, encode_block
from orbitmq.store.files import Files
from orbitmq.timing.index.gathering import CAPACITY, Gathering

MAGIC: Final = b"ORBTIJN1"
_ENTRIES: Final = 1


class Witness(NamedTuple):
    """The last record of the timer topic that was known."""

    end_offset: int
    """Its queue offset + 1; 0 for none."""
    physical_offset: int
    store_timestamp: int


NOTHING: Final = Witness(0, 0, 0)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One block. Columns are arrays in the machine's byte order."""

    byte_order: str
    replaces: int
    """Number of the journal whose pending entries are all in this first block; -1 for none."""
    begin: Witness
    """With the blocks before it in its journal complete from this record on, up to the witness."""
    witness: Witness
    first_number: int
    topics: list[str]
    """Those that are new in this block."""
    offsets: bytes
    dues: bytes
    ids: bytes
    topic_numbers: bytes
    key_numbers: bytes
    keys: list[bytes]


class StoredGathering(NamedTuple):
    """What is sound in a journal."""

    gathering: Gathering
    replaces: int
    begin: Witness
    ends: list[tuple[Witness, int]]
    """After each block: its witness, and how many entries there are up to its end."""
    good_bytes: int
    """Length of the sound blocks; what is behind them is torn or damaged."""
    is_cut: bool = False
    """Whether a later journal says what followed."""


class IndexJournal:
    """The file of one gathering."""

    __slots__ = ("_begin", "_file", "_replaces", "_written", "_written_topics", "number", "witness")

    def __init__(self, files: Files, path: Path, number: int, begin: Witness, replaces: int = -1) -> None:
        self._file = BlockFile(files, path, MAGIC)
        self._begin = begin
        self._replaces = replaces
        self._written = 0
        self._written_topics = 0
        self.number = number
        self.witness = NOTHING
        """The newest one written."""

    @property
    def path(self) -> Path:
        return self._file.path

    def write(self, gathering: Gathering, witness: Witness) -> None:
        """Append what was added since the last call. Raises OSError; then the next call writes it."""
        first = self._written
        topics = list(gathering.topics)
        batch = Batch(
            sys.byteorder,
            self._replaces,
            self._begin,
            witness,
            first,
            topics[self._written_topics :],
            gathering.offsets[first:].tobytes(),
            gathering.dues[first:].tobytes(),
            gathering.ids[first:].tobytes(),
            gathering.topic_numbers[first:].tobytes(),
            gathering.new_key_numbers.tobytes(),
            gathering.new_keys,
        )
        self._file.append([encode_block(_ENTRIES, msgspec.msgpack.encode(batch))])
        self._written, self._written_topics = len(gathering), len(topics)
        self.witness = witness
        gathering.new_keys, gathering.new_key_numbers = [], array("H")

    def continue_behind(self, loaded: StoredGathering) -> None:
        """Go on behind what was read of this journal."""
        self._begin, self._replaces = loaded.begin, loaded.replaces
        self._written, self._written_topics = len(loaded.gathering), len(loaded.gathering.topics)
        self.witness = loaded.ends[-1][0]
        self._file.cut(loaded.good_bytes)

    def datasync(self) -> None:
        """Make durable what was written. Blocks; runs on the worker, beside `write`. Raises OSError."""
        self._file.datasync()

    def close(self) -> None:
        self._file.close()


def load_journal(files: Files, path: Path) -> StoredGathering | None:
    """What is sound in the journal at `path`; None when not even a block is."""
    content = memoryview(files.read_bytes(path))
    gathering = Gathering()
    ends: list[tuple[Witness, int]] = []
    replaces, begin = -1, NOTHING
    at = MAGIC_BYTES
    for batch, end in _batches(content):
        if not _add(gathering, batch):
            break
        if not ends:
            replaces, begin = batch.replaces, batch.begin
        ends.append((batch.witness, len(gathering)))
        at = end
    if not ends:
        return None
    return StoredGathering(gathering, replaces, begin, ends, at)


def _batches(content: memoryview) -> Iterator[tuple[Batch, int]]:
    for block in decode_blocks(content, MAGIC):
        try:
            yield msgspec.msgpack.decode(block.body, type=Batch), block.end
        except msgspec.MsgspecError:
            return


def _column(code: str, data: bytes) -> array[int]:
    column = array(code)
    column.frombytes(data)
    return column


def _add(gathering: Gathering, batch: Batch) -> bool:
    """Put a batch behind what was gathered; False when it does not fit there."""
    try:
        offsets, dues, ids = (_column("q", data) for data in (batch.offsets, batch.dues, batch.ids))
        topic_numbers, key_numbers = _column("H", batch.topic_numbers), _column("H", batch.key_numbers)
    except ValueError:
        return False
    first, count = len(gathering), len(offsets)
    if (
        batch.byte_order != sys.byteorder
        or batch.first_number != first
        or not len(dues) == len(ids) == len(topic_numbers) == count <= CAPACITY - first
        or len(key_numbers) != len(batch.keys)
        or max(topic_numbers, default=-1) >= len(gathering.topics) + len(batch.topics)
        or any(not first <= number < first + count for number in key_numbers)
    ):
        return False
    gathering.add_columns(batch.topics, offsets, dues, ids, topic_numbers, zip(key_numbers, batch.keys, strict=True))
    return True


def cut_gathering(gathering: Gathering, end_offset: int) -> Gathering:
    """Those entries that are below a queue offset, in a gathering of their own."""
    kept = Gathering()
    for entry in gathering.entries_of(gathering.offsets[: bisect_left(gathering.offsets, end_offset)]):
        kept.add(entry)
    return kept


def cut_loaded(loaded: StoredGathering, begin: Witness) -> StoredGathering | None:
    """What a journal says up to the record on which a later one begins; None when that is nothing.

    It says more where a start did not believe it to its end, began the later one there, and was killed before it could save that.
    """
    ends = [one for one in loaded.ends if one[0].end_offset <= begin.end_offset]
    if len(ends) == len(loaded.ends):
        return loaded
    kept = cut_gathering(loaded.gathering, ends[-1][0].end_offset if ends else 0)
    return loaded._replace(gathering=kept, ends=ends, is_cut=True) if len(kept) else None
