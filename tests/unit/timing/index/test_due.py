"""What falls due next, from runs and gatherings together: a sorted list, in slices, each message once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.files import OsFiles
from orbitmq.timing.index import search
from orbitmq.timing.index.entries import IndexEntry
from orbitmq.timing.index.gathering import Due, Found, Gathering, Source
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.run_format import COLUMNS
from orbitmq.timing.index.run_writing import write_run
from orbitmq.timing.index.search import SHARE_MIN, DamagedPartError, DueSlice, due_slice

BASE_MS = 1_800_000_000_000
END_MS = 1 << 62
BEGINNING: Found = (0, -1)


def gathered(entries: Sequence[Due]) -> Gathering:
    gathering = Gathering()
    for due_ms, queue_offset, topic in sorted(entries, key=lambda entry: entry[1]):
        gathering.add(IndexEntry(queue_offset, due_ms, topic, None, ()))
    return gathering


def run_of(entries: Sequence[Due], path: Path) -> Run:
    for _ in write_run(OsFiles(), path, gathered(entries)):
        pass
    return Run(OsFiles(), path)


def slices(parts: Sequence[Source], until_ms: int, limit: int, after: Found = BEGINNING) -> Iterator[DueSlice]:
    """All of them up to a time."""
    while after[0] < until_ms:
        found = due_slice(parts, after, until_ms, limit)
        assert found.end > after, "a slice that reads nothing is the last one"
        yield found
        after = found.end


ENTRY = st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.integers(0, 4))
"""Due time, topic, part."""


@settings(max_examples=150)
@given(
    told=st.lists(ENTRY, max_size=200),
    are_runs=st.lists(st.booleans(), min_size=5, max_size=5),
    limit=st.integers(1, 60),
    until=st.integers(1, 40),
    share_min=st.sampled_from((1, SHARE_MIN)),
)
def test_slices_together_are_the_sorted_list(
    told: list[tuple[int, str, int]], are_runs: list[bool], limit: int, until: int, share_min: int
) -> None:
    known = [(BASE_MS + after, 3 * number, topic, part) for number, (after, topic, part) in enumerate(told)]
    until_ms = BASE_MS + until
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(search, "SHARE_MIN", share_min):
        parts: list[Source] = []
        for part, is_run in enumerate(are_runs):
            mine = [one[:3] for one in known if one[3] == part]
            parts.append(run_of(mine, Path(folder) / f"{part}.run") if mine and is_run else gathered(mine))
        ordered = sorted(one[:3] for one in known)
        found: list[Due] = []
        for one in slices(parts, until_ms, limit):
            found += one.entries
            assert len(one.entries) <= limit
            behind = ordered[len(found)][0] if len(found) < len(ordered) else None
            assert (one.next_ms is None) is (behind is None)
            assert one.next_ms is None or (behind is not None and one.next_ms <= behind)
        assert found == [one for one in ordered if one[0] < until_ms]


def test_a_share_that_cuts_a_part_ends_the_slice_there() -> None:
    """Of a crowded part as much is told as of the others at the same time; the rest comes with the next slice."""
    limit = SHARE_MIN + 2
    crowded = gathered([(BASE_MS + n, n, "a") for n in range(100)])
    other = gathered([(BASE_MS + 5, 1_000, "b"), (BASE_MS + 50, 1_001, "b")])
    found = due_slice([crowded, other], BEGINNING, END_MS, limit)
    assert found.end == (BASE_MS + limit - 2, limit - 2)
    assert found.next_ms == BASE_MS + limit - 2
    assert (BASE_MS + 5, 1_000, "b") in found.entries
    assert (BASE_MS + 50, 1_001, "b") not in found.entries
    rest = [entry for one in slices([crowded, other], END_MS, limit, found.end) for entry in one.entries]
    assert len(found.entries) + len(rest) == 102
    assert (BASE_MS + 50, 1_001, "b") in rest


def test_a_slice_may_end_between_messages_of_one_millisecond() -> None:
    crowd = [(BASE_MS, n, "a") for n in range(SHARE_MIN * 5)]
    found = list(slices([gathered(crowd[::2]), gathered(crowd[1::2])], BASE_MS + 1, 1))
    assert len(found) >= 3
    assert [entry for one in found for entry in one.entries] == crowd


@pytest.mark.parametrize("is_run", [False, True])
def test_what_is_known_to_be_over_is_not_read(tmp_path: Path, is_run: bool) -> None:
    known = [(BASE_MS + n, n, "a") for n in range(50)]
    part: Run | Gathering = run_of(known, tmp_path / "1.run") if is_run else gathered(known)
    part.skip_gone(lambda queue_offset: queue_offset >= 20, 100)
    assert due_slice([part], BEGINNING, END_MS, 100).entries == known[20:]


def test_a_run_before_and_a_run_behind_are_passed_over(tmp_path: Path) -> None:
    before, behind = [(BASE_MS + n, n, "a") for n in range(9)], [(BASE_MS + 90 + n, 50 + n, "a") for n in range(9)]
    parts = [run_of(before, tmp_path / "1.run"), run_of(behind, tmp_path / "2.run")]
    found = due_slice(parts, (BASE_MS + 40, -1), BASE_MS + 60, 10)
    assert found == DueSlice([], (BASE_MS + 60, -1), BASE_MS + 90)
    assert due_slice(parts, (BASE_MS + 98, 58), END_MS, 10) == DueSlice([], (END_MS, -1), None)


def test_without_parts_nothing_is_due() -> None:
    assert due_slice([], BEGINNING, BASE_MS, 10) == DueSlice([], (BASE_MS, -1), None)


# --- damage -----------------------------------------------------------------------------------------------------------


def column_of(run: Run, name: str) -> tuple[int, int]:
    """Where a column begins in the file, and its size."""
    view, column = run.columns[COLUMNS.index(name)]
    return column.begin, view.nbytes


def test_a_run_that_names_topics_that_it_does_not_have_is_reported_by_name(tmp_path: Path) -> None:
    path = tmp_path / "1.run"
    begin, size = column_of(run_of([(BASE_MS + n, n, "a") for n in range(40)], path), "topic_of")
    content = bytearray(path.read_bytes())
    content[begin + size - 1] = 0xFF
    path.write_bytes(content)
    damaged, sound = Run(OsFiles(), path), gathered([(BASE_MS + 1, 100, "b")])
    with pytest.raises(DamagedPartError, match="names topics that it does not have") as raised:
        list(slices([sound, damaged], END_MS, 10))
    assert raised.value.part is damaged


def test_a_run_that_has_more_before_a_time_and_names_nobody_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "1.run"
    begin, size = column_of(run_of([(BASE_MS + 3 * n, n, "a") for n in range(40)], path), "due")
    content = bytearray(path.read_bytes())
    content[begin + size // 2 : begin + size // 2 + 4] = bytes([0xFF] * 4)
    path.write_bytes(content)
    damaged = Run(OsFiles(), path)
    damaged.skip_gone(lambda queue_offset: queue_offset >= 30, 40)
    with pytest.raises(DamagedPartError, match="not in order"):
        due_slice([damaged], BEGINNING, BASE_MS + 100, 10)


@pytest.mark.parametrize("name", ["due", "offset", "topic_of", "due_fence"])
def test_reading_damaged_columns_comes_to_an_end(tmp_path: Path, name: str) -> None:
    """What such a run says is found again later; until then nobody may read it for ever, or go back."""
    path = tmp_path / "1.run"
    begin, size = column_of(run_of([(BASE_MS + 3 * n, n, "ab"[n % 2]) for n in range(40)], path), name)
    sound = path.read_bytes()
    for at in range(begin, begin + size):
        for bit in (0, 3, 7):
            content = bytearray(sound)
            content[at] ^= 1 << bit
            path.write_bytes(content)
            parts = [Run(OsFiles(), path), gathered([(BASE_MS + 50, 1_000, "b"), (BASE_MS + 120, 1_001, "b")])]
            try:
                count = sum(1 for _ in slices(parts, END_MS, 1))
            except DamagedPartError:
                continue
            assert count < 100
