"""Counting the rows that pass a place of a job, without a job of its own.

Rules of this file
1. The count is that of the attempts that Spark kept: a task that was repeated counts once.
2. A place that Spark takes out of a plan counts nothing. It does so where it sees before the job that no row comes out of it, and, unless
   `places_kept` surrounds the job, also while the job runs, when rows have passed already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXCLUDED: Final = "spark.sql.adaptive.optimizer.excludedRules"
_PRUNING: Final = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


def counted(frame: DataFrame) -> tuple[DataFrame, Any]:
    """The frame, and what to hand to `count_of` when the one job that it is part of has ended."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    watched = Observation()
    return frame.observe(watched, F.count(F.lit(1)).alias("rows")), watched


@contextmanager
def places_kept(spark: SparkSession) -> Iterator[None]:
    """Counted places stay in the plans of jobs that run meanwhile, also where a filter behind them leaves nothing."""
    before = spark.conf.get(_EXCLUDED, "")
    spark.conf.set(_EXCLUDED, ",".join(rule for rule in (before, _PRUNING) if rule))
    try:
        yield
    finally:
        if before:
            spark.conf.set(_EXCLUDED, before)
        else:
            spark.conf.unset(_EXCLUDED)


def count_of(watched: Any) -> int:
    """0 for a place that was taken out."""
    from pyspark.errors import PySparkAssertionError

    try:
        return int(watched.get.get("rows") or 0)
    except PySparkAssertionError as error:  # what a client of Spark Connect says
        if error.getCondition() != "NO_OBSERVE_BEFORE_GET":
            raise
    except Exception as error:  # what PySpark makes of the row without columns that Spark answers
        if not type(error).__module__.startswith("py4j") or "toPyRow" not in str(error):
            raise
    return 0
