"""Dumps: filters, starting points, damage in the output, small files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.dump import dump_checkpoint, dump_index, dump_mark, dump_records, dump_units
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import Mark, MarkFile

Unpack = Callable[[str], Any]
FILES = OsFiles()


def test_records_of_one_queue_from_an_offset_on(shared_store: Unpack) -> None:
    root, expected = shared_store("plain-clean")
    found = [
        item for item in dump_records(FILES, root, start=262_144, topic="VecB", queue_id=0) if item["kind"] == "record"
    ]
    wanted = [m for m in expected["messages"] if m["topic"] == "VecB" and m["physicalOffset"] >= 262_144]
    assert [item["physicalOffset"] for item in found] == [message["physicalOffset"] for message in wanted]
    start = wanted[3]["physicalOffset"]
    first = next(dump_records(FILES, root, start=start))
    assert first["physicalOffset"] == start
    assert first["bornHost"] == wanted[3]["bornHost"]
    assert len(first["msgId"]) == 32
    assert int(first["msgId"][16:], 16) == start


def test_damage_is_part_of_the_output(golden_store: Unpack) -> None:
    root = golden_store("plain-clean").root
    path = root / "commitlog/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[243] ^= 1  # magic code of the second record
    path.write_bytes(data)
    items = list(dump_records(FILES, root))
    assert [item["kind"] for item in items[:3]] == ["record", "damage", "record"]
    assert items[1]["physicalOffset"] == 239
    assert "magic" in items[1]["problem"]


def test_units_of_a_queue_over_several_files(shared_store: Unpack) -> None:
    root, expected = shared_store("plain-clean")
    units = list(dump_units(FILES, root, "VecB", 0, first=98, end=103))
    assert [unit["queueOffset"] for unit in units] == [98, 99, 100, 101, 102]
    offsets = {m["queueOffset"]: m["physicalOffset"] for m in expected["messages"] if m["topic"] == "VecB"}
    assert all(unit["physicalOffset"] == offsets[unit["queueOffset"]] for unit in units)
    assert list(dump_units(FILES, root, "VecB", 9)) == []


def test_index_entries_follow_their_file(shared_store: Unpack) -> None:
    root, expected = shared_store("delay-clean")
    items = list(dump_index(FILES, root))
    files = [item for item in items if item["kind"] == "file"]
    assert [item["indexCount"] for item in files] == [item["indexCount"] for item in expected["indexFiles"]]
    assert len(items) == len(files) + sum(item["indexCount"] - 1 for item in files)
    assert items[1]["number"] == 1
    assert items[1]["previous"] == 0


def test_an_index_of_unknown_shape_is_an_error(tmp_path: Path) -> None:
    assert list(dump_index(FILES, tmp_path)) == []
    (tmp_path / "index").mkdir()
    (tmp_path / "index/20260101000000000").write_bytes(bytes(8440))
    with pytest.raises(StoreError, match="cannot be told"):
        list(dump_index(FILES, tmp_path))


def test_checkpoint_and_mark_of_an_empty_directory(tmp_path: Path) -> None:
    assert dump_checkpoint(FILES, tmp_path) == {}
    assert dump_mark(FILES, tmp_path) is None


def test_mark(tmp_path: Path) -> None:
    file = MarkFile(FILES, tmp_path)
    file.save_synced(Mark(serial=3, boot="b", end=77, positions={"queues": 77}))
    file.close()
    mark = dump_mark(FILES, tmp_path)
    assert mark is not None
    assert mark["end"] == 77
    assert mark["positions"] == {"queues": 77}
