"""The latest row of each key beside an archive, against a dictionary that is filled row by row."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parent))

from archived_rows import add

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.archiving import latest, upkeep
from orbitmq.spark.pipelines.archiving.latest import keep_latest


def held(root: Path) -> dict[str, int]:
    rows = DeltaTable(root).to_pyarrow_table(columns=["keys", "queueOffset"]).to_pylist()
    found = {row["keys"]: row["queueOffset"] for row in rows}
    assert len(found) == len(rows), "one row for each key"
    return found


def key_of(number: int) -> str:
    return f"key {number % 7}"


@pytest.mark.parametrize("merged_rows", [1, 10, 1_000])
def test_each_run_takes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged_rows: int) -> None:
    monkeypatch.setattr(latest, "ARCHIVE_MERGED_ROWS", merged_rows)
    archive, to = str(tmp_path / "archive"), str(tmp_path / "latest")
    chosen = random.Random(1)
    wanted: dict[str, int] = {}
    at = 0
    for turn in range(6):
        end = at + chosen.randrange(1, 25)
        add(tmp_path / "archive", range(at, end), key_of=key_of)
        wanted |= {key_of(number): number for number in range(at, end)}
        at = end
        if turn % 2:
            upkeep.compact(archive)
        assert keep_latest(archive, to) > 0
        assert held(tmp_path / "latest") == wanted
        version = DeltaTable(to).version()
        assert keep_latest(archive, to) == 0
        assert DeltaTable(to).version() == version
    assert DeltaTable(to).to_pyarrow_table(columns=["properties"])["properties"].to_pylist()[0]


def test_a_run_that_died_before_its_note_is_repeated_without_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, to = str(tmp_path / "archive"), str(tmp_path / "latest")
    add(tmp_path / "archive", range(20), key_of=key_of)
    with monkeypatch.context() as patch:
        patch.setattr(latest, "_note", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            keep_latest(archive, to)
    add(tmp_path / "archive", range(20, 25), key_of=key_of)
    keep_latest(archive, to)
    assert held(tmp_path / "latest") == {key_of(number): number for number in range(25)}


def test_the_choice_of_topics_stays(tmp_path: Path) -> None:
    archive, to = str(tmp_path / "archive"), str(tmp_path / "latest")
    add(tmp_path / "archive", range(20), key_of=key_of)
    assert keep_latest(archive, to, ["payments"]) == 0
    with pytest.raises(ConfigurationError, match="begun with topics 'payments', and this run has 'all'"):
        keep_latest(archive, to)
    with pytest.raises(ConfigurationError, match="is an archive of topics, and this run is one of latest rows"):
        keep_latest(archive, archive)
    with pytest.raises(ConfigurationError, match="is an archive of latest rows, and this run is one of topics"):
        add(tmp_path / "latest", range(20))


def test_rows_are_taken_after_some_were_deleted(tmp_path: Path) -> None:
    """What `delete_key` writes anew has other types inside of its files than what a run wrote."""
    archive, to = str(tmp_path / "archive"), str(tmp_path / "latest")
    add(tmp_path / "archive", range(5), key_of=key_of)
    keep_latest(archive, to)
    assert [upkeep.delete_key(place, "2", "orders") for place in (archive, to)] == [1, 1]
    keep_latest(archive, to)
    add(tmp_path / "archive", range(5, 9), key_of=key_of)
    keep_latest(archive, to)
    assert held(tmp_path / "latest") == {key_of(number): number for number in range(9) if number != 2}


def test_another_archive_under_the_same_name_is_refused(tmp_path: Path) -> None:
    """Its versions begin anew, so what it has up to the number that is held would never be taken."""
    archive, to = str(tmp_path / "archive"), str(tmp_path / "latest")
    for number in range(4):
        add(tmp_path / "archive", range(number, number + 1), key_of=key_of)
    keep_latest(archive, to)
    shutil.rmtree(archive)
    add(tmp_path / "archive", range(50, 52), key_of=key_of)
    with pytest.raises(ConfigurationError, match="was begun with archive"):
        keep_latest(archive, to)
