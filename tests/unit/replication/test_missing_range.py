"""What another copy gives for a damaged place is written only where it is, beyond doubt, what was there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.errors import RecordError
from orbitmq.replication import missing_range
from orbitmq.replication.missing_range import MissingRange, WantedPiece
from orbitmq.store.walking import sound_at

FILE = SMALL.mapped_file_size_commit_log


class Two:
    """`ours` is damaged where a test says so, `theirs` is the log as it was."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self.little = LittleStore(directory)
        for number in range(50):
            self.little.send(body=bytes([(number * seed) % 250 + 1]) * (200 + 41 * number), KEYS=f"k{number}")
        self.store = self.little.store
        self.end = self.store.confirm_offset
        self.entries = list(self.store.scan(0))
        sequence = self.store.log.sequence
        self.theirs = b"".join(segment.read(segment.base, segment.size) for segment in sequence.segments)

    def damage(self, position: int, size: int) -> None:
        segment = self.store.log.sequence.find(position)
        assert segment is not None
        segment.file.pwrite(b"\xee" * size, position - segment.base)

    def missing(self, begin: int) -> MissingRange:
        before = min(begin % FILE, 500)
        return MissingRange(begin, self.end, FILE, self.theirs[begin - before : begin])

    def give(self, missing: MissingRange, of: Callable[[WantedPiece], bytes] | None = None) -> None:
        while not missing.is_whole:
            read = missing.next_read()
            data = self.theirs[read.position : read.position + read.size] if of is None else of(read)
            missing.take(data, lambda at: sound_at(self.store.log, at, missing.limit))


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


