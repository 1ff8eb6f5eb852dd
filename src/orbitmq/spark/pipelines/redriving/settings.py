"""The settings of `redrive`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from orbitmq.client.redrive import DeadLetters, RedriveOrder
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SPARK_TASK_ROWS_PER_SECOND_MAX, SPARK_TASK_ROWS_PER_SECOND_MIN
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind


@dataclass(frozen=True, kw_only=True)
class RedriveSettings(ClusterSettings):
    """What `redrive` is told."""

    group: Annotated[str, Setting("The consumer group whose dead letters are meant.", metavar="GROUP")]
    name_server: NameServerSetting = None
    to: Annotated[str | None, Setting("Topic for all of them; each one's own if not given.", metavar="TOPIC")] = None
    only_group: Annotated[bool, Setting("To this group alone, through its retry topic; not to other groups.")] = False
    topic: Annotated[str | None, Setting("Only those that came from this topic.", metavar="TOPIC")] = None
    key: Annotated[Sequence[str], Setting("Only with one of these keys.", metavar="KEY")] = ()
    tag: Annotated[Sequence[str], Setting("Only with one of these tags.", metavar="TAG")] = ()
    property_: Annotated[Mapping[str, str] | None, Setting("Only with these properties.", metavar="NAME=VALUE")] = None
    since_ms: Annotated[int | None, Setting("Only dead since this time.", kind=TimeKind.INSTANT)] = None
    until_ms: Annotated[int | None, Setting("Only dead before this time.", kind=TimeKind.INSTANT)] = None
    reason: Annotated[str | None, Setting("Only with this text in the value of a property.", metavar="TEXT")] = None
    archive: Annotated[
        str | None,
        Setting("An archive that has the dead-letter topic; the letters are read there instead.", metavar="URL"),
    ] = None
    where: Annotated[
        str | None,
        Setting("With `archive`: only letters for which this condition in SQL is true.", metavar="CONDITION"),
    ] = None
    checkpoint: Annotated[
        str | None,
        Setting("With `archive`: directory or URL that keeps how far its letters were sent.", metavar="URL"),
    ] = None
    rate: Annotated[
        float | None,
        Setting(
            "At most so many a second; one task then sends them one after the other.",
            minimum=SPARK_TASK_ROWS_PER_SECOND_MIN,
            maximum=SPARK_TASK_ROWS_PER_SECOND_MAX,
        ),
    ] = None
    count: Annotated[int | None, Setting("End after so many were sent.", minimum=1)] = None
    again: Annotated[bool, Setting("From the oldest on, also those that were redriven before.")] = False
    dry_run: Annotated[bool, Setting("Count what would be sent, and send nothing.")] = False

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        if self.name_server is None:
            raise ConfigurationError("nothing says which cluster is meant", remedy="give its name servers: name_server")
        if self.archive is None and (self.where is not None or self.checkpoint is not None):
            raise ConfigurationError("where and checkpoint are for letters of an archive", remedy="give archive")
        if self.archive is not None and self.checkpoint is None:
            raise ConfigurationError(
                "nothing keeps which letters of the archive were sent", remedy="give checkpoint, a directory of its own"
            )

    def order(self, now_ms: int) -> RedriveOrder:
        """What the run does. Raises ConfigurationError for what does not go together."""
        selection = DeadLetters(
            keys=frozenset(self.key),
            tags=frozenset(self.tag),
            properties=dict(self.property_ or {}),
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            topic=self.topic,
            reason=self.reason,
        )
        return RedriveOrder(
            group=self.group,
            selection=selection,
            to_topic=self.to,
            only_group=self.only_group,
            rate=self.rate,
            max_count=self.count,
            run_id=str(now_ms) if self.again else None,
            dry_run=self.dry_run,
        )
