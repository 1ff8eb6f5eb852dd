"""The file of a service: its streams and jobs, and everything that is wrong with them.

    [service]
    name = "lake"
    state = "/var/lib/orbitmq-pipeline"
    http = "127.0.0.1:9404"

    [defaults]
    name-server = "localhost:9876"

    [[stream]]
    name = "orders"
    sink = "archive"
    topic = ["orders"]
    to = "/data/archive"
    every = "10s"

    [[job]]
    name = "tidy"
    pipeline = "compact"
    archive = "/data/archive"
    cron = "0 3 * * *"

Rules of this file
1. All that can be known without Spark and without a cluster is checked here, and every mistake is told, with its line.
2. Times that are counted from now (`since = "2d"`) are worked out anew for each run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.instants import parse_span_ms
from orbitmq.limits.spark import SERVICE_NAME_CHARS_MAX, SERVICE_PARTS_MAX, SERVICE_STOP_MS, SERVICE_STOP_MS_MAX
from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named
from orbitmq.spark.pipelines.pipeline_file import session_of, with_defaults
from orbitmq.spark.pipelines.serving.stream_settings import TableStreamSettings, TopicStreamSettings, plain_place
from orbitmq.spark.pipelines.serving.timetable import Timetable
from orbitmq.spark.pipelines.settings import Pipeline, Setting, TimeKind, from_values, optional, settings_of
from orbitmq.spark.pipelines.toml_file import TomlFile
from orbitmq.timing.recurrence.rule import Rule

_PARTS: Final = ("spark", "service", "defaults", "stream", "job")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HTTP: Final = re.compile(r"[^\s/]+:[0-9]{1,5}")
UPKEEP: Final = ("compact", "vacuum")
"""Jobs that are no pipelines."""


class StreamSink(StrEnum):
    """Where a stream leads."""

    ARCHIVE = "archive"
    TOPIC = "topic"
    TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The part [service]."""

    state: Annotated[
        str,
        Setting(
            "Local directory of this service: its lock, checkpoints, and which runs were made.", metavar="DIRECTORY"
        ),
    ]
    name: Annotated[str, Setting("Name in metrics and events.", metavar="NAME")] = "pipeline"
    http: Annotated[
        str, Setting("Where health and metrics are served; port 0 takes a free one.", metavar="HOST:PORT")
    ] = "127.0.0.1:9404"
    stop_within_ms: Annotated[
        int,
        Setting(
            "How long a stop waits for batches under way; then they are given up, and done again after the next start.",
            kind=TimeKind.SPAN,
            maximum=SERVICE_STOP_MS_MAX,
        ),
    ] = SERVICE_STOP_MS
    lineage_url: Annotated[
        str | None, Setting("Server that takes OpenLineage events; needs orbitmq[lineage].", metavar="URL")
    ] = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        port = self.http.rpartition(":")[2]
        if not _HTTP.fullmatch(self.http) or int(port) > 65_535:
            raise ConfigurationError(
                f"http is {self.http[:80]!r}", remedy="write it as HOST:PORT, such as 127.0.0.1:9404"
            )
        if "://" in self.state:
            raise ConfigurationError(
                f"state is {self.state!r}, which is no directory of this machine",
                remedy="name a local one: it is locked; checkpoints may be elsewhere, by the setting checkpoint of a stream",
            )
        if self.lineage_url is not None and not _is_web_url(self.lineage_url):
            raise ConfigurationError(
                "lineage-url is no URL of a server", remedy="write it as http://HOST:PORT or https://HOST"
            )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the HTTP server."""
        host, _, port = self.http.rpartition(":")
        return host.strip("[]"), int(port)


@dataclass(frozen=True)
class ServicePart:
    """A stream or a job. does: its sink, or its pipeline. given: its settings as the file has them. timetable: of a job."""

    name: str
    does: str
    settings_type: type
    given: Mapping[str, Any]
    timetable: Timetable | None = None

    def settings(self, now_ms: int) -> Any:
        """The struct of its settings."""
        return self.settings_type(**from_values(settings_of(self.settings_type), self.given, now_ms))

    @property
    def is_stream(self) -> bool:
        return self.timetable is None


class ServiceFile(NamedTuple):
    """What a file says. `conf` are settings of Spark by their full names."""

    service: ServiceSettings
    master: str | None
    remote: str | None
    conf: Mapping[str, str | bool | int | float]
    parts: tuple[ServicePart, ...]


class Mistake(NamedTuple):
    """line: of the file, from 1 on; None where nobody knows."""

    line: int | None
    text: str
    remedy: str | None


def read_service_file(path: str | Path) -> ServiceFile:
    """Raises ConfigurationError that tells every mistake, a line for each. Nothing is asked or made."""
    file = TomlFile(path, _PARTS)
    reading = _FileReading(file, SystemClock().now_ms())
    service = reading.struct(ServiceSettings, file.table("service"), ("service", 0), "service")
    parts = [
        part
        for kind in ("stream", "job")
        for number, table in enumerate(file.tables(kind))
        if (part := reading.part(kind, number, table)) is not None
    ]
    reading.check_together(parts)
    reading.mistakes.sort(key=lambda mistake: mistake.line or 0)
    if reading.mistakes:
        raise ConfigurationError(
            "\n".join([f"{path} has {len(reading.mistakes)} mistakes:", *map(_told, reading.mistakes)])
        )
    assert service is not None
    return ServiceFile(service, *session_of(file), tuple(parts))


def job_named(name: str) -> Pipeline:
    """A pipeline that a job may be. ConfigurationError for a name that there is not."""
    if name in UPKEEP:
        from orbitmq.spark.pipelines.serving import upkeep_jobs

        found: Pipeline = getattr(upkeep_jobs, name)
        return found
    if name not in PIPELINES:
        known = ", ".join([*PIPELINES, *UPKEEP])
        raise ConfigurationError(f"there is no pipeline {name!r}", remedy=f"the pipelines are {known}")
    return pipeline_named(name)


class _FileReading:
    """Reads part after part, and collects what is wrong."""

    def __init__(self, file: TomlFile, now_ms: int) -> None:
        self._file = file
        self._defaults = file.table("defaults")
        self._now_ms = now_ms
        self._used: set[str] = set()
        self._names: set[str] = set()
        self.mistakes: list[Mistake] = []

    def part(self, kind: str, number: int, table: Mapping[str, Any]) -> ServicePart | None:
        before = len(self.mistakes)
        at, where = (kind, number), f"{kind} {number + 1}"
        given = dict(table)
        name = given.pop("name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > SERVICE_NAME_CHARS_MAX:
            said = "it has no name" if name is None else f"its name is {name!r}"
            remedy = f'write name = "orders": letters, digits, ".", "_" and "-", at most {SERVICE_NAME_CHARS_MAX}'
            self._wrong(at, "name", f"{where}: {said}", remedy)
        else:
            where = f"{kind} {name!r}"
            if name in self._names:
                self._wrong(
                    at, "name", f"{where}: there are two of this name", "give every stream and job a name of its own"
                )
            self._names.add(name)
        word = "sink" if kind == "stream" else "pipeline"
        does = given.pop(word, None)
        timetable = None
        if kind == "job":
            timetable = self._attempt(at, "cron", where, lambda: _timetable(str(name), given))
        settings_type = self._attempt(at, word, where, lambda: _settings_type(kind, does))
        if settings_type is None:
            return None
        follows = "follow" in given
        given = with_defaults(settings_of(settings_type), given, self._defaults, self._used)
        if given.pop("follow", None) is not None:
            text = f"{where}: follow has no use in a service"
            self._wrong(at if follows else ("defaults", 0), "follow", text, "leave it out: every says how often")
        self.struct(settings_type, given, at, where)
        if len(self.mistakes) > before:
            return None
        return ServicePart(str(name), str(does), settings_type, given, timetable)

    def check_together(self, parts: Sequence[ServicePart]) -> None:
        """What no part alone can know."""
        count = len(self._file.tables("stream")) + len(self._file.tables("job"))
        if not count:
            self.mistakes.append(Mistake(None, "it has no stream and no job", "begin one with [[stream]] or [[job]]"))
        if count > SERVICE_PARTS_MAX:
            remedy = "divide them among several services"
            self.mistakes.append(
                Mistake(None, f"it has {count} streams and jobs, more than {SERVICE_PARTS_MAX}", remedy)
            )
        if not self.mistakes:
            for name in sorted(self._defaults.keys() - self._used):
                self._wrong(("defaults", 0), name, f"no stream and no job has the setting {name}", "leave it out")
        owners: dict[str, str] = {}
        for part in parts:
            for place in map(plain_place, _places_of_its_own(part)):
                other = owners.setdefault(place, part.name)
                if other != part.name:
                    text = f"{part.name!r} and {other!r} would both write {place}"
                    self.mistakes.append(Mistake(None, text, "give each of them a directory of its own"))

    def struct(self, settings_type: type, given: Mapping[str, Any], at: tuple[str, int], where: str) -> Any:
        """The settings; None after a mistake. Each one is read alone first, so that all mistakes are told."""
        settings = settings_of(settings_type)
        before = len(self.mistakes)
        alone = optional(settings)
        for name, value in given.items():
            self._attempt(at, name, where, functools.partial(from_values, alone, {name: value}, self._now_ms))
        for setting in settings:
            if setting.required and setting.name not in given:
                self._wrong(at, "", f"{where}: {setting.name} is missing", setting.setting.help)
        if len(self.mistakes) > before:
            return None
        return self._attempt(at, "", where, lambda: settings_type(**from_values(settings, given, self._now_ms)))

    def _attempt(self, at: tuple[str, int], key: str, where: str, reading: Callable[[], Any]) -> Any:
        try:
            return reading()
        except ConfigurationError as error:
            self._wrong(at, key, f"{where}: {error.args[0]}", error.remedy)
            return None

    def _wrong(self, at: tuple[str, int], key: str, text: str, remedy: str | None) -> None:
        self.mistakes.append(Mistake(self._file.line_of(*at, key), text, remedy))


def _settings_type(kind: str, does: object) -> type:
    if kind == "job":
        if not isinstance(does, str):
            raise ConfigurationError("it does not say which pipeline it is", remedy='write pipeline = "report"')
        return job_named(does).settings_type
    types = {StreamSink.TOPIC: TopicStreamSettings, StreamSink.TABLE: TableStreamSettings, StreamSink.ARCHIVE: None}
    if not isinstance(does, str) or does not in types:
        said = "it does not say where it leads" if does is None else f"sink is {does!r}"
        raise ConfigurationError(said, remedy=f"sink is one of {', '.join(StreamSink)}")
    return types[StreamSink(does)] or pipeline_named("archive").settings_type


def _timetable(name: str, given: dict[str, Any]) -> Timetable:
    """Takes the words of the timetable out of what is given."""
    words = {word: given.pop(word, None) for word in ("every", "cron", "zone")}
    for word, value in words.items():
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{word} is {value!r}, not a text", remedy=f'write {word} = "..."')
    if (words["every"] is None) == (words["cron"] is None):
        raise ConfigurationError(
            "exactly one of every and cron says when it runs", remedy='write every = "10m", or cron = "0 3 * * *"'
        )
    every_ms = None if words["every"] is None else parse_span_ms("every", words["every"])
    return Timetable(name, Rule(cron=words["cron"], zone=words["zone"] or "UTC", interval_ms=every_ms))


def _places_of_its_own(part: ServicePart) -> Iterator[str]:
    """What no other part may write: rows of two streams in one table would be there twice, or end each other's batches, and a place that
    two keep in one file is that of neither."""
    names = ["checkpoint"]
    if part.is_stream:
        names += {StreamSink.ARCHIVE: ["to"], StreamSink.TABLE: ["to", "quarantine"], StreamSink.TOPIC: []}[
            StreamSink(part.does)
        ]
    for name in names:
        if name in part.given:
            yield str(part.given[name])


def _is_web_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _told(mistake: Mistake) -> str:
    line = "" if mistake.line is None else f"line {mistake.line}, "
    return f"  {line}{mistake.text}{'' if mistake.remedy is None else f' ({mistake.remedy})'}"
