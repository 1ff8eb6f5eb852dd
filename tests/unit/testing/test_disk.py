"""The disk of an embedded broker."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orbitmq.clock import SystemClock
from orbitmq.testing.clock import VirtualClock
from orbitmq.testing.disk import EmbeddedFiles


@pytest.fixture
def files() -> EmbeddedFiles:
    return EmbeddedFiles(VirtualClock(1_000_000_000_000))


def test_while_it_fails_nothing_is_written_and_everything_is_read(files: EmbeddedFiles, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = files.open(path, create=True)
    file.pwrite(b"before", 0)
    files.failing = errno.ENOSPC
    for write in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.pwritev([b"x", b"y"], 0),
        lambda: file.allocate(0, 100),
        lambda: files.open(tmp_path / "new", create=True),
        lambda: files.make_dirs(tmp_path / "directory"),
        lambda: files.rename(path, tmp_path / "other"),
        lambda: files.write_atomic(path, b"x"),
        lambda: files.lock(tmp_path / "lock"),
    ):
        with pytest.raises(OSError, match="No space left"):
            write()
    assert (file.pread(6, 0), files.read_bytes(path)) == (b"before", b"before")
    files.failing = None
    file.pwrite(b"after!", 0)
    assert files.read_bytes(path) == b"after!"
    file.close()


def test_a_full_disk_syncs_what_is_written_and_a_broken_one_does_not(files: EmbeddedFiles, tmp_path: Path) -> None:
    """Else a sync that was due in the block would end the store for good, which a full disk does not."""
    file = files.open(tmp_path / "file", create=True)
    file.pwrite(b"before", 0)
    files.failing = errno.ENOSPC
    file.datasync()
    files.sync_dir(tmp_path)
    files.failing = errno.EIO
    for sync in (file.datasync, lambda: files.sync_dir(tmp_path)):
        with pytest.raises(OSError, match="Input/output error"):
            sync()


def test_files_age_in_real_time(files: EmbeddedFiles, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    hour_ago = SystemClock().now_ms() / 1_000 - 3_600
    os.utime(path, (hour_ago, hour_ago))
    age_ms = 1_000_000_000_000 - files.modified_ms(path)
    assert 3_600_000 <= age_ms < 3_700_000


def test_the_machines_disk_is_never_what_refuses_a_message(files: EmbeddedFiles, tmp_path: Path) -> None:
    assert files.disk_usage(tmp_path).used_bytes == 0
