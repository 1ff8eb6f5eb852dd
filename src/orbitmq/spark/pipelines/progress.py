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


class _CountedStage:
    """What a stage has done; whoever shows it hears of each change."""

    def __init__(self, name: str, total_rows: int | None, shown: LineProgress | BarProgress) -> None:
        self.name: Final = name
        self.total_rows: Final = total_rows
        self._shown = shown
        self.rows = 0
        self.size_bytes = 0
        self.lag = total_rows

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self.rows += rows
        self.size_bytes += size_bytes
        self.lag = max(0, self.total_rows - self.rows) if lag is None and self.total_rows is not None else lag
        self._shown.advanced(self)

    def __enter__(self) -> Self:
        self._shown.began(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.ended(self, done=kind is None)


class LineProgress:
    """A JSON object in each line."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock: Clock = clock or SystemClock()
        self._began_ns: dict[_CountedStage, int] = {}
        self._told_ns: dict[_CountedStage, int] = {}

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        return _CountedStage(name, total_rows, self)

    def began(self, stage: _CountedStage) -> None:
        self._began_ns[stage] = self._told_ns[stage] = self._clock.monotonic_ns()

    def advanced(self, stage: _CountedStage) -> None:
        if self._clock.monotonic_ns() - self._told_ns[stage] >= PROGRESS_LINE_NS:
            self._tell(stage, done=False)

    def ended(self, stage: _CountedStage, *, done: bool) -> None:
        self._tell(stage, done=done)
        del self._began_ns[stage], self._told_ns[stage]

    def _tell(self, stage: _CountedStage, *, done: bool) -> None:
        now_ns = self._told_ns[stage] = self._clock.monotonic_ns()
        seconds = (now_ns - self._began_ns[stage]) / 1e9
        line = {
            "stage": stage.name,
            "rows": stage.rows,
            "total_rows": stage.total_rows,
            "rows_per_second": round(stage.rows / seconds) if seconds else 0,
            "size_bytes": stage.size_bytes,
            "lag": stage.lag,
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
        self._tasks: dict[_CountedStage, TaskID] = {}

    def stage(self, name: str, total_rows: int | None = None) -> Stage:
        return _CountedStage(name, total_rows, self)

    def began(self, stage: _CountedStage) -> None:
        if not self._tasks:
            self._bars.start()
        self._tasks[stage] = self._bars.add_task(stage.name, total=stage.total_rows, lag=None)

    def advanced(self, stage: _CountedStage) -> None:
        self._bars.update(self._tasks[stage], completed=stage.rows, lag=stage.lag)

    def ended(self, stage: _CountedStage, *, done: bool) -> None:
        task = self._tasks.pop(stage)
        if done and stage.total_rows is None:
            self._bars.update(task, total=stage.rows, completed=stage.rows, lag=None)
        self._bars.stop_task(task)
        if not self._tasks:
            self._bars.stop()


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
