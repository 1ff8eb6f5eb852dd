"""What a run of an archive has to do: pieces of work, and where the archive stands when each is done.

Rules of this file
1. Pieces are in order: after any number of them from the beginning, the numbers they name are where the archive stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from orbitmq.spark.pipelines.archiving.reached import Reached
from orbitmq.spark.pipelines.archiving.table import SourceKind
from orbitmq.spark.pipelines.archiving.tasks import Work


class TaskPiece(NamedTuple):
    """The work of one task. ends: numbers behind it, by application (`reached.py`)."""

    work: Work
    ends: Mapping[str, int]


class ArchivePlan(NamedTuple):
    pieces: Sequence[TaskPiece]
    rows: int | None
    """In all pieces; None where only reading tells."""
    missing: int = 0
    """Messages that were to be archived and are gone, where that is allowed."""
    begins: Mapping[str, int] = {}
    """Numbers that are stored before the first piece: times of logs (`since`), and queues that lost messages, once these are counted."""


class ArchiveSource(Protocol):
    """Where messages come from."""

    @property
    def source(self) -> SourceKind: ...

    def plan(self, reached: Reached) -> ArchivePlan: ...
