"""The settings of `schedule`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SCHEDULE_FILE_BYTES, SCHEDULE_NEAR_PARTS
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting


class OnError(StrEnum):
    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings(ClusterSettings):
    """What `schedule` is told."""

    name_server: NameServerSetting = None
    input: Annotated[
        str | None,
        Setting(
            "What to read: a path, or a URL. A source that needs none, such as jdbc, takes options instead.",
            metavar="URL",
        ),
    ] = None
    format: Annotated[
        str, Setting("Format of what is read: parquet, csv, json, orc, jdbc, or another that Spark knows.")
    ] = "parquet"
    option: Annotated[Mapping[str, str] | None, Setting("Options of the format, as Spark has them.")] = None
    where: Annotated[
        str | None, Setting("Only rows for which this is true: SQL over the columns that are read.", metavar="SQL")
    ] = None
    topic: Annotated[
        str | None, Setting("Where the messages go; without it a column `topic` says so.", metavar="TOPIC")
    ] = None
    due_column: Annotated[
        str,
        Setting("When a row falls due: a timestamp, a text with one, or milliseconds since 1970.", metavar="COLUMN"),
    ] = "deliverTimestamp"
    column: Annotated[
        Mapping[str, str] | None,
        Setting(
            "Which column is which of a message: `keys=order_id`. Columns that have a message's name need no such setting."
        ),
    ] = None
    body_json: Annotated[bool, Setting("The body is the whole row as JSON; then any further columns may be there.")] = (
        False
    )
    idempotency_key: Annotated[
        str | None,
        Setting(
            "Name of the job. Started again under the same name, it stores nothing that is stored already.",
            metavar="NAME",
        ),
    ] = None
    row_key: Annotated[
        str | None,
        Setting(
            "A column that names a row, different in each. Without one a row is what it says: topic, time, body.",
            metavar="COLUMN",
        ),
    ] = None
    on_error: Annotated[OnError, Setting("What a broken row does: end the job, or go to the quarantine file.")] = (
        OnError.FAIL
    )
    quarantine: Annotated[
        str | None, Setting("File for rows that cannot be scheduled: a path or a URL.", metavar="URL")
    ] = None
    partitions: Annotated[
        int | None,
        Setting(
            "So many parts of what is read, where a source gives few large ones.",
            minimum=1,
            maximum=100_000,
        ),
    ] = None
    near_partitions: Annotated[
        int,
        Setting(
            "Parts that the rows are sent in; the same in each run of a job. A broker remembers the rows of each while it is sent.",
            minimum=1,
            maximum=4096,
        ),
    ] = SCHEDULE_NEAR_PARTS
    bulk: Annotated[
        bool, Setting("Load what is due late as files into a broker's far tier, where its storage is shared.")
    ] = True
    file_bytes: Annotated[
        int,
        Setting(
            "Records of one such file, in memory; a task takes three times as much.", minimum=1 << 16, maximum=1 << 31
        ),
    ] = SCHEDULE_FILE_BYTES
    max_message_bytes: Annotated[
        int, Setting("The largest body; `maxMessageSize` of the brokers.", minimum=1, maximum=1 << 25)
    ] = 4 << 20

    def __post_init__(self) -> None:
        """Raises ConfigurationError for what does not go together."""
        if self.on_error is OnError.QUARANTINE and self.quarantine is None:
            raise ConfigurationError(
                "on_error is quarantine, and nothing says where", remedy="give the setting quarantine"
            )
        if self.quarantine is not None and self.on_error is OnError.FAIL:
            raise ConfigurationError(
                "quarantine has no effect while a broken row ends the job", remedy="set on_error to quarantine"
            )
        if self.name_server is None:
            raise ConfigurationError("name_server is missing", remedy="the rows go to a cluster: say where it is")
        if self.row_key is not None and self.idempotency_key is None:
            raise ConfigurationError("row_key has no effect without idempotency_key", remedy="name the job")
