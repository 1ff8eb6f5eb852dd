"""Pipelines: everything that moves messages in bulk, each a function over a SparkSession and a command.

    summary = orbitmq.spark.pipelines.archive(spark, to="/data/archive", name_server="localhost:9876", topic=["orders"])

Rules of this package
1. A pipeline is one function. Its keywords are its settings, on the command line and in files of pipelines as well.
2. It works in any session, Spark Connect included: neither the JVM nor a SparkContext is touched.
3. Nothing is skipped in silence: the summary counts rows read, written, quarantined and skipped.
4. Importing this package imports no pipeline, and reading the settings of one imports no Spark.
5. The module of a pipeline is not named like its function (`archiving`, `replaying`, `reporting`): once imported it would hide the
   function here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.run import ALONE, Run, StopRequest, Summary

PIPELINES: Final[dict[str, str]] = {
    "archive": "orbitmq.spark.pipelines.archiving.archive:archive",
    "compact": "orbitmq.spark.pipelines.compacting.job:compact",
    "redrive": "orbitmq.spark.pipelines.redriving.redrive:redrive",
    "replay": "orbitmq.spark.pipelines.replaying.replay:replay",
    "report": "orbitmq.spark.pipelines.reporting.report:report",
    "schedule": "orbitmq.spark.pipelines.scheduling.job:schedule",
}
"""Where each pipeline is, by its name: `module:function`."""

__all__ = ["ALONE", "PIPELINES", "Run", "StopRequest", "Summary", "pipeline_named"]


def pipeline_named(name: str) -> Callable[..., Summary]:
    """The function of a pipeline. ConfigurationError for a name that there is not."""
    place = PIPELINES.get(name)
    if place is None:
        raise ConfigurationError(f"there is no pipeline {name!r}", remedy=f"the pipelines are {', '.join(PIPELINES)}")
    module, _, function = place.partition(":")
    found: Callable[..., Summary] = getattr(importlib.import_module(module), function)
    return found


def __getattr__(name: str) -> Any:
    if name == "run_file":
        from orbitmq.spark.pipelines.pipeline_file import run_file

        return run_file
    if name not in PIPELINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pipeline_named(name)
