"""Counting the rows that pass a place of a job, without a job of its own.

Rules of this file
1. The count is that of the attempts that Spark kept: a task that was repeated counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def counted(frame: DataFrame) -> tuple[DataFrame, Any]:
    """The frame, and what to hand to `count_of` when the one job that it is part of has ended."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    watched = Observation()
    return frame.observe(watched, F.count(F.lit(1)).alias("rows")), watched


def count_of(watched: Any) -> int:
    return int(watched.get.get("rows") or 0)
