"""One index file: RocketMQ's layout byte for byte, the order of writing, and repair from what is left."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.store import index_file
from orbitmq.store.files import File, OsFiles
from orbitmq.store.index_batch import HEADER_BYTES
from orbitmq.store.index_file import IndexFile, IndexFileEntry, IndexFileShape, IndexHeader

SMALL = IndexFileShape(10, 8)
T0 = 1_700_000_000_000


def create(path: Path, shape: IndexFileShape = SMALL) -> IndexFile:
    return IndexFile.create(OsFiles(), path / "20231114221320123", shape, None)


def reopen(path: Path, shape: IndexFileShape = SMALL) -> IndexFile:
    return IndexFile.open(OsFiles(), path / "20231114221320123", shape)


def test_golden_file(tmp_path: Path) -> None:
    """Key TopicTest#k1 (hash 2746024) at 4096 and 8192, in a file of the default shape."""
    shape = IndexFileShape(5_000_000, 20_000_000)
    file = create(tmp_path, shape)
    assert file.put([2_746_024], [4096], [T0 + 123]) == 1
    file.write()
    assert file.put([2_746_024], [8192], [T0 + 5999]) == 1
    file.write()
    file.close()
    assert file.path.stat().st_size == 420_000_040
    with file.path.open("rb") as data:
        assert data.read(40) == struct.pack(">qqqqii", T0 + 123, T0 + 5999, 4096, 8192, 1, 3)
        data.seek(40 + 2_746_024 * 4)
        assert data.read(4) == struct.pack(">i", 2)
        data.seek(40 + 20_000_000 + 20)
        assert data.read(40) == struct.pack(">iqiiiqii", 2_746_024, 4096, 0, 0, 2_746_024, 8192, 5, 1)
    assert file.path.stat().st_blocks * 512 < 30_000_000  # slot table reserved, entries sparse


def test_unwritten_entries_are_found_and_are_not_in_the_file(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([3, 13, 3], [100, 100, 200], [T0, T0, T0])
    assert file.find(3, 10, 0, T0 + 1) == [200, 100]
    assert file.find(13, 10, 0, T0 + 1) == [100]
    assert IndexHeader.decode(file.path.read_bytes()).count == 1
    file.write()
    assert file.find(3, 10, 0, T0 + 1) == [200, 100]
    assert reopen(tmp_path).header == IndexHeader(T0, T0, 100, 200, 1, 4)


def test_full_file_takes_no_more(tmp_path: Path) -> None:
    file = create(tmp_path)
    assert file.put(list(range(5)), [1] * 5, [T0] * 5) == 5
    assert file.put(list(range(5)), [2] * 5, [T0] * 5) == 2
    assert file.is_full
    assert file.put([1], [3], [T0]) == 0
    assert file.count == 8


def test_a_following_file_starts_from_the_end_of_the_one_before(tmp_path: Path) -> None:
    before = IndexHeader(T0, T0 + 5, 10, 90, 3, 8)
    file = IndexFile.create(OsFiles(), tmp_path / "1", SMALL, before)
    assert file.header == IndexHeader(T0 + 5, T0 + 5, 90, 90, 0, 1)
    file.put([1], [95], [T0 + 9])
    assert file.header == IndexHeader(T0 + 9, T0 + 9, 95, 95, 1, 2)


def test_find_by_time_takes_the_lower_bound_to_the_second(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1, 1, 1], [10, 20, 30], [T0, T0 + 1500, T0 + 2500])
    assert file.find(1, 10, T0 + 1500, T0 + 1500) == [20]
    assert file.find(1, 10, T0 + 2000, T0 + 9000) == [30]
    assert file.find(1, 10, 0, T0) == [10]
    assert file.find(1, 2, 0, T0 + 9000) == [30, 20]


def test_time_of_an_entry_is_clamped(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1, 1, 1], [10, 20, 30], [T0, T0 - 5000, T0 + 2**45])
    assert [file.entry(n).time_diff_s for n in (1, 2, 3)] == [0, 0, 0x7FFFFFFF]


def test_slot_values_beyond_the_count_are_empty(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1], [10], [T0])
    file.write()
    file.close()
    data = bytearray(file.path.read_bytes())
    data[HEADER_BYTES + 8 : HEADER_BYTES + 16] = struct.pack(">ii", 99, -1)
    file.path.write_bytes(data)
    file = reopen(tmp_path)
    assert file.find(2, 10, 0, T0) == []
    file.put([2, 3], [20, 20], [T0, T0])
    assert file.entry(2) == IndexFileEntry(2, 20, 0, 0)
    assert file.entry(3) == IndexFileEntry(3, 20, 0, 0)
    assert file.slots_used == 3


def test_a_chain_that_points_at_itself_ends(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1], [10], [T0])
    file.write()
    data = bytearray(file.path.read_bytes())
    data[SMALL.entries_at + 20 + 16 : SMALL.entries_at + 40] = struct.pack(">i", 1)
    file.path.write_bytes(data)
    assert file.find(1, 10, 0, T0) == [10]


