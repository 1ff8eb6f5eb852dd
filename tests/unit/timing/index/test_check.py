"""Damage of any byte of a run or of the manifest is found; what a kill leaves behind is a note."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.store.files import OsFiles
from orbitmq.timing.index.directory import INDEX_DIRECTORY, MANIFEST, check_index
from orbitmq.timing.index.parts import IndexShape


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    little = LittleStore(tmp_path, index=IndexShape(capacity=8, carried=0))
    for number in range(30):
        little.send(body=b"x", after_ms=60_000 + number, KEYS=f"key{number}", UNIQ_KEY=f"{number:032X}")
    assert little.timer_index is not None
    little.timer_index.work_off()
    little.advance(6_000)
    little.close()
    little.timer_index.close()
    return tmp_path / INDEX_DIRECTORY


def check(directory: Path) -> tuple[list[str], list[str]]:
    findings: list[str] = []
    notes: list[str] = []
    check_index(
        OsFiles(),
        directory.parent,
        lambda path, text: findings.append(f"{path.name}: {text}"),
        lambda path, text: notes.append(f"{path.name}: {text}"),
    )
    return findings, notes


def runs(directory: Path) -> list[Path]:
    found = sorted(path for path in directory.iterdir() if path.suffix == ".run")
    assert found
    return found


def test_a_sound_index_and_none_are_silent(directory: Path, tmp_path: Path) -> None:
    assert check(directory) == ([], [])
    assert check(tmp_path / "elsewhere" / INDEX_DIRECTORY) == ([], [])


def test_every_byte_of_a_run_counts(directory: Path) -> None:
    path = runs(directory)[0]
    sound = path.read_bytes()
    for at in range(len(sound)):
        if not sound[at]:  # padding is no part of a column
            continue
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x20]) + sound[at + 1 :])
        findings, _ = check(directory)
        assert len(findings) == 1, at
        assert findings[0].startswith(path.name)


def test_a_run_that_is_gone_is_found(directory: Path) -> None:
    runs(directory)[0].unlink()
    assert len(check(directory)[0]) == 1


def test_a_damaged_manifest_is_found(directory: Path) -> None:
    path = directory / MANIFEST
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert [one.split(":")[0] for one in check(directory)[0]] == [MANIFEST]


def test_a_torn_journal_is_a_note(directory: Path) -> None:
    path = max(path for path in directory.iterdir() if path.name != MANIFEST and path.suffix != ".run")
    path.write_bytes(path.read_bytes() + b"torn")
    findings, notes = check(directory)
    assert findings == []
    assert notes == [f"{path.name}: ends in 4 bytes that are no whole block"]
