"""Files that jobs load, against a list: each row of a job reaches the wheel once, whichever of its attempts wrote it.

A run is that of `test_far_model` with jobs: attempts that write files, requests that are repeated, late and of dead attempts, and ends of
the process and of the power between any two steps. What the broker has not synced itself is gone after a power cut.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.far_loads import write_file
from tests.property.test_far_model import STEPS, Run, little_bounds  # noqa: F401
from tests.worlds.little_far import DAY_MS

from orbitmq.timing.far import changes, state
from orbitmq.timing.far.loads import LOADED_BASE, Load, WrittenFile, loaded_job
from orbitmq.timing.far.storage import Storage

SEEDS = range(16)
BUG_SEEDS = range(64)
"""A planted bug shows in one run of ten at least."""


@pytest.fixture(autouse=True)
def little_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far.plan.FAR_INDEX_ROWS_MAX", 9)


class Attempt(NamedTuple):
    name: str
    created_ms: int
    files: list[WrittenFile]


class LoadRun(Run):
    def __init__(self, root: Path, seed: int) -> None:
        self.jobs: dict[str, list[tuple[int, str]]] = {}
        self.attempts: dict[str, list[Attempt]] = {}
        self.loaded: set[str] = set()
        self.synced: set[str] = set()
        super().__init__(root, seed)

    def step(self) -> None:
        if self.chance.random() < 0.4:
            self.chance.choice((self.attempt, self.request, self.request, self.nudge, self.end))()
        else:
            super().step()
        self.note_loaded()

    def note_loaded(self) -> None:
        """From when a job is loaded on its rows are messages."""
        for job in self.jobs:
            if job in self.far.far.held.jobs and job not in self.loaded:
                self.loaded.add(job)
                self.due |= {name: due_ms for due_ms, name in self.jobs[job]}

    def attempt(self, job: str | None = None) -> None:
        """Write the files of a new job, or of another attempt of one, with the same rows."""
        if job is None and (not self.jobs or self.chance.random() < 0.5):
            job = f"job-{len(self.jobs)}"
            self.jobs[job] = [
                (self.clock.now_ms() + self.chance.randrange(3 * DAY_MS, 12 * DAY_MS), f"{job}-{number}")
                for number in range(self.chance.randrange(1, 14))
            ]
        job = job or self.chance.choice(list(self.jobs))
        name = f"{self.chance.getrandbits(64):016x}"
        rows = self.jobs[job]
        cut = self.chance.randrange(len(rows) + 1)
        files = [
            write_file(self.root / "far", part, job=job, attempt=name, part=number)
            for number, part in enumerate((rows[:cut], rows[cut:]))
            if part
        ]
        self.attempts.setdefault(job, []).append(Attempt(name, self.clock.now_ms(), files))

    def request(self) -> None:
        if self.attempts:
            job = self.chance.choice(list(self.attempts))
            self.ask(job, self.chance.choice(self.attempts[job]))

    def ask(self, job: str, attempt: Attempt) -> None:
        self.far.far.load(Load(job, attempt.name, attempt.created_ms, 0, attempt.files))

    def end(self) -> None:
        if self.chance.random() < 0.5:
            for attempts in self.attempts.values():
                for file in (file for attempt in attempts for file in attempt.files):
                    path = self.root / "far" / file.name
                    if file.name not in self.synced and path.exists():
                        path.write_bytes(b"")
        super().end()
        self.note_loaded()

    def finish(self) -> None:
        self.tier.is_well = True
        for job in self.jobs:
            while job not in self.loaded:
                self.attempt(job)
                for attempt in self.chance.sample(self.attempts[job], len(self.attempts[job])):
                    self.ask(job, attempt)
                    self.far.advance(60_000)
                    self.note_loaded()
        super().finish()


def run(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as root, monkeypatch.context() as patch:
        life = LoadRun(Path(root), seed)
        sync = Storage.sync

        def recorded(storage: Storage, name: str) -> None:
            sync(storage, name)
            life.synced.add(name)

        if Storage.sync is _without_sync:
            recorded = _without_sync  # type: ignore[assignment]
        patch.setattr(Storage, "sync", recorded)
        for _ in range(STEPS):
            life.step()
        life.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_of_a_job_reaches_the_wheel_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


def _without_sync(storage: Storage, name: str) -> None:
    """The record is written before the files are durable."""


def _forget_the_job(held: state.FarState, change: changes.Loaded) -> None:
    """Files of a dead attempt count as well, when its request comes."""
    _count(held, change, LOADED_BASE + held._loaded_rows)


def _one_base(held: state.FarState, change: changes.Loaded) -> None:
    """Rows of all files have the same numbers: one that is finished takes others with it."""
    if change.job not in held.jobs:
        held.jobs[change.job] = loaded_job(change)
        _count(held, change, LOADED_BASE)


def _count(held: state.FarState, change: changes.Loaded, base: int) -> None:
    for file in change.files:
        file.base = base
        held._loaded_rows += file.rows
        base = base if base == LOADED_BASE else LOADED_BASE + held._loaded_rows
        file.first_source, file.last_source = file.base + 1, file.base + file.rows
        held.files.add(file)
        held.pending_count += file.rows
    for topic, count in change.by_topic.items():
        held.by_topic[topic] = held.by_topic.get(topic, 0) + count
    for day, count in change.by_day.items():
        held.by_day[day] = held.by_day.get(day, 0) + count


def _promoted_again(held: state.FarState, change: changes.Promoted) -> None:
    """How far a loaded file was promoted is forgotten, and so is what was promoted."""
    file = held.files.by_name.get(change.file)
    if file is not None and file.base:
        held.unmarked.clear()
        held.files.add(file)
        if change.taken >= file.rows:
            held._forget(file.name)
        return
    _real_promoted(held, change)


_real_promoted = state.FarState._promoted


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (state.FarState, "_loaded", _forget_the_job),
        (state.FarState, "_loaded", _one_base),
        (state.FarState, "_promoted", _promoted_again),
        (Storage, "sync", _without_sync),
    ],
)
def test_a_planted_bug_is_caught(
    owner: type, name: str, bug: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)

    def lives() -> None:
        for seed in BUG_SEEDS:
            run(seed, monkeypatch)

    with pytest.raises(AssertionError):
        lives()
