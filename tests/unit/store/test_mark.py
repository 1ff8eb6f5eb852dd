"""The recovery mark: what may be believed after which kind of end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.faults import RecordingFiles

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE, SLOT_BYTES, Mark, MarkFile


def mark(serial: int, boot: str = "now", **values: Any) -> Mark:
    return Mark(serial=serial, boot=boot, end=serial * 100, positions={"a": serial * 100, "b": serial * 90}, **values)


def saved(root: Path, *, written: list[Mark] = [], synced: list[Mark] = []) -> None:  # noqa: B006
    file = MarkFile(OsFiles(), root)
    for one in synced:
        file.save_synced(one)
    for one in written:
        file.save_written(one)
    file.close()


def load(root: Path, boot: str = "now") -> Mark | None:
    return MarkFile(OsFiles(), root).load(boot)


def test_no_file_is_no_mark_and_none_is_made(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert not (tmp_path / MARK_FILE).exists()


def test_in_the_same_boot_the_newest_counts(tmp_path: Path) -> None:
    saved(tmp_path, synced=[mark(1), mark(2)], written=[mark(3)])
    found = load(tmp_path)
    assert found == mark(3)
    assert found.lowest_position() == 270


def test_after_a_power_failure_only_what_was_synced(tmp_path: Path) -> None:
    saved(tmp_path, synced=[mark(1), mark(2)], written=[mark(3)])
    assert load(tmp_path, "next boot") == mark(2)
    saved(tmp_path / "new", written=[mark(3)]) if (tmp_path / "new").mkdir() is None else None
    assert load(tmp_path / "new", "next boot") is None


@pytest.mark.parametrize("seed", range(8))
def test_a_power_failure_leaves_the_first_mark_its_name(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "before"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root)
    file = MarkFile(files, root)
    file.save_synced(mark(1))
    file.close()
    files.power_cut(tmp_path / "after", random.Random(seed), keep=0.0)
    assert load(tmp_path / "after", "next boot") == mark(1)


def test_two_synced_slots_alternate_so_that_one_is_always_whole(tmp_path: Path) -> None:
    saved(tmp_path, synced=[mark(1), mark(2)])
    file = MarkFile(OsFiles(), tmp_path)
    assert file.load("now") == mark(2)
    assert file.synced == mark(2)
    assert file.serial == 2
    file.save_synced(mark(3))
    slots = [(tmp_path / MARK_FILE).read_bytes()[n * SLOT_BYTES :][:SLOT_BYTES] for n in range(3)]
    assert [json.loads(slot[8:].rstrip(b"\0"))["serial"] for slot in slots[1:]] == [3, 2]


@pytest.mark.parametrize("at", [0, 5, 8, 60])
def test_a_torn_slot_is_not_believed(tmp_path: Path, at: int) -> None:
    saved(tmp_path, synced=[mark(1), mark(2)])
    path = tmp_path / MARK_FILE
    data = bytearray(path.read_bytes())
    data[2 * SLOT_BYTES + at] ^= 1
    path.write_bytes(data)
    assert load(tmp_path) == mark(1)
    path.write_bytes(data[: SLOT_BYTES + 20])
    assert load(tmp_path) is None


def test_a_mark_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, synced=[mark(1), mark(2, version=9)])
    with pytest.raises(StoreDamagedError, match="version 9: a later version of orbitmq"):
        load(tmp_path)


def test_a_mark_that_is_too_large_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    saved(tmp_path, synced=[mark(1)])
    file = MarkFile(OsFiles(), tmp_path)
    with pytest.raises(ValueError, match="does not fit in its slot"):
        file.save_written(mark(2, states={"a": "x" * SLOT_BYTES}))
    assert load(tmp_path) == mark(1)
