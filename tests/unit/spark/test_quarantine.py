"""The file of what could not be used."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.quarantine import Quarantine


def test_lines_say_where_and_why(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bad.jsonl"
    with Quarantine(place_at(str(path))) as quarantine:
        quarantine.add({"topic": "orders", "queueOffset": 7}, "no body", b"x" * (QUARANTINED_BYTES_MAX + 1))
        quarantine.add({"topic": "orders", "queueOffset": 9}, "no time")
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["queueOffset"], first["reason"]) == (7, "no body")
    assert base64.b64decode(first["bytes"]) == b"x" * QUARANTINED_BYTES_MAX
    assert second == {"topic": "orders", "queueOffset": 9, "reason": "no time", "bytes": ""}
    assert (quarantine.count, quarantine.size_bytes) == (2, path.stat().st_size)


def test_no_line_no_file_and_none_of_failed_work(tmp_path: Path) -> None:
    with Quarantine(place_at(str(tmp_path / "a"))):
        pass
    with pytest.raises(ValueError, match="broken off"), Quarantine(place_at(str(tmp_path / "b"))) as quarantine:  # noqa: PT012
        quarantine.add({}, "bad")
        raise ValueError("broken off")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"), Quarantine(place_at(f"{tmp_path}/file/x")) as quarantine:
        quarantine.add({}, "bad")


def test_the_error_of_the_work_is_the_one_that_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    with pytest.raises(ValueError, match="broken off") as caught, Quarantine(place_at(str(path))) as quarantine:  # noqa: PT012
        quarantine.add({}, "bad")
        path.with_name(".bad.jsonl").unlink()
        raise ValueError("broken off")
    [note] = caught.value.__notes__
    assert note.startswith(f"beside that: {path} cannot be written")


def test_a_file_is_synced_where_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive notes offsets behind it: a power cut must not take what says which rows were left out."""
    synced: list[str] = []
    monkeypatch.setattr("orbitmq.spark.quarantine.sync", lambda place: synced.append(place.path))
    with Quarantine(place_at(str(tmp_path / "bad.jsonl"))) as quarantine:
        quarantine.add({}, "bad")
    assert synced == [str(tmp_path / ".bad.jsonl"), str(tmp_path)]
