"""Showing how far a run is: bars on a terminal, JSON lines elsewhere.

A line: `{"stage": "archive", "rows": 120000, "total_rows": 500000, "rows_per_second": 84211, "size_bytes": 0, "lag": 380000,
"seconds": 1.425, "done": false}`; `total_rows` and `lag` are null where nobody knows them.

Rules of this file
1. At most one line a second and stage, and one at its end, which has `done`.
2. Both forms go to the stream that is not for results.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from orbitmq.clock import Clock, SystemClock
from orbitmq.limits.spark import PROGRESS_LINE_NS
from orbitmq.spark.pipelines.run import Progress, Stage


def progress_on(stream: TextIO) -> Progress:
    """Bars when the stream is a terminal, else lines."""
    return BarProgress(stream) if stream.isatty() else LineProgress(stream)


class LineProgress:
    """A JSON object in each line."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock: Clock = clock or SystemClock()

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        return _LineStage(name, total_rows, self._stream, self._clock)


class _Counted:
    """What a stage has done."""

    def __init__(self, name: str, total_rows: int | None) -> None:
        self._name: Final = name
        self._total_rows: Final = total_rows
        self._rows = 0
        self._size_bytes = 0
        self._said_lag: int | None = None

    def _count(self, rows: int, size_bytes: int, lag: int | None) -> None:
        self._rows += rows
        self._size_bytes += size_bytes
        self._said_lag = lag

    @property
    def _lag(self) -> int | None:
        if self._said_lag is not None or self._total_rows is None:
            return self._said_lag
        return max(0, self._total_rows - self._rows)


class _LineStage(_Counted):
    def __init__(self, name: str, total_rows: int | None, stream: TextIO, clock: Clock) -> None:
        super().__init__(name, total_rows)
        self._stream = stream
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()
        self._told_ns = self._begun_ns

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self._count(rows, size_bytes, lag)
        if self._clock.monotonic_ns() - self._told_ns >= PROGRESS_LINE_NS:
            self._tell(done=False)

    def __enter__(self) -> Self:
        self._begun_ns = self._told_ns = self._clock.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(done=kind is None)

    def _tell(self, *, done: bool) -> None:
        self._told_ns = self._clock.monotonic_ns()
        seconds = (self._told_ns - self._begun_ns) / 1e9
        line = {
            "stage": self._name,
            "rows": self._rows,
            "total_rows": self._total_rows,
            "rows_per_second": round(self._rows / seconds) if seconds else 0,
            "size_bytes": self._size_bytes,
            "lag": self._lag,
            "seconds": round(seconds, 3),
            "done": done,
        }
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


class BarProgress:
    """A bar for each stage, with rows, rate and what is left. Stages that overlap share the screen."""

    def __init__(self, stream: TextIO) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            _Rows(),
            TimeElapsedColumn(),
            console=Console(file=stream),
        )
        self._open = 0

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        return _BarStage(name, total_rows, self)

    def begin(self, name: str, total_rows: int | None) -> tuple[Bars, TaskID]:
        if not self._open:
            self._bars.start()
        self._open += 1
        return self._bars, self._bars.add_task(name, total=total_rows, lag=None)

    def end(self) -> None:
        self._open -= 1
        if not self._open:
            self._bars.stop()


class _BarStage(_Counted):
    def __init__(self, name: str, total_rows: int | None, shown: BarProgress) -> None:
        super().__init__(name, total_rows)
        self._shown = shown

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self._count(rows, size_bytes, lag)
        self._bars.update(self._task, completed=self._rows, lag=self._lag)

    def __enter__(self) -> Self:
        self._bars, self._task = self._shown.begin(self._name, self._total_rows)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._total_rows is None:
            self._bars.update(self._task, total=self._rows, completed=self._rows, lag=None)
        self._bars.stop_task(self._task)
        self._shown.end()


class _Rows(ProgressColumn):
    """`120,000 of 500,000 rows   84,211/s   380,000 left`"""

    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f" of {task.total:,.0f}"
        rate = task.finished_speed or task.speed
        parts = [f"{task.completed:,.0f}{total} rows"]
        if rate:
            parts.append(f"{rate:,.0f}/s")
        if task.fields.get("lag"):
            parts.append(f"{task.fields['lag']:,} left")
        return Text("   ".join(parts))
