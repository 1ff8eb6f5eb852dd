"""The far tier after the process or the machine died at any call on the store's directory, and on a disk that is full.

A life sends far messages, lands them, recalls, reschedules and promotes some, with synchronous flush: what was acknowledged must be
there after any end. The files of the tier are durable when they are named, so they stay as they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.crash.harness import kill_at, quiet, scratch
from tests.worlds.faults import Call, Killed, Plan, RecordingFiles
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.far import outcomes, plan
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.changes import recall_message
from orbitmq.timing.far.far_timers import FarStatus
from orbitmq.timing.far.state import FarState
from orbitmq.timing.far.state_file import STATE_FILE, SavedState

SEEDS = range(24)
TURNS = 14
CALLS_MAX = 400


@pytest.fixture(autouse=True)
def little_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "FAR_LANDING_FILES_MAX", 3)
    monkeypatch.setattr(plan, "FAR_TOMBSTONES_MAX", 4)
    monkeypatch.setattr(outcomes, "FAR_SLICE_ROWS", 2)


class Life:
    """What was acknowledged, and what was on its way when the life ended."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.due: dict[str, int] = {}
        self.open: dict[str, set[int | None]] = {}
        """What may have become of a message whose change was not acknowledged: due times, None for recalled or never sent."""

    def start(self, root: Path, files: RecordingFiles) -> LittleFar:
        return open_far(root, self.clock, files)

    def live(self, far: LittleFar) -> None:
        for turn in range(TURNS):
            for number in range(self.chance.randrange(1, 4)):
                key = f"U{turn}-{number}"
                due_ms = self.clock.now_ms() + self.chance.randrange(4 * DAY_MS, 9 * DAY_MS)
                self.open[key] = {None, due_ms}
                far.send(due_ms, key.encode(), UNIQ_KEY=key)
                settle(far)
                self.due[key] = due_ms
                del self.open[key]
            if self.chance.random() < 0.6:
                self.change(far)
            far.advance(self.chance.choice((60_000, 11 * 60_000, HOUR_MS, 20 * HOUR_MS)))

    def change(self, far: LittleFar) -> None:
        key = self.chance.choice(list(self.due))
        found = far.find_again(key)
        if found is None:
            return
        due_ms = self.clock.now_ms() + self.chance.randrange(4 * DAY_MS, 9 * DAY_MS)
        is_recall = self.chance.random() < 0.5
        self.open[key] = {self.due[key], None if is_recall else due_ms}
        status = far.recall(found) if is_recall else far.reschedule(found, due_ms)
        settle(far)
        if status is PutStatus.PUT_OK and is_recall:
            del self.due[key]
        elif status is PutStatus.PUT_OK:
            self.due[key] = due_ms
        if status in (PutStatus.PUT_OK, None):
            del self.open[key]

    def judge(self, root: Path) -> None:
        far = open_far(root, self.clock, OsFiles())
        far.advance(11 * DAY_MS)
        reached = Counter((body.decode(), due_ms) for due_ms, body in far.wheel())
        assert max(reached.values(), default=1) == 1, "came twice"
        came: dict[str, int] = {}
        for key, due_ms in reached:
            assert key not in came, "came at two times"
            came[key] = due_ms
        for key in self.due.keys() | self.open.keys() | came.keys():
            allowed = self.open.get(key, {self.due.get(key)})
            assert came.get(key) in allowed, f"{key}: {came.get(key)} is none of {allowed}"
        assert far.far.counts().pending == 0
        far.close()


def settle(far: LittleFar) -> None:
    """Return when everything appended is durable, which is when a broker acknowledges it."""
    told: list[PutStatus] = []
    far.store.wait_durable(far.store.log.end, True, told.append)
    far.store.commit()
    while not told:
        far.step()
    assert told == [PutStatus.PUT_OK]


def open_far(root: Path, clock: ManualClock, files: RecordingFiles | OsFiles) -> LittleFar:
    return LittleFar(
        root / "store",
        ArrowTier(str(root / "far")),
        clock=clock,
        files=files,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        mapped_file_size_commit_log=1 << 20,
    )


def run(seed: int, *, power: bool, made: Plan | None = None) -> bool:
    """Whether the life ended before its time."""
    with scratch() as base, quiet():
        life = Life(seed)
        files = RecordingFiles(OsFiles(), base / "a", plan=made or kill_at(life.chance.randrange(1, CALLS_MAX)))
        (base / "a").mkdir()
        killed, far = False, None
        try:
            far = life.start(base / "a", files)
            life.live(far)
        except Killed:
            killed = True
        if power:
            files.power_cut(base / "b", random.Random(seed))
            if (base / "a" / "far").exists():
                shutil.copytree(base / "a" / "far", base / "b" / "far", dirs_exist_ok=True)
        if far is not None:
            with contextlib.suppress(Killed):
                far.kill()
        life.judge(base / ("b" if power else "a"))
        return killed


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_comes_twice(seed: int, power: bool) -> None:
    run(seed, power=power)


