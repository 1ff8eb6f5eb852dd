"""How far an archive is: the next offset of every queue or position of every log, and the files of its last batch.

Rules of this file
1. Pure. The text is JSON that people can read.
2. An archive is of topics or of logs, never of both: the same message would be in it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.spark.reading.offsets import Json, Offsets, from_json, to_json

VERSION: Final = 1
EMPTY: Final[Mapping[str, int]] = {}


class SourceKind(StrEnum):
    """What an archive is made of."""

    TOPICS = "topics"
    LOGS = "logs"


class LandedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a batch; paths are below the archive's directory."""

    staged: str
    path: str
    rows: int
    size_bytes: int


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How far an archive was before its last batch."""

    batch: int
    offsets: Json
    positions: dict[str, int]
    since: dict[str, int]


class ArchiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the file."""

    version: int = VERSION
    source: SourceKind
    owner: str
    """The run that may commit."""
    fixed: dict[str, str] = {}
    """Settings that make one whole of the files of many runs, as texts."""
    batch: int = 0
    """Batches that were committed."""
    offsets: Json = {}
    """For topics, the first offset that is not archived, by topic, broker and queue."""
    positions: dict[str, int] = {}
    """For logs, the first position that is not archived, by broker name (empty where there is none)."""
    since: dict[str, int] = {}
    """For logs, a time in ms since 1970 by broker name: what was stored before it is left out, where the run that began with the log said
    so. A later run may find much of that log still before it."""
    files: list[LandedFile] = []
    """Files of the last batch, until all of them have their final names: by this run, or when the next one begins."""
    before: Reached | None = None
    """While `files` are named: where a run begins again when one of them is lost. None in what earlier versions wrote."""

    def queues(self) -> Offsets:
        return from_json(self.offsets)

    def owned_by(self, owner: str) -> ArchiveState:
        return msgspec.structs.replace(self, owner=owner)

    def after(
        self,
        files: Iterable[LandedFile],
        queues: Offsets,
        positions: Mapping[str, int],
        since: Mapping[str, int] = EMPTY,
    ) -> ArchiveState:
        """With one more batch, which brought queues and logs to these places."""
        return msgspec.structs.replace(
            self,
            batch=self.batch + 1,
            files=list(files),
            offsets=to_json({**self.queues(), **queues}),
            positions={**self.positions, **positions},
            since={**self.since, **since},
            before=Reached(batch=self.batch, offsets=self.offsets, positions=self.positions, since=self.since),
        )

    def named(self) -> ArchiveState:
        """All files of the last batch have their final names; what becomes of them is nobody's business from now on."""
        return msgspec.structs.replace(self, files=[], before=None)

    def without_last(self) -> ArchiveState:
        """As before the last batch, of which a file was lost; `before` says how that was."""
        before = self.before
        assert before is not None
        return msgspec.structs.replace(
            self,
            batch=before.batch,
            offsets=before.offsets,
            positions=before.positions,
            since=before.since,
            files=[],
            before=None,
        )


def encode(state: ArchiveState) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"


def decode(content: bytes, place: str) -> ArchiveState:
    """Raises StoreDamagedError for what is no state, and ConfigurationError for one of a later version."""
    try:
        state = msgspec.json.decode(content, type=ArchiveState)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreDamagedError(
            f"{place} does not say how far the archive is: {error}",
            remedy="restore the file from a copy; without it, archive into a new directory",
        ) from error
    if state.version > VERSION:
        raise ConfigurationError(
            f"{place} was written by a later orbitmq (form {state.version}, this one knows {VERSION})",
            remedy="run the archive with that version",
        )
    return state


def check_same(state: ArchiveState, source: SourceKind, fixed: Mapping[str, str], place: str) -> None:
    """Raises ConfigurationError when a run would put into an archive what does not go with the rest."""
    if state.source is not source:
        raise ConfigurationError(
            f"{place} is an archive of {state.source}, and this run reads {source}: messages would be in it twice",
            remedy="archive into another directory",
        )
    for name, text in fixed.items():
        before = state.fixed.get(name, text)
        if before != text:
            raise ConfigurationError(
                f"{place} was begun with {name} {before or 'not given'!r}, and this run has {text or 'not given'!r}",
                remedy="give the same, or archive into another directory",
            )
