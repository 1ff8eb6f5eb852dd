"""Running a job of Spark whose tasks report to the driver, with a look at the stop request.

Rules of this file
1. A job is given up on a stop request only where the caller says that nothing of it counts yet.
2. Works in any session: jobs are tagged, and a tag is interrupted; no SparkContext is touched. Spark knows a tag from when it has the
   job on, and forgets an interruption of one that it does not know: the request is repeated until the job has ended.
3. A job that failed for a reason of its own failed, also where it was to stop.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from orbitmq.limits.spark import PIPELINE_LOOK_MS
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.run import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CANCELLED: Final = re.compile(r"cancell?ed", re.IGNORECASE)


def collected(
    spark: SparkSession, frame: DataFrame, doing: str, *, stop: StopRequest | None = None
) -> Sequence[Any] | None:
    """All rows of a small result. None when the stop request came first; without `stop` the job goes on to its end. SparkJobError says
    `doing`."""
    if stop is not None and stop.requested:
        return None
    ended = threading.Event()
    rows: list[Any] = []
    failures: list[BaseException] = []
    tag = f"orbitmq-{uuid4().hex}"

    def run() -> None:
        try:
            spark.addTag(tag)
            rows.extend(frame.collect())
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=doing, daemon=True)
    thread.start()
    try:
        while not ended.wait(PIPELINE_LOOK_MS / 1000):
            if stop is not None and stop.requested:
                spark.interruptTag(tag)
    except BaseException:
        spark.interruptTag(tag)
        raise
    thread.join()
    asked = stop is not None and stop.requested
    if failures and not (asked and _CANCELLED.search(str(failures[0]))):
        with job_errors(doing):
            raise failures[0]
    return None if asked else rows
