"""Writing a run: from what was gathered into a file, in steps.

Rules of this file
1. Nothing is synced, and nothing is read that others may change meanwhile: the gathering is closed.
2. Each step takes about a millisecond.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from orbitmq.store.files import Files
from orbitmq.timing.index.gathering import (
    NUMBER_BITS,
    NUMBER_BYTES,
    NUMBER_MASK,
    PREFIX_BYTES,
    SUFFIX_BYTES,
    Gathering,
)
from orbitmq.timing.index.run_format import (
    DUE_FENCE,
    KEY_FENCE,
    MAGIC,
    TAIL,
    Code,
    Column,
    Fences,
    Marker,
    RunDescription,
    TopicPart,
)

_WIDE_FROM: Final = 1 << 32
_WRITTEN: Final = 1 << 18
"""Bytes of a column written at a time: some tenths of a millisecond."""


def _code(highest: int) -> Code:
    return "I" if highest < _WIDE_FROM else "Q"


def _numbers_at(texts: Sequence[bytes], place: slice) -> array[int]:
    """What stands at one place of two bytes in each of these."""
    numbers = array("H", b"".join([text[place] for text in texts]))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def write_run(files: Files, path: Path, gathering: Gathering) -> Generator[None, None, int]:
    """Write what was gathered, of which there must be something, into a new file; nothing is synced.

    Each step takes about a millisecond. Answers the size in bytes. Raises OSError.
    """
    count = len(gathering)
    while gathering.settle_step():
        yield
    lists = gathering.due_order.settle()
    base_due = min(values[0] for values in lists) >> NUMBER_BITS
    last_due = max(values[-1] for values in lists) >> NUMBER_BITS
    base_offset, last_offset = gathering.offsets[0], gathering.offsets[-1]
    due_code, offset_code = _code(last_due - base_due), _code(last_offset - base_offset)
    dues, offsets, topic_of = array(due_code), array(offset_code), array("H")
    place = array("H", bytes(2 * count))
    by_topic = [array("H") for _ in gathering.topics]
    number_of_topic = [numbers.append for numbers in by_topic]
    arrived, topic_numbers = gathering.offsets, gathering.topic_numbers
    for part in gathering.due_order.ordered():
        olds = [value & NUMBER_MASK for value in part]
        for number, old in enumerate(olds, len(dues)):
            place[old] = number
            number_of_topic[topic_numbers[old]](number)
        dues.extend([(value >> NUMBER_BITS) - base_due for value in part])
        offsets.extend([arrived[old] - base_offset for old in olds])
        topic_of.extend([topic_numbers[old] for old in olds])
        yield
    ids, id_of, id_marker = array("I"), array("H"), Marker(count)
    for part in gathering.id_order.ordered():
        hashes = [value >> NUMBER_BITS for value in part]
        ids.extend(hashes)
        id_marker.mark(hashes)
        id_of.extend([place[value & NUMBER_MASK] for value in part])
        yield
    key_at, key_of, keys = array("I", [0]), array("H"), bytearray()
    key_counts = [0] * len(by_topic)
    key_marker = Marker(len(gathering.key_order))
    seeds = {known[2]: known[1] for known in gathering.topics.values()}
    for texts in gathering.key_order.ordered():
        words = [text[PREFIX_BYTES:-SUFFIX_BYTES] for text in texts]
        prefix = texts[0][:PREFIX_BYTES]
        if texts[-1].startswith(prefix):  # one topic, as in most parts
            seed = seeds[prefix]
            key_marker.mark([crc32(word, seed) for word in words])
            key_counts[int.from_bytes(prefix, "big")] += len(texts)
        else:
            key_marker.mark([crc32(word, seeds[text[:PREFIX_BYTES]]) for word, text in zip(words, texts, strict=True)])
            for topic, keyed in Counter(_numbers_at(texts, slice(PREFIX_BYTES))).items():
                key_counts[topic] += keyed
        key_at.pop()
        key_at.extend(accumulate(map(len, words), initial=len(keys)))
        keys += b"".join(words)
        key_of.extend([place[old] for old in _numbers_at(texts, slice(-NUMBER_BYTES, None))])
        yield
    topics = []
    topic_column = array("H")
    fences: Fences = {}
    key_begin = 0
    for name, numbers, keyed in zip(gathering.topics, by_topic, key_counts, strict=True):
        begin, key_end = len(topic_column), key_begin + keyed
        topic_column.extend(numbers)
        first = last = b""
        if keyed:
            fences[name] = [
                bytes(keys[key_at[index] : key_at[index + 1]]) for index in range(key_begin, key_end, KEY_FENCE)
            ]
            first, last = fences[name][0], bytes(keys[key_at[key_end - 1] : key_at[key_end]])
        topics.append(TopicPart(name, begin, len(topic_column), key_begin, key_end, first, last))
        key_begin = key_end
    yield
    id_marks, key_marks = bytearray(), bytearray()
    for marks, marker in ((id_marks, id_marker), (key_marks, key_marker)):
        for packed in marker.packed():
            marks += packed
            yield
    key_fence = bytearray(msgspec.msgpack.encode(fences))
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        columns, position = [], 0
        codes: tuple[Code, ...] = (due_code, offset_code, "H", "H", "I", "H", "I", "B", "H", due_code, "B", "B", "B")
        made: tuple[array[int] | bytearray, ...] = (
            dues, offsets, topic_column, topic_of, ids, id_of, key_at, keys, key_of, dues[::DUE_FENCE], key_fence, id_marks, key_marks
        )  # fmt: skip
        for code, column in zip(codes, made, strict=True):
            data, crc = memoryview(column).cast("B"), 0
            for low in range(0, len(data), _WRITTEN):
                piece = data[low : low + _WRITTEN]
                crc = crc32(piece, crc)
                file.pwrite(piece, position + low)
                yield
            columns.append(Column(position, code, len(column), crc))
            position += -(-len(data) // 8) * 8
        described = msgspec.msgpack.encode(
            RunDescription(sys.byteorder, base_due, last_due, base_offset, last_offset, topics, columns)
        )
        end_of_file = described + TAIL.pack(len(described), crc32(described), MAGIC)
        file.pwrite(end_of_file, position)
        return position + len(end_of_file)
    finally:
        file.close()
