"""Files that commands write: whole, private, and never in the place of what is no file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from orbitmq.cli.shared.output_file import write_private


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    file = tmp_path / ("ü" * 120 + ".json")
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_its_name_is_on_the_disk_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").is_dir())

    monkeypatch.setattr(os, "fsync", fsync)
    write_private(tmp_path / "file", b"new")
    assert synced == [False, True], "the content first, then the folder"


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    write_private(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_bytes() == b"new"


def test_what_is_no_file_is_written_into(tmp_path: Path) -> None:
    """As /dev/null is, which a super user could replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_private(pipe, b"new")
    reader.join()
    assert (found, pipe.is_fifo()) == ([b"new"], True)
    write_private(Path(os.devnull), b"new")
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path, b"new")


def test_one_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no room")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        write_private(tmp_path / "file", b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
