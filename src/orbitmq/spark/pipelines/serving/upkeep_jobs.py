"""Looking after an archive as a scheduled job: what `orbitmq archive compact` and `vacuum` do, with the summary of a pipeline.

Rules of this file
1. No Spark: the session is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from orbitmq.limits.spark import ARCHIVE_BATCH_MS_MAX
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Setting, TimeKind, pipeline
from orbitmq.units import DAY_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ArchiveSetting = Annotated[str, Setting("Directory or URL of an archive.", metavar="URL")]


@dataclass(frozen=True, kw_only=True)
class CompactSettings:
    """What `compact` is told."""

    archive: _ArchiveSetting


@dataclass(frozen=True, kw_only=True)
class VacuumSettings:
    """What `vacuum` is told."""

    archive: _ArchiveSetting
    older_than_ms: Annotated[
        int,
        Setting("Keeps what is younger, and versions that need it.", kind=TimeKind.SPAN, minimum=ARCHIVE_BATCH_MS_MAX),
    ] = 7 * DAY_MS


@pipeline(CompactSettings)
def compact(spark: SparkSession, *, settings: CompactSettings, run: Run = ALONE) -> Summary:
    """Small files of each day of an archive become larger ones; readers and runs go on meanwhile."""
    from orbitmq.spark.pipelines.archiving import upkeep

    done = upkeep.compact(settings.archive)
    return Summary(rows_read=0, rows_written=0, details={"archive": settings.archive, **done})


@pipeline(VacuumSettings)
def vacuum(spark: SparkSession, *, settings: VacuumSettings, run: Run = ALONE) -> Summary:
    """Remove the files of an archive that it does not need any more, or never got."""
    from orbitmq.spark.pipelines.archiving import upkeep

    removed = upkeep.vacuum(settings.archive, settings.older_than_ms)
    return Summary(rows_read=0, rows_written=0, details={"archive": settings.archive, "files_removed": len(removed)})
