# cython: language_level=3, annotation_typing=False
"""First source of the extension: hashing and linking of index entries, encoding of records, choosing what a pull brings,
reading of properties and batches; and the numbers of records as bytes, for `timer_rows` too.

Written for Cython's pure Python mode; the C types stand in `inner_compiled.pxd`. Interpreted it is slow and correct,
which is what the tests use it for. The contracts are those of the references, see the package.

Rules of this file
1. Every number that leaves the range of its C type is masked or checked before, so that both ways of running agree.
2. No state between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from mmap import mmap
from typing import Any

from orbitmq.errors import RecordError
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX

MASK = 0xFFFF_FFFF
INT32_MIN, INT32_MAX = -0x8000_0000, 0x7FFF_FFFF
INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
INT64_MIN = -INT64_MAX - 1
MAGIC_V1, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
INDEX_HEADER_BYTES = 40
ROLLBACK = 0xC
ITEM_BYTES_MIN = 22
PROPERTIES_MAX = PROPERTIES_BYTES_MAX
RECORD_MIN = 91
HOSTS_AT, PLAIN_BODY_AT, IPV6_MORE = 39, 88, 12


# --- hashes and index entries -----------------------------------------------------------------------------------------


def _hash_on(value: int, text: str) -> int:
    """`value` continued by the UTF-16 units of `text`: 31 * value + unit for each, modulo 2^32."""
    for character in text:
        code = ord(character)
        if code > 0xFFFF:
            code -= 0x10000
            value = (value * 31 + 0xD800 + (code >> 10)) & MASK
            code = 0xDC00 + (code & 0x3FF)
        value = (value * 31 + code) & MASK
    return value


def _index_form(value: int) -> int:
    """Absolute value as Java has it, with -2^31 mapped to 0."""
    return value if value < 0x8000_0000 else (0x1_0000_0000 - value) & 0x7FFF_FFFF


def java_hash(text: str) -> int:
    value = _hash_on(0, text)
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def index_key_hash(topic: str, key: str) -> int:
    return _index_form(_hash_on(_hash_on(_hash_on(0, topic), "#"), key))


def hash_entries(entries: Iterable[Any], hashes: list[int], offsets: list[int], times: list[int]) -> None:
    known_topic = None
    topic_hash = 0
    for entry in entries:
        unique_key = entry.unique_key
        keys = entry.keys
        if not keys and not unique_key:
            continue
        if entry.sys_flag & ROLLBACK == ROLLBACK:
            continue
        topic = entry.topic
        if topic is not known_topic:
            known_topic = topic
            topic_hash = _hash_on(_hash_on(0, topic), "#")
        offset = entry.physical_offset
        time = entry.store_timestamp
        if unique_key:
            hashes.append(_index_form(_hash_on(topic_hash, unique_key)))
            offsets.append(offset)
            times.append(time)
        if keys:
            for word in keys.split(" "):
                if word:
                    hashes.append(_index_form(_hash_on(topic_hash, word)))
                    offsets.append(offset)
                    times.append(time)


def link_entries(
    hashes: list[int],
    offsets: list[int],
    times: list[int],
    number: int,
    begin_timestamp: int,
    slots: mmap,
    slot_count: int,
    heads: dict[int, int],
    out: bytearray,
) -> int:
    table = slots
    new_slots = 0
    count = len(hashes)
    if len(offsets) != count or len(times) != count:
        raise ValueError("the lists of hashes, offsets and times differ in length")
    at = len(out)
    out.extend(bytes(20 * count))
    for index in range(count):
        key_hash = hashes[index]
        offset = offsets[index]
        difference = times[index] - begin_timestamp
        if difference < 0:
            difference = 0
        difference = difference // 1000
        if difference > INT32_MAX:
            difference = INT32_MAX
        slot = key_hash % slot_count
        known = heads.get(slot)
        if known is None:
            place = INDEX_HEADER_BYTES + slot * 4
            previous = table[place] << 24 | table[place + 1] << 16 | table[place + 2] << 8 | table[place + 3]
            if not 0 < previous < number:
                previous = 0
                new_slots += 1
        else:
            previous = known
        put32(out, at, key_hash)
        put64(out, at + 4, offset)
        put32(out, at + 12, difference)
        put32(out, at + 16, previous)
        at += 20
        heads[slot] = number
        number += 1
    return new_slots


# --- records ----------------------------------------------------------------------------------------------------------


def put32(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


def put64(out: bytearray, at: int, value: int) -> None:
    put32(out, at, value >> 32)
    put32(out, at + 4, value)


def encode_stored(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    body_crc: int,
) -> bytes:
    try:
        crc, queue, flags, system, times = body_crc, queue_id, flag, sys_flag, reconsume_times
        logical, physical, prepared = queue_offset, physical_offset, prepared_transaction_offset
        born, stored = born_timestamp, store_timestamp
    except OverflowError as error:  # compiled, these are C numbers of 64 bits
        raise _unfit(str(error)) from error
    topic_size = len(topic)
    properties_size = len(properties)
    body_size = len(body)
    born_size = 20 if system & 0x10 else 8
    store_size = 20 if system & 0x20 else 8
    if properties_size > PROPERTIES_MAX:
        raise RecordError(f"properties take {properties_size} bytes, at most {PROPERTIES_MAX} fit a record")
    if len(born_host) != born_size or len(store_host) != store_size:
        raise RecordError(
            f"hosts of {len(born_host)} and {len(store_host)} bytes contradict the host bits of system flag {sys_flag:#x}"
        )
    magic = MAGIC_V1
    length_size = 1
    if topic_size > 127:
        try:
            characters = len(topic.decode())
        except UnicodeDecodeError as error:
            raise _unfit(str(error)) from error
        if characters <= 127:
            raise RecordError(f"a topic of {topic_size} bytes in {characters} characters fits no record version")
        if topic_size > 0x7FFF:
            raise _unfit(f"a topic of {topic_size} bytes")
        magic = MAGIC_V2
        length_size = 2
    head_size = 72 + born_size + store_size
    size = head_size + body_size + length_size + topic_size + 2 + properties_size
    if not (
        size <= INT32_MAX
        and INT32_MIN <= crc <= INT32_MAX
        and INT32_MIN <= queue <= INT32_MAX
        and INT32_MIN <= flags <= INT32_MAX
        and INT32_MIN <= system <= INT32_MAX
        and INT32_MIN <= times <= INT32_MAX
        and INT64_MIN <= logical <= INT64_MAX
        and INT64_MIN <= physical <= INT64_MAX
        and INT64_MIN <= prepared <= INT64_MAX
        and INT64_MIN <= born <= INT64_MAX
        and INT64_MIN <= stored <= INT64_MAX
    ):
        raise _unfit("a number out of range")
    head = bytearray(head_size)
    put32(head, 0, size)
    put32(head, 4, magic)
    put32(head, 8, crc)
    put32(head, 12, queue)
    put32(head, 16, flags)
    put64(head, 20, logical)
    put64(head, 28, physical)
    put32(head, 36, system)
    put64(head, 40, born)
    copy_bytes(head, 48, born_host)
    at = 48 + born_size
    put64(head, at, stored)
    copy_bytes(head, at + 8, store_host)
    at += 8 + store_size
    put32(head, at, times)
    put64(head, at + 4, prepared)
    put32(head, at + 12, body_size)
    middle = bytearray(length_size + topic_size + 2)
    if length_size == 2:
        middle[0] = topic_size >> 8
    middle[length_size - 1] = topic_size & 0xFF
    copy_bytes(middle, length_size, topic)
    at = length_size + topic_size
    middle[at] = properties_size >> 8
    middle[at + 1] = properties_size & 0xFF
    return b"".join((head, body, middle, properties))


def copy_bytes(out: bytearray, at: int, data: bytes) -> None:
    """For a few bytes; slices are for many."""
    for index in range(len(data)):
        out[at + index] = data[index]


def _unfit(problem: str) -> RecordError:
    return RecordError(f"a field of the message does not fit its place in a record: {problem}")


# --- consume queue units ----------------------------------------------------------------------------------------------


def choose_spans(
    units: bytes | bytearray | memoryview,
    max_count: int,
    max_bytes: int,
    log_start: int,
    segment_bytes: int,
    accepts: Callable[[int], bool] | None,
) -> tuple[list[tuple[int, int]], int, int, int, bool]:
    data = units
    spans: list[tuple[int, int]] = []
    begin = end = -1
    examined = count = total = 0
    saw_expired = False
    at = 0
    limit = len(data)
    while at + 20 <= limit:
        physical = (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]) & MASK
        physical = (physical - 0x1_0000_0000 if physical >= 0x8000_0000 else physical) * 0x1_0000_0000 + (
            (data[at + 4] << 24 | data[at + 5] << 16 | data[at + 6] << 8 | data[at + 7]) & MASK
        )
        size = (data[at + 8] << 24 | data[at + 9] << 16 | data[at + 10] << 8 | data[at + 11]) & MASK
        if size >= 0x8000_0000:
            size -= 0x1_0000_0000
        if count >= max_count or (total and total + size > max_bytes):
            break
        examined += 1
        if physical < log_start or size == INT32_MAX:
            saw_expired = True
        else:
            if accepts is not None:
                code = (data[at + 12] << 24 | data[at + 13] << 16 | data[at + 14] << 8 | data[at + 15]) & MASK
                code = (code - 0x1_0000_0000 if code >= 0x8000_0000 else code) * 0x1_0000_0000 + (
                    (data[at + 16] << 24 | data[at + 17] << 16 | data[at + 18] << 8 | data[at + 19]) & MASK
                )
            if accepts is None or accepts(code):
                if physical != end or physical % segment_bytes == 0:
                    if end >= 0:
                        spans.append((begin, end))
                    begin = physical
                end = physical + size
                count += 1
                total += size
        at += 20
    if end >= 0:
        spans.append((begin, end))
    return spans, examined, count, total, saw_expired


# --- properties and batches --------------------------------------------------------------------------------------------


def exact_properties(text: str) -> dict[str, str] | None:
    values: dict[str, str] = {}
    return None if _read_properties(text, values, {}) < 0 else values


def marked_properties(text: str, marks: dict[str, int]) -> tuple[dict[str, str], int] | None:
    values: dict[str, str] = {}
    found = _read_properties(text, values, marks)
    return None if found < 0 else (values, found)


def plain_properties(buffer: Any, at: int) -> tuple[int, int, dict[str, str], int] | None:
    data = buffer
    left = len(data) - at
    if at < 0 or left < RECORD_MIN:
        return None
    size = _view32(data, at)
    if _view32(data, at + 4) != MAGIC_V1 or size < RECORD_MIN or size > left:
        return None
    last = at + size
    hosts = data[at + HOSTS_AT] >> 4
    body_at = at + PLAIN_BODY_AT
    if hosts & 1:
        body_at += IPV6_MORE
    if hosts & 2:
        body_at += IPV6_MORE
    if body_at + 3 > last:
        return None
    length_at = body_at + _view32(data, body_at - 4)
    if length_at + 3 > last or data[length_at] > 127:
        return None
    begin = length_at + 3 + data[length_at]
    if begin > last:
        return None
    properties_size = data[begin - 2] << 8 | data[begin - 1]
    if begin + properties_size != last or properties_size > PROPERTIES_MAX:
        return None
    values: dict[str, str] = {}
    try:
        if _read_properties(str(buffer[begin:last], "utf-8"), values, {}) < 0:
            return None
    except UnicodeDecodeError:
        return None
    queue_offset = signed32(_view32(data, at + 20)) * 0x1_0000_0000 + _view32(data, at + 24)
    return size, queue_offset, values, properties_size


def _view32(data: bytes | memoryview, at: int) -> int:
    return (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]) & MASK


def _read_properties(text: str, values: dict[str, str], marks: dict[str, int]) -> int:
    number_of_entries = 0
    found = 0
    at = 0
    end = len(text)
    while at < end:
        stop = text.find("\x02", at)
        if stop < 0:
            stop = end
        middle = text.find("\x01", at, stop)
        if middle <= at or middle + 1 == stop:
            return -1
        name = text[at:middle]
        values[name] = text[middle + 1 : stop]
        if name in marks:
            found |= marks[name]
        at = stop + 1
        number_of_entries += 1
    return found if len(values) == number_of_entries else -1


def get32(data: bytes, at: int) -> int:
    # Compiled, the shifts are those of a signed C int: the mask makes the number unsigned.
    return (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]) & MASK


def signed32(value: int) -> int:
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def get64(data: bytes, at: int) -> int:
    high = signed32(get32(data, at))
    return high * 0x1_0000_0000 + get32(data, at + 4)


def batch_rows(body: bytes, marks: dict[str, int]) -> list[tuple[int, bytes, bytes, dict[str, str] | None, int]]:
    rows: list[tuple[int, bytes, bytes, dict[str, str] | None, int]] = []
    at = 0
    end = len(body)
    while at < end:
        if end - at < ITEM_BYTES_MIN:
            raise _broken(rows, at, f"{end - at} bytes are too few for a message")
        flag = signed32(get32(body, at + 12))
        body_size = signed32(get32(body, at + 16))
        body_at = at + 20
        body_end = body_at + body_size
        if body_size < 0 or body_end + 2 > end:
            raise _broken(rows, at, f"a body of {body_size} bytes does not fit the rest of the batch")
        properties_size = body[body_end] << 8 | body[body_end + 1]
        if properties_size >= 0x8000:
            properties_size -= 0x10000
        item_end = body_end + 2 + properties_size
        if properties_size < 0 or item_end > end:
            raise _broken(rows, at, f"properties of {properties_size} bytes do not fit the rest of the batch")
        properties = body[body_end + 2 : item_end]
        values: dict[str, str] = {}
        try:
            found = _read_properties(properties.decode(), values, marks)
        except UnicodeDecodeError:
            found = -1
        if found < 0:
            rows.append((flag, body[body_at:body_end], properties, None, 0))
        else:
            rows.append((flag, body[body_at:body_end], properties, values, found))
        at = item_end
    return rows


def _broken(rows: list[Any], at: int, problem: str) -> RecordError:
    return RecordError(f"message {len(rows) + 1} of the batch, at byte {at}: {problem}")
