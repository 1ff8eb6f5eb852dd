"""Files that nobody knows: what jobs left behind that died before the catalog listed their work.

A file is an orphan when it is old, and a manifest that was written long after it knows nothing of it. A job never adds files that are
older than SCHEDULE_AGE_MS_MAX, so such a file cannot come to count any more.

Rules of this file
1. Pure: lists and times in, names out. In doubt a file stays.
2. What the catalog lists, keeps for a closed bucket, or has on its list of files to remove is the owner's business, never an orphan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from orbitmq.limits.spark import SCHEDULE_AGE_MS_MAX
from orbitmq.timing.far.storage import StoredFile


def orphans(
    stored: Iterable[StoredFile],
    known: Collection[str],
    *,
    manifest_at_ms: int,
    grace_ms: int,
) -> list[str]:
    """known: names in the manifest and in the catalog's list of now. grace_ms: how much older than the manifest an orphan is, at least
    SCHEDULE_AGE_MS_MAX. A file without a time is none."""
    before_ms = manifest_at_ms - max(grace_ms, SCHEDULE_AGE_MS_MAX)
    return [file.name for file in stored if 0 < file.written_at_ms < before_ms and file.name not in known]