@pytest.mark.parametrize("piece_bytes", [1 << 20, 700, 64])
def test_a_place_goes_up_to_the_next_sound_record(two: Two, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(missing_range, "MEND_READ_BYTES", 501 + piece_bytes)
    first, behind = two.entries[10], two.entries[12]
    begin = first.physical_offset
    two.damage(begin, behind.physical_offset - begin - 100)
    missing = two.missing(begin)
    two.give(missing)
    assert (missing.begin, missing.end) == (begin, behind.physical_offset)
    assert missing.data == two.theirs[begin : missing.end]
    assert [one.queue_offset for one in missing.entries] == [10, 11]


def test_a_sound_record_between_two_damaged_ones_ends_the_first_place(two: Two) -> None:
    for number in (20, 22):
        two.damage(two.entries[number].physical_offset, 30)
    missing = two.missing(two.entries[20].physical_offset)
    two.give(missing)
    assert missing.end == two.entries[21].physical_offset


def test_a_file_that_is_damaged_to_its_end_is_mended_with_its_filler(two: Two) -> None:
    last = [one for one in two.entries if one.physical_offset < FILE][-2]
    begin = last.physical_offset
    two.damage(begin, FILE - begin)
    missing = two.missing(begin)
    two.give(missing)
    assert missing.end == FILE
    assert two.theirs[begin:].startswith(missing.data)
    assert not any(two.theirs[begin + len(missing.data) : FILE]), "what follows the head of a filler means nothing"


def test_a_damaged_filler_alone(two: Two) -> None:
    begin = [one for one in two.entries if one.physical_offset < FILE][-1].end_offset
    two.damage(begin, 8)
    missing = two.missing(begin)
    two.give(missing)
    assert (missing.data, missing.end) == (two.theirs[begin : begin + 8], FILE)


def test_the_end_of_what_is_confirmed_ends_a_place(two: Two) -> None:
    begin = two.entries[-2].physical_offset
    two.damage(begin, two.end - begin)
    missing = two.missing(begin)
    two.give(missing)
    assert missing.end == two.end


def flipped(two: Two, read: WantedPiece) -> bytes:
    data = bytearray(two.theirs[read.position : read.position + read.size])
    data[two.entries[20].physical_offset - read.position + 200] ^= 4
    return bytes(data)


def another_before(two: Two, read: WantedPiece) -> bytes:
    data = bytearray(two.theirs[read.position : read.position + read.size])
    data[0] ^= 1
    data[two.entries[21].physical_offset - read.position + 200] ^= 1
    return bytes(data)


BAD: dict[str, tuple[Callable[[Two, WantedPiece], bytes], str]] = {
    "is damaged itself": (flipped, "no record follows"),
    "has other bytes on both sides of the place": (another_before, "another log"),
    "ends before the place does": (
        lambda two, read: two.theirs[read.position : two.entries[21].physical_offset - 1],
        "before a sound record of ours follows",
    ),
    "ends where the place begins": (
        lambda two, read: two.theirs[read.position : read.position + 500],
        "were asked for",
    ),
    "is empty": (lambda two, read: b"", "were asked for"),
    "is too long": (lambda two, read: two.theirs[read.position : read.position + read.size + 1], "were asked for"),
    "is of another place": (lambda two, read: two.theirs[: read.size], "no record follows"),
    "is nothing but zeros": (lambda two, read: bytes(read.size), "no record follows"),
}


@pytest.mark.parametrize("how", BAD)
def test_an_answer_is_refused_that(two: Two, how: str) -> None:
    begin = two.entries[20].physical_offset
    two.damage(begin, 50)
    give, why = BAD[how]
    missing = two.missing(begin)
    with pytest.raises(RecordError, match=why):
        two.give(missing, lambda read: give(two, read))
    assert not missing.is_whole


@pytest.mark.parametrize("side", [19, 21])
def test_a_copy_that_is_damaged_beside_the_place_gives_it_all_the_same(two: Two, side: int) -> None:
    """Both copies have lost something, and not the same."""
    begin, end = two.entries[20].physical_offset, two.entries[21].physical_offset
    two.damage(begin, 50)
    theirs = bytearray(two.theirs)
    theirs[two.entries[side].end_offset - 40] ^= 1
    theirs[two.entries[side].physical_offset + 200] ^= 1
    missing = two.missing(begin)
    two.give(missing, lambda read: bytes(theirs[read.position : read.position + read.size]))
    assert (missing.end, missing.data) == (end, two.theirs[begin:end])


def test_a_copy_with_another_sound_record_behind_the_place_is_another_log(two: Two, tmp_path: Path) -> None:
    other = Two(tmp_path / "other", seed=3)
    begin, end = two.entries[20].physical_offset, two.entries[21].physical_offset
    two.damage(begin, 50)
    missing = two.missing(begin)
    with pytest.raises(RecordError, match=f"other bytes from log position {end}"):
        two.give(
            missing, lambda read: (two.theirs[:end] + other.theirs[end:])[read.position : read.position + read.size]
        )


def test_a_log_that_ends_behind_the_place_gives_enough(two: Two) -> None:
    begin, end = two.entries[20].physical_offset, two.entries[21].physical_offset
    two.damage(begin, 50)
    missing = two.missing(begin)
    two.give(missing, lambda read: two.theirs[read.position : end])
    assert (missing.end, missing.data) == (end, two.theirs[begin:end])


def test_records_of_another_log_that_fit_by_chance_are_told_by_what_follows(two: Two, tmp_path: Path) -> None:
    """Two logs with the same sizes at the same places, and a place at the beginning of a file, before which nothing can be compared."""
    other = Two(tmp_path / "other", seed=3)
    begin = next(one.physical_offset for one in two.entries if one.physical_offset == FILE)
    assert [one.size for one in other.entries] == [one.size for one in two.entries]
    two.damage(begin, 50)
    missing = two.missing(begin)
    with pytest.raises(RecordError, match="another log"):
        two.give(missing, lambda read: other.theirs[read.position : read.position + read.size])


def test_records_that_do_not_meet_our_end_are_refused(two: Two) -> None:
    """Whoever has a longer log there has another one."""
    begin = two.entries[-2].physical_offset
    two.damage(begin, two.end - begin)
    missing = MissingRange(begin, two.end - 10, FILE, b"")
    with pytest.raises(RecordError, match="where ours do"):
        two.give(missing)


def test_more_than_can_be_held_is_refused(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_range, "MEND_RANGE_BYTES_MAX", 1_000)
    monkeypatch.setattr(missing_range, "MEND_READ_BYTES", 1_100)
    begin = two.entries[0].physical_offset
    two.damage(begin, 8_000)
    with pytest.raises(RecordError, match="too much is damaged"):
        two.give(two.missing(begin))
