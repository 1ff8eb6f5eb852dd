"""Sorted rows into files of the far table, from a task.

Rules of this file
1. A file has a name that nobody has used: an attempt that is repeated writes others, and only what is reported counts.
2. A file is whole and durable before it is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa

from orbitmq.spark.pipelines.far_table.reports import Kind, Line
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table.rows import facts_of, file_bytes

LANDING = "landing"


def file_prefix(job: str, attempt: int) -> str:
    """What the names of an attempt's files begin with, below their directory; whatever characters the job's name has."""
    from hashlib import blake2b

    return f"{blake2b(job.encode(), digest_size=6).hexdigest()}-{attempt}"


class FileWriter:
    """Writes the files of one attempt of one task."""

    def __init__(self, url: str, prefix: str, part: int) -> None:
        self._storage = Storage.at(url)
        self._stem = f"{prefix}-{part:05d}-{uuid4().hex[:8]}"
        self._part = part
        self._count = 0

    def write(self, table: pa.Table, directory: str = LANDING) -> Iterator[Line]:
        """One file of rows that are sorted; none of no rows."""
        if not table.num_rows:
            return
        name = f"{directory}/{self._stem}-{self._count:04d}.parquet"
        self._count += 1
        content = file_bytes(table)
        self._storage.write(name, content)
        yield Line(Kind.FILE, self._part, name, table.num_rows, content.size, *facts_of(table)[1:])
