"""The file of pending timers: its bytes, and what of it is believed."""

from __future__ import annotations

import zlib
from hashlib import blake2b

import pytest

from orbitmq.store.blocks import encode_block
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_journal import (
    CHUNK,
    MAGIC,
    JournalPosition,
    boot_mark,
    encode_finished,
    encode_position,
    encode_run,
    encode_snapshot,
    load,
    runs_of,
)


def position(next_offset: int, *, at: int = 1_000, synced: bool = False) -> JournalPosition:
    return JournalPosition(at, 900, 77, next_offset, boot_mark("boot"), synced)


def pending(*blocks: bytes) -> list[int]:
    loaded = load(MAGIC + b"".join(blocks), lambda at: True)
    assert loaded.at is not None
    return list(loaded.pending.offsets())


BOOT = blake2b(b"boot", digest_size=8).digest()


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8) for value in values)


def block(kind: int, body: bytes) -> bytes:
    """Checksum, length of the block, kind, body."""
    checked = (len(body) + 12).to_bytes(4) + kind.to_bytes(4) + body
    return zlib.crc32(checked).to_bytes(4) + checked


def old_position(kind: int, next_offset: int, *, at: int = 1_000) -> bytes:
    """As earlier versions wrote it: with read clock, end of the timer log, end of the wheel, sum and precision."""
    files = numbers(5_000, 520, 104, 9) + (1_000).to_bytes(4)
    return block(kind, numbers(at, 900, 77, next_offset) + files + BOOT)


@pytest.mark.parametrize(("synced", "kind"), [(False, 6), (True, 7)])
def test_a_position_block_byte_by_byte(synced: bool, kind: int) -> None:
    written = encode_position(position(12, synced=synced))
    assert written == block(kind, numbers(1_000, 900, 77, 12) + BOOT)
    assert load(MAGIC + written, lambda at: True).at == position(12, synced=synced)


@pytest.mark.parametrize(("synced", "kind"), [(False, 4), (True, 5)])
def test_a_position_block_of_earlier_versions_says_the_same(synced: bool, kind: int) -> None:
    assert load(MAGIC + old_position(kind, 12), lambda at: True).at == position(12, synced=synced)


def test_a_file_of_an_earlier_version_goes_on_with_blocks_of_this_one() -> None:
    older = (encode_finished([1]), old_position(4, 4), encode_finished([2]), old_position(5, 6, at=1_100))
    assert pending(*older) == [0, 3, 4, 5]
    newer = (encode_finished([4]), encode_position(position(8, at=1_200)))
    assert pending(*older, *newer) == [0, 3, 5, 6, 7]


@pytest.mark.parametrize(("kind", "size"), [(4, 40), (5, 72), (6, 76), (7, 48), (0, 40), (8, 40)])
def test_a_position_block_of_another_length_or_kind_is_none(kind: int, size: int) -> None:
    body = (numbers(1_000, 900, 77, 4) + bytes(44))[:size]
    assert load(MAGIC + block(kind, body), lambda at: True).at is None


def test_finished_offsets_are_runs() -> None:
    assert list(runs_of([3, 4, 5, 9, 10, 11])) == [(3, 3), (9, 3)]
    assert encode_finished([3, 4, 5])[12:] == (3).to_bytes(8) + (3).to_bytes(4)


def test_all_offsets_up_to_a_position_are_pending_but_for_those_that_are_finished() -> None:
    assert pending(encode_position(position(4))) == [0, 1, 2, 3]
    assert pending(encode_finished([1, 3]), encode_position(position(4))) == [0, 2]
    later = (encode_run(0, 2), encode_finished([5]), encode_position(position(7)))
    assert pending(encode_position(position(4)), *later) == [2, 3, 4, 6]


def test_what_stands_behind_the_last_position_that_is_believed_does_not_count() -> None:
    first = encode_position(position(4))
    content = MAGIC + first + encode_finished([0]) + encode_position(position(9, at=2_000)) + encode_finished([1])
    loaded = load(content, lambda at: at.position <= 1_000)
    assert list(loaded.pending.offsets()) == [0, 1, 2, 3]
    assert loaded.keep_bytes == len(MAGIC + first)
    assert loaded.good_bytes == len(content)


def test_a_snapshot_says_what_was_pending_and_what_comes_next() -> None:
    timers = PendingTimers(3)
    timers.add_range(3, 200_000)
    timers.finish_range(70_000, 199_990)
    timers.skip(200_004)
    blocks = [*encode_snapshot(timers), encode_position(position(timers.next_offset))]
    assert sum(map(len, blocks)) < 17_000
    assert pending(*blocks) == [*range(3, 70_000), *range(199_990, 200_000)]
    assert pending(*blocks, encode_position(position(200_006)))[-2:] == [199_999, 200_005]


@pytest.mark.parametrize("cut", range(0, 137, 5))
def test_a_torn_end_is_cut_at_a_whole_block(cut: int) -> None:
    whole = MAGIC + encode_position(position(2)) + encode_finished([0]) + encode_position(position(3, at=1_100))
    loaded = load(whole[: len(whole) - cut], lambda at: True)
    assert list(loaded.pending.offsets()) in ([1, 2], [0, 1], [])
    assert loaded.keep_bytes <= loaded.good_bytes <= len(whole) - cut


def test_whole_blocks_that_contradict_each_other_are_not_believed() -> None:
    twice = encode_block(CHUNK, bytes(8)) * 2
    loaded = load(MAGIC + twice + encode_position(position(65_536)), lambda at: True)
    assert loaded.at is None
    assert loaded.keep_bytes == 0


def test_a_file_of_another_kind_says_nothing() -> None:
    loaded = load(b"ORBONCE1" + encode_position(position(2)), lambda at: True)
    assert loaded == (loaded.pending, None, 0, 0, False)
