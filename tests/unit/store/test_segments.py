"""Files of one size as one range of bytes (RocketMQ, fixed-size file queues)."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store import files
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


def test_what_will_be_needed_is_asked_for_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, offset, size, advice: asked.append((offset, size, advice)))
    page = mmap.PAGESIZE
    found = sequence(tmp_path, 4 * page)
    found.grow()
    found.grow()
    found.will_need(5 * page + 7, 100)
    found.will_need(8 * page - 5, 100)
    for offset, size in ((8 * page, 1), (-3, 1), (0, 0)):
        found.will_need(offset, size)
    assert asked == [(page + 7, 100, os.POSIX_FADV_WILLNEED), (4 * page - 5, 5, os.POSIX_FADV_WILLNEED)]

    asked.clear()
    monkeypatch.setattr(files, "ADVISED_BYTES", page)
    found.will_need(0, 2 * page + 1)
    assert [each[:2] for each in asked] == [(0, page), (page, page), (2 * page, 1)]

    def refused(*_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refused)
    found.will_need(0, 1)  # no more than advice


def test_a_file_that_was_cut_short_is_an_error_not_an_end(tmp_path: Path) -> None:
    found = sequence(tmp_path, 4096)
    segment = found.grow()
    segment.file.pwrite(b"kept", 0)
    os.truncate(segment.path, 2)
    assert found.read(0, 2) == b"ke"
    with pytest.raises(OSError, match=r"the file ends at 2, it was made with 4096 bytes"):
        found.read(0, 4)
    assert found.read_now(0, 4) is None, "nobody is told less than he asked for"


def test_what_is_in_memory_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sequence(tmp_path, 4096)
    found.grow().file.pwrite(b"kept", 4)
    assert found.read_now(4, 4) in (b"kept", None)  # None where the file system cannot tell
    for at, size in ((4095, 2), (4096, 1), (-1, 1)):
        assert found.read_now(at, size) is None
    calls: list[int] = []

    def blind(*arguments: object) -> int:
        calls.append(1)
        raise OSError(errno.EOPNOTSUPP, "cannot tell")

    monkeypatch.setattr(os, "preadv", blind)
    assert (found.read_now(4, 4), found.read_now(4, 4), len(calls)) == (None, None, 1), "it is asked once"
    assert found.read(4, 4) == b"kept"


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
