"""Consume queues byte for byte: units, tags codes, fillers, ends (RocketMQ, consume queue)."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from orbitmq.store.files import OsFile, OsFiles

PER_FILE = 40


def queue(directory: Path, *, load: int | None = None) -> ConsumeQueue:
    found = ConsumeQueue(OsFiles(), directory, PER_FILE * 20, "Topic", 0)
    if load is not None:
        found.load(load)
    return found


def filled(directory: Path, count: int, *, first: int = 0) -> ConsumeQueue:
    found = queue(directory)
    for number in range(first, first + count):
        assert found.put(number, number * 100, 100, number)
    found.write_tail()
    return found


def test_the_unit_of_the_golden_record(tmp_path: Path) -> None:
    """Record at 4096 of 123 bytes with tag TagA, whose hash is 2598919."""
    found = queue(tmp_path)
    for number in range(7):
        found.put(number, number, 1, 0)
    found.put(7, 4096, 123, 2598919)
    found.write_tail()
    data = (tmp_path / "00000000000000000000").read_bytes()
    assert data[140:160].hex() == "00000000000010000000007b000000000027a807"
    assert not any(data[160:])
    assert len(data) == PER_FILE * 20


def test_a_negative_tags_code_is_sign_extended(tmp_path: Path) -> None:
    found = queue(tmp_path)
    found.put(0, 0, 100, -5)
    assert bytes(found.units(0, 1))[12:].hex() == "fffffffffffffffb"


def test_a_queue_that_begins_later_is_filled_up_with_blank_units(tmp_path: Path) -> None:
    """Queue offset 57, 40 units a file: the file begins at unit 40, units 40 to 56 are blank."""
    found = queue(tmp_path)
    found.put(57, 9_000, 100, 3)
    found.write_tail()
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000800"]
    data = (tmp_path / "00000000000000000800").read_bytes()
    assert data[: 17 * 20] == (bytes(8) + bytes.fromhex("7fffffff") + bytes(8)) * 17
    assert UNIT.unpack(data[340:360]) == (9_000, 100, 3)
    assert (found.min_offset, found.max_offset, found.next_offset) == (57, 58, 58)
    again = queue(tmp_path, load=1 << 40)
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (57, 58), "also while the log still begins at 0"
    assert again.unit(56) is None


def test_the_file_of_a_beginning_that_a_crash_left_empty_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000800").write_bytes(bytes(PER_FILE * 20))
    found = queue(tmp_path, load=1 << 40)
    assert found.put(57, 9_000, 100, 3)
    found.write_tail()
    assert (found.min_offset, found.max_offset) == (57, 58)
    assert found.unit(57) == (9_000, 100, 3)


def test_what_is_there_already_is_ignored(tmp_path: Path) -> None:
    found = filled(tmp_path, 3)
    assert not found.put(2, 200, 100, 2)
    assert not found.put(0, 0, 100, 0)
    assert found.max_offset == 3


def test_a_gap_is_never_closed_up(tmp_path: Path) -> None:
    found = filled(tmp_path, 3)
    with pytest.raises(ValueError, match="unit 5 does not follow unit 2"):
        found.put(5, 500, 100, 0)
    assert found.max_offset == 3


def test_a_later_message_number_0_begins_the_queue_anew(tmp_path: Path) -> None:
    """The topic was deleted and used again before a crash."""
    found = filled(tmp_path, 50)
    assert found.put(0, 50_000, 100, 9)
    assert found.put(1, 50_100, 100, 9)
    found.write_tail()
    assert (found.min_offset, found.max_offset) == (0, 2)
    assert found.unit(0) == (50_000, 100, 9)
    assert len(list(tmp_path.iterdir())) == 1


def test_units_in_memory_are_read_before_they_are_written(tmp_path: Path) -> None:
    found = filled(tmp_path, 45)
    found.put(45, 4_500, 100, 45)
    assert found.tail_bytes > 0
    assert found.unit(45) == (4_500, 100, 45)
    assert [unit[2] for unit in found.scan(30, 46)] == list(range(30, 46))
    found.write_tail()
    assert found.tail_bytes == 0
    assert [unit[2] for unit in found.scan(30, 46)] == list(range(30, 46))
    assert found.next_file_offset(3) == 40
    assert len(bytes(found.units(38, 10))) == 2 * 20, "a read ends with its file"


def test_units_are_read_in_columns_across_files_and_memory(tmp_path: Path) -> None:
    found = filled(tmp_path, 45)
    found.put(45, 1 << 40 | 7, 2_000_000_000, 45)
    units = list(found.scan(30, 46))
    assert found.tail_bytes > 0
    for end in (46, 60):
        positions, sizes = found.columns(30, end)
        assert list(zip(positions, sizes, strict=True)) == [unit[:2] for unit in units]
    assert not any(found.columns(46, 60))


def test_a_failed_write_keeps_the_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orbitmq.store.files import OsFile

    found = queue(tmp_path)
    found.put(0, 0, 100, 7)
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "pwrite", lambda *args: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            found.write_tail()
    assert found.unit(0) == (0, 100, 7)
    found.write_tail()
    assert queue(tmp_path, load=1 << 40).unit(0) == (0, 100, 7)


@pytest.mark.parametrize("count", [0, 1, 39, 40, 41, 79, 80, 100])
def test_the_end_is_found_again(tmp_path: Path, count: int) -> None:
    filled(tmp_path, count)
    found = queue(tmp_path, load=1 << 40)
    assert (found.max_offset, found.next_offset, found.max_physical) == (count, count, count * 100)


@pytest.mark.parametrize("kept", [0, 1, 39, 40, 41, 60])
def test_units_beyond_the_log_do_not_count_and_are_cut_when_told(tmp_path: Path, kept: int) -> None:
    filled(tmp_path, 100)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    found = queue(tmp_path, load=kept * 100 + 99)
    assert found.max_offset == kept
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, "loading changes nothing"
    found.cut(kept * 100 + 99)
    whole = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert len(whole.rstrip(b"\0")) <= kept * 20
    found.put(kept, kept * 100, 100, 1)
    assert found.unit(kept) == (kept * 100, 100, 1)


@pytest.mark.parametrize("bad", [0, 39, 40, 70, 99])
def test_what_follows_a_unit_that_points_at_no_record_is_dropped(tmp_path: Path, bad: int) -> None:
    filled(tmp_path, 100)
    found = queue(tmp_path, load=1 << 40)
    found.cut_unsound(8_000, lambda physical, size: physical != bad * 100)
    assert found.max_offset == (bad if bad >= 80 else 100), "what lies before is not looked at"
    found.cut_unsound(0, lambda physical, size: physical != bad * 100)
    assert (found.max_offset, found.next_offset, found.max_physical) == (bad, bad, bad * 100)
    assert queue(tmp_path, load=1 << 40).max_offset == bad


def test_the_minimum_is_the_first_unit_whose_record_the_log_has(tmp_path: Path) -> None:
    found = filled(tmp_path, 100)
    found.correct_min_offset(5_050)
    assert found.min_offset == 51
    assert found.unit(50) is None
    assert found.kept_unit(50) == (5_000, 100, 50)
    found.correct_min_offset(100_000)
    assert found.min_offset == found.max_offset == 100, "empty, but its offsets are preserved"


def test_the_minimum_may_lie_among_units_that_wait_in_memory(tmp_path: Path) -> None:
    """On a full disk they cannot be written, and that is when old files of the log have to go."""
    found = filled(tmp_path, 100)
    for number in range(100, 130):
        assert found.put(number, number * 100, 100, number)
    for log_start, first in ((9_900, 99), (10_000, 100), (11_050, 111), (20_000, 130)):
        found.correct_min_offset(log_start)
        assert found.min_offset == first
    assert found.tail_bytes > 0


def test_files_go_when_all_their_records_are_gone_but_never_the_last(tmp_path: Path) -> None:
    found = filled(tmp_path, 100)
    assert [segment.path.name for segment in found.expired_segments(3_900)] == []
    assert [segment.path.name for segment in found.expired_segments(3_901)] == ["00000000000000000000"]
    assert [segment.path.name for segment in found.expired_segments(1 << 40)] == ["00000000000000000800"]
    assert found.first_kept(0) == 80
    assert (found.kept_unit(79), found.max_offset) == (None, 100)


def test_a_record_is_found_by_its_place(tmp_path: Path) -> None:
    found = filled(tmp_path, 60, first=57)
    assert found.offset_of(9_000) == 90
    assert found.offset_of(5_700) == 57
    assert found.offset_of(9_001) is None
    assert found.offset_of(1 << 40) is None
    assert found.offset_of(0) is None, "blank units are no records"
    assert FILLER_SIZE == 0x7FFFFFFF


@pytest.mark.parametrize("holes", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 203, 204, 205, 256, 257, 300, 1_000, 1_001, 1_500])
def test_the_end_is_found_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, holes: bool
) -> None:
    """Files of 1,000 units; the end is looked for in the last written page, and everywhere where that does not tell."""
    reads: list[int] = []
    real = OsFile.pread

    def counted(self: OsFile, size: int, offset: int) -> bytes:
        reads.append(offset)
        return real(self, size, offset)

    monkeypatch.setattr(OsFile, "pread", counted)
    monkeypatch.setattr(OsFile, "data_ranges", lambda self, start: iter(ranges(self)))

    def ranges(file: OsFile) -> list[tuple[int, int]]:
        """As a file system tells them that knows of holes, by its pages, or not."""
        base = int(file.path.name)
        written = min(max(count * 20 - base, 0), file.size())
        end = min(-(-written // 4_096) * 4_096, file.size()) if holes else file.size()
        return [(0, end)] if end else []

    found = ConsumeQueue(OsFiles(), tmp_path, 20_000, "T", 0)
    for offset in range(count):
        found.put(offset, 100 + offset * 10, 10, 0)
    found.write_tail()
    found.close()
    for log_end, expected in ((1 << 40, count), (100 + 10 * (count // 2), count // 2), (0, 0)):
        reads.clear()
        again = ConsumeQueue(OsFiles(), tmp_path, 20_000, "T", 0)
        again.load(log_end)
        assert again.max_offset == again.next_offset == expected
        assert again.max_physical == (100 + expected * 10 if expected else 0)
        if holes and log_end > 1 << 30:
            assert len(reads) <= 4, "whatever its length"
            reads.clear()
            again.cut(1 << 40)
            again.correct_min_offset(100 if count else 0)
            assert reads == [], "nothing stands behind the end, and the first record is known"
        again.correct_min_offset(131)
        assert again.min_offset == min(4, expected)
        again.close()


def test_what_a_crash_left_behind_the_end_is_cut_though_nothing_was_added(tmp_path: Path) -> None:
    first = ConsumeQueue(OsFiles(), tmp_path, 2_000, "T", 0)
    for offset in range(5):
        first.put(offset, offset * 10, 10, 0)
    first.write_tail()
    first.close()
    again = ConsumeQueue(OsFiles(), tmp_path, 2_000, "T", 0)
    again.load(30)
    assert again.max_offset == 3
    again.cut(30)
    again.close()
    last = ConsumeQueue(OsFiles(), tmp_path, 2_000, "T", 0)
    last.load(1 << 40)
    assert last.max_offset == 3
    last.close()


def test_a_queue_that_begins_empty_makes_its_file_with_its_first_message(tmp_path: Path) -> None:
    """RocketMQ wants the file filled up to the first unit."""
    found = queue(tmp_path / "q")
    assert found.begin_empty_at(2 * PER_FILE + 5)
    assert (found.min_offset, found.max_offset, found.next_offset) == (85, 85, 85)
    assert found.begins_empty
    assert not (tmp_path / "q").exists()
    assert found.put(85, 1_000, 100, 7)
    assert not found.begins_empty
    found.write_tail()
    again = queue(tmp_path / "q", load=10_000)
    assert (again.max_offset, again.unit(85)) == (86, (1_000, 100, 7))
    again.correct_min_offset(1_000)
    assert again.min_offset == 85
    assert UNIT.unpack_from((tmp_path / "q" / f"{80 * 20:020d}").read_bytes(), 80) == (0, FILLER_SIZE, 0)


def test_a_queue_with_units_does_not_begin_empty(tmp_path: Path) -> None:
    found = filled(tmp_path, 3)
    assert not found.begin_empty_at(50)
    assert found.next_offset == 3
