"""A run of a pipeline: what it shows, how it is asked to stop, and what it says in the end.

Rules of this file
1. A stop request is only noted here; a pipeline looks at it between two batches, finishes what it began and says so.
2. A summary holds counts of rows that are true whatever was retried below.
3. Nothing of Spark is imported.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Final, Protocol, Self


class Stage(Protocol):
    """One part of a run whose rows are counted. A context manager; leaving it ends the part."""

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        """`rows` more are done. lag: rows that are known to be left, where that is not the total minus what is done."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Progress(Protocol):
    """Where a run shows how far it is."""

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        """A part named `name`, to be entered; total_rows: None where nobody knows it."""


class Silent:
    """Shows nothing, and is each of its own stages."""

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        return self

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class StopRequest:
    """Whether the run is to end after its current batch. May be set from any thread, and is never taken back."""

    def __init__(self) -> None:
        self.requested = False
        self._heard: Final[SimpleQueue[None]] = SimpleQueue()
        """A signal is heard between two instructions of the main thread, which may hold the lock of an event that it waits for."""

    def request(self) -> None:
        self.requested = True
        self._heard.put(None)

    def wait(self, duration_ms: int) -> bool:
        """Let time pass; returns early, and True, as soon as the run is to stop."""
        if self.requested:
            return True
        try:
            self._heard.get(timeout=duration_ms / 1000)
        except Empty:
            return self.requested
        self._heard.put(None)  # for the next one that waits
        return True

    @contextmanager
    def on_signals(self, tell: Callable[[], None] | None = None) -> Iterator[Self]:
        """SIGINT and SIGTERM become a request; `tell` is called then. A second SIGINT interrupts at once (KeyboardInterrupt).

        Enter it in the main thread and after the Spark session began, which brings a handler of its own.
        """

        def note(number: int, _: FrameType | None) -> None:
            if self.requested and number == signal.SIGINT:
                raise KeyboardInterrupt
            is_first = not self.requested
            self.request()  # before anybody is told, which may fail or take its time
            if is_first and tell is not None:
                tell()

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@dataclass(frozen=True)
class Run:
    """What surrounds one run."""

    progress: Progress = field(default_factory=Silent)
    stop: StopRequest = field(default_factory=StopRequest)


ALONE: Final = Run()
"""Shows nothing and is never asked to stop: the default of every pipeline's `run`."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run did. `rows_read` = written + quarantined + skipped, unless the pipeline says otherwise in its documentation."""

    pipeline: str = ""
    rows_read: int
    rows_written: int
    rows_quarantined: int = 0
    rows_skipped: int = 0
    seconds: float = 0.0
    """This and the name are filled in where a function is made a pipeline."""
    stopped: bool = False
    """Ended early, by a stop request; what was done is complete, and the next run goes on behind it."""
    failed: bool = False
    """Something could not be done; `details` say what. Makes the command's exit code 1."""
    details: Mapping[str, int | float | str | bool] = field(default_factory=dict)

    def record(self) -> dict[str, int | float | str | bool]:
        """As one flat record, the form of the JSON line."""
        own = {name: value for name, value in vars(self).items() if name != "details"}
        return {**own, "seconds": round(self.seconds, 3), **self.details}
