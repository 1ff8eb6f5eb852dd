"""`format("orbitmq-log")` in any Spark session: commit-log files as rows. Found as `pyspark_orbitmq` is, with the same rules."""

from __future__ import annotations

from pyspark_orbitmq.loading import source_or_reason

DefaultSource = source_or_reason("orbitmq-log", "orbitmq.spark.log_source", "LogSource", package=__name__)
