"""Running pipelines for a command: a session, signals, progress, and summaries where results go.

Rules of this file
1. Results go to standard output, progress to standard error; a summary is a table on a terminal, else a line of JSON.
2. Signals are taken only while pipelines run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

from orbitmq.spark.pipelines.pipeline_file import Step, run_steps
from orbitmq.spark.pipelines.run import Run, StopRequest, Summary

QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
"""Settings of Spark for a command: what it shows of itself stands in the way of progress."""

TASKS_ONLY: Final = frozenset({"archive"})
"""Pipelines whose rows never reach Java, which only gives out their tasks."""

BRIEF_JAVA: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A Java that compiles quickly and not well: of a small archive's CPU a third is the compiler's."""

_QUERY_ERRORS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def quiet_queries() -> None:
    """Errors of queries are told by who asked; PySpark logs them as well, as lines of JSON with both programs' stacks."""
    from pyspark.logger import PySparkLogger

    for name in _QUERY_ERRORS:
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def run_for_command(
    steps: tuple[Step, ...],
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str | bool | int | float] | None = None,
    as_json: bool = False,
) -> bool:
    """Whether every step did all it should. Starts a session, or takes the one that spark-submit made, and ends it."""
    from orbitmq.spark.pipelines.progress import progress_on
    from orbitmq.spark.spark_session import session, tasks_only

    name = f"orbitmq {' '.join(step.pipeline for step in steps)}"
    quiet = QUIET if remote is None else {}  # they are settings of the other side's Java
    is_new = remote is None and "pyspark" not in sys.modules  # else there may be a Java, which keeps its options
    gives_tasks = is_new and TASKS_ONLY.issuperset(step.pipeline for step in steps)
    begin, brief = (tasks_only, BRIEF_JAVA) if gives_tasks else (session, {})
    spark: Any = begin(master, remote=remote, app_name=name, **{**quiet, **brief, **(conf or {})})
    quiet_queries()
    stop = StopRequest()
    done = True
    try:
        with stop.on_signals(_tell_stop):
            for summary in run_steps(spark, steps, Run(progress=progress_on(sys.stderr), stop=stop)):
                show_summary(summary, sys.stdout, as_json=as_json)
                done = done and not summary.failed
    finally:
        spark.stop()
    return done


def show_summary(summary: Summary, stream: TextIO, *, as_json: bool) -> None:
    """A table for people, or a line for programs."""
    record = summary.record()
    if as_json or not stream.isatty():
        stream.write(json.dumps(record) + "\n")
        stream.flush()
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in record.items():
        table.add_row(name.replace("_", " "), _shown(value))
    Console(file=stream, highlight=False).print(table)


def _shown(value: int | float | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else value


def _tell_stop() -> None:
    sys.stderr.write("stopping after the current batch; press Ctrl-C again to break off at once\n")
