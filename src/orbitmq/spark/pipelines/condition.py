"""Conditions that somebody gave, asked of the rows of a data frame: one in SQL, and bounds of the store time.

Rules of this file
1. A mistake in SQL is found before anything runs, in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.errors import ConfigurationError
from orbitmq.spark.worker_failures import is_sparks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def rows_where(
    frame: DataFrame, where: str | None, *, rows: str, remedy: str, undecided: Column | None = None
) -> DataFrame:
    """The rows for which `where` is true. ConfigurationError names it, and says of which `rows` it cannot be asked.

    undecided: of those for which it is null, the ones for which this is true stay as well.
    """
    from pyspark.sql import functions as F

    if where is None:
        return frame
    try:
        found = frame.where(where)
        # A session of Spark Connect looks at the expression when it is asked for a schema, and takes that of the rows to be the same.
        _ = found.select(F.lit(1)).schema
    except Exception as error:
        if not is_sparks(error):
            raise
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigurationError(f"where={where!r} cannot be asked of {rows}: {first}", remedy=remedy) from error
    return found if undecided is None else frame.where(F.coalesce(F.expr(where), undecided))


def stored_between(frame: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    """The messages that were stored at or after the first time and before the second, as far as these are given."""
    from pyspark.sql import functions as F

    stored = F.col("storeTimestamp")
    if since_ms is not None:
        frame = frame.where(stored >= F.timestamp_millis(F.lit(since_ms)))
    if until_ms is not None:
        frame = frame.where(stored < F.timestamp_millis(F.lit(until_ms)))
    return frame
