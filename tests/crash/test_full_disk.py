"""Lives on a small disk that others fill and clear: full for everything while it is full, and full again and again.

Unlike an injected error, a full disk stays full: for the undo of a torn write, for saved states, for the orderly stop and the next
start. What was set aside has to do for all of these, and sends have to be taken again by themselves.
"""

from __future__ import annotations

import gc
import random
from itertools import product
from pathlib import Path

import pytest
from tests.crash.harness import quiet, scratch
from tests.crash.planted import planted
from tests.crash.workload import START_MS, Broken, Life, Promises, Running, check_promises, examine
from tests.worlds.faults import RecordingFiles, Room

from orbitmq.clock import ManualClock
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType

PAGES = 4_096
SEEDS = range(8)


def live_on_a_full_disk(seed: int, flush: FlushDiskType) -> tuple[int, int]:
    """Messages acknowledged, and sends refused. Raises Broken."""
    with scratch() as base, quiet():
        root = base / "store"
        root.mkdir()
        rng = random.Random(seed)
        room = Room(PAGES, undo_takes_room=seed % 3 == 0)
        files = RecordingFiles(OsFiles(), root, room=room)
        clock, promises = ManualClock(START_MS), Promises()
        refused = 0
        for number in range(4):
            if room.undo_takes_room:
                room.clear()  # what was set aside may be in use, and then such a disk lets nothing start
            life = Life(root, files, f"{seed}-{number}", flush, promises, clock)
            for _ in range(rng.randint(2, 6)):
                if rng.random() < 0.6:
                    room.fill()
                elif room.others:
                    room.clear()
                for _ in range(rng.randint(3, 25)):
                    life.live(1)
                    check_behind_the_end(life.running)
            running = life.running
            if room.others and rng.random() < 0.5:
                heal(running, room, promises)
            refused += life.refused
            end_life(running, room, crashes=rng.random() < 0.5)
            gc.collect()
        room.clear()
        examine(root, files, promises, clock, flush)
        return len(promises.plain) + len(promises.delayed), refused


def heal(running: Running, room: Room, promises: Promises) -> None:
    room.clear()
    running.settle(1_500)
    if not running.store.writable:
        raise Broken(f"space was freed 1.5 s ago: {running.store.unwritable_reason}")
    check_promises(running, promises, all_delivered=False)


def check_behind_the_end(running: Running) -> None:
    """What a refused send left would be taken for messages after a crash."""
    log = running.store.log
    segment = log.sequence.find(log.written_end)
    if not log._torn and segment is not None:
        behind = segment.file.pread(segment.end - log.written_end, log.written_end - segment.base)
        if any(behind):
            raise Broken(f"{len(behind.rstrip(bytes(1)))} bytes are left behind the end of the log")


def end_life(running: Running, room: Room, *, crashes: bool) -> None:
    if crashes:
        running.die()
        return
    is_hopeless = room.undo_takes_room and not room.free  # others took what was set aside when it was in use
    try:
        running.timers.hand_over()
    except OSError as error:  # the server says so, and closes the store all the same
        if not is_hopeless:
            raise Broken(f"the timers were not left for RocketMQ, {room.free} pages free") from error
    if not running.store.close() and not is_hopeless:
        raise Broken(f"an orderly stop left a store as after a crash, {room.free} pages free")
    running.timers.close()


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_that_is_full_again_and_again(seed: int, flush: FlushDiskType) -> None:
    acknowledged, refused = live_on_a_full_disk(seed, flush)
    assert acknowledged > 20
    assert refused > 5


@pytest.mark.parametrize("bug", ["nothing_set_aside", "torn_write_not_undone"])
def test_a_planted_bug_is_caught(bug: str) -> None:
    """By the very lives that find nothing without it."""

    def lives() -> None:
        for seed, flush in product(SEEDS, FlushDiskType):
            live_on_a_full_disk(seed, flush)

    with planted(bug), pytest.raises((Broken, OSError, ValueError)):
        lives()


def test_a_disk_keeps_its_accounts(tmp_path: Path) -> None:
    room = Room(4)
    files = RecordingFiles(OsFiles(), tmp_path, room=room)
    file = files.open(tmp_path / "one", create=True)
    file.truncate(1 << 20)
    assert room.free == 4, "a hole takes nothing"
    file.pwrite(b"x" * 5_000, 0)
    assert room.free == 2
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"y" * 4_096 * 4, 8_192)
    assert file.pread(4_096 * 2 + 1, 8_192) == b"y" * 4_096 * 2 + b"\0", "as much as fitted was written"
    with pytest.raises(OSError, match="No space left"):
        files.open(tmp_path / "two", create=True).allocate(0, 1)
    file.pwrite(b"z" * 16, 100)
    file.truncate(8_192)
    assert room.free == 2
    files.remove(tmp_path / "one")
    assert room.free == 4
