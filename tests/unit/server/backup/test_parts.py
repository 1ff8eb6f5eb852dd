"""What a backup has of a store."""

from __future__ import annotations

import pytest

from orbitmq.server.backup.parts import is_copied, strangers, without_gap
from orbitmq.server.replication.reseeding import STORE_NAMES


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("topics.json", True), ("topics.json.bak", True), ("orbitmq-access.json", True), ("topics.json.tmp", False),
        ("timercheck", False), ("timermetrics", False), ("timermetrics.bak", False), ("transactionMetrics", True),
    ],
)  # fmt: skip
def test_tables_are_copied(name: str, is_it: bool) -> None:
    assert is_copied(name) is is_it


def test_every_part_of_a_store_has_a_meaning() -> None:
    assert set(strangers(STORE_NAMES)) == {"consumequeue_ext"}, "which a start makes ordinary ones"
    assert strangers(["lock", "notes.txt", "orbitmq.far.tmp"]) == ["notes.txt"]


def test_of_files_with_a_gap_the_newest_count() -> None:
    assert without_gap([], 10) == []
    assert without_gap([20, 0, 10], 10) == [0, 10, 20]
    assert without_gap([0, 20, 30], 10) == [20, 30]
