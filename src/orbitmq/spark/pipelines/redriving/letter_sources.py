"""Where the letters of a redrive are read, and where its place is kept: the dead-letter topic itself, or an archive of it.

A letter has the same name from both sides, so what was redriven from the topic is recognised when the archive gives it again.

Rules of this file
1. A place never passes a letter that was not settled.
2. The place in an archive belongs to one choice: another condition has a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from orbitmq.client._async.administration.redrive import Redrive
from orbitmq.client._async.client import Client
from orbitmq.client.addresses import parse_addresses
from orbitmq.client.redrive import RedriveOrder
from orbitmq.errors import ConfigurationError
from orbitmq.instants import instant
from orbitmq.protocol.names import dlq_topic
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.durable import held, replace_content
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.condition import rows_where, stored_between
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.queue_slices import read_ranges, rows_within
from orbitmq.spark.pipelines.redriving.dead_letters import LETTER_SCHEMA
from orbitmq.spark.pipelines.redriving.settings import RedriveSettings
from orbitmq.spark.reading.plan import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE: Final = "redrive.json"
_COLUMNS: Final = tuple(column.split()[0] for column in LETTER_SCHEMA.split(", "))


_IN_EVERY_LETTER: Final = tuple(name for name in _COLUMNS if name not in ("brokerName", "properties"))


class LetterSource(Protocol):
    """Of one run."""

    def held(self) -> AbstractContextManager[None]:
        """Around a run. StoreLockedError where another run has the place."""

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

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()  # who is slower notes an older place, and brokers recognise what is sent again

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
    """What a checkpoint keeps. table: the id of the archive's table. since_ms: older letters were not looked at."""

    choice: str
    table: str
    since_ms: int = 0
    places: list[tuple[MessageQueue, int]] = []


class ArchivedLetters:
    """An archive that has the dead-letter topic. The place is in the checkpoint."""

    def __init__(self, spark: SparkSession, settings: RedriveSettings, order: RedriveOrder) -> None:
        """Raises ConfigurationError for an archive without the columns of a letter."""
        from pyspark.sql import functions as F

        from orbitmq.spark.pipelines.archiving.table import opened

        self._place = str(settings.archive)
        self._dry_run = settings.dry_run
        frame = archived_letters(spark, self._place, ("storeTimestamp", *_COLUMNS), "a redrive")
        table = str(opened(self._place).metadata().id)
        letters = frame.where(F.col("topic") == dlq_topic(settings.group))
        remedy = "it is a condition in SQL over the columns of the archive, such as storeTimestamp > '2026-11-20'"
        letters = rows_where(letters, settings.where, rows="dead letters", remedy=remedy)
        self._letters = stored_between(letters, settings.since_ms, settings.until_ms).select(*_COLUMNS)
        self._folder = place_at(str(settings.checkpoint))
        choice = f"{choice_of(order)} where {settings.where}"
        self._kept = _Kept(choice=choice, table=table, since_ms=settings.since_ms or 0)
        self._again = settings.again

    def held(self) -> AbstractContextManager[None]:
        return nullcontext() if self._dry_run else held(self._folder)

    def ranges(self) -> list[QueueRange]:
        """Raises ConfigurationError for a checkpoint of another choice, and for rows from before the archive had all columns."""
        from pyspark.sql import functions as F

        if not self._again:
            self._kept = self._read(self._kept)
        partial = F.greatest(*(F.col(name).isNull() for name in _IN_EVERY_LETTER))
        groups = self._letters.groupBy("topic", "brokerName", "queueId")
        with job_errors(f"looking over archive {self._place}"):
            found = groups.agg(F.min("queueOffset"), F.max("queueOffset") + 1, F.count_if(partial)).collect()
        if count := sum(row[5] for row in found):
            raise ConfigurationError(
                f"{count} dead letters of archive {self._place} lack one of {', '.join(_IN_EVERY_LETTER)}: it had not all columns then",
                remedy="choose others by where, such as body IS NOT NULL AND storeHost IS NOT NULL",
            )
        kept = dict(self._kept.places)
        ranges = [
            QueueRange(queue := MessageQueue(row[0], row[1] or "", row[2]), max(row[3], kept.get(queue, 0)), row[4])
            for row in found
        ]
        return sorted((one for one in ranges if one.begin < one.end), key=lambda one: one.queue)

    def rows(self, piece: Sequence[QueueRange]) -> DataFrame:
        return rows_within(self._letters, piece)

    def keep(self, places: Mapping[MessageQueue, int]) -> None:
        if self._dry_run:
            return
        self._kept.places = sorted({**dict(self._kept.places), **places}.items())
        replace_content(self._folder.under(_FILE), msgspec.json.encode(self._kept))

    def _read(self, begun: _Kept) -> _Kept:
        """What a run begins with. begun: without any place."""
        content = self._folder.under(_FILE).content()
        if content is None:
            return begun
        try:
            found = msgspec.json.decode(content, type=_Kept)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{self._folder.under(_FILE).path} cannot be read: {error}", remedy="begin with another checkpoint"
            ) from error
        if found.choice != begun.choice:
            raise ConfigurationError(
                f"the checkpoint {self._folder.path} is of another choice of letters: {found.choice!r}, and this is {begun.choice!r}",
                remedy="give each choice a checkpoint of its own",
            )
        if found.table != begun.table:
            raise ConfigurationError(
                f"the checkpoint {self._folder.path} is of the archive with the id {found.table}; "
                f"{self._place} has the id {begun.table}",
                remedy="give each archive a checkpoint of its own",
            )
        if found.since_ms > begun.since_ms:
            raise ConfigurationError(
                f"the checkpoint {self._folder.path} is of letters since {instant(found.since_ms)}: older ones were passed over",
                remedy="give the same since or a later one; for older letters another checkpoint, what was sent is recognised",
            )
        return replace(found, since_ms=begun.since_ms)


def archived_letters(spark: SparkSession, place: str, needed: Sequence[str], what: str) -> DataFrame:
    """The rows of an archive. ConfigurationError where it lacks a column that `what` needs, or has properties as texts."""
    from orbitmq.spark.archives import archive, kinds_of

    frame = archive(place, spark=spark)
    kinds = kinds_of(frame, place, needed, what)
    if not kinds["properties"].startswith("map"):
        raise ConfigurationError(
            f"archive {place} has properties as {kinds['properties']}", remedy="archive them as a map: properties = map"
        )
    return frame


def choice_of(order: RedriveOrder) -> str:
    """Which letters, and where to. Without times: `since = "2d"` is another instant in every run, and a place in a queue holds for later
    ones."""
    return replace(order, selection=replace(order.selection, since_ms=None, until_ms=None)).progress
