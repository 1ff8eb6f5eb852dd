"""Files of pipelines: several of them, one after the other in one session, with settings they share.

    [spark]
    master = "local[4]"
    driver.memory = "4g"                     # spark.driver.memory

    [defaults]                               # for every step that has the setting
    name-server = "localhost:9876"

    [[step]]
    pipeline = "archive"
    to = "/data/archive"
    topic = ["orders", "payments"]

    [[step]]
    pipeline = "report"
    archive = "/data/archive"
    to = "/data/report"

Settings have their names of the command line. Times and spans are written as there, or as dates of TOML.

Rules of this file
1. The whole file is understood before the first step begins; an unknown name is an error that lists the known ones. Mistakes are told with
   their line.
2. A step that failed or was stopped is the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.names import pipeline_named
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import NamedSetting, from_values, optional, settings_of
from orbitmq.spark.pipelines.toml_file import TomlFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK: Final = "spark"
_PARTS: Final = (_SPARK, "defaults", "step")
_NAME: Final = "pipeline"
_WHERE: Final = ("master", "remote")


class Step(NamedTuple):
    """One pipeline with its arguments."""

    pipeline: str
    function: Callable[..., Summary]
    arguments: Mapping[str, Any]


class PipelineFile(NamedTuple):
    """What a file says. `conf` are settings of Spark by their full names."""

    master: str | None
    remote: str | None
    conf: Mapping[str, str | bool | int | float]
    steps: tuple[Step, ...]


def read_file(path: str | Path) -> PipelineFile:
    """Raises ConfigurationError that names the file, the line, the step and what is wrong with it."""
    file = TomlFile(path, _PARTS)
    steps = file.tables("step")
    if not steps:
        raise file.mistake("it has no step", 'begin each one with [[step]] and pipeline = "..."')
    now_ms = SystemClock().now_ms()
    used: set[str] = set()
    found = [_step(file, number, now_ms, used) for number in range(len(steps))]
    unused = sorted(file.table("defaults").keys() - used)
    if unused:
        text = f"no step has the setting {unused[0]} that stands under [defaults]"
        raise file.mistake(text, "leave it out", ("defaults", 0), unused[0])
    return PipelineFile(*session_of(file), tuple(found))


def session_of(file: TomlFile) -> tuple[str | None, str | None, dict[str, str | bool | int | float]]:
    """What the part [spark] says: master, remote, and settings of Spark by their full names."""
    conf = {
        name if name.startswith("spark.") else f"spark.{name}": value for name, value in _flat(file, file.table(_SPARK))
    }
    where = {name: conf.pop(f"spark.{name}", None) for name in _WHERE}
    for name, value in where.items():
        if value is not None and not isinstance(value, str):
            text = f"{name} under [spark] is {value!r}, not a text"
            raise file.mistake(text, f'write {name} = "..."', (_SPARK, 0), name)
    master, remote = (None if value is None else str(value) for value in where.values())
    if master is not None and remote is not None:
        raise file.mistake("[spark] has a master and is remote", "leave one of them away", (_SPARK, 0))
    return master, remote, conf


def run_file(spark: SparkSession, path: str | Path, *, run: Run = ALONE) -> list[Summary]:
    """The steps of a file in a session that runs: its part [spark] is left to who starts one. The summaries of the steps that ran."""
    return list(run_steps(spark, read_file(path).steps, run))


def run_steps(spark: SparkSession, steps: tuple[Step, ...], run: Run) -> Iterator[Summary]:
    """Each summary when its step is done."""
    for step in steps:
        summary = step.function(spark, **step.arguments, run=run)
        yield summary
        if summary.failed or run.stop.requested:
            return


def _step(file: TomlFile, number: int, now_ms: int, used: set[str]) -> Step:
    step, at, what = file.tables("step")[number], ("step", number), f"step {number + 1}"
    with file.placed(what, at, _NAME):
        name = step.get(_NAME)
        if not isinstance(name, str):
            raise ConfigurationError("it does not say which pipeline it is", remedy='write pipeline = "archive"')
        function = pipeline_named(name)
    settings = settings_of(function.settings_type)
    own = {key: value for key, value in step.items() if key != _NAME}
    given = with_defaults(settings, own, file.table("defaults"), used)
    for key, value in given.items():  # each one alone first, for its line
        with file.placed(what, at if key in own else ("defaults", 0), key):
            from_values(optional(settings), {key: value}, now_ms)
    with file.placed(what, at):
        arguments = from_values(settings, given, now_ms)
        function.settings_type(**arguments)
    return Step(name, function, arguments)


def with_defaults(
    settings: Sequence[NamedSetting], given: Mapping[str, Any], defaults: Mapping[str, Any], used: set[str]
) -> dict[str, Any]:
    """What is given, and of the defaults those that these settings have. used: names of defaults that somebody has; added to."""
    known = {setting.name for setting in settings}
    taken = {key: value for key, value in defaults.items() if key in known and key not in given}
    used.update(defaults.keys() & known)
    if any(setting.setting.replaces_cluster and setting.name in given for setting in settings):
        taken.pop("name-server", None)
    return {**taken, **given}


def _flat(file: TomlFile, table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings of Spark by their names; a dot in a name without quotes makes a table in TOML."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(file, value, f"{before}{name}.")
        elif isinstance(value, str | bool | int | float):
            yield before + name, value
        else:
            text = f"{before}{name} under [spark] is {value!r}, not one value"
            raise file.mistake(text, "settings of Spark are texts, numbers or truth values", (_SPARK, 0), before + name)
