# cython: language_level=3, annotation_typing=False
"""Source of the extension: hashing and linking of index entries, encoding of records, reading of properties, batches and
delayed records; taking timer messages in.

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
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
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
        _put32(out, at, key_hash)
        _put64(out, at + 4, offset)
        _put32(out, at + 12, difference)
        _put32(out, at + 16, previous)
        at += 20
        heads[slot] = number
        number += 1
    return new_slots


# --- records ----------------------------------------------------------------------------------------------------------


def _put32(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


def _put64(out: bytearray, at: int, value: int) -> None:
    _put32(out, at, value >> 32)
    _put32(out, at + 4, value)


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
    _put32(head, 0, size)
    _put32(head, 4, magic)
    _put32(head, 8, crc)
    _put32(head, 12, queue)
    _put32(head, 16, flags)
    _put64(head, 20, logical)
    _put64(head, 28, physical)
    _put32(head, 36, system)
    _put64(head, 40, born)
    _copy(head, 48, born_host)
    at = 48 + born_size
    _put64(head, at, stored)
    _copy(head, at + 8, store_host)
    at += 8 + store_size
    _put32(head, at, times)
    _put64(head, at + 4, prepared)
    _put32(head, at + 12, body_size)
    middle = bytearray(length_size + topic_size + 2)
    if length_size == 2:
        middle[0] = topic_size >> 8
    middle[length_size - 1] = topic_size & 0xFF
    _copy(middle, length_size, topic)
    at = length_size + topic_size
    middle[at] = properties_size >> 8
    middle[at + 1] = properties_size & 0xFF
    return b"".join((head, body, middle, properties))


def _copy(out: bytearray, at: int, data: bytes) -> None:
    """For a few bytes; slices are for many."""
    for index in range(len(data)):
        out[at + index] = data[index]


def _unfit(problem: str) -> RecordError:
    return RecordError(f"a field of the message does not fit its place in a record: {problem}")


# --- timer messages ---------------------------------------------------------------------------------------------------

TIME_DIGITS_MAX = 15
QUEUE_DIGITS_MAX = 10
DUE_MAX = TIMER_DELIVER_MS_MAX


def usual_timers(entries: Iterable[Any], precision_ms: int, make: Callable[..., Any]) -> list[Any]:
    return [_usual_timer(entry, precision_ms, make) for entry in entries]


def _usual_timer(entry: Any, precision_ms: int, make: Callable[..., Any]) -> Any:
    data = entry.properties
    prepared = entry.prepared_transaction_offset
    source = prepared - 1 if prepared > 0 and not entry.sys_flag & ROLLBACK else None
    end = len(data)
    slot_ms = due_ms = stated_ms = queue_id = -1
    topic = None
    is_delay = is_cancel = is_change = is_roll = False
    at = 0
    while at < end:
        middle = at
        while middle < end and data[middle] > 2:
            middle += 1
        if middle >= end or middle <= at or data[middle] != 1:
            return None
        stop = middle + 1
        while stop < end and data[stop] != 2:
            stop += 1
        if stop == middle + 1 or stop == end:
            return None
        first = data[at]
        if first == 84 or first == 82 or first == 79:  # T, R and O
            name = data[at:middle]
            number = 0
            if name == b"TIMER_OUT_MS":
                number = slot_ms = _once(slot_ms, data, middle + 1, stop, TIME_DIGITS_MAX)
            elif name == b"TIMER_DELIVER_MS":
                number = stated_ms = _once(stated_ms, data, middle + 1, stop, TIME_DIGITS_MAX)
            elif name == b"ORBITMQ_DUE_MS":
                number = due_ms = _once(due_ms, data, middle + 1, stop, TIME_DIGITS_MAX)
            elif name == b"REAL_QID":
                number = queue_id = _once(queue_id, data, middle + 1, stop, QUEUE_DIGITS_MAX)
            elif name == b"REAL_TOPIC":
                number = 0 if topic is None else -1
                topic = data[middle + 1 : stop]
            elif name == b"TIMER_DEL_UNIQKEY":
                is_cancel = True
            elif name == b"ORBITMQ_UNIQ_KEY":
                return None
            elif name == b"ORBITMQ_LEFT_MS":
                is_change = True
            elif name == b"TIMER_ROLL_TIMES":
                is_roll = True
            elif name == b"TIMER_DELAY_SEC" or name == b"TIMER_DELAY_MS":
                is_delay = True
            if number < 0:
                return None
        at = stop + 1
    if due_ms < 0 and not is_delay:
        due_ms = stated_ms
    if is_cancel and (is_roll or not (is_change or source is not None)):
        return None
    if topic is None or slot_ms < 0 or not 0 <= queue_id <= INT32_MAX or due_ms > DUE_MAX:
        return None
    if not slot_ms < due_ms <= slot_ms + precision_ms:
        return None
    try:
        text = topic.decode("ascii")
    except UnicodeDecodeError:
        return None
    return make(
        entry.queue_offset,
        entry.physical_offset,
        entry.size,
        slot_ms,
        due_ms,
        text,
        entry.unique_key,
        entry.keys,
        is_cancel,
        "",
        source,
        entry.store_timestamp,
        queue_id,
    )


def _once(known: int, data: bytes, at: int, stop: int, digits_max: int) -> int:
    """What plain decimal digits say; -1 for anything else, for more than so many, and where it was `known` before."""
    if known >= 0 or stop - at > digits_max:
        return -1
    value = 0
    while at < stop:
        digit = data[at]
        if not 48 <= digit <= 57:
            return -1
        value = value * 10 + digit - 48
        at += 1
    return value


def pack_units(
    links: list[Any],
    at: int,
    write_ms: int,
    precision_ms: int,
    slot_count: int,
    position: int,
    last: int,
    heads: dict[int, list[int]],
    slots: mmap,
    tail: bytearray,
) -> int:
    table = slots
    count = len(links)
    begin = at
    place = len(tail)
    room = (last - position) // 52 + 1 if last >= position else 0
    tail.extend(bytes(52 * min(count - at, room)))
    try:
        while at < count and position <= last:
            try:
                slot_ms, magic, physical, size, topic_hash, deliver_ms = links[at]
            except OverflowError:  # compiled, these are C numbers of 64 bits
                break
            delay_ms = slot_ms - write_ms
            if not (
                INT32_MIN <= delay_ms <= INT32_MAX
                and INT32_MIN <= magic <= INT32_MAX
                and INT32_MIN <= size <= INT32_MAX
                and INT32_MIN <= topic_hash <= INT32_MAX
                and INT64_MIN <= physical <= INT64_MAX
                and INT64_MIN <= deliver_ms <= INT64_MAX
            ):
                break
            number = slot_ms // precision_ms
            index = number % slot_count
            head = heads.get(index)
            if head is None:
                spot = index * 32
                head = [
                    _table64(table, spot),
                    _table64(table, spot + 8),
                    _table64(table, spot + 16),
                    _table32(table, spot + 24),
                    _table32(table, spot + 28),
                ]
                heads[index] = head
            previous = head[2]
            if head[0] != number or previous < 0:  # another lap's, or nobody's
                previous = -1
                head[0] = number
                head[1] = position
                head[3] = 0
                head[4] = 0
            _put32(tail, place, 52)
            _put64(tail, place + 4, previous)
            _put32(tail, place + 12, magic)
            _put64(tail, place + 16, write_ms)
            _put32(tail, place + 24, delay_ms)
            _put64(tail, place + 28, physical)
            _put32(tail, place + 36, size)
            _put32(tail, place + 40, topic_hash)
            _put64(tail, place + 44, deliver_ms)
            head[2] = position
            head[3] = head[3] - 1 if magic & 4 else head[3] + 1
            place += 52
            position += 52
            at += 1
    finally:
        del tail[place:]
    return at - begin


def _table32(table: mmap, at: int) -> int:
    return _signed32((table[at] << 24 | table[at + 1] << 16 | table[at + 2] << 8 | table[at + 3]) & MASK)


def _table64(table: mmap, at: int) -> int:
    low = (table[at + 4] << 24 | table[at + 5] << 16 | table[at + 6] << 8 | table[at + 7]) & MASK
    return _table32(table, at) * 0x1_0000_0000 + low


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


# --- properties, batches, delayed records ------------------------------------------------------------------------------


def exact_properties(text: str) -> dict[str, str] | None:
    values: dict[str, str] = {}
    number_of_entries = 0
    at = 0
    end = len(text)
    while at < end:
        stop = text.find("\x02", at)
        if stop < 0:
            stop = end
        middle = text.find("\x01", at, stop)
        if middle <= at or middle + 1 == stop:
            return None
        values[text[at:middle]] = text[middle + 1 : stop]
        at = stop + 1
        number_of_entries += 1
    return values if len(values) == number_of_entries else None


def _get32(data: bytes, at: int) -> int:
    # Compiled, the shifts are those of a signed C int: the mask makes the number unsigned.
    return (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]) & MASK


def _signed32(value: int) -> int:
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def _get64(data: bytes, at: int) -> int:
    high = _signed32(_get32(data, at))
    return high * 0x1_0000_0000 + _get32(data, at + 4)


def batch_rows(body: bytes) -> list[tuple[int, bytes, bytes, dict[str, str] | None]]:
    rows: list[tuple[int, bytes, bytes, dict[str, str] | None]] = []
    at = 0
    end = len(body)
    while at < end:
        if end - at < ITEM_BYTES_MIN:
            raise _broken(rows, at, f"{end - at} bytes are too few for a message")
        flag = _signed32(_get32(body, at + 12))
        body_size = _signed32(_get32(body, at + 16))
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
        try:
            values = exact_properties(properties.decode())
        except UnicodeDecodeError:
            values = None
        rows.append((flag, body[body_at:body_end], properties, values))
        at = item_end
    return rows


def _broken(rows: list[Any], at: int, problem: str) -> RecordError:
    return RecordError(f"message {len(rows) + 1} of the batch, at byte {at}: {problem}")


# Where the fields of a record stand whose hosts are IPv4.
PREPARED_AT = 76
BODY_SIZE_AT = 84
BODY_AT = 88


def restored_rows(
    records: list[Any], positions: list[int], due_name: str, needed: str, shy: tuple[str, ...], span_ms: int
) -> list[tuple[Any, ...] | None]:
    due, need, names = due_name.encode(), needed.encode(), [name.encode() for name in shy]
    return [
        _restored_row(record, position, due, need, names, span_ms)
        for record, position in zip(records, positions, strict=True)
    ]


def _restored_row(
    record: Any, position: int, due_name: bytes, needed: bytes, shy: list[bytes], span_ms: int
) -> tuple[Any, ...] | None:
    if record is None:
        return None
    data = bytes(record)
    end = len(data)
    if end < 91:
        return None
    magic = _get32(data, 4)
    if _signed32(_get32(data, 0)) != end or magic != MAGIC_V1 or data[39] & 0x30 or _get64(data, 28) != position:
        return None
    body_size = _signed32(_get32(data, BODY_SIZE_AT))
    length_at = BODY_AT + body_size
    if body_size < 0 or length_at + 3 > end:
        return None
    topic_size = data[length_at]
    properties_at = length_at + 3 + topic_size
    if topic_size > 127 or properties_at > end:
        return None
    if data[properties_at - 2] << 8 | data[properties_at - 1] != end - properties_at or end - properties_at > 0x7FFF:
        return None
    # Where the values stand that count; a name that comes twice leaves the record to the reference.
    topic_at = queue_at = due_at = tags_at = unique_at = keys_at = deliver_at = slot_at = 0
    topic_end = queue_end = due_end = tags_end = unique_end = keys_end = deliver_end = slot_end = 0
    is_needed_there, has_delay = not needed, False
    begin = properties_at
    while begin < end:
        middle = begin
        while middle < end and data[middle] > 2:
            middle += 1
        if middle in (begin, end) or data[middle] != 1:
            return None
        at = middle + 1
        stop = at
        while stop < end and data[stop] != 2:
            stop += 1
        if stop == at:
            return None
        size = middle - begin
        first = data[begin]
        for name in shy:
            if _is_name(data, begin, size, name):
                return None
        if not is_needed_there and _is_name(data, begin, size, needed):
            is_needed_there = True
        if _is_name(data, begin, size, due_name):
            if due_at:
                return None
            due_at, due_end = at, stop
        elif first == 82:  # R
            if _is_name(data, begin, size, b"REAL_TOPIC"):
                if topic_at:
                    return None
                topic_at, topic_end = at, stop
            elif _is_name(data, begin, size, b"REAL_QID"):
                if queue_at:
                    return None
                queue_at, queue_end = at, stop
        elif first == 84:  # T
            if _is_name(data, begin, size, b"TIMER_DELIVER_MS"):
                if deliver_at:
                    return None
                deliver_at, deliver_end = at, stop
            elif _is_name(data, begin, size, b"TIMER_OUT_MS"):
                if slot_at:
                    return None
                slot_at, slot_end = at, stop
            elif _is_name(data, begin, size, b"TAGS"):
                if tags_at:
                    return None
                tags_at, tags_end = at, stop
            elif _is_name(data, begin, size, b"TIMER_DELAY_SEC") or _is_name(data, begin, size, b"TIMER_DELAY_MS"):
                has_delay = True
        elif first == 85:  # U
            if _is_name(data, begin, size, b"UNIQ_KEY"):
                if unique_at:
                    return None
                unique_at, unique_end = at, stop
        elif first == 75 and _is_name(data, begin, size, b"KEYS"):
            if keys_at:
                return None
            keys_at, keys_end = at, stop
        begin = stop + 1
    if not topic_at or not queue_at or not is_needed_there:
        return None
    queue_id = _digits(data, queue_at, queue_end)
    properties_end = end
    if due_at:
        due_ms = _digits(data, due_at, due_end)
        properties_end = due_at - len(due_name) - 1
        if due_end != end - 1:
            return None
    elif not deliver_at or not slot_at or has_delay:
        return None
    else:
        due_ms, slot_ms = _digits(data, deliver_at, deliver_end), _digits(data, slot_at, slot_end)
        if slot_ms < 0 or due_ms <= slot_ms or due_ms > slot_ms + span_ms:
            return None
    topic_size = topic_end - topic_at
    if not 0 <= queue_id <= INT32_MAX or due_ms < 0 or topic_size > 127:
        return None
    for at in range(topic_at, topic_end):
        if data[at] == 0:
            return None
    properties = data[properties_at:properties_end]
    topic_bytes = data[topic_at:topic_end]
    try:
        if not data.isascii():
            data[length_at + 1 : properties_at - 2].decode()
            data[properties_at:].decode()
        topic = topic_bytes.decode()
        unique_key = data[unique_at:unique_end].decode() if unique_at else None
        keys = data[keys_at:keys_end].decode() if keys_at else None
        code = java_hash(data[tags_at:tags_end].decode()) if tags_at else 0
    except UnicodeDecodeError:
        return None
    properties_size = properties_end - properties_at
    middle_bytes = bytearray(topic_size + 3)
    middle_bytes[0] = topic_size
    _copy(middle_bytes, 1, topic_bytes)
    middle_bytes[topic_size + 1] = properties_size >> 8
    middle_bytes[topic_size + 2] = properties_size & 0xFF
    restored = bytearray(data)
    restored[properties_end:] = b""
    restored[length_at:properties_at] = middle_bytes
    _put32(restored, 0, BODY_AT + body_size + 3 + topic_size + properties_size)
    _put32(restored, 12, queue_id)
    _put64(restored, PREPARED_AT, position + 1)
    message = (
        restored,
        topic,
        queue_id,
        code,
        unique_key,
        keys,
        _signed32(_get32(data, 36)),
        position + 1,
        properties,
    )
    return message, _get64(data, 20), due_ms


def _is_name(data: bytes, at: int, size: int, name: bytes) -> bool:
    if size != len(name):
        return False
    for index in range(size):  # noqa: SIM110 - compiled, this is a loop over bytes
        if data[at + index] != name[index]:
            return False
    return True


def _digits(data: bytes, at: int, end: int) -> int:
    """What plain decimal digits say; -1 for anything else, and for more digits than a due time has."""
    if end - at > 15:
        return -1
    value = 0
    for index in range(at, end):
        digit = data[index] - 48
        if not 0 <= digit <= 9:
            return -1
        value = value * 10 + digit
    return value