def test_lives_do_end_in_the_middle() -> None:
    assert sum(run(seed, power=True) for seed in range(8)) >= 3


def test_a_state_file_that_leads_the_log_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the saved state says that the log is contained a little further than it was read."""
    saved = FarState.saved

    def ahead(held: FarState, serial: int, store: str) -> SavedState:
        return msgspec.structs.replace(saved(held, serial, store), position=held.position + 700)

    monkeypatch.setattr(FarState, "saved", ahead)

    def lives() -> None:
        for seed in SEEDS:
            run(seed, power=True)

    with pytest.raises((AssertionError, OrbitError)):
        lives()


# --- a full disk --------------------------------------------------------------------------------------------------------


class FullDisk:
    """Writes to paths with `part` in their names fail while it is full."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.is_full = False

    def __call__(self, call: Call) -> OSError | None:
        is_hit = self.is_full and self.part in str(call.path) and call.kind not in ("remove", "sync")
        return OSError(errno.ENOSPC, "no space left on device", str(call.path)) if is_hit else None


def test_a_state_file_that_cannot_be_written_keeps_the_log(tmp_path: Path) -> None:
    disk = FullDisk(STATE_FILE)
    clock = ManualClock()
    far = open_far(tmp_path, clock, RecordingFiles(OsFiles(), tmp_path, plan=disk))
    placed = far.send(clock.now_ms() + 10 * DAY_MS, b"kept", UNIQ_KEY="A")
    disk.is_full = True
    for _ in range(4):
        far.advance(11 * 60_000)
    assert list(far.far.held.files.by_name), "it has landed"
    needed = far.far.lowest_needed()
    assert needed is not None
    assert needed <= placed.physical_offset
    far.kill()
    again = open_far(tmp_path, clock, OsFiles())
    assert again.far.counts().pending == 1
    again.advance(8 * DAY_MS)
    assert [body for _, body in again.wheel()] == [b"kept"]
    again.close()


def test_a_landing_on_a_full_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]
    sync = os.fsync

    def no_room(fd: int) -> None:
        if full[0] and "/far/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, "no space left on device")
        sync(fd)

    monkeypatch.setattr(os, "fsync", no_room)
    clock = ManualClock()
    far = open_far(tmp_path, clock, OsFiles())
    placed = far.send(clock.now_ms() + 10 * DAY_MS, b"kept", UNIQ_KEY="A")
    far.advance(11 * 60_000)
    assert far.far.keeper is not None
    assert "no space left" in (far.far.keeper.trouble or "")
    assert far.far.held.files.by_name == {}
    assert [path for path in (tmp_path / "far").rglob("*") if path.is_file()] == [], "half a file keeps no room"
    assert far.far.lowest_needed() == placed.physical_offset
    found = far.find_again("A")
    assert found is not None, "what lies in the log is found though no file can be written"
    assert far.reschedule(found, clock.now_ms() + 12 * DAY_MS) is PutStatus.PUT_OK
    full[0] = False
    far.advance(HOUR_MS)
    assert far.far.keeper.trouble is None
    assert len(far.far.held.files.by_name) == 1
    far.advance(10 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"kept"]
    far.close()


def test_a_change_that_a_full_disk_refuses_leaves_the_message_pending(tmp_path: Path) -> None:
    disk = FullDisk("commitlog")
    clock = ManualClock()
    far = open_far(tmp_path, clock, RecordingFiles(OsFiles(), tmp_path, plan=disk))
    far.send(clock.now_ms() + 10 * DAY_MS, b"kept", UNIQ_KEY="A")
    far.advance(11 * 60_000)
    found = far.find_again("A")
    assert found is not None
    disk.is_full = True
    told: list[PutStatus] = []
    far.far.change(found.record, [recall_message(found.record)], wait=True, on_done=told.append)
    far.store.commit()
    for _ in range(20):
        far.step()
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert far.far.status(found.source) is FarStatus.PENDING
    far.kill()
    again = open_far(tmp_path, clock, OsFiles())
    again.advance(8 * DAY_MS)
    assert [body for _, body in again.wheel()] == [b"kept"]
    again.close()
