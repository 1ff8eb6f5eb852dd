"""Saving: in which order, how often, and what it does when the disk is full."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from unittest import mock

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.limits.store import DURABLE_SAVE_MS, SAVE_RETRY_MS, WRITTEN_SAVE_MS
from orbitmq.store.checkpoint import CheckpointFile, read_checkpoint
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE, Mark, MarkFile
from orbitmq.store.recovery import LastWriter
from orbitmq.store.saving import is_passing_trouble


def mark_of(root: Path, *, boot: str = "boot") -> Mark:
    found = MarkFile(OsFiles(), root).load(boot)
    assert found is not None
    return found


@pytest.fixture
def files(tmp_path: Path) -> RecordingFiles:
    return RecordingFiles(OsFiles(), tmp_path)


@pytest.fixture
def little(tmp_path: Path, files: RecordingFiles) -> LittleStore:
    little = LittleStore(tmp_path, files=files)
    little.worker.close()
    return little


def test_a_durable_save_syncs_log_queues_index_then_mark_then_checkpoint(
    little: LittleStore, files: RecordingFiles
) -> None:
    little.release.paused = True
    little.send("Topic", 1, KEYS="k")
    little.send("Topic", 1, level=1)
    little.clock.advance(DURABLE_SAVE_MS)
    little.turn()
    before = len(files.calls)
    little.worker.close()
    synced = [call.path for call in files.calls[before:] if call.kind == "sync"]
    kinds = [path.relative_to(little.root).parts[0] for path in synced]
    assert list(dict.fromkeys(kinds)) == ["commitlog", "consumequeue", "index", "config", MARK_FILE, "checkpoint"]
    found = mark_of(little.root, boot="another boot")
    assert found.end == little.store.log.end
    assert set(found.positions.values()) == {found.end}
    page = read_checkpoint(OsFiles(), little.root / "checkpoint")
    assert page is not None
    assert page.digest() in found.checkpoints
    assert page.physic_msg_timestamp == little.clock.now_ms() - DURABLE_SAVE_MS


def test_nothing_is_saved_without_a_change(little: LittleStore, files: RecordingFiles) -> None:
    before = len(files.calls)
    for _ in range(10):
        little.advance(10_000)
    assert len(files.calls) == before
    assert little.store.deadlines.next_ns is None, "an idle store does not wake at all"


def test_a_written_save_costs_writes_and_no_sync(little: LittleStore, files: RecordingFiles) -> None:
    little.send()
    before = len(files.calls)
    little.clock.advance(WRITTEN_SAVE_MS)
    little.turn()
    assert {call.kind for call in files.calls[before:] if call.path.suffix == ".mark"} == {"write"}
    assert not any(call.kind.startswith("sync") for call in files.calls[before:])
    assert mark_of(little.root).end == little.store.log.end


def test_a_mark_says_no_more_than_was_confirmed_at_its_moment(little: LittleStore) -> None:
    first = little.send()
    little.clock.advance(DURABLE_SAVE_MS)
    little.turn()
    little.send()  # while the save is on its way
    little.worker.close()
    assert mark_of(little.root, boot="another boot").end == first.end_offset


@pytest.mark.parametrize("kind", [MarkFile, CheckpointFile])
def test_a_disk_too_full_for_the_mark_keeps_the_previous_one_and_heals(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    little.send()
    little.advance(DURABLE_SAVE_MS)
    before = mark_of(little.root, boot="another boot")
    little.send()
    with monkeypatch.context() as patch:
        patch.setattr(kind, "save_synced" if kind is MarkFile else "write", full)
        little.clock.advance(DURABLE_SAVE_MS)
        little.turn()
        little.worker.close()
    assert not little.store.writable
    assert little.store.unsynced_bytes == 0, "what was synced is synced"
    if kind is MarkFile:
        assert mark_of(little.root, boot="another boot") == before
    little.advance(1_000)
    assert little.store.writable
    little.advance(DURABLE_SAVE_MS)
    assert mark_of(little.root, boot="another boot").end == little.store.log.end


@pytest.mark.parametrize("page_is_written", [True, False])
def test_a_kill_beside_a_durable_save_that_another_save_overtook(tmp_path: Path, page_is_written: bool) -> None:
    """The written mark is newer than the durable one: it has to know the page that is there and the page that comes."""
    little = LittleStore(tmp_path)
    little.send(body=b"one")
    little.clock.advance(DURABLE_SAVE_MS)
    little.turn()  # the durable save is on its way
    little.send(body=b"two")
    little.clock.advance(WRITTEN_SAVE_MS)
    little.turn()  # the written save overtakes it
    if page_is_written:
        little.worker.close()
    little.kill()
    opened_again_as_ours(tmp_path)


def test_a_kill_after_a_disk_too_full_for_the_page_and_a_written_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that the failed save announced never came: until another one does, marks have to know the old one."""

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    little = LittleStore(tmp_path)
    little.send(body=b"one")
    little.clock.advance(DURABLE_SAVE_MS)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "write", full)
        little.turn()
        little.worker.close()
    assert not little.store.writable
    boot = OsFiles().boot_id()
    before = mark_of(tmp_path, boot=boot).serial
    little.clock.advance(SAVE_RETRY_MS - 1)
    while not little.store.writable:
        little.clock.advance(1)
        little.turn()
    little.send(body=b"two")
    little.clock.advance(WRITTEN_SAVE_MS)
    little.turn()
    assert mark_of(tmp_path, boot=boot).serial > before
    little.kill()
    opened_again_as_ours(tmp_path)


