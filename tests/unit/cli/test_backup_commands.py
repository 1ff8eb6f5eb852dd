"""store backup, verify and restore, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_server import Ran
from tests.worlds.little_store import LittleStore

from orbitmq.server.backup import taking
from orbitmq.server.backup.directory import BackupDirectory
from orbitmq.store.files import OsFiles

Run = Callable[..., Ran]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """A store that somebody serves."""
    little = LittleStore(tmp_path / "data")
    for number in range(100):
        little.send(body=b"%d" % number)
    little.advance(300)
    yield tmp_path / "data"
    little.kill()


def test_there_and_back(orbitmq: Run, served: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = orbitmq("store", "backup", served, backup)
    assert first.code == 0
    assert f"note: {backup} is on the same file system" in first.err
    assert f"{backup}: sound" in first.err
    second = json.loads(orbitmq("store", "backup", served, backup, "--no-check", "-o", "json").out)
    assert (second["findings"], second["removed_files"]) == (None, 0)
    assert backup.stat().st_mode & 0o777 == 0o700
    assert "as it was copied" in orbitmq("store", "verify", backup).err
    restored = orbitmq("store", "restore", backup, tmp_path / "new", "-o", "json")
    assert json.loads(restored.out)["log_end"] == second["log_end"]
    assert orbitmq("store", "check", tmp_path / "new").code == 0


def test_a_damaged_store_is_copied_and_told(orbitmq: Run, served: Path, tmp_path: Path) -> None:
    first = min((served / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.seek(4)
        file.write(b"none")
    ran = orbitmq("store", "backup", served, tmp_path / "backup")
    assert ran.code == 1
    assert "finding: commitlog/" in ran.err


def test_a_damaged_backup_is_named(orbitmq: Run, served: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    orbitmq("store", "backup", served, backup)
    (backup / "store" / "checkpoint").write_bytes(b"x" * 4096)
    ran = orbitmq("store", "verify", backup)
    assert (ran.code, "damaged: checkpoint" in ran.err) == (1, True)
    assert "the next backup copies them anew" in ran.err
    assert orbitmq("store", "restore", backup, tmp_path / "new").code == 1


def test_a_backup_finds_what_became_of_the_files_of_earlier_runs(
    orbitmq: Run, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that `store check` does not judge, and that a restore would refuse."""
    monkeypatch.setattr(taking, "BACKUP_QUIET_NS", -(10**18))  # files of a test are young
    backup = tmp_path / "backup"
    (served / "config" / "orbitmq-notes.json").write_text('{"a": 1}')
    orbitmq("store", "backup", served, backup)
    (backup / "store" / "config" / "orbitmq-notes.json").write_text('{"a": 2}')
    ran = orbitmq("store", "backup", served, backup)
    assert ran.code == 1
    assert "finding: config/orbitmq-notes.json is not as it was copied" in ran.err
    assert "the next backup copies them anew" in ran.err
    assert orbitmq("store", "backup", served, backup).code == 0
    assert orbitmq("store", "restore", backup, tmp_path / "new").code == 0


def test_what_is_in_use_has_its_exit_code(orbitmq: Run, served: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert orbitmq("store", "backup", served, backup).code == 0
    ran = orbitmq("store", "restore", backup, served)
    assert (ran.code, "a broker serves" in ran.err) == (6, True)
    held = BackupDirectory.open(OsFiles(), backup, create=False)
    ran = orbitmq("store", "backup", served, backup)
    assert (ran.code, "in use by another backup" in ran.err) == (6, True)
    held.close()