def test_an_endless_walk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "INDEX_CHAIN_STEPS_MAX", 3)
    file = create(tmp_path)
    file.put([1] * 6, list(range(6)), [T0 + 10_000] * 6)
    with pytest.raises(StoreError, match="narrow the time range"):
        file.find(1, 10, 0, T0)


def test_wrong_size_and_wrong_count_are_damage(tmp_path: Path) -> None:
    file = create(tmp_path)
    with pytest.raises(StoreDamagedError, match="maxHashSlotNum"):
        reopen(tmp_path, IndexFileShape(10, 9))
    data = bytearray(file.path.read_bytes())
    data[36:40] = struct.pack(">i", 9)
    file.path.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="claims 9 entries"):
        reopen(tmp_path)


def snapshot(file: IndexFile) -> tuple[IndexHeader, list[int], list[IndexFileEntry]]:
    slots = [file.head(slot) for slot in range(file.shape.slot_count)]
    return file.header, slots, [entry for _, entry in file.entries()]


def test_relink_after_the_process_died_before_the_slots_were_written(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1, 11, 2], [10, 10, 20], [T0, T0, T0])
    file.write()
    slots_before = file.path.read_bytes()[HEADER_BYTES : SMALL.entries_at]
    file.put([1, 21, 5], [30, 30, 40], [T0, T0, T0 + 3000])
    file.write()
    good = snapshot(file)
    file.close()
    data = bytearray(file.path.read_bytes())
    data[HEADER_BYTES : SMALL.entries_at] = slots_before
    file.path.write_bytes(data)
    file = reopen(tmp_path)
    assert snapshot(file) != good
    file.relink(4)
    assert snapshot(file) == good
    file.relink(1)
    assert snapshot(file) == good


def test_rebuild_from_the_entries_alone(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1, 11, 2], [10, 10, 20], [T0, T0, T0 + 2000])
    file.write()
    good = snapshot(file)
    file.put([1, 21, 5], [30, 30, 40], [T0 + 3000] * 3)
    file.write()
    file.close()
    data = bytearray(file.path.read_bytes())
    data[HEADER_BYTES : SMALL.entries_at] = b"\x00\x00\x00\x07" * 10
    data[SMALL.entries_at + 4 * 20 :] = bytes(len(data) - SMALL.entries_at - 4 * 20)
    file.path.write_bytes(data)
    file = reopen(tmp_path)
    file.rebuild(4, T0 + 2000)
    assert snapshot(file) == good
    file.put([1], [30], [T0 + 3000])
    assert file.find(1, 10, 0, T0 + 9000) == [30, 10]


def test_cut_takes_entries_of_the_lost_tail_out_of_the_chains(tmp_path: Path) -> None:
    file = create(tmp_path)
    file.put([1, 11, 2], [10, 10, 20], [T0, T0, T0 + 2000])
    file.write()
    good = snapshot(file)
    file.put([1, 21, 5], [30, 30, 40], [T0 + 3000] * 3)
    file.cut(30)
    assert snapshot(file)[1:] == good[1:]
    assert replace(file.header, end_timestamp=0) == replace(good[0], end_timestamp=0)
    file.cut(0)
    assert file.count == 1
    assert file.slots_used == 0
    file.put([1], [5], [T0])
    assert file.header == IndexHeader(T0, T0, 5, 5, 1, 2)


class FailingFile:
    """Passes everything on; the named call fails while `fails` is set."""

    def __init__(self, file: File, call: str) -> None:
        self._file = file
        self._call = call
        self.fails = True

    def __getattr__(self, name: str) -> object:
        if name == self._call and self.fails:

            def fail(*_: object) -> None:
                raise OSError(errno.ENOSPC, "no space")

            return fail
        return getattr(self._file, name)


def test_a_failed_write_loses_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    file = create(tmp_path)
    failing = FailingFile(file._file, "pwrite")
    file._file = cast("File", failing)
    file.put([1, 11], [10, 20], [T0, T0])
    with pytest.raises(OSError, match="no space"):
        file.write()
    assert file.find(1, 10, 0, T0) == [10]
    assert IndexHeader.decode(file.path.read_bytes()).count == 1
    failing.fails = False
    file.write()
    assert reopen(tmp_path).find(11, 10, 0, T0) == [20]


def test_a_full_disk_leaves_no_file_behind(tmp_path: Path) -> None:
    class FullDisk(OsFiles):
        def open(
            self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
        ) -> File:
            return cast("File", FailingFile(super().open(path, create=create, writable=writable), "allocate"))

    with pytest.raises(OSError, match="no space"):
        IndexFile.create(FullDisk(), tmp_path / "1", SMALL, None)
    assert list(tmp_path.iterdir()) == []
