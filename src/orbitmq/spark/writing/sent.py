"""What a task tells the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage


@dataclass
class Sent(WriterCommitMessage):
    """rows: how many were written. marks: what of them counts for the job as a whole (`task_writer.Marks`). epoch: of the job."""

    rows: int
    marks: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    epoch: int = 0
