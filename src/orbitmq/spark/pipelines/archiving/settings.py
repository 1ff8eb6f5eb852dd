"""The settings of `archive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import ARCHIVE_BATCH_TASKS, ARCHIVE_FILE_ROWS
from orbitmq.spark.options import read_options
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind


class ArchiveCompression(StrEnum):
    """How the files of an archive are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    GZIP = "gzip"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings(ClusterSettings):
    """What `archive` is told."""

    to: Annotated[str, Setting("Directory or URL of the archive, which the workers reach as well.", metavar="URL")]
    name_server: NameServerSetting = None
    topic: Annotated[
        Sequence[str],
        Setting("Topics to archive. With `store` all topics are taken when none is named.", metavar="NAME"),
    ] = ()
    topic_pattern: Annotated[
        str | None, Setting("Archives every topic whose whole name matches this regular expression.", metavar="REGEX")
    ] = None
    store: Annotated[
        Sequence[str],
        Setting(
            "Store directory of a broker, orbitmq's or RocketMQ's, to read instead of asking a cluster; of several each with the "
            "name of its broker.",
            metavar="[NAME=]DIRECTORY",
            replaces_cluster=True,
        ),
    ] = ()
    since_ms: Annotated[
        int | None,
        Setting(
            "Leaves out what was stored before, where the archive begins with a queue or a log.", kind=TimeKind.INSTANT
        ),
    ] = None
    columns: Annotated[
        Sequence[str],
        Setting("Columns of a new archive, all when none is named; later runs add those they name.", metavar="NAME"),
    ] = ()
    properties: Annotated[PropertiesForm, Setting("Form of the column `properties`.")] = PropertiesForm.MAP
    compression: Annotated[ArchiveCompression, Setting("Compression of the files.")] = ArchiveCompression.ZSTD
    rows_per_file: Annotated[int, Setting("Most rows of a file.", minimum=1, maximum=ARCHIVE_FILE_ROWS)] = (
        ARCHIVE_FILE_ROWS
    )
    tasks_per_batch: Annotated[
        int,
        Setting("Tasks whose files are committed together; a stop request waits for them.", minimum=1, maximum=10_000),
    ] = ARCHIVE_BATCH_TASKS
    follow: Annotated[bool, Setting("Goes on with what is new, until it is asked to stop.")] = False
    every_ms: Annotated[
        int, Setting("How often `follow` looks for something new.", kind=TimeKind.SPAN, minimum=100)
    ] = 60_000
    fail_on_data_loss: Annotated[
        bool,
        Setting("Whether messages that were removed before they were archived end the run; else they are counted."),
    ] = True
    retry_timeout_ms: Annotated[
        int, Setting("How long a server that is away is tried again.", kind=TimeKind.SPAN, minimum=0)
    ] = 60_000
    verify_checksums: Annotated[bool, Setting("Whether the checksum of every body is computed; for `store`.")] = True

    def __post_init__(self) -> None:
        """Raises ConfigurationError for what does not go together."""
        if not self.store and self.name_server is None:
            raise ConfigurationError(
                "there is nothing to archive from", remedy="give a name-server with topics, or a store"
            )
        if self.store and self.name_server is not None:
            raise ConfigurationError(
                "name-server and store are given together", remedy="archive them into two directories"
            )
        if not self.store and not self.topic and self.topic_pattern is None:
            raise ConfigurationError("no topic is named", remedy="give topic, or topic-pattern")
        if self.topic and self.topic_pattern is not None:
            raise ConfigurationError("topic and topic-pattern are given together", remedy="give one of them")
        if not self.store:
            read_options(self.read, streaming=False)

    @property
    def read(self) -> dict[str, str]:
        """Topics of a cluster as options of a read."""
        given = {
            **self.connect_options,
            "nameserver": self.name_server or "",
            "retrytimeoutms": str(self.retry_timeout_ms),
            "failondataloss": str(self.fail_on_data_loss).lower(),
            "groupidprefix": "orbitmq-archive",
        }
        if self.topic:
            given["subscribe"] = ",".join(self.topic)
        if self.topic_pattern is not None:
            given["subscribepattern"] = self.topic_pattern
        if self.since_ms is not None:
            given.update(startingtimestamp=str(self.since_ms), startingoffsetsbytimestampstrategy="latest")
        return given
