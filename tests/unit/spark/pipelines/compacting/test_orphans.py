"""Files that nobody knows."""

from __future__ import annotations

from orbitmq.limits.spark import SCHEDULE_AGE_MS_MAX
from orbitmq.spark.pipelines.compacting.orphans import orphans
from orbitmq.timing.far.storage import StoredFile

MANIFEST_AT_MS = 100 * SCHEDULE_AGE_MS_MAX
OLD_MS = MANIFEST_AT_MS - 3 * SCHEDULE_AGE_MS_MAX


def found(*files: StoredFile, known: set[str] | None = None, grace_ms: int = 2 * SCHEDULE_AGE_MS_MAX) -> list[str]:
    return orphans(files, known or set(), manifest_at_ms=MANIFEST_AT_MS, grace_ms=grace_ms)


def test_an_old_file_that_a_later_manifest_does_not_know_is_an_orphan() -> None:
    assert found(StoredFile("a", 1, OLD_MS), StoredFile("b", 1, OLD_MS), known={"b"}) == ["a"]


def test_a_file_that_may_still_be_added_is_none() -> None:
    assert found(StoredFile("a", 1, MANIFEST_AT_MS - SCHEDULE_AGE_MS_MAX)) == []
    assert found(StoredFile("a", 1, MANIFEST_AT_MS + 5)) == []
    assert found(StoredFile("a", 1, MANIFEST_AT_MS - SCHEDULE_AGE_MS_MAX), grace_ms=0) == []


def test_a_file_without_a_time_is_none() -> None:
    assert found(StoredFile("a", 1, 0)) == []
