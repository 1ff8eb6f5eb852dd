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
from orbitmq.spark.log_files.directory import LogDirectory, look_at
from orbitmq.spark.log_files.log_options import log_options
from orbitmq.spark.log_files.ranges import cut
from orbitmq.spark.log_files.reading import RowRules
from orbitmq.spark.pipelines.archiving.reached import Reached, log_application, since_application
from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
from orbitmq.spark.pipelines.archiving.tasks import ArchivePlan, LogWork, TaskPiece

log = logging.getLogger("orbitmq.spark")

_NAMED: Final = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")


class Logs:
    """Store directories of one or several brokers."""

    def __init__(self, settings: ArchiveSettings, columns: tuple[str, ...]) -> None:
        """columns: of the files. Raises ConfigurationError."""
        self._stores = named_stores(settings.store)
        self._settings = settings
        self._names = tuple(dict.fromkeys((*columns, "storeTimestamp")))
        for name, path in self._stores.items():
            self._rules(name, path, settings.since_ms)  # a mistake is found before a file is looked at

    def plan(self, reached: Reached) -> ArchivePlan:
        """What is there now and not in the archive."""
        pieces = []
        since: dict[str, int] = {}
        for name, path in self._stores.items():
            directory = look_at(path)
            begun = reached.positions.get(name)
            since_ms = reached.since.get(name, self._settings.since_ms if begun is None else None)
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
            if self._settings.fail_on_data_loss:
                raise DataLostError(
                    gone,
                    remedy="set fail-on-data-loss to false to go on with what is there, and archive more often",
                )
            log.warning("%s; going on with what is there, because fail-on-data-loss is false", gone)
            return None
        return at

    def _rules(self, name: str, path: str, since_ms: int | None) -> RowRules:
        settings = self._settings
        given = {
            "path": path,
            "subscribe": ",".join(settings.topic),
            "subscribepattern": settings.topic_pattern or "",
            "startingtimestamp": "" if since_ms is None else str(since_ms),
            "brokername": name,
            "verifychecksums": str(settings.verify_checksums).lower(),
        }
        return RowRules(options=log_options(given), names=self._names, properties=settings.properties)


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
