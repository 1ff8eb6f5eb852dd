"""Files of accounts on disk: which count, what stops a start, and what a running server keeps when they change."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from orbitmq.access.plain.accounts import FileVersion
from orbitmq.access.plain.changes import Tree, with_account, with_white_addresses
from orbitmq.access.plain.yaml_text import Value, read_yaml
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.plain_access import PLAIN_FILE_BYTES_MAX, PLAIN_FILES_MAX, PLAIN_FOLDER_DEPTH_MAX
from orbitmq.server.access import plain_files
from orbitmq.server.access.plain_files import PlainFiles, PlainWatch, read_plain_folder
from orbitmq.server.process.turn import Wakeups
from orbitmq.store.worker import InlineWorker

T = TypeVar("T")

CLOCK = ManualClock(1_700_000_000_000)
ACCOUNT = "accounts:\n- accessKey: {}\n  secretKey: Sesame-Sesame\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "acl" / "teams").mkdir(parents=True)
    (tmp_path / "plain_acl.yml").write_text(ACCOUNT.format("default-key"))
    return tmp_path


def look_twice(files: PlainFiles) -> None:
    files.look()
    files.look()


def test_the_default_file_counts_after_those_of_the_folder(folder: Path) -> None:
    (folder / "acl" / "b.yaml").write_text(ACCOUNT.format("default-key"))
    (folder / "acl" / "teams" / "a.yml").write_text(ACCOUNT.format("teams-key"))
    (folder / "acl" / "notes.txt").write_text("not: [read")
    table = read_plain_folder(folder)
    assert table.file_of == {
        "default-key": str(folder / "acl" / "b.yaml"),
        "teams-key": str(folder / "acl" / "teams" / "a.yml"),
    }
    assert len(table.warnings) == 1


def test_a_folder_without_any_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there are no accounts"):
        PlainFiles(tmp_path, CLOCK)


@pytest.mark.parametrize(
    "text", ["accounts: [", "accounts: Sesame", "accounts:\n- accessKey: a\n  secretKey: Sesame\n"]
)
def test_a_file_that_cannot_be_used_stops_the_start(folder: Path, text: str) -> None:
    (folder / "acl" / "wrong.yml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"acl/wrong\.yml") as refused:
        PlainFiles(folder, CLOCK)
    assert "Sesame" not in str(refused.value)


def test_files_and_folders_are_bounded(folder: Path) -> None:
    (folder / "plain_acl.yml").write_bytes(b"#" * (PLAIN_FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match="bytes"):
        PlainFiles(folder, CLOCK)
    (folder / "plain_acl.yml").unlink()
    for number in range(PLAIN_FILES_MAX + 1):
        (folder / "acl" / f"{number}.yml").touch()
    with pytest.raises(ConfigurationError, match="files of accounts"):
        PlainFiles(folder, CLOCK)
    (folder / "acl").joinpath(*["deep"] * (PLAIN_FOLDER_DEPTH_MAX + 1)).mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="deeper"):
        PlainFiles(folder, CLOCK)


def test_a_change_is_in_force_when_it_has_stood_still(folder: Path) -> None:
    files = PlainFiles(folder, CLOCK)
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("another-key"))
    files.look()
    assert set(files.table.accounts) == {"default-key"}
    files.look()
    assert set(files.table.accounts) == {"another-key"}


def test_a_reload_on_request_does_not_wait_for_a_file_to_stand_still(folder: Path) -> None:
    files = PlainFiles(folder, CLOCK)
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("other-key"))
    assert "1 access keys" in files.reload()
    assert set(files.table.accounts) == {"other-key"}
    (folder / "plain_acl.yml").write_text("accounts: [")
    with pytest.raises(ConfigurationError, match=r"plain_acl\.yml"):
        files.reload()
    assert set(files.table.accounts) == {"other-key"}, "the old state stays"
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("mended-key"))
    look_twice(files)
    assert set(files.table.accounts) == {"mended-key"}


def test_a_file_that_comes_or_goes_is_noticed(folder: Path) -> None:
    files = PlainFiles(folder, CLOCK)
    (folder / "acl" / "more.yml").write_text(ACCOUNT.format("another-key"))
    look_twice(files)
    assert set(files.table.accounts) == {"default-key", "another-key"}
    (folder / "acl" / "more.yml").unlink()
    look_twice(files)
    assert set(files.table.accounts) == {"default-key"}


def test_what_cannot_be_used_keeps_the_last_good_accounts_and_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = PlainFiles(folder, CLOCK)
    for text in ("accounts: [Sesame", "", None):
        caplog.clear()
        (folder / "plain_acl.yml").write_text(text) if text is not None else (folder / "plain_acl.yml").unlink()
        for _ in range(4):
            files.look()
        assert set(files.table.accounts) == {"default-key"}
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "Sesame" not in errors[0]
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("another-key"))
    look_twice(files)
    assert set(files.table.accounts) == {"another-key"}


def test_a_file_that_cannot_be_read_for_a_while_is_read_when_it_can_without_a_further_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = PlainFiles(folder, CLOCK)
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("another-key"))

    def no_descriptor(self: Path, mode: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(self))

    with monkeypatch.context() as planted:
        planted.setattr(Path, "open", no_descriptor)
        for _ in range(4):
            files.look()
    assert set(files.table.accounts) == {"default-key"}
    assert caplog.text.count("Too many open files") == 1, "said once"
    files.look()
    assert set(files.table.accounts) == {"another-key"}


def test_only_files_that_have_changed_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "acl" / "large.yml").write_text(ACCOUNT.format("first-of-two"))
    read: list[bytes] = []

    def noted(data: bytes) -> Value:
        read.append(data)
        return read_yaml(data)

    monkeypatch.setattr(plain_files, "read_yaml", noted)
    files = PlainFiles(folder, CLOCK)
    assert len(read) == 2
    for text in (ACCOUNT.format("another-key"), "accounts: ["):
        read.clear()
        (folder / "plain_acl.yml").write_text(text)
        for _ in range(4):
            files.look()
        assert read == [text.encode()]
    assert set(files.table.accounts) == {"first-of-two", "another-key"}


class Timers(Wakeups):
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self.set: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, name: str, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.set.append(callback)
        self._loop.close()
        return asyncio.TimerHandle(0, callback, (), self._loop)


class Elsewhere:
    """A worker whose jobs run when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self.jobs.append(lambda: InlineWorker().submit(job, done))

    def close(self) -> None:
        return None


