"""Files of one size as one range of bytes (RocketMQ, fixed-size file queues)."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles
from orbitmq.store.segments import SegmentSequence

SIZE = 4096


def sequence(directory: Path, size: int = SIZE) -> SegmentSequence:
    return SegmentSequence(OsFiles(), directory, size)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_named_by_the_offset_of_its_first_byte_in_twenty_digits(tmp_path: Path) -> None:
    found = sequence(tmp_path)
    found.grow()
    found.grow()
    assert names(tmp_path) == ["00000000000000000000", "00000000000000004096"]
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [SIZE, SIZE]


def test_the_first_file_of_a_sequence_that_begins_later(tmp_path: Path) -> None:
    """A consume queue whose first queue offset is 700 000: 14 000 000 bytes, rounded down to a file of 6 000 000."""
    found = sequence(tmp_path, 6_000_000)
    assert found.grow(700_000 * 20).base == 12_000_000
    assert names(tmp_path) == ["00000000000012000000"]


def test_loading_takes_up_what_is_there_and_changes_nothing(tmp_path: Path) -> None:
    for name in ("00000000000000004096", "00000000000000008192"):
        (tmp_path / name).write_bytes(b"x" * SIZE)
    (tmp_path / "00000000000000012288").write_bytes(b"")  # a crash came between its creation and its sizing
    (tmp_path / "subdirectory").mkdir()
    found = sequence(tmp_path)
    found.load()
    assert (found.first_offset, found.end_offset) == (4096, 12_288)
    assert "00000000000000012288" in names(tmp_path)
    found.remove_leftover()
    assert "00000000000000012288" not in names(tmp_path)
    assert found.read(5000, 10) == b"x" * 10
    assert found.read(12_288, 10) == b""


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"00000000000000000000": 100}, "has 100 bytes, the configured file size is 4096 .set the file size"),
        ({"notes.txt": SIZE}, "does not belong here.*RocketMQ would refuse the store as well"),
        ({"0000000000000000409x": SIZE}, "does not belong here"),
        ({"00000000000000000000": SIZE, "00000000000000008192": SIZE}, "files are missing"),
        ({"00000000000000000007": SIZE}, "does not start at a multiple of the file size"),
        ({"00000000000000000000": 0, "00000000000000004096": SIZE}, "has 0 bytes"),
    ],
)
def test_a_stranger_among_the_files_refuses_the_store(tmp_path: Path, files: dict[str, int], says: str) -> None:
    for name, size in files.items():
        (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(StoreDamagedError, match=says):
        sequence(tmp_path).load()


def test_cutting_removes_later_files_and_zeroes_the_rest(tmp_path: Path) -> None:
    found = sequence(tmp_path)
    for _ in range(3):
        segment = found.grow()
        segment.file.pwrite(b"x" * SIZE, 0)
    found.cut(SIZE + 100)
    assert names(tmp_path) == ["00000000000000000000", "00000000000000004096"]
    assert found.read(SIZE, SIZE) == b"x" * 100 + bytes(SIZE - 100)
    found.cut(SIZE)
    assert names(tmp_path) == ["00000000000000000000"]
    found.cut(0)
    assert names(tmp_path) == ["00000000000000000000"], "the first file stays, empty"
    assert not any(found.read(0, SIZE))


def test_the_first_file_stays_wherever_the_sequence_begins(tmp_path: Path) -> None:
    found = sequence(tmp_path)
    found.grow(5 * SIZE)
    found.cut(5 * SIZE)
    assert found.first_offset == 5 * SIZE


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    found = sequence(tmp_path)
    found.grow().file.pwrite(b"kept", 0)
    found.grow()
    part = found.segments[0].view[:4]
    gone = found.drop_first()
    gone.release()
    gone.path.unlink()
    assert bytes(part) == b"kept"
    assert found.find(0) is None
    assert found.first_offset == SIZE


class AdvisedMap(mmap.mmap):
    """A mapping that remembers what was asked of the system."""

    advice: list[tuple[int, int, int]]
    fails = False

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        if self.fails:
            raise OSError(11, "Resource temporarily unavailable")
        self.advice.append((option, start, length))
        super().madvise(option, start, length)


def test_what_will_be_needed_is_fetched_by_whole_pages_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbitmq.store.files import OsFile

    maps: list[AdvisedMap] = []

    def mapped(self: OsFile) -> mmap.mmap:
        found = os.open(self.path, os.O_RDONLY)
        maps.append(AdvisedMap(found, 0, access=mmap.ACCESS_READ))
        os.close(found)
        maps[-1].advice = []
        return maps[-1]

    monkeypatch.setattr(OsFile, "map_read", mapped)
    page = mmap.PAGESIZE
    found = sequence(tmp_path, 4 * page)
    found.grow()
    found.grow().file.pwrite(b"kept", page)
    found.will_need(5 * page + 7, 100)
    found.will_need(8 * page - 5, 100)
    for offset, size in ((8 * page, 1), (-3, 1), (0, 0)):
        found.will_need(offset, size)
    assert [one.advice for one in maps] == [[(mmap.MADV_WILLNEED, page, 107), (mmap.MADV_WILLNEED, 3 * page, page)]]
    maps[0].fails = True
    found.will_need(5 * page, 4)
    assert bytes(found.segments[1].view[page : page + 4]) == b"kept"
    assert len(maps) == 1, "advice and view are of one mapping"


def test_a_file_that_cannot_be_sized_is_removed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orbitmq.store.files import OsFile

    def full(self: OsFile, size: int) -> None:
        raise OSError(28, "No space left on device")

    found = sequence(tmp_path)
    found.grow()
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "truncate", full)
        with pytest.raises(OSError, match="No space"):
            found.grow()
    assert names(tmp_path) == ["00000000000000000000"]
    assert found.grow().base == SIZE


def test_distrust_goes_back_to_the_last_file_that_was_synced(tmp_path: Path) -> None:
    found = sequence(tmp_path)
    for _ in range(4):
        found.grow()
    found.datasync()
    assert not any(segment.dirty or segment.unsynced_name for segment in found)
    found.distrust_disk(lambda segment: segment.end <= 2 * SIZE)
    assert [segment.dirty for segment in found] == [False, False, True, True]
    found.datasync()
    assert not any(segment.dirty for segment in found)
