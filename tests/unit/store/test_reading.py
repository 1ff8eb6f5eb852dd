"""Reading by offset and by time: the statuses in their order, the limits, and both bounds of a time (RocketMQ, reading)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.limits.store import SCAN_UNITS_MIN
from orbitmq.protocol.records import iter_records
from orbitmq.store import reading
from orbitmq.store.files import OsFile
from orbitmq.store.reading import GetStatus, store_times

START = 1_000_000


@contextmanager
def cold_disk() -> Iterator[None]:
    """Nothing is in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
        patch.setattr(reading, "is_in_memory", lambda view, begin, end: False)
        yield


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    return LittleStore(tmp_path, clock=ManualClock(START))


def test_the_statuses_in_their_order(little: LittleStore) -> None:
    store = little.store
    assert store.get("Topic", 0, 0, 32, 1000) == store.get("Topic", 0, 99, 32, 1000)
    assert store.get("Topic", 0, 5, 32, 1000).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    little.append()
    result = store.get("Topic", 0, 7, 32, 1000)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    store.commit()
    for _ in range(4):
        little.send()
    queue = store.queues.get("Topic", 0)
    assert queue is not None
    queue.min_offset = 2

    def outcome(offset: int) -> tuple[GetStatus, int]:
        found = store.get("Topic", 0, offset, 32, 1000)
        assert (found.min_offset, found.max_offset) == (2, 5)
        return found.status, found.next_offset

    assert outcome(1) == (GetStatus.OFFSET_TOO_SMALL, 2)
    assert outcome(-3) == (GetStatus.OFFSET_TOO_SMALL, 2)
    assert outcome(5) == (GetStatus.OFFSET_OVERFLOW_ONE, 5)
    assert outcome(6) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
    assert outcome(2)[0] is GetStatus.FOUND


def test_a_read_is_bounded_by_count_and_bytes_and_gives_at_least_one(little: LittleStore) -> None:
    sizes = [little.append(body=bytes(100)).size for _ in range(10)]
    little.store.commit()

    def read(count: int, size: int) -> tuple[int, int, int]:
        found = little.store.get("Topic", 0, 0, count, size)
        assert found.bytes_total == sum(map(len, found.records))
        return found.count, found.next_offset, found.bytes_total

    assert read(3, 1 << 20) == (3, 3, sum(sizes[:3]))
    assert read(32, sizes[0] * 2) == (2, 2, sum(sizes[:2]))
    assert read(32, sizes[0] * 2 - 1) == (1, 1, sizes[0])
    assert read(32, 1) == (1, 1, sizes[0])


def test_neighbours_come_as_one_slice_of_the_log(little: LittleStore) -> None:
    for number in range(6):
        little.append(body=bytes([number]))
    little.append("Other")
    little.append(body=b"after")
    little.store.commit()
    found = little.store.get("Topic", 0, 0, 32, 1 << 20)
    assert len(found.records) == 2
    records = list(iter_records(b"".join(bytes(part) for part in found.records)))
    assert [record.queue_offset for record in records] == list(range(7))


def test_a_filter_that_matches_nothing_scans_a_bounded_number_of_units(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, mapped_file_size_consume_queue=2000 * 20, mapped_file_size_commit_log=1 << 20)
    for number in range(1_000):
        little.append(TAGS="a" if number < 900 else "b")
    little.store.commit()
    wanted = little.store.append(little.message(TAGS="b")).tags_code
    little.store.commit()
    found = little.store.get("Topic", 0, 0, 32, 1 << 20, lambda code: code == wanted)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, SCAN_UNITS_MIN)
    found = little.store.get("Topic", 0, found.next_offset, 32, 1 << 20, lambda code: code == wanted)
    assert (found.status, found.count) == (GetStatus.FOUND, 32)
    assert found.next_offset == 932, "it continues behind the last message given"


def test_a_read_ends_with_the_file_of_the_queue(little: LittleStore) -> None:
    for _ in range(45):
        little.append(body=b"")
    little.store.commit()
    queue = little.store.queues.get("Topic", 0)
    assert queue is not None
    queue.write_tail()
    found = little.store.get("Topic", 0, 38, 32, 1 << 20)
    assert (found.count, found.next_offset) == (2, 40)


def test_units_whose_records_are_gone(little: LittleStore) -> None:
    little.send("Old")
    while len(little.store.log.sequence.segments) < 2:
        little.send(body=bytes(1000))
    little.store.log.sequence.drop_first()
    found = little.store.get("Old", 0, 0, 3, 1 << 20)
    assert (found.status, found.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 1)
    found = little.store.get("Topic", 0, 0, 3, 1 << 20)
    assert (found.status, found.count) == (GetStatus.FOUND, 1), "they are passed over within one read"
    (record,) = iter_records(bytes(found.records[0]))
    assert (record.queue_offset, record.physical_offset) == (found.next_offset - 1, 16_384)


def test_cold_records_are_read_and_verified_before_they_are_served(little: LittleStore, tmp_path: Path) -> None:
    for number in range(5):
        little.send(body=bytes([number]) * 50)
    little.close()
    again = LittleStore(tmp_path, clock=little.clock)
    warm = again.store.get("Topic", 0, 1, 3, 1 << 20)
    assert (warm.status, warm.count, warm.cold) == (GetStatus.FOUND, 3, None)
    with cold_disk():
        again.clock.advance(200)  # what the system said is not believed any more
        found = again.store.get("Topic", 0, 1, 3, 1 << 20)
        assert (found.status, found.records) == (GetStatus.FOUND, [])
        assert found.cold is not None, "first the units"
        assert again.get(offset=1, count=3) == warm
        again.send(body=b"new")
        assert again.get(offset=5).count == 1


