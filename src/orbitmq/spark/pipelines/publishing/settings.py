"""The settings of `changes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import topic_name_problem
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting


@dataclass(frozen=True, kw_only=True)
class ChangesSettings(ClusterSettings):
    """What `changes` is told."""

    table: Annotated[str, Setting("Directory or URL of a Delta table.", metavar="URL")]
    to: Annotated[str, Setting("The topic to write to; it has to be there.", metavar="TOPIC")]
    name_server: NameServerSetting = None
    checkpoint: Annotated[str, Setting("Directory or URL that keeps which versions were written.", metavar="URL")]
    since_version: Annotated[
        int, Setting("The first version whose changes are written; a checkpoint that is there wins.", minimum=0)
    ] = 0
    key_column: Annotated[
        str | None, Setting("Its values are keys and ordering keys of the messages.", metavar="COLUMN")
    ] = None
    body_column: Annotated[
        str | None, Setting("Its values are the bodies; else each row is a JSON object.", metavar="COLUMN")
    ] = None
    quarantine: Annotated[
        str | None,
        Setting(
            "Directory or URL for rows that no broker takes, a file for each version that has some; without one such a row ends the job.",
            metavar="URL",
        ),
    ] = None
    before: Annotated[bool, Setting("Whether rows as they were before an update are written too.")] = False

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        if self.name_server is None:
            raise ConfigurationError("nothing says which cluster is meant", remedy="give its name servers: name-server")
        problem = topic_name_problem(self.to)
        if problem is not None:
            raise ConfigurationError(f"to: {problem}")
