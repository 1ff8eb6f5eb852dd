"""Journals of which a later one begins before an earlier one ends: a start did not believe the earlier one, and was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.files import OsFiles
from orbitmq.timing.index.entries import IndexEntry
from orbitmq.timing.index.gathering import Gathering
from orbitmq.timing.index.journal import NOTHING, IndexJournal, Witness
from orbitmq.timing.index.parts import IndexShape, Parts

OLD_MS, NEW_MS = 1_000, 2_000


def witness(end_offset: int) -> Witness:
    return Witness(end_offset, end_offset * 100, 5) if end_offset else NOTHING


def written(parts: Parts, begin: int, blocks: list[list[int]], due_ms: int) -> None:
    """A journal with these queue offsets in its blocks."""
    number = parts.directory.new_number()
    journal = IndexJournal(OsFiles(), parts.directory.journal_path(number), number, witness(begin))
    gathering = Gathering()
    for offsets in blocks:
        for queue_offset in offsets:
            gathering.add(IndexEntry(queue_offset, due_ms, "Topic", None, ()))
        journal.write(gathering, witness(offsets[-1] + 1))
    journal.close()


def loaded(root: Path) -> Parts:
    parts = Parts(OsFiles(), root, IndexShape())
    parts.load()
    return parts


def found(parts: Parts) -> list[tuple[int, int]]:
    """(queue offset, due time) of everything in all parts."""
    return sorted((offset, due) for part in parts.sources() for due, offset in part.by_due(None, 0, None))


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(OsFiles(), tmp_path, IndexShape())


def test_a_journal_that_begins_where_another_began_stands_for_it(tmp_path: Path, parts: Parts) -> None:
    written(parts, 0, [[0, 1], [2, 3, 4], [5, 6, 7]], OLD_MS)
    written(parts, 0, [[0, 1], [3]], NEW_MS)
    again = loaded(tmp_path)
    assert found(again) == [(0, NEW_MS), (1, NEW_MS), (3, NEW_MS)]
    assert again.next_offset == 4
    again.close_files()


def test_what_a_later_journal_says_from_its_beginning_on_counts(tmp_path: Path, parts: Parts) -> None:
    written(parts, 0, [[0, 1], [2, 3, 4], [5, 6, 7]], OLD_MS)
    written(parts, 5, [[5], [6]], NEW_MS)
    again = loaded(tmp_path)
    assert found(again) == [(number, OLD_MS) for number in range(5)] + [(5, NEW_MS), (6, NEW_MS)]
    assert (again.next_offset, list(again.missing)) == (7, [])
    again.close_files()


def test_what_a_block_says_beyond_the_beginning_of_a_later_journal_is_missing(tmp_path: Path, parts: Parts) -> None:
    written(parts, 0, [[0, 1], [2, 3, 4]], OLD_MS)
    written(parts, 3, [[3]], NEW_MS)
    again = loaded(tmp_path)
    assert found(again) == [(0, OLD_MS), (1, OLD_MS), (3, NEW_MS)]
    assert (again.next_offset, list(again.missing)) == (4, [(2, 3)])
    again.close_files()


def test_journals_that_follow_each_other_are_taken_as_they_are(tmp_path: Path, parts: Parts) -> None:
    written(parts, 0, [[0, 1]], OLD_MS)
    written(parts, 2, [[2, 3]], OLD_MS)
    again = loaded(tmp_path)
    assert found(again) == [(number, OLD_MS) for number in range(4)]
    assert all(one.journal is not None for one in again.gathered())
    again.close_files()
