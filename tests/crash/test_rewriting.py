"""Pending messages that are put again while retention removes their files, after the process or the machine died at any call.

A life has messages that wait for an hour or two, with a delay level or as timers, in a file that has expired, all of it on the
disk. Then they are put again, their file goes, and the end comes at some call. Afterwards every one of them is delivered
once, at its due time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.crash.harness import End, kill_at, quiet, scratch
from tests.worlds.faults import Killed, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.records import Record
from orbitmq.store.files import OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore
from orbitmq.timing import rewriting as rewriting_module
from orbitmq.timing.rewriting import Rewriting

LATER_MS = 4_000_000_000_000
"""A clock so far ahead that every file has expired."""

ONE_HOUR_MS = 3_600_000
TWO_HOURS_MS = 7_200_000
PENDING = 12
LEVELS = "1s 2h"


def kept(root: Path, files: RecordingFiles, clock: ManualClock, flush: FlushDiskType) -> LittleStore:
    """A store that is looked after."""
    little = LittleStore(root, files=files, clock=clock, levels=LEVELS, flush_disk_type=flush)
    rewriting = Rewriting(clock, [little.release, little.timers])
    rewriting.attach(little.store)
    Housekeeping(little.store, root, files, clock, rewriter=rewriting).request()
    return little


def settle(root: Path, files: RecordingFiles, clock: ManualClock, flush: FlushDiskType) -> dict[bytes, int]:
    """Store what waits, in files that have expired, and make all of it durable. Answers body -> due time."""
    little = LittleStore(root, files=files, clock=clock, levels=LEVELS, flush_disk_type=flush)
    due: dict[bytes, int] = {}
    for number in range(PENDING):
        body = b"pending %d" % number
        if number % 2:
            due[body] = clock.now_ms() + TWO_HOURS_MS
            little.send(body=body, level=2)
        else:
            due[body] = clock.now_ms() + ONE_HOUR_MS
            little.send(body=body, after_ms=ONE_HOUR_MS)
        clock.advance(3)
    while len(little.store.log.sequence.segments) < 3:
        little.send("Filler", body=bytes(1000))
    little.advance(100)
    little.close()
    return due


def clean(little: LittleStore, rng: random.Random) -> None:
    """Look after the store while it is used, until its oldest file has gone."""
    for _ in range(60):
        little.clock.advance(rng.choice((1, 20, 100)))
        little.send("Filler", body=b"traffic", level=rng.choice((0, 1)))
        little.turn()
        if rng.random() < 0.7:
            little.worker.step()


def judge(base: Path, end: End, flush: FlushDiskType, seed: int, at: int | None, keep: float | None = None) -> int:
    """Live, die at call `at` of the cleaning, and count. Answers how many calls the cleaning made. `keep` is the chance of an
    unsynced page to survive the power failure."""
    rng = random.Random(seed)
    root = base / "store"
    root.mkdir()
    files, clock = RecordingFiles(OsFiles(), root), ManualClock(LATER_MS)
    due = settle(root, files, clock, flush)
    settled = len(files.calls)
    files.revive(None if at is None else kill_at(settled + at))
    little: LittleStore | None = None
    try:
        little = kept(root, files, clock, flush)
        clean(little, rng)
    except Killed:
        pass
    if little is not None:
        little.kill()
    calls = len(files.calls) - settled
    if end is End.POWER:
        left = base / "after"
        files.power_cut(left, rng, keep=keep)
        root = left
    again = RecordingFiles(OsFiles(), root, boot="next boot" if end is End.POWER else files.boot)
    examine(kept(root, again, clock, flush), due)
    return calls


def examine(little: LittleStore, due: dict[bytes, int]) -> None:
    last = max(due.values())
    while little.clock.now_ms() < last:
        little.advance(min(last - little.clock.now_ms(), 600_000))
    for _ in range(20):
        little.advance(1_000)
    records: list[Record] = [record for record in little.records() if record.body.startswith(b"pending")]
    found = Counter(bytes(record.body) for record in records)
    if found != Counter(due.keys()):
        raise AssertionError(f"delivered {found}")
    early = [bytes(record.body) for record in records if record.store_timestamp < due[bytes(record.body)]]
    if early:
        raise AssertionError(f"early: {early}")
    if little.store.log.start == 0:
        raise AssertionError("the expired file is still there")
    little.close()


def campaign(end: End, flush: FlushDiskType, *, step: int = 1, seed: int = 1, keep: float | None = None) -> list[str]:
    """One death at every `step`-th call; what went wrong."""
    problems: list[str] = []
    with scratch() as base, quiet():
        (base / "whole").mkdir()
        calls = judge(base / "whole", End.KILL, flush, seed, None)
        for at in range(1, calls, step):
            place = base / str(at)
            place.mkdir()
            try:
                judge(place, end, flush, seed, at, keep)
            except Exception as error:  # of any kind: it is the verdict
                problems.append(f"at call {at} of {calls}: {type(error).__name__}: {error}")
    return problems


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("end", [End.KILL, End.POWER])
def test_what_is_put_again_is_delivered_once_wherever_the_end_comes(end: End, flush: FlushDiskType) -> None:
    assert campaign(end, flush, step=4) == []


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_other_lives_with_a_failing_machine(seed: int) -> None:
    assert campaign(End.POWER, FlushDiskType.ASYNC_FLUSH, step=8, seed=seed) == []


def test_a_file_that_goes_before_its_messages_are_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: MessageStore, told: Callable[[bool], None]) -> None:
        told(True)

    monkeypatch.setattr(MessageStore, "save_durably", at_once)
    assert campaign(End.POWER, FlushDiskType.ASYNC_FLUSH, step=2, keep=0.0) != []


def test_messages_put_again_without_their_source_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rewriting_module.rewritten_message

    def without_source(record: Record, due_ms: int) -> NewMessage:
        return msgspec.structs.replace(whole(record, due_ms), prepared_transaction_offset=0)

    monkeypatch.setattr(rewriting_module, "rewritten_message", without_source)
    with scratch() as base, quiet(), pytest.raises(AssertionError, match="b'pending 0': 2"):
        judge(base, End.KILL, FlushDiskType.ASYNC_FLUSH, 1, None)
