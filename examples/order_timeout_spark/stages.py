"""The stages of the story and how far each is: a bar on a terminal, a few plain lines elsewhere.

Rules of this file
1. It is the `Progress` that orbitmq's pipelines take, so the archive has its bar among the others.
2. Whatever fails inside a stage leaves it as a StageError that says which stage, and why in a few lines.
"""

from __future__ import annotations

import re
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

LINE_EVERY_S: Final = 5.0
"""Where nobody watches a bar."""

TEXT_MAX: Final = 600
"""Of a line in an error: plans and schemas stand in some."""


class StageError(Exception):
    """A stage could not be carried out."""


def why(error: BaseException) -> str:
    """An error without the stacks of Java and Python that Spark puts into it: its first line, and what Python said last."""
    lines = [
        line
        for line in str(error).splitlines()
        if line.strip() and not re.match(r"\s+at |Caused by: |\s*JVM stack", line)
    ]
    said = [line for line in lines[1:] if re.match(r"[\w.]+(Error|Exception|Timeout)\b.*: ", line)]
    parts = [f"{type(error).__name__}: {lines[0] if lines else ''}", *said[-1:]]
    return "\n  ".join(part[:TEXT_MAX] for part in parts)


class Stages:
    """A context manager around the whole story."""

    def __init__(self, console: Console) -> None:
        self.console: Final = console
        self.seconds: Final[dict[str, float]] = {}
        """How long each stage took that has ended."""
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓[/green]"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console,
        )

    @property
    def drawing(self) -> bool:
        return self.console.is_terminal

    def stage(self, name: str, total_rows: int | None = None) -> OneStage:
        return OneStage(self, name, total_rows, self._bars if self.drawing else None)

    def __enter__(self) -> Self:
        if self.drawing:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.drawing:
            self._bars.stop()


class OneStage:
    """One bar. `advance` counts what was done, `reach` says how much is done, `tell` what there is to say beside it."""

    def __init__(self, stages: Stages, name: str, total: int | None, bars: Progress | None) -> None:
        self._stages = stages
        self._name = name
        self._total = total
        self._bars = bars
        self._task: TaskID | None = None
        self.done = 0
        self._note = ""
        self._began = self._printed = 0.0

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self.reach(self.done + rows)

    def reach(self, done: int, note: str | None = None) -> None:
        self.done = done if self._total is None else min(done, self._total)
        if note is not None:
            self._note = note
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self.done, note=self._note)
        elif time.monotonic() - self._printed >= LINE_EVERY_S:
            self._print("")

    def tell(self, note: str) -> None:
        self.reach(self.done, note)

    def __enter__(self) -> Self:
        self._began = self._printed = time.monotonic()
        if self._bars is not None:
            self._task = self._bars.add_task(self._name, total=self._total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = self._stages.seconds[self._name] = time.monotonic() - self._began
        if self._bars is not None and self._task is not None:
            if kind is None:
                total = self.done if self._total is None else self._total
                self._bars.update(self._task, total=total or 1, completed=(total or 1), note=self._note)
            self._bars.stop_task(self._task)
        else:
            self._print(f"done after {seconds:.1f} s" if kind is None else f"failed after {seconds:.1f} s")
        if isinstance(error, Exception) and not isinstance(error, StageError):
            raise StageError(f"the stage '{self._name}' failed after {seconds:.0f} s: {why(error)}") from error

    def _print(self, end: str) -> None:
        self._printed = time.monotonic()
        counted = f"{self.done:,}" + (f" of {self._total:,}" if self._total is not None else "") if self.done else ""
        parts = [part for part in (counted, self._note, end) if part]
        self._stages.console.print(Text(f"{self._name}: {', '.join(parts)}"))
