"""The directory of a backup: nothing that counts changes before what comes next is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.server.backup.directory import NEXT_FILE, BackupDirectory, make_private
from orbitmq.server.backup.manifest import MANIFEST_FILE, BackupFile, BackupManifest, encode_manifest
from orbitmq.store.files import OsFiles

FILES = OsFiles()


def manifest(*names: str, staged: tuple[str, ...] = ()) -> BackupManifest:
    return BackupManifest(
        store="s", taken_at_ms=0, end=len(names), files=dict.fromkeys(names, BackupFile(0, 0, "")), staged=list(staged)
    )


def put(backup: BackupDirectory, **contents: str) -> None:
    for name, text in contents.items():
        backup.stage(f"config/{name}").write_text(text)


def stored(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "store").rglob("*") if path.is_file()}


def test_a_run_that_ends_replaces_and_removes(tmp_path: Path) -> None:
    backup = BackupDirectory.open(FILES, tmp_path, create=True)
    put(backup, a="1", b="1")
    backup.commit(manifest("config/a", "config/b"))
    put(backup, b="2", c="2")
    assert stored(tmp_path) == {"a": "1", "b": "1"}
    backup.commit(manifest("config/b", "config/c"))
    assert stored(tmp_path) == {"b": "2", "c": "2"}
    backup.close()


def test_what_a_run_left_staged_is_thrown_away(tmp_path: Path) -> None:
    backup = BackupDirectory.open(FILES, tmp_path, create=True)
    put(backup, a="1")
    backup.commit(manifest("config/a"))
    put(backup, a="2")
    backup.close()
    backup = BackupDirectory.open(FILES, tmp_path, create=False)
    backup.discard()
    assert stored(tmp_path) == {"a": "1"}
    assert not (tmp_path / "new").exists()
    backup.close()


def test_a_run_that_had_copied_everything_is_carried_out(tmp_path: Path) -> None:
    backup = BackupDirectory.open(FILES, tmp_path, create=True)
    put(backup, a="1", b="1")
    backup.commit(manifest("config/a", "config/b"))
    put(backup, a="2", c="2")
    following = manifest("config/a", "config/c", staged=("config/a", "config/c"))
    (tmp_path / NEXT_FILE).write_bytes(encode_manifest(following))
    (tmp_path / "new" / "config" / "a").rename(tmp_path / "store" / "config" / "a")
    backup.close()
    backup = BackupDirectory.open(FILES, tmp_path, create=False)
    assert backup.manifest == following
    assert stored(tmp_path) == {"a": "2", "c": "2"}
    assert not (tmp_path / "new").exists()
    backup.close()


def test_folders_in_which_nothing_changes_are_not_synced_again(tmp_path: Path) -> None:
    """A store has thousands of queues, and a sync takes milliseconds."""
    synced: list[str] = []

    class Noting(OsFiles):
        __slots__ = ()

        def sync_dir(self, path: Path) -> None:
            synced.append(str(path.relative_to(tmp_path)))
            super().sync_dir(path)

    backup = BackupDirectory.open(Noting(), tmp_path, create=True)
    backup.stage("consumequeue/a/0/1").touch()
    backup.stage("consumequeue/b/0/1").touch()
    backup.commit(manifest("consumequeue/a/0/1", "consumequeue/b/0/1"))
    assert {"store", "store/consumequeue", "store/consumequeue/a/0", "store/consumequeue/b/0"} <= set(synced)
    synced.clear()
    backup.stage("consumequeue/b/0/1").touch()
    backup.commit(manifest("consumequeue/a/0/1", "consumequeue/b/0/1"))
    assert "store/consumequeue/b/0" in synced
    assert not [path for path in synced if "/a" in path]
    backup.close()


def test_a_folder_in_the_place_of_a_file_does_not_stop_a_run(tmp_path: Path) -> None:
    backup = BackupDirectory.open(FILES, tmp_path, create=True)
    put(backup, a="1")
    backup.commit(manifest("config/a"))
    (tmp_path / "store" / "config" / "a").unlink()
    (tmp_path / "store" / "config" / "a" / "inside").mkdir(parents=True)
    put(backup, a="2")
    backup.commit(manifest("config/a"))
    assert stored(tmp_path) == {"a": "2"}
    backup.close()


def test_a_first_run_that_was_broken_off_at_once_leaves_an_empty_place(tmp_path: Path) -> None:
    (tmp_path / f"{MANIFEST_FILE}.tmp").touch()  # killed, or without room, before the first manifest was whole
    backup = BackupDirectory.open(FILES, tmp_path, create=True)
    assert not backup.manifest.files
    backup.close()


def test_nobody_else_may_read_it_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made private, not made so afterwards."""
    monkeypatch.setattr(Path, "chmod", None)
    before = os.umask(0)
    try:
        make_private(FILES, tmp_path / "some" / "where")
        make_private(FILES, tmp_path / "some" / "where")
    finally:
        os.umask(before)
    assert (tmp_path / "some" / "where").stat().st_mode & 0o777 == 0o700


def test_a_disk_of_its_own_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    BackupDirectory.open(FILES, tmp_path, create=True).close()
    with pytest.raises(StoreError, match="is no directory"):
        BackupDirectory.open(FILES, tmp_path / "lost+found" / "not", create=False)
