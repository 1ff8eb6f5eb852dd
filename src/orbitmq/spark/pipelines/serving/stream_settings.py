"""The settings of streams that Spark runs as a query: topics into a topic, or, with types, into a table.

Rules of this file
1. What the query would refuse is refused here, before Spark starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SERVICE_BATCH_ROWS
from orbitmq.protocol.names import topic_name_problem
from orbitmq.spark.options import read_options
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind
from orbitmq.spark.typed.decoding import payload_schema
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadMode

_SAID: Final = {
    "nameserver": "name-server",
    "kafka.bootstrap.servers": "name-server",
    "topic": "topic",
    "subscribe": "topic",
    "assign": "topic",
    "subscribepattern": "topic-pattern",
    "maxoffsetspertrigger": "rows-per-batch",
}
"""Options of a read that settings stand for."""


def plain_place(text: str) -> str:
    """A directory or URL in the one form in which two can be compared."""
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).resolve())


@dataclass(frozen=True, kw_only=True)
class StreamSettings(ClusterSettings):
    """What every such stream is told."""

    to: Annotated[
        str, Setting("Where rows go: a topic that is there, or the directory or URL of a table.", metavar="TOPIC|URL")
    ]
    name_server: NameServerSetting = None
    topic: Annotated[Sequence[str], Setting("Topics to read.", metavar="NAME")] = ()
    topic_pattern: Annotated[
        str | None, Setting("Reads every topic whose whole name matches this regular expression.", metavar="REGEX")
    ] = None
    options: Annotated[
        Mapping[str, str] | None,
        Setting("Further options of the read, such as `startingOffsets`, `group`, `payload`.", metavar="NAME=TEXT"),
    ] = None
    where: Annotated[str | None, Setting("Only rows for which this condition in SQL is true.", metavar="CONDITION")] = (
        None
    )
    every_ms: Annotated[int, Setting("How often it looks for something new.", kind=TimeKind.SPAN, minimum=100)] = 1_000
    rows_per_batch: Annotated[int, Setting("At most so many rows in a batch.", minimum=1)] = SERVICE_BATCH_ROWS
    checkpoint: Annotated[
        str | None, Setting("Directory or URL of the stream's own checkpoint; else below `state`.", metavar="URL")
    ] = None

    @property
    def read(self) -> dict[str, str]:
        """The options of the read. What starts anew begins with the oldest message, unless the file says otherwise."""
        given = {"startingOffsets": "earliest", **(self.options or {})}
        if any(name.lower() in ("startingtimestamp", "startingoffsetsbytimestamp") for name in given):
            given.pop("startingOffsets")
        what = {"subscribe": ",".join(self.topic)} if self.topic else {"subscribePattern": self.topic_pattern or ""}
        cluster = {**self.connect_options, "nameServer": self.name_server or ""}
        return {**cluster, **what, "maxOffsetsPerTrigger": str(self.rows_per_batch), **given}

    def __post_init__(self) -> None:
        """Raises ConfigurationError for what does not go together."""
        if self.name_server is None:
            raise ConfigurationError("nothing says which cluster is meant", remedy="give name-server")
        for name in self.options or {}:
            if (meant := _SAID.get(name.lower())) is not None:
                raise ConfigurationError(f"option {name} says what {meant} says", remedy=f"give {meant} instead")
        if bool(self.topic) == (self.topic_pattern is not None):
            raise ConfigurationError("nothing says what to read", remedy="give topic or topic-pattern, one of them")
        read_options(self.read, streaming=True)


@dataclass(frozen=True, kw_only=True)
class TopicStreamSettings(StreamSettings):
    """A stream into a topic."""

    to_name_server: Annotated[
        str | None, Setting("The cluster of that topic, where it is another one.", metavar="HOST:PORT")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = topic_name_problem(self.to)
        if problem is not None:
            raise ConfigurationError(f"to: {problem}")
        is_read = self.to in self.topic or (
            self.topic_pattern is not None and re.fullmatch(self.topic_pattern, self.to) is not None
        )
        if is_read and self.to_name_server in (None, self.name_server):
            raise ConfigurationError(
                f"topic {self.to!r} is read and written: every message would come again for ever",
                remedy="write to another topic, or name those to read",
            )
        if any(name.lower().startswith("payload") for name in self.options or {}):
            raise ConfigurationError(
                "a stream into a topic sends bodies as they are, and has no use for payloads",
                remedy='leave these options out, or choose sink = "table"',
            )


@dataclass(frozen=True, kw_only=True)
class TableStreamSettings(StreamSettings):
    """A stream of typed rows into a table."""

    quarantine: Annotated[
        str, Setting("Directory or URL of the table of what cannot be decoded, with the reasons.", metavar="URL")
    ]

    def __post_init__(self) -> None:
        super().__post_init__()
        payload = read_options(self.read, streaming=True).payload
        if payload is None:
            raise ConfigurationError(
                "nothing says what bodies hold",
                remedy='give options = { payload = "json", payloadSchema = "id bigint" }, or choose sink = "archive"',
            )
        if payload.format is PayloadFormat.JSON:
            payload_schema(payload)
        if payload.mode is not PayloadMode.PERMISSIVE:
            raise ConfigurationError(
                "payloadMode=failfast would end the stream at the first body that cannot be decoded, again and again",
                remedy="leave it out: such a body goes into the quarantine",
            )
        if plain_place(self.to) == plain_place(self.quarantine):
            raise ConfigurationError("to and quarantine are one table", remedy="give them two directories")
