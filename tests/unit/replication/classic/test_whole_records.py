"""Where records end in bytes of the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.records import encode_blank
from orbitmq.replication.classic.whole_records import unsound_at, whole_records


def record(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(size - 4)


def test_whole_records_stand_first() -> None:
    data = record(20) + record(33) + record(50)
    assert whole_records(data) == (103, 0)
    assert whole_records(data[:-1]) == (53, 50)
    assert whole_records(data[:57]) == (53, 50)
    assert whole_records(data[:56]) == (53, 0)  # the size itself is cut
    assert whole_records(data[:19]) == (0, 20)
    assert whole_records(data[:3]) == (0, 0)
    assert whole_records(b"") == (0, 0)


def test_a_view_is_read_as_well() -> None:
    assert whole_records(memoryview(record(20) + b"x")) == (20, 0)


def test_the_filler_of_a_file_counts_as_a_record() -> None:
    filler = encode_blank(30)
    assert whole_records(record(20) + filler + bytes(30 - len(filler))) == (50, 0)


@pytest.mark.parametrize("size", [0, 7, -1, -(2**31)])
def test_what_is_no_record(size: int) -> None:
    assert whole_records(record(20) + size.to_bytes(4, "big", signed=True) + bytes(20)) is None


def test_a_damaged_record_is_found_before_it_is_sent(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    for number in range(3):
        little.send(body=bytes([number + 1]) * (200 + 50 * number))
    log = little.log_bytes()
    places = [entry.physical_offset for entry in little.store.scan(0)]
    assert unsound_at(log, 0) is None
    assert unsound_at(log[: places[2] + 60], 0) is None, "the last one is cut"
    assert unsound_at(log + encode_blank(90), 0) is None
    assert unsound_at(log, 1_000) == 1_000, "it belongs elsewhere"
    for place in places:
        for at in (4, 31, 150):
            damaged = bytearray(log)
            damaged[place + at] ^= 1
            assert unsound_at(bytes(damaged), 0) == place
