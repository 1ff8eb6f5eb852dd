"""Removals: together, in order, and tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import REMOVE_RETRY_MS
from orbitmq.store.files import OsFiles
from orbitmq.store.removals import Removals


class Stubborn(OsFiles):
    """One file cannot be removed."""

    def __init__(self) -> None:
        self.stays = ""

    def remove(self, path: Path) -> None:
        if path.name == self.stays:
            raise PermissionError(1, "Operation not permitted", str(path))
        super().remove(path)


class Rig:
    def __init__(self) -> None:
        self.files, self.worker, self.clock, self.deadlines = Stubborn(), SteppedWorker(), ManualClock(), Deadlines()
        self.removals = Removals(self.files, self.worker, self.clock, self.deadlines)

    def later(self) -> None:
        self.clock.advance(REMOVE_RETRY_MS)
        self.deadlines.run_due(self.clock.monotonic_ns())
        self.worker.close()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def some_files(directory: Path, count: int = 4) -> list[Path]:
    directory.mkdir()
    paths = [directory / f"{number}" for number in range(count)]
    for path in paths:
        path.touch()
    return paths


def test_what_is_asked_for_meanwhile_goes_together(rig: Rig, tmp_path: Path) -> None:
    paths = some_files(tmp_path / "log", 40)
    closed: list[int] = []
    for number, path in enumerate(paths):
        rig.removals.release([lambda number=number: closed.append(number)])
        rig.removals.remove([path])
    assert len(rig.worker.jobs) == 1
    rig.worker.step()
    assert len(rig.worker.jobs) == 1, "all that waited in one job"
    rig.worker.close()
    assert not any(path.exists() for path in paths)
    assert closed == list(range(40))


def test_directories_and_files_that_are_gone(rig: Rig, tmp_path: Path) -> None:
    some_files(tmp_path / "queues")
    rig.removals.remove([tmp_path / "queues", tmp_path / "never was"])
    rig.worker.close()
    assert not (tmp_path / "queues").exists()
    assert rig.deadlines.next_ns is None


def test_a_file_that_stays_stops_those_behind_it_and_is_tried_again(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = some_files(tmp_path / "log"), some_files(tmp_path / "index")
    rig.files.stays = "1"
    rig.removals.remove([*log, other[0]])
    rig.worker.close()
    assert [path.exists() for path in log] == [False, True, True, True], "a gap would refuse the next start"
    assert not other[0].exists()
    assert "3 files could not be removed, trying again" in caplog.text
    assert "Operation not permitted" in caplog.text
    rig.later()
    assert [path.exists() for path in log] == [False, True, True, True]
    rig.files.stays = ""
    rig.later()
    assert not any(path.exists() for path in log)
    assert rig.deadlines.next_ns is None


def test_no_place_for_the_job(rig: Rig, tmp_path: Path) -> None:
    closed: list[bool] = []
    paths = some_files(tmp_path / "log")
    rig.worker.is_full = True
    rig.removals.release([lambda: closed.append(True)])
    rig.removals.remove(paths)
    rig.worker.close()
    assert closed == []
    rig.worker.is_full = False
    rig.later()
    assert closed
    assert not any(path.exists() for path in paths)


def test_what_is_open_is_closed_at_the_end(rig: Rig) -> None:
    closed: list[bool] = []
    rig.removals.release([lambda: closed.append(True)])
    rig.removals.close()
    assert closed == [True]
