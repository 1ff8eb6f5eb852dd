"""The file `orbitmq.timers`: which timer messages are pending, so that a start need not read the whole log for it.

A file of blocks (`store/blocks.py`) that begins with `ORBTIME2`. Bodies, big-endian:

    kind 1, beginning        first block of a file that was made shorter
    0   8  next queue offset of the timer topic
    kind 2, chunk            which of 65,536 offsets are pending; after kind 1 only
    0   8  number of the chunk: its first offset divided by 65,536
    8      nothing: all; 8192 bytes: a bit for each, lowest first; else 2 bytes for each pending one, as its distance from the first
    kind 3, finished         offsets that are pending no longer, or never were
    0  12  for each run: first offset (8), number of offsets (4)
    kinds 6 and 7, position  how far everything before is complete; 7: the log was durable up to there
    0   8  position in the commit log
    8   8  position of the last record below it, -1 for none
    16  8  store timestamp of that record
    24  8  next queue offset: those from the block before on were added
    32  8  which run of the machine wrote this: BLAKE2b-64 of its boot id
    kinds 4 and 5            the same in a file of an earlier version, `ORBTIME1`, with 36 more bytes before the last eight

Rules of this file
1. What blocks say counts once a position block stands behind them that can be believed; whatever is behind the last such block is
   cut off before anything is written.
2. New offsets are not listed: all up to the next position block's are pending, but for those that blocks before it finish.
3. Pure but for `PendingJournal`, which is the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.store.blocks import MAGIC_BYTES, BlockFile, RawBlock, decode_blocks, encode_block
from orbitmq.store.files import Files
from orbitmq.timing.timers.pending import PendingTimers

JOURNAL_FILE: Final = "orbitmq.timers"
MAGIC: Final = b"ORBTIME2"
OLD_MAGIC: Final = b"ORBTIME1"
BEGINNING, CHUNK, FINISHED, OLD_POSITION, OLD_SYNCED_POSITION, POSITION, SYNCED_POSITION = 1, 2, 3, 4, 5, 6, 7

_OFFSET: Final = Struct(">q")
_RUN: Final = Struct(">qI")
_POSITION: Final = Struct(">4q8s")
_OLD_POSITION: Final = Struct(">4q36x8s")


class JournalPosition(NamedTuple):
    """A position block; the fields are those of the file."""

    position: int
    witness: int
    witness_ms: int
    next_offset: int
    boot: bytes
    synced: bool = False


class JournalContent(NamedTuple):
    """What a journal says up to the last position that is believed."""

    pending: PendingTimers
    at: JournalPosition | None
    """None: nothing in it can be believed."""
    good_bytes: int
    """Length of the whole blocks; what is behind them is torn or damaged."""
    keep_bytes: int
    """Length up to the end of the position block `at`."""
    is_old: bool = False
    """Whether an earlier version wrote the file, which is to be written anew."""


def boot_mark(boot_id: str) -> bytes:
    return blake2b(boot_id.encode(), digest_size=8).digest()


def encode_finished(offsets: Iterable[int]) -> bytes:
    """A block that finishes these offsets, in any order."""
    return encode_block(FINISHED, b"".join(_RUN.pack(first, count) for first, count in runs_of(sorted(offsets))))


def runs_of(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of every run of successive offsets, which ascend."""
    first = end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            continue
        if first >= 0:
            yield first, end - first
        first, end = offset, offset + 1
    if first >= 0:
        yield first, end - first


def encode_run(first: int, end: int) -> bytes:
    """A block that finishes all offsets from `first` to `end`."""
    runs = [(start, min(end - start, 0xFFFFFFFF)) for start in range(first, end, 0xFFFFFFFF)]
    return encode_block(FINISHED, b"".join(_RUN.pack(*run) for run in runs))


def encode_position(at: JournalPosition) -> bytes:
    return encode_block(SYNCED_POSITION if at.synced else POSITION, _POSITION.pack(*at[:-1]))


def encode_snapshot(pending: PendingTimers) -> list[bytes]:
    """Blocks that say everything; a position block belongs behind them. 1.3 MB for ten million that are pending."""
    chunks = [encode_block(CHUNK, _OFFSET.pack(number) + content) for number, content in pending.chunks()]
    return [encode_block(BEGINNING, _OFFSET.pack(pending.next_offset)), *chunks]


def decode_position(block: RawBlock) -> JournalPosition | None:
    layout = _OLD_POSITION if block.kind in (OLD_POSITION, OLD_SYNCED_POSITION) else _POSITION
    if block.kind < OLD_POSITION or block.kind > SYNCED_POSITION or len(block.body) != layout.size:
        return None
    return JournalPosition._make((*layout.unpack(block.body), block.kind in (SYNCED_POSITION, OLD_SYNCED_POSITION)))


def load(content: bytes | memoryview, is_believed: Callable[[JournalPosition], bool]) -> JournalContent:
    """Read a journal up to the last position that `is_believed`. Cost: some microseconds a block."""
    believed: JournalPosition | None = None
    good_bytes = keep_bytes = 0
    begin = bytes(content[:MAGIC_BYTES])
    magic = OLD_MAGIC if begin == OLD_MAGIC else MAGIC
    is_old = magic == OLD_MAGIC
    for block in decode_blocks(content, magic):
        good_bytes = block.end
        at = decode_position(block)
        if at is not None and is_believed(at):
            believed, keep_bytes = at, block.end
    if not good_bytes and begin == magic:
        good_bytes = MAGIC_BYTES
    if believed is not None:
        try:
            return JournalContent(_replay(content[:keep_bytes], magic), believed, good_bytes, keep_bytes, is_old)
        except ValueError:  # blocks that are whole and contradict each other: nothing here can be believed
            believed = None
    return JournalContent(PendingTimers(), believed, good_bytes, 0, is_old)


def _replay(content: bytes | memoryview, magic: bytes) -> PendingTimers:
    pending = PendingTimers()
    begun = 0
    finished: list[tuple[int, int]] = []
    for block in decode_blocks(content, magic):
        body = block.body
        if block.kind == BEGINNING and len(body) == _OFFSET.size:
            (begun,) = _OFFSET.unpack(body)
        elif block.kind == CHUNK and len(body) >= _OFFSET.size:
            pending.put_chunk(_OFFSET.unpack_from(body)[0], body[_OFFSET.size :])
        elif block.kind == FINISHED and len(body) % _RUN.size == 0:
            finished += _RUN.iter_unpack(body)
        elif (at := decode_position(block)) is not None:
            pending.next_offset = max(pending.next_offset, begun)
            pending.add_range(pending.next_offset, at.next_offset)
            for first, count in finished:
                pending.finish_range(first, first + count)
            finished.clear()
        else:
            raise ValueError(f"a block of kind {block.kind} with {len(body)} bytes")
    return pending


class PendingJournal(BlockFile):
    """The file; see `BlockFile` for what runs where."""

    __slots__ = ()

    def __init__(self, files: Files, root: Path) -> None:
        super().__init__(files, root / JOURNAL_FILE, MAGIC)

    def load(self, is_believed: Callable[[JournalPosition], bool]) -> JournalContent | None:
        """None when there is no file."""
        content = self.read()
        return None if content is None else load(content, is_believed)

    def shorten(self, snapshot: Sequence[bytes], at: JournalPosition) -> None:
        """Replace the file by one with these blocks; durable on return. Blocks. Nobody may append meanwhile."""
        self.replace([*snapshot, encode_position(at)])
