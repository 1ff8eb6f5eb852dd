"""One thread for file work that would hold the event loop: syncing, removing files, reading cold ranges.

Rules of this file
1. Jobs run one after the other in the order given. A job touches only what it was handed.
2. What a job returns or raises reaches `done` on the caller's own thread, through `notify`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Notify = Callable[[Callable[[], None]], object]
"""Runs a function soon on the thread that owns the store, e.g. `loop.call_soon_threadsafe`."""

JOBS_MAX = 1024
"""Jobs waiting at most: they are few by nature; reaching this means that the disk hangs."""


class Worker(Protocol):
    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job` elsewhere, then `done` with its result or exception on the owner's thread."""
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
        self._jobs: queue.Queue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.Queue(JOBS_MAX)
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put_nowait((job, done))

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
