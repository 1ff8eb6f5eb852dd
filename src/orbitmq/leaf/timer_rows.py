# cython: language_level=3, annotation_typing=False
"""Second source of the extension: when and where to of timer messages, their units in the timer log, and the records
that delayed and timed messages are delivered as.

The C types stand in `inner_compiled.pxd` too. Of both sources, in order, one module is compiled: so what `inner` defines is
called here as C, and no name is defined in both.

Rules of this file
1. As in `inner`.
2. A message that is not quite as usual is None, and left to the reference.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from mmap import mmap
from typing import Any

from orbitmq.leaf.inner import (
    INT32_MAX,
    INT32_MIN,
    MAGIC_V1,
    MASK,
    ROLLBACK,
    copy_bytes,
    get32,
    get64,
    java_hash,
    put32,
    put64,
    signed32,
)
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX

TIME_DIGITS_MAX = 15
QUEUE_DIGITS_MAX = 10
DUE_MAX = TIMER_DELIVER_MS_MAX

# Where the fields of a record stand whose hosts are IPv4.
PREPARED_AT = 76
BODY_SIZE_AT = 84
BODY_AT = 88


# --- taking timer messages in ------------------------------------------------------------------------------------------


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


def find_units(
    wanted: array[int],
    offsets: array[int],
    positions: array[int],
    sizes: array[int],
    found_positions: array[int],
    found_sizes: array[int],
) -> int:
    asked, known, from_positions, from_sizes = wanted, offsets, positions, sizes
    to_positions, to_sizes = found_positions, found_sizes
    count, size = 0, len(known)
    if not size:
        return 0
    first, last = known[0], known[size - 1]
    for place in range(len(asked)):
        offset = asked[place]
        if not first <= offset <= last:
            continue
        low = max(size - 1 - (last - offset), 0)  # they ascend: where few are left out this is nearly the place
        high = min(offset - first, size - 1)
        while low < high:
            middle = (low + high) // 2
            if known[middle] < offset:
                low = middle + 1
            else:
                high = middle
        if known[low] == offset:
            to_positions[place], to_sizes[place] = from_positions[low], from_sizes[low]
            count += 1
    return count


def pack_slots(
    units: tuple[array[int], array[int], array[int], array[int]],
    places: Sequence[int],
    at: int,
    magic: int,
    position: int,
    last: int,
    slots: tuple[int, int, int, int],
    wheel: memoryview,
    tail: bytearray,
) -> int:
    dues, positions, sizes, hashes = units[0], units[1], units[2], units[3]
    precision_ms, now_ms, oldest_ms, window_slots = slots
    begin = at
    place = len(tail)
    count = min(len(places), at + max((last - position) // 52 + 1, 0))
    tail.extend(bytes(52 * max(count - at, 0)))
    while at < count:
        row = places[at]
        due_ms, physical, size, topic_hash = dues[row], positions[row], sizes[row], hashes[row]
        if not (INT32_MIN <= size <= INT32_MAX and INT32_MIN <= topic_hash <= INT32_MAX):
            raise ValueError("a unit has a number that fits no field")
        slot_ms = (due_ms - 1) // precision_ms * precision_ms
        flags = magic
        beyond_ms = slot_ms - now_ms - window_slots * precision_ms
        if beyond_ms >= 0:
            flags |= 2
            ahead = window_slots // 2 if beyond_ms < window_slots // 3 * precision_ms else window_slots
            slot_ms = now_ms + ahead * precision_ms
        elif slot_ms <= oldest_ms:
            slot_ms = now_ms
        write_ms = min(slot_ms, now_ms)
        number = slot_ms // precision_ms
        spot = number % (len(wheel) // 4) * 4
        previous = wheel[spot + 2]
        if wheel[spot] != number:
            wheel[spot] = number
            wheel[spot + 1] = position
            wheel[spot + 3] = 0
            previous = -1
        wheel[spot + 2] = position
        wheel[spot + 3] += -0x1_0000_0000 if magic & 4 else 0x1_0000_0000
        put32(tail, place, 52)
        put64(tail, place + 4, previous)
        put32(tail, place + 12, flags)
        put64(tail, place + 16, write_ms)
        put32(tail, place + 24, slot_ms - write_ms)
        put64(tail, place + 28, physical)
        put32(tail, place + 36, size)
        put32(tail, place + 40, topic_hash)
        put64(tail, place + 44, 0 if magic & 4 else due_ms)
        place += 52
        position += 52
        at += 1
    return at - begin


def _table32(table: mmap, at: int) -> int:
    return signed32((table[at] << 24 | table[at + 1] << 16 | table[at + 2] << 8 | table[at + 3]) & MASK)


def _table64(table: mmap, at: int) -> int:
    low = (table[at + 4] << 24 | table[at + 5] << 16 | table[at + 6] << 8 | table[at + 7]) & MASK
    return _table32(table, at) * 0x1_0000_0000 + low


# --- delayed and timed records -----------------------------------------------------------------------------------------


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
    magic = get32(data, 4)
    if signed32(get32(data, 0)) != end or magic != MAGIC_V1 or data[39] & 0x3C or get64(data, 28) != position:
        return None
    body_size = signed32(get32(data, BODY_SIZE_AT))
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
    copy_bytes(middle_bytes, 1, topic_bytes)
    middle_bytes[topic_size + 1] = properties_size >> 8
    middle_bytes[topic_size + 2] = properties_size & 0xFF
    restored = bytearray(data)
    restored[properties_end:] = b""
    restored[length_at:properties_at] = middle_bytes
    put32(restored, 0, BODY_AT + body_size + 3 + topic_size + properties_size)
    put32(restored, 12, queue_id)
    put64(restored, PREPARED_AT, position + 1)
    message = (
        restored,
        topic,
        queue_id,
        code,
        unique_key,
        keys,
        signed32(get32(data, 36)),
        position + 1,
        properties,
    )
    return message, get64(data, 20), due_ms


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
