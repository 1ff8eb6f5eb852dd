"""Threads for file work that would hold the event loop, and which of them does what.

Rules of this file
1. Jobs of one worker run one after the other in the order given. A job touches only what it was handed.
2. What a job returns or raises reaches `done` on the caller's own thread, through `notify`.
3. `submit` never raises. A job that finds no place ends as one that failed, with JobRefusedError, so that whoever noted itself as
   running is always told of the end.
4. A lane whose jobs the broker asks for itself has at most one of each kind outstanding: it never refuses. What clients ask
   for has a lane of its own, which may be full without anything else standing still.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from orbitmq.errors import JobRefusedError
from orbitmq.limits.store import WORKER_JOBS_MAX

T = TypeVar("T")
Notify = Callable[[Callable[[], None]], object]
"""Runs a function soon on the thread that owns the store, e.g. `loop.call_soon_threadsafe`."""


class Worker(Protocol):
    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job` elsewhere, then `done` with its result or exception on the owner's thread: JobRefusedError when there was
        no place for it."""
        ...

    def close(self) -> None:
        """Finish the jobs that were submitted. Their `done` calls may still come."""
        ...


class ThreadWorker:
    """A single daemon thread, started with the first job."""

    __slots__ = ("_jobs", "_name", "_notify", "_thread")

    def __init__(self, name: str, notify: Notify) -> None:
        self._name = name
        self._notify = notify
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        if self._jobs.qsize() >= WORKER_JOBS_MAX:
            self._deliver(
                done, JobRefusedError(f"{self._name}: {WORKER_JOBS_MAX} jobs wait already", remedy="look at the disk")
            )
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._jobs.put((job, done))
        except (RuntimeError, MemoryError) as error:
            remedy = "look at the limits of the process and the memory of the machine"
            self._deliver(done, JobRefusedError(f"{self._name}: {error}", remedy=remedy))

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                result: Any = job()
            except Exception as error:
                result = error
            self._deliver(done, result)

    def _deliver(self, done: Callable[[Any], None], result: Any) -> None:
        self._notify(lambda: done(result))

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


class InlineWorker:
    """Runs every job at once on the caller's thread: for tests, tools and recovery."""

    __slots__ = ()

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        result: T | BaseException
        try:
            result = job()
        except Exception as error:
            result = error
        done(result)

    def close(self) -> None:
        return None


class Lanes(NamedTuple):
    """The workers of one store; some of them may be the same one."""

    sync: Worker
    """Syncs the log, one job at a time. Nothing else, so that nothing else delays an answer."""
    upkeep: Worker
    """Durable saves, looks at files and disks, removals, checks of derived files: in this order among themselves."""
    inner: Worker
    """Reads of the log that the broker needs itself, as of messages that are due."""
    reads: Worker
    """Reads of the log that clients asked for."""

    @classmethod
    def threads(cls, name: str, notify: Notify) -> Lanes:
        """A thread each."""
        return cls(*(ThreadWorker(f"{name}-{lane}", notify) for lane in cls._fields))

    @classmethod
    def of(cls, worker: Worker) -> Lanes:
        """One worker does everything."""
        return cls(worker, worker, worker, worker)

    def close(self) -> None:
        for lane in self:
            lane.close()
