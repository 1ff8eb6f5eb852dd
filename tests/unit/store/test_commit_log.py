"""The commit log: places, fillers, batches, failed writes, store timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.worlds.raw_log import write_raw

from orbitmq.errors import RecordError
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.files import Buffer, OsFile, OsFiles

SIZE = 4096


def log(directory: Path) -> CommitLog:
    found = CommitLog(OsFiles(), directory, SIZE)
    found.readable_end = 1 << 40  # a store lets nothing be read that is not confirmed
    return found


def add(found: CommitLog, size: int, byte: bytes = b"r") -> int:
    at = found.place(size)
    found.add(byte * size)
    return at


def test_nothing_is_visible_before_it_is_written(tmp_path: Path) -> None:
    found = log(tmp_path)
    assert [add(found, 100), add(found, 50)] == [0, 100]
    assert (found.end, found.written_end) == (150, 0)
    found.readable_end = 0
    found.write()
    assert found.written_end == 150
    assert found.read(0, 100) is None
    found.readable_end = 150
    assert bytes(found.read(100, 50) or b"") == b"r" * 50
    assert found.read(100, 51) is None


def test_a_record_may_leave_exactly_8_bytes_which_become_the_filler(tmp_path: Path) -> None:
    found = log(tmp_path)
    assert add(found, SIZE - 8) == 0
    assert add(found, 100) == SIZE
    found.write()
    data = (tmp_path / "00000000000000000000").read_bytes()
    assert data[-8:].hex() == "00000008cbd43194"


def test_a_record_that_would_leave_fewer_than_8_bytes_goes_to_the_next_file(tmp_path: Path) -> None:
    found = log(tmp_path)
    add(found, SIZE - 207)
    assert add(found, 200) == SIZE, "200 and 8 bytes are more than 207"
    found.write()
    data = (tmp_path / "00000000000000000000").read_bytes()
    assert data[SIZE - 207 : SIZE - 199].hex() == "000000cfcbd43194", "207 bytes to the end of the file"
    found = log(tmp_path / "other")
    add(found, SIZE - 208)
    assert add(found, 200) == SIZE - 208


def test_a_batch_moves_whole(tmp_path: Path) -> None:
    found = log(tmp_path)
    add(found, 3_000)
    at = found.place(3 * 400)
    for _ in range(3):
        found.add(b"b" * 400)
    assert at == SIZE
    found.write()
    assert bytes(found.read(SIZE, 1200) or b"") == b"b" * 1200


def test_what_fits_in_no_file_is_refused(tmp_path: Path) -> None:
    found = log(tmp_path)
    assert add(found, SIZE - 8) == 0
    with pytest.raises(RecordError, match="4089 bytes do not fit in a commit log file of 4096 bytes"):
        found.place(SIZE - 7)
    assert found.end == SIZE - 8


def test_store_timestamps_return_to_a_clock_that_was_far_ahead(tmp_path: Path) -> None:
    found = log(tmp_path)
    assert found.stamp(100_000) == 100_000
    assert found.stamp(100_000 - CLOCK_JUMP_MS) == 100_000
    assert found.stamp(100_000 - CLOCK_JUMP_MS - 1) == 100_000 - CLOCK_JUMP_MS - 1
    assert found.stamp(5_000) == 5_000


def test_store_timestamps_do_not_decrease_by_small_steps(tmp_path: Path) -> None:
    found = log(tmp_path)
    assert [found.stamp(now) for now in (5, 7, 3, 7, 8)] == [5, 7, 7, 7, 8]


def test_a_failed_write_leaves_zeros_and_the_end_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = log(tmp_path)
    add(found, 100)
    found.write()
    add(found, 3_950)
    add(found, 60)  # the second file
    real = OsFile.pwritev

    def half(self: OsFile, parts: list[bytes], offset: int) -> None:
        if self.path.name.endswith("4096"):
            raise OSError(28, "No space left on device")
        real(self, parts, offset)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwritev", half)
        with pytest.raises(OSError, match="No space"):
            found.write()
    assert (found.end, found.written_end) == (100, 100)
    assert not any((tmp_path / "00000000000000000000").read_bytes()[100:])
    assert add(found, 200) == 100
    found.write()
    assert bytes(found.read(100, 200) or b"") == b"r" * 200


def test_a_failed_write_that_cannot_be_undone_is_undone_before_anything_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = log(tmp_path)
    add(found, 100)
    found.write()
    end = found.end
    correct = OsFile.pwritev

    def half(self: OsFile, parts: Sequence[Buffer], offset: int) -> None:
        correct(self, [bytes(parts[0])[:150]], offset)
        raise OSError(28, "No space left on device")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwritev", half)
        patch.setattr(OsFile, "punch", full)
        add(found, 200)
        with pytest.raises(OSError, match="No space left"):
            found.write()
        add(found, 100)
        with pytest.raises(OSError, match="No space left"):
            found.write()
    assert found.end == found.written_end == end
    segment = found.sequence.segments[0]
    assert any(segment.file.pread(200, end)), "it is still there"
    add(found, 100)
    found.write()
    assert not any(segment.file.pread(200, found.written_end)), "a shorter record does not hide what is left behind it"
    found.mend()


def test_raw_bytes_continue_the_log_across_files(tmp_path: Path) -> None:
    found = log(tmp_path)
    write_raw(found, 0, b"a" * 5_000)
    assert found.end == found.written_end == 5_000
    with pytest.raises(ValueError, match="raw bytes for 10 do not continue the log, which ends at 5000"):
        write_raw(found, 10, b"x")
    assert found.record(4_999) is None, "a size field that leaves the file"


def test_records_looked_at_together_are_those_looked_at_one_by_one(tmp_path: Path) -> None:
    found = log(tmp_path)
    write_raw(found, 0, ((100).to_bytes(4, "big") + bytes(96)) * 60)
    write_raw(found, 6_000, bytes(2_180) + (50).to_bytes(4, "big") * 30)
    places = [0, 100, 5_900, 200, 8_180, 8_184, 8_188, 8_191, 8_192, 8_200, 8_296, 8_300, 99_999, -1, 0]
    assert found.records(places, 1 << 20) == [found.record(place) for place in places]
    assert found.records([0], 1)[0] is not None


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    tmp_path.joinpath("00000000000000008192").write_bytes(bytes(SIZE))
    found = log(tmp_path)
    found.sequence.load()
    found.set_end(8_192)
    assert (found.start, found.end) == (8_192, 8_192)
    assert add(found, 10) == 8_192
    assert found.read(0, 10) is None
    assert found.read(-5, 3) is None
