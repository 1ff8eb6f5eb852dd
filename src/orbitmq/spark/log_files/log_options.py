"""Options of the data source `orbitmq-log`: their table, and the values they give.

Rules of this file
1. Pure, as `given_options`: no file is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.limits.columns import LOG_PARTITION_BYTES
from orbitmq.spark.given_options import GivenOptions, Option
from orbitmq.spark.log_files.selection import RecordSelection

LOG_OPTIONS: Final = (
    Option("path", "a directory", "required", "The store directory, or its `commitlog`; a local path, or a URL that pyarrow reads."),
    Option("topic", "a name", "all", "The topic to read."),
    Option("subscribe", "names separated by commas", "all", "The topics to read."),
    Option("subscribePattern", "a regular expression", "all", "Reads every topic whose whole name matches."),
    Option("startingPosition", "bytes", "the beginning", "Records that begin at this position of the log or behind it."),
    Option("endingPosition", "bytes", "the end", "Records that begin before this position."),
    Option("startingTimestamp", "milliseconds since 1970", "", "Records stored at this time or later."),
    Option("endingTimestamp", "milliseconds since 1970", "", "Records stored before this time."),
    Option("maxPartitionBytes", "bytes", str(LOG_PARTITION_BYTES), "Files are cut into ranges of this size, a Spark partition each."),
    Option("includeProperties", "`map`, `json` or `none`", "`map`", "Form of the column `properties`."),
    Option("includeInternal", "`true` or `false`", "`false`", "Whether the broker's own records are rows too."),
    Option("brokerName", "a name", "null", "What the column `brokerName` holds; the files do not say it."),
    Option("verifyChecksums", "`true` or `false`", "`true`", "Whether the checksum of every body is computed."),
    Option("onDamage", "`fail` or `quarantine`", "`fail`", "What becomes of a place that is no whole record."),
    Option("quarantinePath", "a directory", "with `quarantine`", "Where damaged places are listed, a JSON object in each line."),
)  # fmt: skip
"""Every option, in the order of the documentation."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say; travels to the workers. None is no limit."""

    path: str
    selection: RecordSelection
    starting_position: int | None
    ending_position: int | None
    partition_bytes: int
    properties: PropertiesForm | None
    broker_name: str | None
    verify_checksums: bool
    quarantine_path: str | None
    """Directory in which each task lists what is no whole record, in a file with the name of its range: a repeated task replaces it. None:
    damage ends the read."""


def log_options(options: Mapping[str, str]) -> LogOptions:
    """The values of the options of one read. Raises ConfigurationError that says which one is wrong, and how it would be right."""
    given = GivenOptions(options, LOG_OPTIONS, "reading log files")
    path = given.get("path")
    if not path:
        raise ConfigurationError(
            "the directory to read is missing",
            remedy='for example spark.read.format("orbitmq-log").load("/data/store")',
        )
    topics, pattern = _topics(given)
    on_damage = given.choice("onDamage", ("fail", "quarantine"))
    quarantine = given.get("quarantinePath") or None
    if (on_damage == "quarantine") != (quarantine is not None):
        raise ConfigurationError(
            "onDamage=quarantine and quarantinePath need each other",
            remedy="give both, a new directory for every run, or none of them",
        )
    return LogOptions(
        path=path,
        selection=RecordSelection(
            topics=topics,
            pattern=pattern,
            starting_ms=given.number("startingTimestamp", None, 0),
            ending_ms=given.number("endingTimestamp", None, 0),
            include_internal=given.flag("includeInternal", default=False),
        ),
        starting_position=given.number("startingPosition", None, 0),
        ending_position=given.number("endingPosition", None, 0),
        partition_bytes=given.number("maxPartitionBytes", LOG_PARTITION_BYTES, 1),
        properties=given.properties_form(),
        broker_name=given.get("brokerName") or None,
        verify_checksums=given.flag("verifyChecksums", default=True),
        quarantine_path=quarantine,
    )


def _topics(given: GivenOptions) -> tuple[frozenset[str], str | None]:
    ways = given.among("topic", "subscribe", "subscribePattern")
    if len(ways) > 1:
        raise ConfigurationError(f"{' and '.join(ways)} are given together", remedy="give only one of them, or none")
    if not ways:
        return frozenset(), None
    if ways == ["subscribePattern"]:
        return frozenset(), given.pattern(ways[0])
    return frozenset(given.topics(ways[0])), None
