# cython: language_level=3, annotation_typing=False
"""Fourth source of the extension: what bulk readers and copies do record by record, following sizes and comparing checksums.

The C types stand in `inner_compiled.pxd` too.

Rules of this file
1. As in `inner`.
2. Sums are computed by the function that is given: what sums fastest is a library's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from orbitmq.leaf.inner import INT32_MAX, MAGIC_V1, MAGIC_V2, MASK, ROLLBACK, java_hash, put32, put64, signed32
from orbitmq.leaf.pages import pages_in_memory
from orbitmq.limits.store import RAW_TOPIC_BYTES_MAX

WHOLE_RECORD_MIN = 91
SUM_BITS = 0x7FFF_FFFF
SYS_FLAG_BYTE = 39
HOST_BYTES_MORE = 12
PREPARED = 0x4
TAGS, KEYS, UNIQ, UNDERSCORE_KEY = 0x54414753, 0x4B455953, 0x554E4951, 0x5F4B4559
"""Names of properties as numbers, the last one in two parts."""
TOPIC_MAX = RAW_TOPIC_BYTES_MAX
DOT = 46
LEVELS_TOPIC = "SCHEDULE_TOPIC_XXXX"


def record_starts(view: Any, start: int, end: int) -> array[int]:
    data = view
    found = array("q")
    add = found.append
    at = start
    last = end - WHOLE_RECORD_MIN
    while at <= last:
        size = data[at]
        for place in range(at + 1, at + 4):
            size = size << 8 | data[place]
        if size < WHOLE_RECORD_MIN or size > INT32_MAX:
            break
        add(at)
        at += size
    if at > end:
        found.pop()
    return found


def rows_with_wrong_sums(
    data: bytes, begins: Sequence[int], ends: Sequence[int], said: Sequence[int], crc32: Callable[[bytes], int]
) -> list[int]:
    first = begins
    behind = ends
    sums = said
    wrong = []
    for row in range(len(first)):
        begin, end = first[row], behind[row]
        if begin < end:
            found = crc32(data[begin:end])
            if found & SUM_BITS != sums[row]:
                wrong.append(row)
    return wrong


def sound_prefix(data: Any, position: int, crc32: Callable[[Any], int]) -> int:
    return sound_end(data, data, 0, len(data), position, crc32)


def log_slices(view: Any, base: int, spans: Sequence[tuple[int, int]], crc32: Callable[[Any], int] | None) -> Any:
    data = view
    last = len(data)
    found = []
    for first, behind in spans:
        begin = first - base
        end = behind - base
        if begin < 0 or end > last:
            return None
        if crc32 is not None and sound_end(view, data, begin, end, base, crc32) != end:
            return None
        found.append(view[begin:end])
    return found


def sound_end(data: Any, view: Any, begin: int, end: int, base: int, crc32: Callable[[Any], int]) -> int:
    at = begin
    while at + WHOLE_RECORD_MIN <= end:
        size = four(view, at)
        magic = four(view, at + 4)
        if size < WHOLE_RECORD_MIN or size > end - at or (magic != MAGIC_V1 and magic != MAGIC_V2):
            break
        if eight(view, at + 28) != base + at:
            break
        flags = view[at + SYS_FLAG_BYTE] >> 4
        place = at + 84
        if flags & 1:
            place += HOST_BYTES_MORE
        if flags & 2:
            place += HOST_BYTES_MORE
        stop = at + size
        if place + 7 > stop:
            break
        body_size = four(view, place)
        place += 4
        if body_size > stop - place - 3:
            break
        if body_size:
            found = crc32(data[place : place + body_size])
            if found & SUM_BITS != four(view, at + 8):
                break
        place += body_size
        topic_size = view[place]
        place += 1
        if magic == MAGIC_V2:
            topic_size = topic_size << 8 | view[place]
            place += 1
        elif topic_size > 127:
            break
        if topic_size > stop - place - 2:
            break
        topic_end = place + topic_size
        topic_at = place
        while place < topic_end and 0 < view[place] <= 127:
            place += 1
        if place < topic_end and not is_text(bytes(view[topic_at:topic_end])):
            break
        place = topic_end
        properties_size = view[place] << 8 | view[place + 1]
        place += 2
        if properties_size > 0x7FFF or place + properties_size != stop:
            break
        if properties_size and view[stop - 1] == 0:
            break
        at = stop
    return at


def usual_entries(
    data: bytes, begin: int, end: int, position: int, crc32: Callable[[Any], int], make: Callable[..., Any]
) -> list[Any]:
    view = data
    entries: list[Any] = []
    base = position - begin
    topic = ""
    topic_at = known_size = 0
    at = begin
    if begin < 0 or end > len(view):
        return entries
    while at + WHOLE_RECORD_MIN <= end:
        size = four(view, at)
        if size < WHOLE_RECORD_MIN or size > end - at:
            break
        stop = at + size
        if sound_end(data, view, at, stop, base, crc32) != stop:
            break
        flags = view[at + SYS_FLAG_BYTE] >> 4
        stamp_at = at + 56
        place = at + 84
        if flags & 1:
            stamp_at += HOST_BYTES_MORE
            place += HOST_BYTES_MORE
        if flags & 2:
            place += HOST_BYTES_MORE
        prepared_at = place - 8
        place += 4 + four(view, place)
        topic_size = view[place]
        place += 1
        if four(view, at + 4) == MAGIC_V2:
            topic_size = topic_size << 8 | view[place]
            place += 1
        topic_end = place + topic_size
        queue_id = signed32(four(view, at + 12))
        if topic_size == 0 or topic_size > TOPIC_MAX or view[place] == DOT or queue_id < 0:
            break
        if topic_size != known_size or not are_equal(view, topic_at, place, topic_size):
            topic = data[place:topic_end].decode("utf-8")
            if "/" in topic or topic == LEVELS_TOPIC:
                break
            topic_at, known_size = place, topic_size
        found = dispatched_properties(data, view, topic_end + 2, stop)
        if found is None:
            break
        tags_code, unique_key, keys = found
        entries.append(
            make(
                base + at, stop - at, topic, queue_id, signed_eight(view, at + 20), tags_code, signed_eight(view, stamp_at),
                unique_key, keys, signed32(four(view, at + 36)), signed_eight(view, prepared_at), data[topic_end + 2 : stop],
            )
        )  # fmt: skip
        at = stop
    return entries


def dispatched_properties(data: bytes, view: Any, begin: int, stop: int) -> tuple[int, str | None, str | None] | None:
    tags_code = 0
    unique_key = keys = None
    place = begin
    while place < stop:
        middle = place
        while middle < stop and view[middle] != 1 and view[middle] != 2:
            middle += 1
        behind = middle
        while behind < stop and view[behind] != 2:
            behind += 1
        name_size = middle - place
        if behind > middle + 1 and (name_size == 4 or name_size == 8):
            name = four(view, place)
            if name_size == 8:
                known = name == UNIQ and four(view, place + 4) == UNDERSCORE_KEY
            else:
                known = name in (TAGS, KEYS)
            if known:
                try:
                    text = data[middle + 1 : behind].decode("utf-8")
                except UnicodeDecodeError:
                    return None
                if name == TAGS:
                    tags_code = java_hash(text)
                elif name == KEYS:
                    keys = text
                else:
                    unique_key = text
        place = behind + 1
    return tags_code, unique_key, keys


def queue_runs(entries: Sequence[Any], alone: str) -> list[tuple[str, int, int, bytearray, int, int]] | None:
    groups: dict[tuple[str, int], list[Any]] = {}
    found: list[tuple[str, int, int, bytearray, int, int]] = []
    for entry in entries:
        topic = entry.topic
        if topic == alone:
            return None
        kind = entry.sys_flag & ROLLBACK
        if kind in (PREPARED, ROLLBACK):
            continue
        key = (topic, entry.queue_id)
        group = groups.get(key)
        if group is None:
            groups[key] = group = []
        group.append(entry)
    for key, group in groups.items():
        units = bytearray(20 * len(group))
        at = 0
        first = begin = expected = end = 0
        for entry in group:
            number = entry.queue_offset
            physical = entry.physical_offset
            size = entry.size
            if at == 0:
                first = number
                begin = physical
            elif number != expected or physical < end:
                return None
            put64(units, at, physical)
            put32(units, at + 8, size)
            put64(units, at + 12, entry.tags_code)
            expected = number + 1
            end = physical + size
            at += 20
        found.append((key[0], key[1], first, units, begin, end))
    return found


def are_equal(view: Sequence[int], one: int, other: int, size: int) -> bool:
    place = 0
    while place < size and view[one + place] == view[other + place]:
        place += 1
    return place == size


def is_text(data: bytes) -> bool:
    if 0 in data:
        return False
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def four(view: Sequence[int], at: int) -> int:
    # Compiled, the shifts are those of a signed C int: the mask makes the number unsigned.
    return (view[at] << 24 | view[at + 1] << 16 | view[at + 2] << 8 | view[at + 3]) & MASK


def eight(view: Sequence[int], at: int) -> int:
    return four(view, at) << 32 | four(view, at + 4)


def signed_eight(view: Sequence[int], at: int) -> int:
    high = signed32(four(view, at))
    return high * 0x1_0000_0000 + four(view, at + 4)


def is_in_memory(view: Any, begin: int, end: int) -> bool:
    return pages_in_memory(view, begin, end)