def test_files_are_looked_at_on_another_thread_one_look_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, timers, worker = PlainFiles(folder, CLOCK), Timers(), Elsewhere()
    watch = PlainWatch(files, timers, worker)
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("another-key"))
    for _ in range(2):
        timers.set.pop()()
        assert timers.set == [], "the next look waits for this one"
        worker.jobs.pop()()
    assert set(files.table.accounts) == {"another-key"}
    with monkeypatch.context() as planted:
        planted.setattr(plain_files, "_stamps", lambda folder: 1 // 0)
        timers.set.pop()()
        worker.jobs.pop()()
    assert "ZeroDivisionError" in caplog.text
    timers.set.pop()()
    watch.stop()
    worker.jobs.pop()()
    assert timers.set == []


# --- changes by request -----------------------------------------------------------------------------------------------


def add_account(tree: Tree) -> Tree:
    return with_account(tree, {"accessKey": "another-key", "secretKey": "Sesame-Sesame", "admin": False})


def test_a_change_is_written_and_keeps_the_mode_of_its_file(folder: Path) -> None:
    files = PlainFiles(folder, CLOCK)
    path = folder / "plain_acl.yml"
    path.chmod(0o640)
    table = files.change(str(path), add_account)
    assert set(files.table.accounts) == {"default-key"}
    assert set(table.accounts) == {"default-key", "another-key"}
    assert table.files[0].version == FileVersion(1, CLOCK.now_ms())
    assert path.stat().st_mode & 0o777 == 0o640
    assert set(read_plain_folder(folder).accounts) == set(table.accounts)
    assert [entry.name for entry in folder.iterdir() if entry.is_file()] == ["plain_acl.yml"]


def test_a_file_that_is_made_is_for_its_owner_only(folder: Path) -> None:
    (folder / "plain_acl.yml").rename(folder / "acl" / "a.yml")
    files = PlainFiles(folder, CLOCK)
    files.change(files.default_file, add_account)
    assert (folder / "plain_acl.yml").stat().st_mode & 0o777 == 0o600


def test_a_change_that_cannot_be_used_changes_no_file(folder: Path) -> None:
    files = PlainFiles(folder, CLOCK)
    before = (folder / "plain_acl.yml").read_bytes()
    with pytest.raises(ValueError, match="is no address"):
        files.change(files.default_file, lambda tree: with_white_addresses(tree, ["10.0.0.300"]))
    (folder / "acl" / "wrong.yml").write_text("accounts: [")
    with pytest.raises(ValueError, match=r"wrong\.yml"):
        files.change(files.default_file, add_account)
    assert (folder / "plain_acl.yml").read_bytes() == before


@pytest.mark.parametrize("half", ["", ACCOUNT.format("first-of-two")])
def test_a_file_that_an_editor_has_written_half_is_not_taken_for_the_whole_by_a_change(folder: Path, half: str) -> None:
    files = PlainFiles(folder, CLOCK)
    path = folder / "plain_acl.yml"
    path.write_text(half)
    for file in (path, folder / "acl" / "another.yml"):
        with pytest.raises(ValueError, match=r"plain_acl\.yml(: the file is empty| was changed by somebody else)"):
            files.change(str(file), add_account)
    assert path.read_text() == half
    path.write_text(ACCOUNT.format("first-of-two") + "- accessKey: second-of-two\n  secretKey: Sesame-Sesame\n")
    look_twice(files)
    files.change(str(path), add_account)
    table = files.change(str(path), lambda tree: with_white_addresses(tree, ["10.0.0.1"]))
    assert set(table.accounts) == {"first-of-two", "second-of-two", "another-key"}


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "acl" / "pipe.yml")
    (folder / "acl" / "teams" / "folder.yml").mkdir()
    with pytest.raises(ConfigurationError, match=r"pipe\.yml is no file"):
        PlainFiles(folder, CLOCK)