def test_what_follows_a_damaged_record_waits_for_the_next_read(little: LittleStore, tmp_path: Path) -> None:
    placed = [little.send(body=bytes([number]) * 50) for number in range(5)]
    little.close()
    path = tmp_path / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[placed[2].physical_offset + 100] ^= 1
    path.write_bytes(data)
    again = LittleStore(tmp_path, clock=little.clock)
    first = again.get(offset=0)
    assert (first.count, first.next_offset) == (2, 2)
    second = again.get(offset=2)
    assert (second.status, second.records, second.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, [], 3)
    assert again.get(offset=3).count == 2


# --- by time --------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(little: LittleStore) -> LittleStore:
    """Messages stored at 0, 10, 10, 10, 20, 40 ms."""
    for at in (0, 10, 10, 10, 20, 40):
        little.clock.set_wall(START + at)
        little.send()
    return little


@pytest.mark.parametrize(
    ("at", "lower", "upper"),
    [
        (-5, 0, 0),  # before the first
        (0, 0, 0),
        (5, 1, 0),  # between two: the later one, the earlier one
        (10, 1, 3),  # a run of equal times: its first, its last
        (15, 4, 3),
        (20, 4, 4),
        (40, 5, 5),
        (41, 6, 5),  # after the last: one past it, the last
    ],
)
def test_by_time(timed: LittleStore, at: int, lower: int, upper: int) -> None:
    assert timed.store.offset_by_time("Topic", 0, START + at) == lower
    assert timed.store.offset_by_time("Topic", 0, START + at, upper=True) == upper


def test_by_time_where_a_clock_that_was_ahead_was_put_right_nothing_is_passed_over(timed: LittleStore) -> None:
    """Times 0, 10, 10, 10, 20, 40 are in order; then come three of a wrong clock, and as many of the right one."""
    year_ms = 365 * 86_400_000
    for at in (50, year_ms, year_ms + 1, year_ms + 2, 60, 70, 80):
        timed.clock.set_wall(START + at)
        timed.send()
    right = {50: 6, 60: 10, 70: 11, 80: 12, 81: 13}
    assert [timed.store.store_time_at("Topic", 0, offset) - START for offset in (9, 10, 12)] == [year_ms + 2, 60, 80]
    for at, first in right.items():
        assert timed.store.offset_by_time("Topic", 0, START + at) <= first
    assert timed.store.offset_by_time("Topic", 0, START + 40) == 5


def test_by_time_stays_within_the_queue(timed: LittleStore) -> None:
    queue = timed.store.queues.get("Topic", 0)
    assert queue is not None
    queue.min_offset = 3
    assert timed.store.offset_by_time("Topic", 0, START) == 3
    assert timed.store.offset_by_time("Topic", 0, START, upper=True) == 3
    assert timed.store.offset_by_time("Absent", 0, START) == 0


def test_store_times(timed: LittleStore) -> None:
    assert timed.store.store_time_at("Topic", 0, 4) == START + 20
    assert timed.store.store_time_at("Topic", 0, 6) == -1
    assert timed.store.store_time_at("Absent", 0, 0) == -1
    assert timed.store.earliest_store_time() == START


def test_a_record_by_its_place(timed: LittleStore) -> None:
    record = timed.store.record_at(0)
    assert record is not None
    assert timed.store.record_at(1) is None
    assert timed.store.record_at(timed.store.log.end) is None
    assert timed.store.record_at(1 << 50) is None


def test_store_times_by_position_and_nothing_where_no_record_begins(little: LittleStore) -> None:
    first = little.send(body=b"first")
    little.clock.advance(5_000)
    second = little.send(body=b"second")
    log = little.store.log
    end = log.written_end
    found = store_times(log, [0, second.physical_offset, 1, second.physical_offset + 4, end, end + (1 << 40)])
    assert first.physical_offset == 0
    assert found == {0: START, second.physical_offset: START + 5_000}


def test_after_a_crash_who_read_what_it_took_goes_on_where_the_log_was_recovered(tmp_path: Path) -> None:
    """A consumer that lives on asks for offset 8; the log ended at 3, and what came since are other messages."""
    little = LittleStore(tmp_path / "before", clock=ManualClock(START))
    for _ in range(3):
        little.send()
    shutil.copytree(tmp_path / "before", tmp_path / "after")  # what the disk holds of a store that still runs
    little.close()
    again = LittleStore(tmp_path / "after", clock=ManualClock(START))
    for _ in range(4):
        again.send()
        again.send("New")
    for topic, end, since in (("Topic", 7, 3), ("New", 4, 0)):
        found = again.store.get(topic, 0, 8, 32, 1000)
        assert (found.status, found.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, since)
        assert again.store.get(topic, 0, end, 32, 1000).status is GetStatus.OFFSET_OVERFLOW_ONE
    queue = again.store.queues.get("Topic", 0)
    assert queue is not None
    queue.min_offset = 5
    assert again.get(offset=8).next_offset == 5, "retention has gone on"
    again.close()
    orderly = LittleStore(tmp_path / "after", clock=ManualClock(START))
    assert orderly.get(offset=8).next_offset == 7
    orderly.close()
