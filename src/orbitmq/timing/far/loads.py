"""Loading files that others wrote into the tier: what a job is, which of its attempts counts, and how long that is remembered.

A job divides its rows: those due before its *split* it sends as messages, of the others its tasks write files
`loads/<stem>-<...>.parquet`, with the rows by due time and numbered from 0. One request names all of them. The broker reads and syncs
each; then one record, `Loaded`, makes them files of the tier, and is the answer to every further attempt of that job.

Rules of this file
1. Pure. What the log says decides: the first `Loaded` of a job counts, files of another attempt are nobody's.
2. A file stays under the name that its writer gave it: it contains something random, so nobody writes it twice.
3. Requests are refused by age long before a job may be forgotten, and before files that nobody speaks of are removed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits.far import FAR_LOAD_AGE_MS, FAR_LOAD_MEMORY_MS, FAR_LOADS_WAITING_MAX
from orbitmq.timing.far.changes import FarFile, Loaded

LOADS: Final = "loads"
LOADED_BASE: Final = 1 << 62
"""Rows of loaded files are numbered from here on, where no log position will ever be."""

_ATTEMPT: Final = re.compile("[0-9a-f]{16}")
_REST: Final = re.compile(r"-[0-9a-z]+(-[0-9a-z]+)*\.parquet")


class LoadedJob(msgspec.Struct):
    """A job whose files were loaded."""

    job: str
    attempt: str
    split_ms: int
    rows: int
    files: int
    max_ms: int
    """No row of its files is due later; 0 without files."""
    loaded_ms: int


class WrittenFile(NamedTuple):
    """A file as its writer has it. crc: CRC-32 of its bytes."""

    name: str
    size_bytes: int
    crc: int
    rows: int


class CheckedFile(msgspec.Struct):
    """Result of checking a file of a load: a file of the tier, or why it is none."""

    file: FarFile | None
    by_topic: list[tuple[str, int]] = []
    by_day: list[tuple[int, int]] = []
    """How many rows are for a topic, and due on a day."""
    problem: str = ""


def loaded_job(change: Loaded) -> LoadedJob:
    files = change.files
    rows, max_ms = sum(file.rows for file in files), max((file.max_ms for file in files), default=0)
    return LoadedJob(change.job, change.attempt, change.split_ms, rows, len(files), max_ms, change.loaded_ms)


def forgotten(jobs: Iterable[LoadedJob], now_ms: int, next_deliver_ms: int | None) -> list[str]:
    """Jobs that need not be remembered at `now_ms`, while nothing in the tier is due before `next_deliver_ms`: loaded long ago, and
    no row of theirs waits."""
    return [
        job.job
        for job in jobs
        if now_ms - job.loaded_ms > FAR_LOAD_MEMORY_MS and (next_deliver_ms is None or next_deliver_ms > job.max_ms)
    ]


def stem_of(job: str, attempt: str) -> str:
    """Beginning of the names of an attempt's files, below the directory; whatever characters the job's name has."""
    return f"{blake2b(job.encode(), digest_size=8).hexdigest()}-{attempt}"


def probe_name(job: str, attempt: str) -> str:
    """A file with something random in it, which says to whoever can read it that storage is shared."""
    return f"{LOADS}/{stem_of(job, attempt)}-probe"


def names_problem(job: str, attempt: str, files: Iterable[WrittenFile]) -> str:
    """Why files cannot be those of that attempt; empty when they can."""
    if not _ATTEMPT.fullmatch(attempt):
        return f"{attempt!r} is no attempt that this broker named"
    beginning = f"{LOADS}/{stem_of(job, attempt)}"
    seen: set[str] = set()
    for file in files:
        if not (file.name.startswith(beginning) and _REST.fullmatch(file.name, len(beginning))):
            return f"{file.name!r} is no file of attempt {attempt} of the job: its name begins with {beginning}-"
        if file.name in seen:
            return f"{file.name} is named twice"
        seen.add(file.name)
    return ""


def is_too_old(created_ms: int, now_ms: int) -> bool:
    """Whether an attempt that began at `created_ms` comes too late to count: whether its job was done may be forgotten."""
    return now_ms - created_ms > FAR_LOAD_AGE_MS


TOO_OLD: Final = "the attempt was begun days ago: start the job again"


class Load:
    """One attempt's request while its files are being checked."""

    def __init__(self, job: str, attempt: str, created_ms: int, split_ms: int, files: Iterable[WrittenFile]) -> None:
        self.job = job
        self.attempt = attempt
        self.created_ms = created_ms
        self.split_ms = split_ms
        self.left = deque(files)
        self.checked: list[CheckedFile] = []
        self.problem = ""
        """Why it ended without a record."""

    @property
    def count(self) -> int:
        return len(self.left) + len(self.checked)

    def note(self, checked: CheckedFile) -> None:
        """The first of the files that are left was checked."""
        self.left.popleft()
        self.checked.append(checked)
        self.problem = checked.problem

    def change(self, now_ms: int) -> Loaded | None:
        """The record that ends it; None, and a problem, when it comes too late."""
        if is_too_old(self.created_ms, now_ms):
            self.problem = TOO_OLD
            return None
        by_topic: dict[str, int] = {}
        by_day: dict[int, int] = {}
        for checked in self.checked:
            for topic, count in checked.by_topic:
                by_topic[topic] = by_topic.get(topic, 0) + count
            for day, count in checked.by_day:
                by_day[day] = by_day.get(day, 0) + count
        files = [checked.file for checked in self.checked if checked.file is not None]
        return Loaded(self.job, self.attempt, self.split_ms, files, by_topic, by_day, now_ms)


class Loading:
    """Loads that are being checked, one of a job at a time."""

    def __init__(self) -> None:
        self._loads: dict[str, Load] = {}

    def begin(self, load: Load) -> Load | None:
        """Have a load checked. What is known of it already, when it was asked for before; that of another attempt of its job, while that
        one is being checked; None when too many wait. A load that ended with a problem is answered once and forgotten."""
        known = self._loads.get(load.job)
        if known is not None and known.problem:
            del self._loads[load.job]
            if known.attempt == load.attempt:
                return known
        elif known is not None:
            return known
        if len(self._loads) >= FAR_LOADS_WAITING_MAX:
            return None
        self._loads[load.job] = load
        return load

    def progress(self) -> dict[str, str]:
        """State of each load in words, by job."""
        return {
            load.job: load.problem or f"{len(load.checked)} of {load.count} files are checked"
            for load in self._loads.values()
        }

    def next(self, done: Container[str]) -> Load | None:
        """The load to go on with; those of the jobs in `done` are over."""
        for job in [job for job in self._loads if job in done]:
            del self._loads[job]
        return next((load for load in self._loads.values() if not load.problem), None)
