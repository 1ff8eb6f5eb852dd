"""Reading for the owner: the bound of what is confirmed, what is in memory, and files that became shorter under the store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.store import reading
from orbitmq.store.files import OsFile
from orbitmq.store.reading import GetStatus
from orbitmq.store.reads import AHEAD_BYTES, NEAR_BYTES, REGION_BYTES, RecordsNotInMemory
from orbitmq.store.settings import FlushDiskType

START = 1_000_000


def test_nothing_is_read_before_it_is_safe(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, clock=ManualClock(START), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = little.store
    placed = little.send(body=b"unsynced", KEYS="key")
    assert store.log.written_end > store.confirm_offset == 0
    assert store.record_at(placed.physical_offset) is None
    assert store.earliest_store_time() == -1
    assert (store.max_offset("Topic", 0), store.query_by_key("Topic", "key", 9, 0, START * 2)) == (0, [])
    assert reading.store_times(store.log, [placed.physical_offset]) == {}
    assert list(store.scan(0)) == []
    assert store.log.records([placed.physical_offset], 1) == [None]
    little.worker.close()
    assert store.confirm_offset == store.log.written_end
    assert bytes(store.record_at(placed.physical_offset) or b"")[88:96] == b"unsynced"
    assert store.earliest_store_time() == START
    little.close()


def test_an_old_record_is_fetched_beside_the_loop_and_the_request_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path, clock=ManualClock(START))
    places = [little.send(body=b"%d" % number).physical_offset for number in range(3)]
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    store = little.store
    found: list[int] = []

    def request() -> None:
        try:
            found.extend(len(record) for record in store.records_at(places))
        except RecordsNotInMemory as missing:
            store.fetch(missing, request)

    request()
    assert found == []
    assert len(little.worker.jobs) == 1, "all of them in one job"
    little.worker.close()
    assert len(found) == 3
    with pytest.raises(RecordsNotInMemory):
        store.record_at(places[0])

    times: list[int] = []

    def search() -> None:
        try:
            times.append(store.offset_by_time("Topic", 0, START))
        except RecordsNotInMemory as missing:
            store.fetch(missing, search)

    search()
    little.worker.close()
    assert times == [0]
    little.close()


def test_a_unit_whose_size_errs_passes_over_no_message(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, clock=ManualClock(START))
    for number in range(4):
        little.send(body=b"%d" % number)
    little.close()
    path = tmp_path / "consumequeue" / "Topic" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[20 + 11] ^= 4
    path.write_bytes(data)
    again = LittleStore(tmp_path, clock=ManualClock(START))
    assert again.bodies() == [b"0", b"1", b"2", b"3"]
    assert again.store.reads.damaged == 0
    again.close()


CUT_SHORT = """
import os, sys
from pathlib import Path
from tests.worlds.little_store import LittleStore
root = Path(sys.argv[1])
little = LittleStore(root, mapped_file_size_commit_log=1 << 20, max_message_size=1 << 19)
for number in range(30):
    little.send(body=bytes([number]) * 20_000)
assert little.get(count=32).count == 30
os.truncate(root / "commitlog" / ("0" * 20), 4096)
little.store.reads._regions.clear()  # a tenth of a second later
for read in (lambda: little.get(count=32), lambda: little.bodies(), lambda: little.store.log.record(300_000)):
    try:
        read()
    except OSError as error:
        print(error.errno)
"""


def test_a_file_cut_short_under_the_store_is_an_error_and_no_signal(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", CUT_SHORT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split()) == (0, ["5", "5", "5"]), run.stderr


def test_what_is_sent_from_the_mapping_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little = LittleStore(tmp_path, clock=ManualClock(START))
    little.send(body=b"body")
    asked: list[tuple[int, int]] = []

    def says(is_there: bool) -> None:
        def is_in_memory(view: memoryview, begin: int, end: int) -> bool:
            asked.append((begin, end))
            return is_there

        monkeypatch.setattr(reading, "is_in_memory", is_in_memory)

    says(True)
    assert [type(part) for part in little.store.get("Topic", 0, 0, 9, 999).records] == [memoryview]
    little.store.get("Topic", 0, 0, 9, 999)
    assert asked == [(0, little.store.log.written_end)], "asked once in a while for all that was written"
    little.clock.advance(101)
    says(False)
    found = little.store.get("Topic", 0, 0, 9, 999)
    assert found.status is GetStatus.FOUND
    assert not any(isinstance(part, memoryview) for part in found.records)
    little.close()


def test_the_system_says_what_is_in_memory(tmp_path: Path) -> None:
    import mmap

    path = tmp_path / "file"
    path.write_bytes(bytes(64 * 1024))
    descriptor = os.open(path, os.O_RDWR)
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        for begin, end in ((-1, 4), (4, 4), (9, 4), (0, 64 * 1024 + 1)):
            assert not reading.is_in_memory(view, begin, end)
    os.close(descriptor)


def test_what_is_fetched_for_a_cold_read_and_for_who_reads_on(tmp_path: Path) -> None:
    """The records of a pull all at once; more only behind another read, and that once."""
    little = LittleStore(tmp_path)
    reads = little.store.reads
    begin = 100 * REGION_BYTES + 5_000
    assert reads._to_fetch([(begin, begin + 900), (begin + 8_000, begin + 9_000)]) == (begin, 9_000)
    first = 100 * REGION_BYTES
    assert reads._to_fetch([(begin + 9_000, begin + 9_900)]) == (first, AHEAD_BYTES), "somebody reads on"
    assert reads._to_fetch([(begin + 9_900, begin + 10_000)])[1] == 0, "it is on its way"
    half = first + AHEAD_BYTES // 2
    assert reads._to_fetch([(half, half + 900)]) == (first + AHEAD_BYTES, AHEAD_BYTES)
    assert reads._to_fetch([(half + 900, half + 999)])[1] == 0
    elsewhere = 500 * REGION_BYTES
    assert reads._to_fetch([(elsewhere, elsewhere + 900), (elsewhere + NEAR_BYTES, elsewhere + NEAR_BYTES + 9)])[1] == 0
    after = elsewhere + REGION_BYTES
    assert reads._to_fetch([(after, after + 900)]) == (after, AHEAD_BYTES), "behind the region of a read"
    little.close()


def test_the_system_is_told_of_all_records_of_a_cold_pull_before_the_first_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path)
    first = little.send(body=b"0")
    little.send("Other", body=b"between")
    last = little.send(body=b"1")
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    monkeypatch.setattr(little.store.reads, "_is_mapped", lambda *_: False)
    events: list[tuple[str, int, int]] = []
    read = OsFile.pread

    def pread(self: OsFile, size: int, offset: int) -> bytes:
        events.append(("read", offset, size))
        return read(self, size, offset)

    monkeypatch.setattr(OsFile, "pread", pread)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, offset, size, advice: events.append(("fetch", offset, size)))
    assert little.bodies() == [b"0", b"1"]
    assert events[0] == ("fetch", first.physical_offset, last.end_offset - first.physical_offset)
    assert [event[:2] for event in events[1:]] == [("read", first.physical_offset), ("read", last.physical_offset)]
    little.close()
