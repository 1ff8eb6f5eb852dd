"""The settings of `report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind


@dataclass(frozen=True, kw_only=True)
class ReportSettings(ClusterSettings):
    """What `report` is told."""

    to: Annotated[str, Setting("Directory or URL for report.html and the Parquet files.", metavar="URL")]
    archive: Annotated[
        str | None,
        Setting(
            "Read the messages from this archive, as the archive pipeline writes it.",
            metavar="URL",
            replaces_cluster=True,
        ),
    ] = None
    store: Annotated[
        Sequence[str],
        Setting("Read them from this store directory, of orbitmq or RocketMQ.", metavar="URL", replaces_cluster=True),
    ] = ()
    name_server: NameServerSetting = None
    topic: Annotated[Sequence[str], Setting("Only this topic; all but those of the system if none is given.")] = ()
    since_ms: Annotated[int | None, Setting("Only messages stored at this time or later.", kind=TimeKind.INSTANT)] = (
        None
    )
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=TimeKind.INSTANT)] = None
    per_ms: Annotated[int, Setting("Width of the spans that are counted apart.", kind=TimeKind.SPAN, minimum=1_000)] = (
        3_600_000
    )
    sizes: Annotated[bool, Setting("Measure bodies too, which means to read them.")] = False
    title: Annotated[str, Setting("Heading of the page.")] = "Messages and their due times"

    def __post_init__(self) -> None:
        """Raises ConfigurationError unless one place is named to read from."""
        given = [name for name in ("archive", "store", "name_server") if getattr(self, name)]
        if len(given) != 1:
            raise ConfigurationError(
                "a report of nothing" if not given else f"{' and '.join(given)} are given together",
                remedy="name one: an archive, store directories, or the name servers of a cluster",
            )
