"""Where the letters of a redrive are read, and where its place is kept: the dead-letter topic itself, or an archive of it.

A letter has the same name from both sides, so what was redriven from the topic is recognised when the archive gives it again.

Rules of this file
1. A place never passes a letter that was not settled.
2. The place in an archive belongs to one choice: another condition has a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from orbitmq.client._async.administration.redrive import Redrive
from orbitmq.client._async.client import Client
from orbitmq.client.addresses import parse_addresses
from orbitmq.client.redrive import RedriveOrder
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import dlq_topic
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.durable import make_directory, replace_content
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.condition import rows_where
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.queue_slices import read_ranges
from orbitmq.spark.pipelines.redriving.dead_letters import LETTER_SCHEMA
from orbitmq.spark.pipelines.redriving.settings import RedriveSettings
from orbitmq.spark.reading.plan import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE: Final = "redrive.json"
_COLUMNS: Final = tuple(column.split()[0] for column in LETTER_SCHEMA.split(", "))


class LetterSource(Protocol):
    """Of one run."""

    def ranges(self) -> list[QueueRange]:
        """What there is to look at, fixed at the start."""

    def rows(self, piece: Sequence[QueueRange]) -> DataFrame:
        """The letters of a slice, with `LETTER_SCHEMA`."""

    def keep(self, places: Mapping[MessageQueue, int]) -> None:
        """All letters before these are settled. Durable on return."""


class TopicLetters:
    """The dead-letter topic. The place is that of `orbitmq message redrive`."""

    def __init__(self, spark: SparkSession, settings: RedriveSettings, order: RedriveOrder) -> None:
        from orbitmq.spark.writing.sending import cluster

        self._spark = spark
        self._settings = settings
        self._order = order
        self._brokers = cluster(parse_addresses(settings.name_server or ""), settings.connect)

    def ranges(self) -> list[QueueRange]:
        async def spans(client: Client) -> Any:
            return await Redrive(client, client.admin, self._order).spans()

        return [QueueRange(span.queue, span.begin, span.end) for span in self._brokers.run(spans)]

    def rows(self, piece: Sequence[QueueRange]) -> DataFrame:
        name_servers = ";".join(parse_addresses(self._settings.name_server or ""))
        options = {**self._settings.connect_options, "nameServer": name_servers, "failOnDataLoss": "false"}
        return read_ranges(self._spark, piece, options, LETTER_SCHEMA)

    def keep(self, places: Mapping[MessageQueue, int]) -> None:
        async def commit(client: Client) -> None:
            whole = Redrive(client, client.admin, self._order)
            for queue, place in places.items():
                await whole.commit(queue, place)

        self._brokers.run(commit)


class _Kept(msgspec.Struct, kw_only=True):
    choice: str
    places: list[tuple[MessageQueue, int]] = []


class ArchivedLetters:
    """An archive that has the dead-letter topic. The place is in the checkpoint."""

    def __init__(self, spark: SparkSession, settings: RedriveSettings, order: RedriveOrder) -> None:
        """Raises ConfigurationError for an archive without the columns of a letter, and for a checkpoint of another choice."""
        from pyspark.sql import functions as F

        from orbitmq.spark.archives import archive, kinds_of

        self._place = str(settings.archive)
        self._dry_run = settings.dry_run
        frame = archive(self._place, spark=spark)
        kinds = kinds_of(frame, self._place, ("storeTimestamp", *_COLUMNS), "a redrive")
        if not kinds["properties"].startswith("map"):
            raise ConfigurationError(
                f"archive {self._place} has properties as {kinds['properties']}",
                remedy="archive them as a map: properties = map",
            )
        letters = frame.where(F.col("topic") == dlq_topic(settings.group))
        remedy = "it is a condition in SQL over the columns of the archive, such as storeTimestamp > '2026-11-20'"
        letters = rows_where(letters, settings.where, rows="dead letters", remedy=remedy)
        for since, bound in ((True, settings.since_ms), (False, settings.until_ms)):
            if bound is not None:
                at = F.timestamp_millis(F.lit(bound))
                letters = letters.where(F.col("storeTimestamp") >= at if since else F.col("storeTimestamp") < at)
        self._letters = letters.select(*_COLUMNS)
        self._folder = place_at(str(settings.checkpoint))
        self._kept = self._read(f"{order.progress} where {settings.where}", again=settings.again)

    def ranges(self) -> list[QueueRange]:
        from pyspark.sql import functions as F

        groups = self._letters.groupBy("topic", "brokerName", "queueId")
        with job_errors(f"looking over archive {self._place}"):
            found = groups.agg(F.min("queueOffset"), F.max("queueOffset") + 1).collect()
        kept = dict(self._kept.places)
        ranges = [
            QueueRange(queue := MessageQueue(row[0], row[1] or "", row[2]), max(row[3], kept.get(queue, 0)), row[4])
            for row in found
        ]
        return sorted((one for one in ranges if one.begin < one.end), key=lambda one: one.queue)

    def rows(self, piece: Sequence[QueueRange]) -> DataFrame:
        from functools import reduce

        from pyspark.sql import functions as F

        def belongs(one: QueueRange) -> Any:
            where = (F.col("brokerName") == one.queue.broker_name) & (F.col("queueId") == one.queue.queue_id)
            return where & (F.col("queueOffset") >= one.begin) & (F.col("queueOffset") < one.end)

        return self._letters.where(reduce(lambda one, other: one | other, map(belongs, piece)))

    def keep(self, places: Mapping[MessageQueue, int]) -> None:
        if self._dry_run:
            return
        self._kept.places = sorted({**dict(self._kept.places), **places}.items())
        make_directory(self._folder)
        replace_content(self._folder.under(_FILE), msgspec.json.encode(self._kept))

    def _read(self, choice: str, *, again: bool) -> _Kept:
        content = self._folder.under(_FILE).content()
        if content is None or again:
            return _Kept(choice=choice)
        try:
            found = msgspec.json.decode(content, type=_Kept)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{self._folder.under(_FILE).path} cannot be read: {error}", remedy="begin with another checkpoint"
            ) from error
        if found.choice != choice:
            raise ConfigurationError(
                f"the checkpoint {self._folder.path} is of another choice of letters: {found.choice!r}, and this is {choice!r}",
                remedy="give each choice a checkpoint of its own",
            )
        return found
