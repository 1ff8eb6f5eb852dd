"""What a run of an archive has to do: pieces of work, and where the archive stands when each is done.

Rules of this file
1. Pieces are in order: after any number of them from the beginning, the places they name are where the archive stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.archiving.state import ArchiveState, SourceKind
from orbitmq.spark.pipelines.archiving.tasks import Work


class TaskPiece(NamedTuple):
    """The work of one task, and the places behind it."""

    work: Work
    queues: Mapping[MessageQueue, int]
    positions: Mapping[str, int]


class ArchivePlan(NamedTuple):
    pieces: Sequence[TaskPiece]
    rows: int | None
    """In all pieces; None where only reading tells."""
    missing: int = 0
    """Messages that were to be archived and are gone, where that is allowed."""
    since: Mapping[str, int] = {}
    """Times by the name of a log: what was stored before is left out, now and by the runs that go on."""
    behind: Mapping[MessageQueue, int] = {}
    """Where the archive stands in queues that lost messages, once these are counted."""


class ArchiveSource(Protocol):
    """Where messages come from."""

    @property
    def source(self) -> SourceKind: ...

    def plan(self, state: ArchiveState) -> ArchivePlan: ...
