"""Durable saves: what they wait for, who is told, and what becomes of one that failed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore, SteppedWorker

from orbitmq.errors import JobRefusedError
from orbitmq.limits.store import DURABLE_SAVE_MS, SAVE_RETRY_MS, SYNCED_QUEUES_MAX, SYNCED_QUEUES_PAUSE_MS
from orbitmq.store import reading
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.mark import MarkFile
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.worker import Lanes


def saved_end(root: Path) -> int:
    mark = MarkFile(OsFiles(), root).load("another boot")
    return 0 if mark is None else mark.end


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    little = LittleStore(tmp_path)
    little.worker.close()
    return little


def test_a_save_waits_for_the_sync_of_the_log_and_syncs_it_never_itself(tmp_path: Path) -> None:
    files = RecordingFiles(OsFiles(), tmp_path)
    little = LittleStore(tmp_path, files=files, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.worker.close()
    sync, upkeep = SteppedWorker(), SteppedWorker()
    little.store._flushing._worker, little.store.durable_saves._worker = sync, upkeep
    on_done: list[bool] = []
    little.send()
    little.store.save_durably(on_done.append)
    assert not upkeep.jobs, "nothing is saved before the log is safe"
    sync.step()
    assert upkeep.jobs
    little.send(body=b"while the save is at it")
    before = len(files.calls)
    assert sync.step()
    assert little.store.unsynced_bytes == 0, "a sync of the log does not wait for a save"
    assert len(little.statuses) == 2
    assert {call.path.parent.name for call in files.calls[before:] if call.kind == "sync"} == {"commitlog"}
    before = len(files.calls)
    upkeep.step()
    assert "commitlog" not in {call.path.parent.name for call in files.calls[before:] if call.kind == "sync"}
    assert on_done == [True]


def test_a_save_that_found_no_place_is_made_later_as_it_was_begun(
    little: LittleStore, caplog: pytest.LogCaptureFixture
) -> None:
    on_done: list[bool] = []
    placed = little.send()
    little.advance(1_000)
    little.worker.is_full = True
    little.store.save_durably(on_done.append)
    little.worker.close()
    assert "could not be saved, trying again in 1000 ms: no place" in caplog.text
    assert little.store.durable_saves.failed_count == 1
    assert on_done == []
    little.store.save_durably(on_done.append)
    little.worker.close()
    little.worker.is_full = False
    little.advance(SAVE_RETRY_MS * 2)
    assert on_done == [True, True]
    assert saved_end(little.root) == placed.end_offset
    assert little.store.deadlines.next_ns is None, "an idle store does not wake"


def test_a_save_without_room_is_reported_and_made_again_by_itself(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_done: list[bool] = []
    placed = little.send()

    def full(self: MarkFile, *args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MarkFile, "save_synced", full)
        little.store.save_durably(on_done.append)
        little.worker.close()
        assert on_done == [False]
        for _ in range(3):
            little.advance(5_000)
    before = little.store.durable_saves.failed_count
    assert 2 <= before <= 6, "the pauses grow"
    assert saved_end(little.root) == 0
    little.advance(DURABLE_SAVE_MS * 4)
    assert saved_end(little.root) == placed.end_offset
    assert little.store.durable_saves.failed_count == before


def test_a_failed_sync_of_a_derived_file_is_not_tried_again(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_done: list[bool] = []

    def fails(self: ConsumeQueues, queues_max: int) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ConsumeQueues, "datasync_some", fails)
    little.send()
    little.store.save_durably(on_done.append)
    little.worker.close()
    assert on_done == [False]
    assert little.store.is_over
    little.store.save_durably(on_done.append)
    assert on_done == [False, False]


def test_who_asks_while_a_save_runs_is_covered_by_the_next(little: LittleStore) -> None:
    on_done: list[str] = []
    little.send()
    little.advance(1_000)
    little.store.save_durably(lambda durable: on_done.append(f"first {durable}"))
    last = little.send(body=b"not in the first")
    little.store.save_durably(lambda durable: on_done.append(f"second {durable}"))
    little.worker.step()
    assert on_done == ["first True"]
    assert saved_end(little.root) < last.end_offset
    little.worker.close()
    assert on_done == ["first True", "second True"]
    assert saved_end(little.root) == last.end_offset


def test_a_full_lane_of_reads_keeps_nothing_else_from_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand reads that hang: sends are synced and answered, and the state is saved."""
    little = LittleStore(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    little.worker.close()
    store, reads = little.store, SteppedWorker()
    store._lanes = Lanes(little.worker, little.worker, little.worker, reads)
    little.send()
    little.worker.close()
    monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
    monkeypatch.setattr(reading, "is_in_memory", lambda view, begin, end: False)
    found: list[object] = []
    for _ in range(2_000):
        result = store.get("Topic", 0, 0, 1, 1 << 20)
        assert result.cold
        store.read_cold(result, found.append)
    reads.is_full = True
    store.read_cold(store.get("Topic", 0, 0, 1, 1 << 20), found.append)
    assert not found
    reads.jobs.pop()[1](JobRefusedError("full"))
    (refused,) = found
    assert isinstance(refused, JobRefusedError), "nobody is sent past what was not read"
    assert store.reads.damaged == 0
    on_done: list[bool] = []
    last = little.send(body=b"beside them")
    store.save_durably(on_done.append)
    little.worker.close()
    assert len(little.statuses) == 2
    assert on_done == [True]
    little.advance(DURABLE_SAVE_MS)
    assert saved_end(tmp_path) == last.end_offset


def begin_over_many_queues(little: LittleStore) -> list[bool]:
    """A save whose queues are synced in three parts; the first one has been."""
    on_done: list[bool] = []
    for queue_id in range(SYNCED_QUEUES_MAX * 2 + 1):
        little.append("Many", queue_id)
    little.store.commit()
    little.store.save_durably(on_done.append)
    little.worker.close()
    return on_done


def synced_queues(files: RecordingFiles, since: int) -> int:
    calls = [call for call in files.calls[since:] if call.kind == "sync"]
    return len([call for call in calls if call.path.parents[2].name == "consumequeue"])


def test_many_queues_are_synced_in_parts_so_that_the_log_has_the_disk_in_between(tmp_path: Path) -> None:
    files = RecordingFiles(OsFiles(), tmp_path)
    little = LittleStore(tmp_path, files=files)
    little.worker.close()
    before = len(files.calls)
    on_done = begin_over_many_queues(little)
    assert synced_queues(files, before) == SYNCED_QUEUES_MAX
    little.turn()
    assert not little.worker.jobs, "the disk is left alone for a while"
    for parts in (2, 3):
        assert on_done == []
        little.clock.advance(SYNCED_QUEUES_PAUSE_MS)
        little.turn()
        little.worker.close()
        assert synced_queues(files, before) == min(SYNCED_QUEUES_MAX * parts, SYNCED_QUEUES_MAX * 2 + 1)
    assert on_done == [True]
    assert saved_end(little.root) == little.store.log.end


def test_a_store_that_is_closed_between_two_parts_says_so_and_is_clean(little: LittleStore) -> None:
    on_done = begin_over_many_queues(little)
    little.store.close()
    assert on_done == [False]
    mark = MarkFile(OsFiles(), little.root).load("another boot")
    assert mark is not None
    assert mark.clean


def test_who_asks_between_two_parts_is_covered_by_the_next_save(little: LittleStore) -> None:
    on_done = begin_over_many_queues(little)
    placed = little.send(body=b"later")
    little.store.save_durably(on_done.append)
    assert on_done == []
    for _ in range(4):
        little.advance(SYNCED_QUEUES_PAUSE_MS)
    assert on_done == [True, True]
    assert saved_end(little.root) == placed.end_offset
