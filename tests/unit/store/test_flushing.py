"""Syncing the log: a place that was refused, who waits for the log alone, and for how long nothing was synced."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.limits.store import REFUSED_RETRY_MS, UNSYNCED_READY_MS_MIN
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType

SYNC = FlushDiskType.SYNC_FLUSH
MODES = pytest.mark.parametrize("flush", FlushDiskType)


def store_with_a_refused_sync(root: Path, flush: FlushDiskType) -> LittleStore:
    little = LittleStore(root, flush_disk_type=flush)
    little.worker.close()
    little.worker.is_full = True
    little.send(body=b"refused a place")
    little.clock.advance(little.store.settings.flush_interval_commit_log_ms)
    little.turn()
    assert [job for job, _ in little.worker.jobs]
    little.worker.close()
    little.worker.is_full = False
    return little


@MODES
def test_a_sync_that_found_no_place_is_asked_for_again(tmp_path: Path, flush: FlushDiskType) -> None:
    little = store_with_a_refused_sync(tmp_path, flush)
    assert little.store.unsynced_bytes > 0
    assert little.store.writable, "nothing was lost that could be"
    little.advance(REFUSED_RETRY_MS)
    assert little.store.unsynced_bytes == 0
    assert little.statuses == [PutStatus.PUT_OK]
    little.send(body=b"later")
    little.advance(1_000)
    assert little.store.unsynced_bytes == 0


@MODES
def test_it_says_for_how_long_nothing_was_synced(tmp_path: Path, flush: FlushDiskType) -> None:
    little = LittleStore(tmp_path, flush_disk_type=flush)
    little.worker.close()
    store = little.store
    assert store._flushing.unsynced_ms == 0
    little.send()
    little.clock.advance(600)
    little.turn()  # the sync is asked for, and the disk hangs
    assert store._flushing.unsynced_ms == 600
    assert store.unsynced_trouble == ""
    little.clock.advance(5_000)
    assert "were not synced for 5.6 s" in store.unsynced_trouble
    little.worker.close()
    assert store.unsynced_trouble == ""
    little.advance(1_000)
    assert store._flushing.unsynced_ms == 0


def test_what_was_written_during_a_sync_counts_from_its_begin(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, flush_disk_type=SYNC)
    little.worker.close()
    little.send()
    little.clock.advance(100)
    little.send()
    little.clock.advance(50)
    little.worker.step()
    assert little.store._flushing.unsynced_ms == 150, "the second may have been written right behind the begin"
    little.worker.step()
    assert little.store._flushing.unsynced_ms == 0


def test_a_short_interval_is_not_impatient(tmp_path: Path) -> None:
    little = LittleStore(tmp_path, flush_interval_commit_log_ms=1)
    little.worker.close()
    little.send()
    little.clock.advance(UNSYNCED_READY_MS_MIN - 1)
    assert little.store.unsynced_trouble == ""
    little.clock.advance(1)
    assert little.store.unsynced_trouble


@MODES
def test_who_waits_for_the_log_alone(tmp_path: Path, flush: FlushDiskType) -> None:
    little = LittleStore(tmp_path, flush_disk_type=flush)
    little.worker.close()
    on_done: list[tuple[str, bool]] = []
    flushing = little.store._flushing
    flushing.when_synced(lambda durable: on_done.append(("nothing to sync", durable)))
    assert on_done == [("nothing to sync", True)]
    little.send()
    flushing.when_synced(lambda durable: on_done.append(("one", durable)))
    little.send()
    flushing.when_synced(lambda durable: on_done.append(("two", durable)))
    assert len(on_done) == 1
    little.worker.step()
    assert on_done[1:] == [("one", True)], "the sync that ran does not cover what was written after it began"
    little.worker.step()
    assert on_done[2:] == [("two", True)]


def test_who_waits_for_the_log_is_told_that_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little = LittleStore(tmp_path)
    little.worker.close()

    def fails(self: CommitLog) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(CommitLog, "datasync", fails)
    on_done: list[bool] = []
    little.send()
    little.store._flushing.when_synced(on_done.append)
    little.worker.close()
    little.store._flushing.when_synced(on_done.append)
    assert on_done == [False, False]
    assert little.store.is_over


def test_an_interval_that_is_changed_while_it_runs_counts_from_the_next_write(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.store.use(msgspec.structs.replace(little.store.settings, flush_interval_commit_log_ms=40))
    little.send(body=b"x")
    little.advance(39)
    assert little.store.unsynced_bytes > 0
    little.advance(1)
    assert little.store.unsynced_bytes == 0
