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
    return JournalPosition(at, 900, 77, next_offset, 5_000, 520, 104, 9, 1_000, boot_mark("boot"), synced)


def pending(*blocks: bytes) -> list[int]:
    loaded = load(MAGIC + b"".join(blocks), lambda at: True)
    assert loaded.at is not None
    return list(loaded.pending.offsets())


@pytest.mark.parametrize(("synced", "kind"), [(False, 4), (True, 5)])
def test_a_position_block_byte_by_byte(synced: bool, kind: int) -> None:
    numbers = (1_000, 900, 77, 12, 5_000, 520, 104, 9)
    body = (88).to_bytes(4) + kind.to_bytes(4) + b"".join(number.to_bytes(8) for number in numbers)
    body += (1_000).to_bytes(4) + blake2b(b"boot", digest_size=8).digest()
    block = encode_position(position(12, synced=synced))
    assert block == zlib.crc32(body).to_bytes(4) + body
    assert load(MAGIC + block, lambda at: True).at == position(12, synced=synced)


def test_finished_offsets_are_runs() -> None:
    assert list(runs_of([5, 3, 4, 9, 11, 10])) == [(3, 3), (9, 3)]
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


@pytest.mark.parametrize("cut", range(0, 200, 7))
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
    assert loaded == (loaded.pending, None, 0, 0)
