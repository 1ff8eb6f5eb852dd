"""Recovery itself: it may die at any call and start again, it finishes what it does, and it cuts no more than it must."""

from __future__ import annotations

import gc
import random
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
from tests.crash.harness import Crashed, End, Site, crash, kill_at, quiet, scratch, sites_of
from tests.crash.workload import START_MS, Life, Promises, Running, examine, read_everything
from tests.worlds.faults import Killed, Plan, RecordingFiles

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.store.files import OsFiles
from orbitmq.store.known_queues import QUEUES_FILE
from orbitmq.store.mark import MARK_FILE
from orbitmq.store.message import NewMessage
from orbitmq.store.recovery import LastWriter
from orbitmq.store.settings import FlushDiskType

ASYNC = FlushDiskType.ASYNC_FLUSH
BODY_AT = 88
"""Where the body begins in a record with two IPv4 addresses."""


def contents(root: Path) -> dict[str, bytes]:
    """Every file but those that every opening writes."""
    names = (path for path in root.rglob("*") if path.is_file() and path.name not in (MARK_FILE, QUEUES_FILE, "lock"))
    return {str(path.relative_to(root)): path.read_bytes() for path in names}


def open_and_close(crashed: Crashed, root: Path) -> None:
    Running(root, RecordingFiles(OsFiles(), root, boot=crashed.boot), crashed.clock, ASYNC).store.close()


@pytest.mark.parametrize("seed", range(16))
def test_a_second_recovery_changes_nothing(seed: int) -> None:
    with scratch() as base, quiet():
        crashed = crash(base, End.POWER if seed % 2 else End.KILL, ASYNC, seed)
        open_and_close(crashed, crashed.root)
        first = contents(crashed.root)
        open_and_close(crashed, crashed.root)
        assert contents(crashed.root) == first


def recover(crashed: Crashed, root: Path, plan: Plan | None = None) -> RecordingFiles:
    """Open a copy of what is left and begin to work, until the plan ends the process."""
    shutil.copytree(crashed.root, root)
    files = RecordingFiles(OsFiles(), root, boot=crashed.boot, plan=plan)
    running: Running | None = None
    with suppress(Killed):
        running = Running(root, files, crashed.clock, ASYNC)
        running.run_due()
        running.worker.close()
    if running is not None:
        running.die()
    running = None
    gc.collect()
    return files


def test_recovery_may_die_at_every_kind_of_call() -> None:
    """At each site once, in the first of the recoveries that comes there."""
    seen: set[Site] = set()
    for seed in range(6):
        with scratch() as base, quiet():
            crashed = crash(base, End.POWER if seed % 2 else End.KILL, ASYNC, seed)
            whole = base / "whole"
            sites = sites_of(recover(crashed, whole).calls, whole)
            for call in [call for site, call in sites.items() if site not in seen]:
                root = base / f"again{call.number}"
                assert recover(crashed, root, kill_at(call.number)).killed
                clock = ManualClock(crashed.clock.now_ms())
                promises = deepcopy(crashed.promises)  # more is sent and promised after each
                examine(root, RecordingFiles(OsFiles(), root, boot=crashed.boot), promises, clock, ASYNC)
                shutil.rmtree(root)
            seen |= set(sites)
    assert len(seen) > 50


@pytest.mark.parametrize("seed", range(8))
def test_power_may_fail_during_recovery(seed: int) -> None:
    """What was durable before the first failure is durable still."""
    with scratch() as base, quiet():
        crashed = crash(base, End.POWER, FlushDiskType.SYNC_FLUSH, seed)
        rng = random.Random(seed)
        files = RecordingFiles(OsFiles(), crashed.root, boot="next boot", plan=kill_at(rng.randint(1, 40)))
        running: Running | None = None
        try:
            running = Running(crashed.root, files, crashed.clock, FlushDiskType.SYNC_FLUSH)
            running.settle(2_000)
        except Killed:
            pass
        if running is not None:
            running.die()
        running = None
        gc.collect()
        left = base / "left"
        files.power_cut(left, rng)
        last = RecordingFiles(OsFiles(), left, boot="third boot")
        examine(left, last, crashed.promises, crashed.clock, FlushDiskType.SYNC_FLUSH)


# --- a torn end -----------------------------------------------------------------------------------------------------


def message(number: int, size: int = 30) -> NewMessage:
    key = f"key{number}"
    properties = encode_properties({Property.UNIQ_KEY: key, Property.TAGS: "tag"})
    return NewMessage("Topic", 0, bytes([number + 1]) * size, properties, unique_key=key)


def killed_store(root: Path, *, batch: bool) -> tuple[int, int, int]:
    """Three messages, then one or a batch of three, and no orderly stop. Answers where the last part begins and ends,
    and how many messages the store holds."""
    running = Running(root, RecordingFiles(OsFiles(), root), ManualClock(START_MS), ASYNC)
    store = running.store
    for number in range(3):
        store.append(message(number))
    store.commit()
    begin = store.log.written_end
    if batch:
        store.append_batch([message(number) for number in range(3, 6)])
    else:
        store.append(message(3))
    store.commit()
    running.die()
    return begin, store.log.written_end, 6 if batch else 4


