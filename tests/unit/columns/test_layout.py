"""Where the parts of records stand, and which records have none."""

from __future__ import annotations

import numpy as np
import pytest

from orbitmq.columns.layout import locate
from orbitmq.protocol.records import encode_stored

V4, V6 = b"\x0a\0\0\1\0\0\4\xd2", bytes(range(20))


def record(
    body: bytes = b"body", topic: bytes = b"orders", properties: bytes = b"a\x01b\x02", born: bytes = V4
) -> bytes:
    sys_flag = 0x10 if len(born) == 20 else 0
    return encode_stored(topic, 1, 2, 3, 4, sys_flag, 5, born, 6, V4, 7, 8, body, properties, 9)


def sound(data: bytes, *starts: int) -> list[bool]:
    return locate(np.frombuffer(data, np.uint8), np.array(starts, np.int64))[1].tolist()


def lengths_as(data: bytes, at: int, field: bytes) -> bytes:
    return data[:at] + field + data[at + len(field) :]


def test_parts_of_records_with_hosts_of_both_kinds() -> None:
    first, second = record(b"one"), record(b"second", born=V6)
    layout, _ = locate(np.frombuffer(first + second, np.uint8), np.array([0, len(first)]))
    assert (layout.body_end - layout.body_at).tolist() == [3, 6]
    assert layout.numbers("reconsumeTimes").tolist() == [7, 7]
    assert layout.numbers("storeTimestamp").tolist() == [6, 6]
    assert layout.ends.tolist() == [len(first), len(first) + len(second)]
    assert layout.select(np.array([False, True])).numbers("bodySize").tolist() == [6]
    assert layout.rows(0, 1).numbers("bodySize").tolist() == [3]


def test_bounds_of_topic_and_properties() -> None:
    # A byte of length above 127 is a negative number in Java, and so is a length of properties above 32,767.
    long_topic = record(topic=b"t" * 127)
    longer = lengths_as(long_topic, 92, b"\x80") + b"t"
    longer = lengths_as(longer, 0, len(longer).to_bytes(4, "big"))
    assert sound(long_topic, 0) == [True]
    assert sound(longer, 0) == [False]
    full = record(properties=b"p" * 32_767)
    fuller = lengths_as(full, 92 + 1 + 6, (32_768).to_bytes(2, "big")) + b"p"
    fuller = lengths_as(fuller, 0, len(fuller).to_bytes(4, "big"))
    assert sound(full, 0) == [True]
    assert sound(fuller, 0) == [False]


@pytest.mark.parametrize("start", [-1, 1, 10**12])
def test_a_place_without_a_record(start: int) -> None:
    data = record() + bytes(200)
    assert sound(data, start) == [False]
    layout, found = locate(np.frombuffer(data, np.uint8), np.array([0, start]) if start > 0 else np.array([start, 0]))
    assert found.tolist() == ([True, False] if start > 0 else [False, True])
    assert layout.starts.tolist() == [0]


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0x7FFFFF00])
def test_lengths_that_lead_outside(size: int) -> None:
    data = record() * 3
    assert sound(lengths_as(data, 84, size.to_bytes(4, "big", signed=True)), 0) == [False]
    assert sound(lengths_as(data, 0, size.to_bytes(4, "big", signed=True)), 0) == [False]


def test_no_records() -> None:
    layout, found = locate(np.empty(0, np.uint8), np.empty(0, np.int64))
    assert (layout.count, found.tolist()) == (0, [])
