"""Which columns the files of an archive have.

Rules of this file
1. A column that is not there is an error here: Spark would read nulls where it is told of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.failed_jobs import job_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES: Final = "*.parquet"


def archived_columns(spark: SparkSession, place: str, needed: Sequence[str], what: str) -> Mapping[str, str]:
    """Types by name, those of the directories among them. ConfigurationError names the columns that `what` needs and are missing."""
    with job_errors(f"reading archive {place}"):
        schema = spark.read.option("pathGlobFilter", FILES).parquet(place).schema
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    missing = [name for name in needed if name not in kinds]
    if missing:
        raise ConfigurationError(
            f"archive {place} has no column {', '.join(missing)}", remedy=f"{what} needs {', '.join(needed)}"
        )
    return kinds
