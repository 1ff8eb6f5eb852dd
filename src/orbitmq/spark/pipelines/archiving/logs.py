"""What is new in store directories: from where the archive stands in each log to where the log ends now.

Rules of this file
1. A log is known by the name of its broker; a single one needs no name.
2. What the archive has not and the log has no more is a loss: an error, or a warning where that is allowed. How many messages it was
   nobody can say.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.errors import ConfigurationError, DataLostError, StoreDamagedError
from orbitmq.limits.spark import ARCHIVE_RANGE_BYTES
from orbitmq.protocol.names import topic_name_problem
from orbitmq.spark.log_files.directory import LogDirectory, look_at
from orbitmq.spark.log_files.ranges import cut
from orbitmq.spark.log_files.reading import RowRules
from orbitmq.spark.log_files.selection import RecordSelection
from orbitmq.spark.pipelines.archiving.plan import ArchivePlan, TaskPiece
from orbitmq.spark.pipelines.archiving.reached import Reached, log_application, since_application
from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
from orbitmq.spark.pipelines.archiving.table import SourceKind
from orbitmq.spark.pipelines.archiving.tasks import LogWork

log = logging.getLogger("orbitmq.spark")

_NAMED: Final = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")


class Logs:
    """Store directories of one or several brokers."""

    source: Final = SourceKind.LOGS

    def __init__(self, settings: ArchiveSettings, columns: tuple[str, ...]) -> None:
        """columns: of the files. Raises ConfigurationError."""
        self._stores = named_stores(settings.store)
        for topic in settings.topic:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise ConfigurationError(f"topic: {problem}")
        pattern = settings.topic_pattern
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigurationError(f"topic-pattern: {pattern!r} is no regular expression: {error}") from error
        self._topics = frozenset(settings.topic)
        self._pattern = pattern
        self._since_ms = settings.since_ms
        self._names = tuple(dict.fromkeys((*columns, "storeTimestamp")))
        self._properties = settings.properties
        self._verify_checksums = settings.verify_checksums
        self._fail_on_data_loss = settings.fail_on_data_loss

    def plan(self, reached: Reached) -> ArchivePlan:
        """What is there now and not in the archive."""
        pieces = []
        since: dict[str, int] = {}
        for name, path in self._stores.items():
            directory = look_at(path)
            begun = reached.positions.get(name)
            since_ms = reached.since.get(name, self._since_ms if begun is None else None)
            if since_ms is not None:
                since[since_application(name)] = since_ms
            rules = self._rules(name, path, since_ms)
            at = self._begin(path, directory, begun)
            ranges = cut(directory, at, None, ARCHIVE_RANGE_BYTES)
            pieces += [
                TaskPiece(LogWork(rules=rules, part=part, name=name), {log_application(name): part.end})
                for part in ranges
            ]
        return ArchivePlan(pieces, rows=None, begins=since if pieces else {})

    def _begin(self, path: str, directory: LogDirectory, at: int | None) -> int | None:
        if at is None:
            return None
        if at > directory.end:
            raise StoreDamagedError(
                f"the log in {path} ends at position {directory.end}, and is archived up to {at}",
                remedy="it is another log, or lost its end: archive it into another directory",
            )
        if at < directory.start:
            gone = f"the log in {path} begins at position {directory.start}, and is archived up to {at}: what lies between is gone"
            if self._fail_on_data_loss:
                raise DataLostError(
                    gone,
                    remedy="set fail-on-data-loss to false to go on with what is there, and archive more often",
                )
            log.warning("%s; going on with what is there, because fail-on-data-loss is false", gone)
            return None
        return at

    def _rules(self, name: str, path: str, since_ms: int | None) -> RowRules:
        return RowRules(
            place=path,
            names=self._names,
            properties=self._properties,
            selection=RecordSelection(
                topics=self._topics,
                pattern=self._pattern,
                starting_ms=since_ms,
                ending_ms=None,
                include_internal=False,
            ),
            broker_name=name or None,
            verify_checksums=self._verify_checksums,
            quarantine_path=None,
        )


def named_stores(texts: Sequence[str]) -> Mapping[str, str]:
    """Directories by the names of their brokers, of `NAME=DIRECTORY`; a single one may come without a name."""
    found: dict[str, str] = {}
    for text in texts:
        named = _NAMED.fullmatch(text)
        name, path = (named[1], named[2]) if named is not None else ("", text)
        if len(texts) > 1 and not name:
            raise ConfigurationError(
                f"store {text!r} has no name of a broker, and there are several", remedy="write NAME=DIRECTORY"
            )
        if name in found:
            raise ConfigurationError(f"store {name!r} is given twice: {found[name]} and {path}")
        found[name] = path
    return found