@pytest.mark.parametrize("batch", [False, True])
def test_an_end_torn_at_every_byte_is_cut_and_reported(batch: bool) -> None:
    """At every byte of one record; of a batch, whose records are alike, at every seventh and around their ends."""
    with scratch() as base, quiet():
        original = base / "original"
        begin, end, count = killed_store(original, batch=batch)
        log_name = "commitlog/00000000000000000000"
        log = (original / log_name).read_bytes()
        assert not any(log[end:])
        ends = [begin + (end - begin) // 3 * n for n in range(4)] if batch else [begin, end]
        around = {at for one in ends for at in range(one - 2, one + 3) if begin <= at < end}
        for torn_at in sorted(around | set(range(begin, end, 7))) if batch else range(begin, end):
            root = base / "torn"
            shutil.copytree(original, root)
            (root / log_name).write_bytes(log[:torn_at] + bytes(len(log) - torn_at))
            running = Running(root, RecordingFiles(OsFiles(), root), ManualClock(START_MS), ASYNC)
            whole = max(at for at in ends if at <= torn_at)
            report = running.store.report
            assert report.log_end == whole
            assert (
                report.torn_bytes == len(log[:torn_at].rstrip(b"\0")) - whole
                if torn_at > whole
                else not report.torn_bytes
            )
            kept = count - (len(ends) - 1) + ends.index(whole)
            keys = [key for key, _, _ in read_everything(running)["Topic", 0]]
            assert keys == [f"key{number}" for number in range(kept)]
            placed = running.store.append(message(9))
            assert (placed.physical_offset, placed.queue_offset) == (whole, kept)
            running.store.close()
            assert not any((root / log_name).read_bytes()[placed.end_offset :])
            shutil.rmtree(root)


def test_garbage_behind_the_end_is_cut_and_reported(tmp_path: Path) -> None:
    _, end, count = killed_store(tmp_path, batch=False)
    with (tmp_path / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(end)
        file.write(bytes(range(1, 100)))
    running = Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)
    assert running.store.report.torn_bytes == 99
    assert "cut a torn end of 99 bytes" in running.store.report.text()
    assert len(read_everything(running)["Topic", 0]) == count
    running.store.close()


# --- damage ---------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def lose_mark(root: Path) -> None:
    (root / MARK_FILE).unlink()


def keep_mark(root: Path) -> None:
    """In the same boot every page of the log survived, so that good records behind a bad one are damage as well."""


@pytest.mark.parametrize("prepare", [lose_mark, keep_mark])
@pytest.mark.parametrize("at", [0, 4, 28, BODY_AT + 3])
def test_damage_in_the_middle_is_refused_and_nothing_is_changed(
    tmp_path: Path, prepare: Callable[[Path], None], at: int
) -> None:
    begin, _, _ = killed_store(tmp_path, batch=True)
    prepare(tmp_path)
    flip(tmp_path / "commitlog/00000000000000000000", begin + at)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreDamagedError, match=f"damaged at offset {begin} .*good records follow") as caught:
        Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)
    assert "nothing was changed" in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("gone", ["index", "consumequeue"])
def test_what_a_mark_vouches_for_is_never_cut(tmp_path: Path, gone: str) -> None:
    running = Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)
    second = [running.store.append(message(number)) for number in range(4)][1].physical_offset
    running.store.close()
    (tmp_path / gone).rename(tmp_path / "moved")  # the whole log has to be scanned to make it again
    flip(tmp_path / "commitlog/00000000000000000000", second + BODY_AT)
    with pytest.raises(StoreDamagedError, match="the log was good up to"):
        Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)


@pytest.mark.parametrize("gone", ["index", "consumequeue", "consumequeue/SCHEDULE_TOPIC_XXXX/0"])
def test_derived_files_that_somebody_removed_are_made_again(tmp_path: Path, gone: str) -> None:
    with quiet():
        promises, clock = Promises(), ManualClock(START_MS)
        life = Life(tmp_path, RecordingFiles(OsFiles(), tmp_path), 3, ASYNC, promises, clock)
        life.live(60)
        life.running.store.close()
        shutil.rmtree(tmp_path / gone)
        examine(tmp_path, RecordingFiles(OsFiles(), tmp_path), promises, clock, ASYNC)


def test_a_log_that_is_gone_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    running = Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)
    running.store.append(message(0))
    running.store.close()
    shutil.rmtree(tmp_path / "commitlog")
    with pytest.raises(StoreDamagedError, match="holds no file, the log reached offset"):
        Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)


def test_a_killed_start_leaves_a_store_that_is_still_ours(tmp_path: Path) -> None:
    killed_store(tmp_path, batch=False)
    running = Running(tmp_path, RecordingFiles(OsFiles(), tmp_path), ManualClock(START_MS), ASYNC)
    assert running.store.report.origin is LastWriter.OURS
    running.store.close()
    examine(tmp_path, RecordingFiles(OsFiles(), tmp_path), _promised(4), ManualClock(START_MS), ASYNC)


def _promised(count: int) -> Promises:
    crcs = {f"key{number}": zlib.crc32(bytes([number + 1]) * 30) for number in range(count)}
    return Promises(dict.fromkeys(crcs, ("Topic", 0)), tried=set(crcs), body_crcs=crcs)