def opened_again_as_ours(root: Path) -> None:
    again = LittleStore(root)
    assert again.store.report.origin is LastWriter.OURS
    assert again.bodies() == [b"one", b"two"]


def test_the_last_save_is_clean_and_the_next_start_scans_nothing(little: LittleStore, tmp_path: Path) -> None:
    little.send()
    little.close()
    found = mark_of(tmp_path, boot="another boot")
    assert found.clean
    again = LittleStore(tmp_path)
    assert again.store.report.scanned_records == 0
    assert not mark_of(tmp_path, boot=OsFiles().boot_id()).clean


def test_a_stop_that_cannot_save_leaves_the_store_as_after_a_crash(
    little: LittleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    little.send(body=b"kept")
    with monkeypatch.context() as patch:
        patch.setattr(MarkFile, "save_synced", broken)
        little.close()
    assert "could not be saved" in caplog.text
    assert (tmp_path / "abort").exists()
    assert LittleStore(tmp_path).bodies() == [b"kept"]


def test_the_offsets_of_rocketmq_follow_the_mark(little: LittleStore, tmp_path: Path) -> None:
    little.send(level=1)
    little.advance(1_000)
    little.advance(DURABLE_SAVE_MS)
    table = json.loads((tmp_path / "config" / "delayOffset.json").read_text())["offsetTable"]
    assert table == {"1": 1}


def test_which_errors_pass_by_themselves() -> None:
    assert is_passing_trouble(OSError(errno.ENOSPC, "full"))
    assert is_passing_trouble(OSError(errno.EDQUOT, "quota"))
    assert is_passing_trouble(OSError(errno.EMFILE, "too many open files"))
    assert not is_passing_trouble(OSError(errno.EIO, "broken"))
    assert not is_passing_trouble(ValueError("no"))


def test_a_mark_names_the_checkpoint_that_is_there_and_the_one_that_comes(little: LittleStore, tmp_path: Path) -> None:
    """A crash between the mark and the checkpoint leaves the old page: the mark has to be believed with it, too."""
    old = read_checkpoint(OsFiles(), tmp_path / "checkpoint")
    assert old is not None
    little.send()
    little.clock.advance(DURABLE_SAVE_MS)
    little.turn()
    seen: list[list[str]] = []
    correct = MarkFile.save_synced

    def save_synced(self: MarkFile, mark: Mark) -> None:
        seen.append(mark.checkpoints)
        correct(self, mark)

    with mock.patch.object(MarkFile, "save_synced", save_synced):
        little.advance(DURABLE_SAVE_MS)
    new = read_checkpoint(OsFiles(), tmp_path / "checkpoint")
    assert new is not None
    assert new != old
    assert seen[0] == [old.digest(), new.digest()]


def test_the_mark_of_an_orderly_stop_names_both_checkpoints(little: LittleStore, tmp_path: Path) -> None:
    old = read_checkpoint(OsFiles(), tmp_path / "checkpoint")
    little.clock.advance(5)
    little.send()
    little.store.close()
    new = read_checkpoint(OsFiles(), tmp_path / "checkpoint")
    assert old is not None
    assert new is not None
    assert mark_of(tmp_path).checkpoints == [old.digest(), new.digest()]
