"""Stores made of backups, and backups that are not what they were."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, StoreDamagedError, StoreError, StoreLockedError
from orbitmq.server.backup.directory import BackupDirectory
from orbitmq.server.backup.manifest import BackupFile, BackupManifest
from orbitmq.server.backup.restoring import restore_backup, restore_order, verify_backup
from orbitmq.server.backup.taking import take_backup
from orbitmq.store.files import File, NotReadError, OsFiles

FILES = OsFiles()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    little = LittleStore(tmp_path / "data")
    for number in range(300):
        little.send(body=b"%d" % number)
    little.advance(300)
    take_backup(FILES, SystemClock(), tmp_path / "data", tmp_path / "backup")
    little.close()
    return tmp_path / "backup"


def test_only_an_empty_directory_is_restored_into(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds a store whose log files reach"):
        restore_backup(FILES, backup, tmp_path / "data")
    little = LittleStore(tmp_path / "data")
    with pytest.raises(StoreLockedError, match="a broker serves"):
        restore_backup(FILES, backup, tmp_path / "data")
    little.close()
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file").touch()
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(FILES, backup, tmp_path / "some")
    for inside in (backup / "restored", tmp_path):
        with pytest.raises(StoreError, match="lie in each other"):
            restore_backup(FILES, backup, inside)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for none in (tmp_path / "some" / "file", tmp_path / "link"):
        with pytest.raises(StoreError, match="is no directory"):
            restore_backup(FILES, backup, none)


def test_a_log_is_neither_in_the_backup_nor_around_the_store(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    for log, why in (
        (backup / "log", "lie in each other"),
        (new, "lies in its log"),
        (tmp_path / "data" / "commitlog", "not empty"),
    ):
        with pytest.raises(StoreError, match=why):
            restore_backup(FILES, backup, new, commit_log=log)
        assert not new.exists()


def test_the_log_may_lie_elsewhere(backup: Path, tmp_path: Path) -> None:
    restore_backup(FILES, backup, tmp_path / "new", commit_log=tmp_path / "log")
    assert not (tmp_path / "new" / "commitlog").exists()
    little = LittleStore(tmp_path / "new", store_path_commit_log=tmp_path / "log")
    assert len(little.bodies()) == 300
    little.close()
    take_backup(FILES, SystemClock(), tmp_path / "new", tmp_path / "second", commit_log=tmp_path / "log")
    restore_backup(FILES, tmp_path / "second", tmp_path / "third")
    little = LittleStore(tmp_path / "third")
    assert len(little.bodies()) == 300
    little.close()


def test_a_flipped_bit_is_found(backup: Path, tmp_path: Path) -> None:
    path = min((backup / "store" / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    name = f"commitlog/{path.name}"
    assert verify_backup(FILES, backup).damaged == [name]
    with pytest.raises(StoreDamagedError, match=name):
        restore_backup(FILES, backup, tmp_path / "new")
    with pytest.raises(OrbitError):
        LittleStore(tmp_path / "new")  # what was begun is no store


@pytest.mark.parametrize("at", range(1, 12))
def test_what_a_restore_leaves_behind_that_was_killed_is_no_store(backup: Path, tmp_path: Path, at: int) -> None:
    """From the first file on: a broker would begin anew in a directory that has no mark and no log yet."""

    class Killed(BaseException):
        pass

    class Failing(OsFiles):
        __slots__ = ()
        left = at

        def open(
            self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
        ) -> File:
            if create:
                Failing.left -= 1
                if Failing.left < 0:
                    raise Killed
            return super().open(path, create=create, writable=writable, keep_unsynced=keep_unsynced)

    with pytest.raises(Killed):
        restore_backup(Failing(), backup, tmp_path / "new")
    with pytest.raises(OrbitError):
        LittleStore(tmp_path / "new")


def test_a_restore_without_room_says_so_and_leaves_no_store(backup: Path, tmp_path: Path) -> None:
    class Full(OsFiles):
        __slots__ = ()

        def rename(self, source: Path, target: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        StoreError, match=r"there is no room left for .*new: \d+ bytes are free; what is there so far is no store"
    ):
        restore_backup(Full(), backup, tmp_path / "new")
    with pytest.raises(OrbitError):
        LittleStore(tmp_path / "new")


def test_a_missing_file_is_found(backup: Path, tmp_path: Path) -> None:
    (backup / "store" / "checkpoint").unlink()
    assert verify_backup(FILES, backup).damaged == ["checkpoint"]
    with pytest.raises(StoreDamagedError, match="checkpoint"):
        restore_backup(FILES, backup, tmp_path / "new")


def test_what_cannot_be_read_is_damaged_and_the_others_are_looked_at(backup: Path) -> None:
    """A disk that is failing, of which nothing can be written down any more."""

    class Failing(OsFiles):
        __slots__ = ()

        def open(
            self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
        ) -> File:
            if Path(path).name == "checkpoint":
                raise NotReadError(errno.EIO, "Input/output error")
            return super().open(path, create=create, writable=writable, keep_unsynced=keep_unsynced)

        def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

    (backup / "store" / "orbitmq.mark").unlink()
    (backup / "store" / "orbitmq.mark").mkdir()
    report = verify_backup(Failing(), backup)
    assert set(report.damaged) == {"checkpoint", "orbitmq.mark"}
    assert report.not_noted == "Read-only file system"


def test_what_is_sound_again_is_damaged_no_more(backup: Path) -> None:
    place = backup / "store" / "checkpoint"
    place.rename(backup / "away")
    assert verify_backup(FILES, backup).damaged == ["checkpoint"]
    (backup / "away").rename(place)
    assert verify_backup(FILES, backup).damaged == []
    opened = BackupDirectory.open(FILES, backup, create=False)
    assert not opened.manifest.files["checkpoint"].is_damaged
    opened.close()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no directory"):
        verify_backup(FILES, tmp_path / "nowhere")
    with pytest.raises(StoreError, match="holds no backup"):
        verify_backup(FILES, tmp_path)
    BackupDirectory.open(FILES, tmp_path / "begun", create=True).close()
    with pytest.raises(StoreError, match="no backup has come to its end"):
        restore_backup(FILES, tmp_path / "begun", tmp_path / "new")


def test_the_mark_comes_first_and_the_log_last() -> None:
    names = ("commitlog/2", "config/topics.json", "orbitmq.mark", "commitlog/1", "checkpoint", "abort")
    manifest = BackupManifest(store="", taken_at_ms=0, end=0, files=dict.fromkeys(names, BackupFile(0, 0, "")))
    assert restore_order(manifest) == [
        "checkpoint", "orbitmq.mark", "abort", "config/topics.json", "commitlog/1", "commitlog/2",
    ]  # fmt: skip
