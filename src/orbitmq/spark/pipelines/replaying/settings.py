"""The settings of `replay`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SPARK_TASK_ROWS_PER_SECOND_MAX, SPARK_TASK_ROWS_PER_SECOND_MIN
from orbitmq.spark.pipelines.replaying.rows import DueTimes, ReplayQueues
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(ClusterSettings):
    """What `replay` is told."""

    to: Annotated[str, Setting("The topic to write to; it has to be there.", metavar="TOPIC")]
    name_server: NameServerSetting = None
    archive: Annotated[
        str | None,
        Setting(
            "Archive to read: directory or URL as the pipeline `archive` writes it. Without one, topics are read.",
            metavar="URL",
        ),
    ] = None
    topic: Annotated[
        Sequence[str], Setting("Topics to read; of an archive all if none is given.", metavar="TOPIC")
    ] = ()
    from_name_server: Annotated[
        str | None,
        Setting("Name servers of the cluster to read topics from, if it is another one.", metavar="HOST:PORT"),
    ] = None
    checkpoint: Annotated[
        str | None,
        Setting(
            "Directory or URL that keeps how far the replay is. A run with the same one goes on where the last ended; without one a "
            "run that was killed cannot be gone on with.",
            metavar="URL",
        ),
    ] = None
    expression: Annotated[str, Setting("Only messages with these tags: `red || blue`.", metavar="TAGS")] = "*"
    key: Annotated[Sequence[str], Setting("Only messages with one of these keys.", metavar="KEY")] = ()
    where: Annotated[
        str | None, Setting("Only messages for which this is true: SQL over the columns of a read.", metavar="SQL")
    ] = None
    since_ms: Annotated[int | None, Setting("Only messages stored at or after this time.", kind=TimeKind.INSTANT)] = (
        None
    )
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=TimeKind.INSTANT)] = None
    rate: Annotated[
        float | None,
        Setting(
            "At most so many messages a second, all tasks together.",
            minimum=SPARK_TASK_ROWS_PER_SECOND_MIN,
            maximum=SPARK_TASK_ROWS_PER_SECOND_MAX,
        ),
    ] = None
    due_times: Annotated[
        DueTimes,
        Setting("Whether a message with a due time keeps it. One that lies in the past delays nothing."),
    ] = DueTimes.KEEP
    shift_due_ms: Annotated[int, Setting("Move due times later by so much.", kind=TimeKind.SPAN, minimum=0)] = 0
    queues: Annotated[
        ReplayQueues,
        Setting(
            "`keep`: to the queue of the same number and, if it is there, the same broker, in the order of the queue it came from."
        ),
    ] = ReplayQueues.NEW
    quarantine: Annotated[
        str | None,
        Setting(
            "Directory or URL for messages that cannot be written again; below the checkpoint if it is not given. Without either such a "
            "message ends the run.",
            metavar="URL",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError for what does not go together."""
        if self.name_server is None:
            raise ConfigurationError(
                "nothing says which cluster to write to", remedy="give its name servers: name_server"
            )
        if self.archive is None and not self.topic:
            raise ConfigurationError("nothing says what to replay", remedy="give archive, or topic, or both")
        if self.archive is not None and self.from_name_server is not None:
            raise ConfigurationError(
                "archive and from_name_server name two places to read from", remedy="give one of them"
            )
        if self.due_times is DueTimes.DROP and self.shift_due_ms:
            raise ConfigurationError(
                "due times cannot be dropped and shifted", remedy="give one of due_times and shift_due_ms"
            )

    @property
    def fixed(self) -> dict[str, str]:
        """What has to be the same in every run of one replay."""
        return {
            "to": self.to,
            "archive": self.archive or "",
            "topic": ",".join(sorted(self.topic)),
            "expression": self.expression,
            "key": " ".join(sorted(self.key)),
            "where": self.where or "",
            "due_times": self.due_times.value,
            "shift_due_ms": str(self.shift_due_ms),
            "queues": self.queues.value,
            "name_server": self.name_server or "",
            "from_name_server": self.from_name_server or "",
        }