@pytest.mark.parametrize("step", ["exists", "is_dir", "iterdir"])
def test_a_folder_that_may_not_be_read_for_a_while_keeps_the_accounts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    files = PlainFiles(folder, CLOCK)

    def forbidden(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as planted:
        planted.setattr(Path, step, forbidden)
        look_twice(files)
    assert set(files.table.accounts) == {"default-key"}
    assert "Permission denied" in caplog.text
    (folder / "plain_acl.yml").write_text(ACCOUNT.format("another-key"))
    look_twice(files)
    assert set(files.table.accounts) == {"another-key"}


@pytest.mark.parametrize("step", ["os.open", "os.fchmod", "os.fsync", "pathlib.Path.replace"])
def test_after_a_crash_at_any_step_the_file_is_whole_and_the_next_change_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    files = PlainFiles(folder, CLOCK)

    def crash(*args: object, **kwargs: object) -> None:
        raise OSError(5, "the machine stops here")

    with monkeypatch.context() as planted:
        planted.setattr(step, crash)
        with pytest.raises(OSError, match="the machine stops here"):
            files.change(files.default_file, add_account)
    assert set(read_plain_folder(folder).accounts) == {"default-key"}
    files.change(files.default_file, add_account)
    assert set(read_plain_folder(folder).accounts) == {"default-key", "another-key"}
