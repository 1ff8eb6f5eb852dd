"""The catalog of the far table behind the few calls that jobs make.

Rules of this file
1. Jobs know `Catalog` only. The cluster's client answers it; tests answer it from the catalog's own rules.
2. Every call may be repeated.
3. Light to import: the signature of a pipeline names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orbitmq.errors import ClientError
from orbitmq.protocol.far_table import (
    FilesChanged,
    JobOpened,
    ListedFile,
    Recall,
    TableFile,
    TableStatus,
    TableVerdict,
)


class Catalog(Protocol):
    """What the owner of the catalog answers. Verdicts are in the answers; trouble with the cluster is a ClientError."""

    def status(self) -> TableStatus: ...

    def open_job(self, job: str, epoch: int) -> JobOpened: ...

    def add(self, job: str, epoch: int, attempt: int, files: Sequence[TableFile]) -> FilesChanged: ...

    def replace(
        self,
        job: str,
        epoch: int,
        attempt: int,
        old_names: Sequence[str],
        new_files: Sequence[TableFile],
        from_ms: int,
    ) -> FilesChanged: ...

    def files(self) -> list[ListedFile]:
        """Every file with rows that no bucket has taken yet."""

    def recalls(self, from_ms: int, until_ms: int) -> list[Recall]:
        """Of rows due from `from_ms` to before `until_ms`."""


def refused(what: str, verdict: TableVerdict, reason: str) -> ClientError:
    """The error of a verdict that ends a job."""
    return ClientError(
        f"the owner of the far table refuses {what}: {reason} ({verdict})", remedy=_REMEDIES.get(verdict)
    )


_REMEDIES = {
    TableVerdict.STALE_EPOCH: "the same job goes on elsewhere: let that one end",
    TableVerdict.STALE_ATTEMPT: "the same job was started again elsewhere: let that one end",
    TableVerdict.NOT_OPEN: "start the job again",
    TableVerdict.BAD_FILE: "the storage may show files late: start the job again",
    TableVerdict.TOO_MANY: "compact the table, and start the job again",
    TableVerdict.WRONG_TABLE: "give the URL of this cluster's table",
}
