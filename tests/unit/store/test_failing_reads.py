"""A read that fails, at every call site once: nothing is passed over, nothing is lost, and the store lives.

What is read in one run is counted first; then the run is made once for each read, which fails. The disk is cold or warm, the error
one that a bad sector gives (EIO), or one that passes (EMFILE).
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError
from orbitmq.store import reading
from orbitmq.store.files import OsFile, OsFiles
from orbitmq.store.reads import RecordsNotInMemory

START = 1_000_000
BODIES = [b"message %d" % number * 20 for number in range(12)]
WAITING = [b"delayed", b"timed"]
READS_MAX = 400


def filled(root: Path) -> None:
    """A closed store with messages in two queues, one that is delayed and one that is timed."""
    little = LittleStore(root, clock=ManualClock(START))
    for number, body in enumerate(BODIES):
        little.append(queue_id=number % 2, body=body)
    little.append("Later", body=WAITING[0], level=2)
    little.append("Later", body=WAITING[1], after_ms=3_000)
    little.store.commit()
    little.close()


def failing(number: int, error: int) -> Callable[[Call], OSError | None]:
    return lambda call: OSError(error, "planned") if call.number == number else None


def received(little: LittleStore) -> list[bytes]:
    """Everything in both queues, as a consumer gets it that asks again after an error."""
    found: list[bytes] = []
    for queue_id in (0, 1):
        for _ in range(3):
            try:
                bodies = little.bodies(queue_id=queue_id)
            except OSError:
                continue
            found += bodies
            break
    return found


def look_around(little: LittleStore) -> None:
    """What else reads: by position and by time. An error is told, never an absence."""
    for position in (0, 10_000_000):
        try:
            record = little.store.record_at(position)
        except (OSError, RecordsNotInMemory):
            continue
        assert (record is None) == (position > 0)
    for upper in (False, True):
        try:
            assert little.store.offset_by_time("Topic", 0, START, upper=upper) in ((0,) if not upper else (5,))
        except (OSError, RecordsNotInMemory):
            continue


@pytest.mark.parametrize(("error", "is_cold"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_no_read_that_fails_is_taken_for_damage(
    tmp_path: Path, error: int, is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_cold:
        monkeypatch.setattr(OsFile, "pread_now", lambda self, size, offset: None)
        monkeypatch.setattr(reading, "is_in_memory", lambda view, begin, end: False)
    filled(tmp_path / "made")
    number = 0
    while True:
        number += 1
        assert number < READS_MAX, "the run reads more than it should"
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", root)
        files = RecordingFiles(OsFiles(), root)
        little = LittleStore(root, files=files, clock=ManualClock(START + 10))
        files.reads = 0
        files.read_plan = failing(number, error)
        assert sorted(received(little)) == sorted(BODIES), f"read {number}"
        look_around(little)
        for _ in range(8):
            try:
                little.advance(1_500)
            except OSError:
                continue  # whoever is woken is woken again
        was_reached = files.reads >= number
        files.read_plan = None
        little.advance(2_000)
        assert sorted(little.bodies("Later")) == sorted(WAITING), f"read {number}"
        assert little.store.reads.damaged == 0, f"read {number}"
        assert little.release.quarantined_count == 0
        little.close()
        if not was_reached:
            return


def test_a_start_that_cannot_read_says_so_and_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "made")
    number = 0
    while True:
        number += 1
        assert number < READS_MAX
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", root)
        files = RecordingFiles(OsFiles(), root)
        files.read_plan = failing(number, errno.EIO)
        try:
            little = LittleStore(root, files=files, clock=ManualClock(START + 10))
        except (OSError, OrbitError):
            little = LittleStore(root, clock=ManualClock(START + 10))
        was_reached = files.reads >= number
        files.read_plan = None
        assert sorted(received(little)) == sorted(BODIES), f"read {number}"
        little.advance(10_000)
        assert sorted(little.bodies("Later")) == sorted(WAITING), f"read {number}"
        little.close()
        if not was_reached:
            return
