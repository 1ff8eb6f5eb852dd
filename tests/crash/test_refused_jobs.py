"""Workers without a place, again and again through a life: when there are places once more, everything that stood still goes on.

Who notes that its job runs and is then refused must be told of it. Otherwise it waits for an end that never comes: the log is not
synced any more, nothing is saved, and a request to delete expired files is answered and forgotten.
"""

from __future__ import annotations

import queue
import random
from contextlib import suppress

import pytest
from tests.crash.harness import quiet, scratch
from tests.crash.planted import planted
from tests.crash.workload import START_MS, Broken, Life, Promises, check_promises
from tests.worlds.faults import RecordingFiles

from orbitmq.clock import ManualClock
from orbitmq.limits.store import SAVE_RETRY_MS_MAX
from orbitmq.store.files import OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.mark import MarkFile
from orbitmq.store.settings import FlushDiskType

TEN_YEARS_MS = 10 * 365 * 86_400_000
"""Every file is older than it may be."""


def live_with_refusals(seed: int, flush: FlushDiskType) -> None:
    """Raises Broken."""
    with scratch() as base, quiet():
        root = base / "store"
        root.mkdir()
        clock = ManualClock(START_MS + TEN_YEARS_MS)
        files = RecordingFiles(OsFiles(), root)
        life = Life(root, files, seed, flush, Promises(), clock)
        running, worker = life.running, life.running.worker
        rng = random.Random(seed)
        for _ in range(25):
            worker.is_full = rng.random() < 0.5
            with suppress(queue.Full):  # raised only where a bug is planted
                life.live(4)
        worker.is_full = False
        running.settle(SAVE_RETRY_MS_MAX + 1_000)
        store = running.store
        if store.unsynced_bytes:
            raise Broken(f"{store.unsynced_bytes} bytes of the log are not synced any more")
        if waiting := store.confirmation.waiting_count:
            raise Broken(f"{waiting} senders are never answered")
        mark = MarkFile(OsFiles(), root).load("next boot")
        if mark is None or mark.end != store.log.end:
            raise Broken(f"nothing is saved any more: {mark}")
        check_promises(running, life.promises, all_delivered=True)

        keeper = Housekeeping(store, root, files, clock)
        with suppress(queue.Full):
            running.run_due()
        running.worker.close()
        worker.is_full = True
        keeper.request()
        with suppress(queue.Full):
            running.run_due()
        running.worker.close()
        worker.is_full = False
        running.settle(SAVE_RETRY_MS_MAX + 1_000)
        if len(store.log.sequence.segments) > 1 or len(files.list_dir(root / "commitlog")) > 1:
            raise Broken(f"the request to delete expired files was forgotten: {files.list_dir(root / 'commitlog')}")
        running.stop()


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", range(4))
def test_everything_goes_on_when_there_are_places_again(seed: int, flush: FlushDiskType) -> None:
    live_with_refusals(seed, flush)


@pytest.mark.parametrize("flush", FlushDiskType)
def test_the_planted_flags_that_stay_set_are_caught(flush: FlushDiskType) -> None:
    with (
        planted("worker_flags_left_set"),
        pytest.raises(Broken, match=r"any more|was forgotten|never answered"),
    ):
        live_with_refusals(0, flush)
