"""Pipelines: everything that moves messages in bulk, each a function over a SparkSession and a command.

    summary = orbitmq.spark.pipelines.archive(spark, to="/data/archive", name_server="localhost:9876", topic=["orders"])

Rules of this package
1. A pipeline is one function with a struct of settings, which callers give as keywords, on the command line and in files of pipelines.
2. It works in any session, Spark Connect included: neither the JVM nor a SparkContext is touched.
3. Nothing is skipped in silence: the summary counts rows read, written, quarantined and skipped.
4. Importing this package imports no pipeline, and reading the settings of one imports no Spark.
5. The module of a pipeline is not named like its function (`archiving`, `replaying`, `reporting`): once imported it would hide the
   function here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.run import Run, StopRequest, Summary

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.archiving.archive import archive
    from orbitmq.spark.pipelines.pipeline_file import run_file
    from orbitmq.spark.pipelines.publishing.publish import changes
    from orbitmq.spark.pipelines.redriving.analysis import dead_letters
    from orbitmq.spark.pipelines.redriving.redrive import redrive
    from orbitmq.spark.pipelines.replaying.replay import replay
    from orbitmq.spark.pipelines.reporting.report import report
    from orbitmq.spark.pipelines.scheduling.job import schedule

__all__ = [
    "Run",
    "StopRequest",
    "Summary",
    "archive",
    "changes",
    "dead_letters",
    "redrive",
    "replay",
    "report",
    "run_file",
    "schedule",
]


def __getattr__(name: str) -> Any:
    if name == "run_file":
        from orbitmq.spark.pipelines.pipeline_file import run_file

        return run_file
    from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named

    word = name.replace("_", "-")
    if word not in PIPELINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pipeline_named(word)
