"""Options of the data source `orbitmq-log`: their table, and the values they give.

Rules of this file
1. Pure: text in, values out; no file is looked at.
2. Names count in any letter case. An unknown one is an error that lists the known ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.columns import LOG_PARTITION_BYTES
from orbitmq.protocol.names import topic_name_problem


class LogOption(NamedTuple):
    name: str
    values: str
    default: str
    meaning: str


LOG_OPTIONS: Final = (
    LogOption("path", "a directory", "required", "The store directory, or its `commitlog`; a local path, or a URL that pyarrow reads."),
    LogOption("topic", "a name", "all", "The topic to read."),
    LogOption("subscribe", "names separated by commas", "all", "The topics to read."),
    LogOption("subscribePattern", "a regular expression", "all", "Reads every topic whose whole name matches."),
    LogOption("startingPosition", "bytes", "the beginning", "Records that begin at this position of the log or behind it."),
    LogOption("endingPosition", "bytes", "the end", "Records that begin before this position."),
    LogOption("startingTimestamp", "milliseconds since 1970", "", "Records stored at this time or later."),
    LogOption("endingTimestamp", "milliseconds since 1970", "", "Records stored before this time."),
    LogOption("maxPartitionBytes", "bytes", str(LOG_PARTITION_BYTES), "Files are cut into ranges of this size, a Spark partition each."),
    LogOption("includeProperties", "`map`, `json` or `none`", "`map`", "Form of the column `properties`."),
    LogOption("includeInternal", "`true` or `false`", "`false`", "Whether the broker's own records are rows too."),
    LogOption("brokerName", "a name", "null", "What the column `brokerName` holds; the files do not say it."),
    LogOption("verifyChecksums", "`true` or `false`", "`true`", "Whether the checksum of every body is computed."),
    LogOption("onDamage", "`fail` or `quarantine`", "`fail`", "What becomes of a place that is no whole record."),
    LogOption("quarantinePath", "a directory", "with `quarantine`", "Where damaged places are listed, a JSON object in each line."),
)  # fmt: skip
"""Every option, in the order of the documentation."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say. None is no limit, and an empty `topics` with no `pattern` means all topics."""

    path: str
    topics: frozenset[str]
    pattern: str | None
    starting_position: int | None
    ending_position: int | None
    starting_ms: int | None
    ending_ms: int | None
    partition_bytes: int
    properties: str | None
    """As given; None for the default."""
    include_internal: bool
    broker_name: str | None
    verify_checksums: bool
    quarantine_path: str | None
    """None: damage ends the read."""


def log_options(options: Mapping[str, str]) -> LogOptions:
    """The values of the options of one read. Raises ConfigurationError that says which one is wrong, and how it would be right."""
    given = {name.lower(): str(value).strip() for name, value in options.items() if value is not None}
    known = {option.name.lower(): option.name for option in LOG_OPTIONS}
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"there is no option {name!r} for reading log files", remedy=f"the options are {', '.join(known.values())}"
            )  # fmt: skip
    if not given.get("path"):
        raise ConfigurationError(
            "the directory to read is missing",
            remedy='for example spark.read.format("orbitmq-log").load("/data/store")',
        )
    topics, pattern = _topics(given)
    on_damage = _choice(given, "onDamage", ("fail", "quarantine"))
    quarantine = given.get("quarantinepath") or None
    if (on_damage == "quarantine") != (quarantine is not None):
        raise ConfigurationError(
            "onDamage=quarantine and quarantinePath need each other",
            remedy="give both, a new directory for every run, or none of them",
        )
    return LogOptions(
        path=given["path"],
        topics=topics,
        pattern=pattern,
        starting_position=_number(given, "startingPosition"),
        ending_position=_number(given, "endingPosition"),
        starting_ms=_number(given, "startingTimestamp"),
        ending_ms=_number(given, "endingTimestamp"),
        partition_bytes=_number(given, "maxPartitionBytes", 1) or LOG_PARTITION_BYTES,
        properties=_choice(given, "includeProperties", ("map", "json", "none")) if given.get("includeproperties") else None,
        include_internal=_choice(given, "includeInternal", ("false", "true")) == "true",
        broker_name=given.get("brokername") or None,
        verify_checksums=_choice(given, "verifyChecksums", ("true", "false")) == "true",
        quarantine_path=quarantine,
    )  # fmt: skip


def _topics(given: Mapping[str, str]) -> tuple[frozenset[str], str | None]:
    ways = [name for name in ("topic", "subscribe", "subscribePattern") if given.get(name.lower())]
    if len(ways) > 1:
        raise ConfigurationError(f"{' and '.join(ways)} are given together", remedy="give only one of them, or none")
    if not ways:
        return frozenset(), None
    text = given[ways[0].lower()]
    if ways == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigurationError(f"option subscribePattern: {text!r} is no regular expression: {error}") from error
        return frozenset(), text
    names = [text] if ways == ["topic"] else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        problem = topic_name_problem(name)
        if problem is not None:
            raise ConfigurationError(f"option {ways[0]}: {problem}")
    return frozenset(names), None


def _number(given: Mapping[str, str], name: str, lowest: int = 0) -> int | None:
    text = given.get(name.lower())
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or not lowest <= int(text) < 2**63:
        raise ConfigurationError(f"option {name}: {text!r} is not a whole number from {lowest} on")
    return int(text)


def _choice(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """One of `values`; the first is the default."""
    text = (given.get(name.lower()) or values[0]).lower()
    if text not in values:
        raise ConfigurationError(f"option {name}: {text!r} is not one of {', '.join(values)}")
    return text
