"""The file of what could not be used."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.quarantine import Quarantine


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
