"""The far tier's files as the broker asks for them: every call is a request to the process that keeps them.

Rules of this file
1. `is_there` looks for pyarrow without importing it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from orbitmq.clock import Clock
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.frames import (
    Check,
    Compact,
    Find,
    Land,
    MakeIndex,
    Open,
    Probe,
    Publish,
    Remove,
    SalvageFile,
    Sweep,
    TakeRows,
)
from orbitmq.timing.far.helper_process import HelperProcess
from orbitmq.timing.far.loads import CheckedFile, WrittenFile
from orbitmq.timing.far.tier import (
    Compaction,
    FarQuery,
    FileView,
    Found,
    Opened,
    Rows,
    Salvage,
)

MODULE = "orbitmq.timing.far.file_server"


def is_there() -> bool:
    """Whether the extra `orbitmq[lake]` is installed."""
    return importlib.util.find_spec("pyarrow") is not None


class ProcessTier(HelperProcess):
    """A tier whose work a helper process does."""

    def __init__(self, clock: Clock, url: str, *, command: Sequence[str] | None = None) -> None:
        super().__init__(clock, url, MODULE, command=command)

    def open(self) -> Opened:
        return self.ask(Open(), Opened)[0]

    def land(self, name: str, records: bytes) -> FarFile:
        return self.ask(Land(name), FarFile, records)[0]

    def rows(self, file: FileView, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        request = TakeRows(file, until_ms, rows_max, bytes_max)
        (taken, next_ms), records = self.ask(request, tuple[int, int])
        return Rows(records, taken, next_ms)

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        request = Find(files, query)
        (sizes, more, damaged), records = self.ask(request, tuple[list[int], bool, list[tuple[str, str]]])
        return Found(records, sizes, more, damaged)

    def compact(self, files: list[FileView], dead: list[int], serial: int) -> Compaction:
        return self.ask(Compact(files, dead, serial), Compaction)[0]

    def index(self, files: list[FileView], serial: int) -> str:
        return self.ask(MakeIndex(files, serial), str)[0]

    def salvage(self, file: FileView, ranges: list[tuple[int, int]], dead: list[int], serial: int) -> Salvage:
        return self.ask(SalvageFile(file, ranges, dead, serial), Salvage)[0]

    def remove(self, names: list[str]) -> None:
        self.ask(Remove(names), type(None))

    def sweep(self, known: list[str], loads_before_ms: int) -> list[str]:
        return self.ask(Sweep(known, loads_before_ms), list[str])[0]

    def probe(self, name: str, content: str) -> None:
        self.ask(Probe(name, content), type(None))

    def check(self, file: WrittenFile) -> CheckedFile:
        return self.ask(Check(file), CheckedFile)[0]

    def publish(self, manifest: bytes) -> None:
        self.ask(Publish(), type(None), manifest)
