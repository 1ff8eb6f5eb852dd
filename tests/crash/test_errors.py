"""Every kind of call that changes or syncs something fails, early and late in a recorded life: nothing acknowledged may be lost.

A full disk (ENOSPC) heals by itself; after any other error the store refuses, with a reason, until it is opened again.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.campaign import describe
from tests.crash.harness import quiet, scratch, sites_of
from tests.crash.readers import Broken
from tests.crash.workload import START_MS, Life, Promises, Running, examine
from tests.worlds.faults import Call, Plan, RecordingFiles

from orbitmq.clock import ManualClock
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType

SEED = 11
TURNS = 26
SPACE_KINDS = ("create", "mkdir", "write", "truncate", "allocate")
"""Calls that need space."""


def failing(number: int, error: int, *, last: int | None = None) -> Plan:
    """Calls `number` to `last` fail; with a full disk only those that need space."""

    def plan(call: Call) -> OSError | None:
        if not number <= call.number <= (last or number):
            return None
        if error == errno.ENOSPC and call.kind not in SPACE_KINDS:
            return None
        return OSError(error, os.strerror(error), str(call.path))

    return plan


def recorded_calls(flush: FlushDiskType) -> list[Call]:
    """Sites of the same life without any error, opening and orderly stop included."""
    with scratch() as base:
        files = RecordingFiles(OsFiles(), base)
        life = Life(base, files, SEED, flush)
        live_and_recover(life)
        life.running.store.close()
        return list(sites_of(files.calls, base).values())


def live_and_recover(life: Life) -> None:
    """Trouble comes somewhere in here; afterwards there is time to heal."""
    life.live(TURNS)
    for _ in range(16):
        life.clock.advance(500)
        life.running.run_due()
        life.running.worker.close()


def one_error(flush: FlushDiskType, plan: Plan) -> tuple[Life | None, str]:
    """A life with an error, time to heal, an orderly stop, the judgement. Raises what is wrong; answers the refusal."""
    with scratch() as base:
        files = RecordingFiles(OsFiles(), base, plan=plan)
        promises, clock = Promises(), ManualClock(START_MS)
        life: Life | None = None
        reason = ""
        with suppress(OSError):  # such a start is refused with the system's own reason
            life = Life(base, files, SEED, flush, promises, clock)
        if life is not None:
            live_and_recover(life)
            files.plan = None
            for _ in range(6):
                life.clock.advance(500)
                life.running.run_due()
                life.running.worker.close()
            reason = life.running.store.unwritable_reason
            life.running.store.close()
        files.plan = None
        examine(base, RecordingFiles(OsFiles(), base), promises, clock, flush)
        return life, reason


def errors_of_a_life(flush: FlushDiskType, kinds: tuple[str, ...] = ()) -> Iterator[str]:
    """One line per failing call that broke a promise."""
    with quiet():
        for call in recorded_calls(flush):
            if kinds and call.kind not in kinds:
                continue
            for error in (errno.EIO, errno.ENOSPC) if call.kind in SPACE_KINDS else (errno.EIO,):
                name = errno.errorcode[error]
                try:
                    life, reason = one_error(flush, failing(call.number, error))
                    if error == errno.ENOSPC and reason:
                        raise Broken(f"the store did not heal: {reason}")
                    if error == errno.ENOSPC and life is not None and not life.promises.plain:
                        raise Broken("nothing was acknowledged at all")
                except Exception as problem:
                    yield f"call {call.number}, {name} in {call.kind} {call.path.name}: {describe(problem)}"


@pytest.mark.parametrize("flush", FlushDiskType)
def test_an_error_at_every_kind_of_call_loses_nothing_that_was_acknowledged(flush: FlushDiskType) -> None:
    assert list(errors_of_a_life(flush)) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_disk_that_stays_full_for_a_while_heals(seed: int) -> None:
    flush = FlushDiskType.SYNC_FLUSH if seed % 2 else FlushDiskType.ASYNC_FLUSH
    rng = random.Random(seed)
    first = rng.randint(15, 250)
    with quiet():
        life, reason = one_error(flush, failing(first, errno.ENOSPC, last=first + rng.randint(2, 40)))
    assert life is not None
    assert reason == ""


def sync_fails(name: str, count: int) -> Plan:
    """The `count`-th sync of a file below the directory `name` fails, and from then on every one."""
    seen = 0

    def plan(call: Call) -> OSError | None:
        nonlocal seen
        if call.kind == "sync" and call.path.parent.name == name:
            seen += 1
            if seen >= count:
                return OSError(errno.EIO, "Input/output error", str(call.path))
        return None

    return plan


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_failed_fsync_stops_acknowledging_and_names_the_range_at_risk(
    flush: FlushDiskType, count: int, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root, plan=sync_fails("commitlog", count))
    promises, clock = Promises(), ManualClock(START_MS)
    with quiet():
        life = Life(root, files, SEED, flush, promises, clock)
        while life.running.store.writable:
            life.live(1)
        log = life.running.store.log
        acknowledged = set(promises.plain) | set(promises.delayed)
        life.live(40)
        assert set(promises.plain) | set(promises.delayed) <= acknowledged
        reason = life.running.store.unwritable_reason
        assert "syncing the commit log failed" in reason
        assert "restart the broker" in reason
        at_risk = f"bytes {log.synced_end} to {log.written_end} were acknowledged unsynced"
        assert (at_risk in reason) is (flush is FlushDiskType.ASYNC_FLUSH)
        life.running.store.close()
        # The kernel may have dropped what it could not write: exactly the range that was named.
        left = tmp_path / "left"
        files.power_cut(left, random.Random(count), keep=0.0)
        examine(left, RecordingFiles(OsFiles(), left, boot="next"), promises.up_to(log.synced_end), clock, flush)
        if flush is FlushDiskType.SYNC_FLUSH:
            assert all(promises.ends[key] <= log.synced_end for key in acknowledged)


def test_an_unreadable_new_file_refuses_the_start_with_the_systems_reason(tmp_path: Path) -> None:
    plan = failing(1, errno.EACCES)
    with pytest.raises(OSError, match="Permission denied"):
        Running(tmp_path, RecordingFiles(OsFiles(), tmp_path, plan=plan), ManualClock(), FlushDiskType.ASYNC_FLUSH)
    Running(tmp_path, OsFiles(), ManualClock(), FlushDiskType.ASYNC_FLUSH).store.close()
