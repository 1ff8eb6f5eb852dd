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
1. The whole file is understood before the first step begins; an unknown name is an error that lists the known ones.
2. A step that failed or was stopped is the last one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.names import pipeline_named
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import NamedSetting, from_values, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS: Final = ("spark", "defaults", "step")
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
    """Raises ConfigurationError that names the file, the step and what is wrong with it."""
    content = toml_of(path, _PARTS)
    defaults = table_of(content, "defaults", path)
    steps = content.get("step", [])
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise ConfigurationError(f"{path} has no step", remedy='begin each one with [[step]] and pipeline = "..."')
    now_ms = SystemClock().now_ms()
    used: set[str] = set()
    found = []
    for number, step in enumerate(steps, 1):
        try:
            found.append(_step(step, defaults, now_ms, used))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, step {number}: {error.args[0]}", remedy=error.remedy) from error
    unused = sorted(defaults.keys() - used)
    if unused:
        raise ConfigurationError(f"{path}: no step has the setting {unused[0]} that stands under [defaults]")
    return PipelineFile(*session_of(content, path), tuple(found))


def toml_of(path: str | Path, parts: Sequence[str]) -> dict[str, Any]:
    """The content of a file that has these parts at most. ConfigurationError for another one, and for what is no TOML."""
    try:
        content = tomllib.loads(text_of(path))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", remedy="name a file of TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}", remedy="correct it there") from error
    for name in content:
        if name not in parts:
            raise ConfigurationError(f"{path}: there is no part {name!r}", remedy=f"the parts are {', '.join(parts)}")
    return content


def text_of(path: str | Path) -> str:
    """The text of a file, without the mark that some editors begin one with. OSError and UnicodeDecodeError."""
    return Path(path).read_text(encoding="utf-8-sig")


def session_of(
    content: Mapping[str, Any], path: str | Path
) -> tuple[str | None, str | None, dict[str, str | bool | int | float]]:
    """What the part [spark] says: master, remote, and settings of Spark by their full names."""
    conf = {
        name if name.startswith("spark.") else f"spark.{name}": value
        for name, value in _flat(table_of(content, "spark", path), path)
    }
    where = {name: conf.pop(f"spark.{name}", None) for name in _WHERE}
    for name, value in where.items():
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{path}: {name} under [spark] is {value!r}, not a text")
    master, remote = (None if value is None else str(value) for value in where.values())
    if master is not None and remote is not None:
        raise ConfigurationError(f"{path}: [spark] has a master and is remote", remedy="leave one of them away")
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


def _step(step: Mapping[str, Any], defaults: Mapping[str, Any], now_ms: int, used: set[str]) -> Step:
    name = step.get(_NAME)
    if not isinstance(name, str):
        raise ConfigurationError("it does not say which pipeline it is", remedy='write pipeline = "archive"')
    function = pipeline_named(name)
    settings = settings_of(function.settings_type)
    given = {key: value for key, value in step.items() if key != _NAME}
    return Step(name, function, from_values(settings, with_defaults(settings, given, defaults, used), now_ms))


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


def table_of(content: Mapping[str, Any], part: str, path: str | Path) -> Mapping[str, Any]:
    found = content.get(part, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: {part} is no table", remedy=f"write it below [{part}]")
    return found


def _flat(table: Mapping[str, Any], path: str | Path, before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings of Spark by their names; a dot in a name without quotes makes a table in TOML."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, path, f"{before}{name}.")
        elif isinstance(value, str | bool | int | float):
            yield before + name, value
        else:
            raise ConfigurationError(f"{path}: {before}{name} under [spark] is {value!r}, not one value")
