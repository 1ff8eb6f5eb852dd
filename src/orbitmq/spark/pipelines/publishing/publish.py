"""`changes`: what was inserted, updated and deleted in a Delta table becomes messages of a topic, version by version.

    changes(spark, table="/data/orders", to="order-changes", name_server="localhost:9876", checkpoint="/data/order-changes")

Each version is one job of the data source `orbitmq`: the part of that number of one idempotent work, which is named after the table's id.
Its rows are named by their content, so the order in which they are read does not matter.

Rules of this file
1. A version is noted when it is written. Whatever is repeated then is known to the brokers.
2. Versions are written one after the other, in their order.
3. The checkpoint knows the last version by its content: numbers come again when another history is put in the table's place.
4. A row that no broker takes ends the run, or lies in the quarantine file of its version before the version is noted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.limits.spark import CHANGES_FEED_BYTES_MAX
from orbitmq.protocol.names import topic_name_problem
from orbitmq.spark.durable import held, replace_content
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.broken_rows import put_aside, rows_refused
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.publishing.plan import FEED_PROPERTY, VersionPlan, Where, plan_version
from orbitmq.spark.pipelines.row_counts import count_of, counted, places_kept
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, pipeline
from orbitmq.spark.writing_options import write_options

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

    from orbitmq.spark.log_files.places import FilePlace
    from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
    from orbitmq.spark.pipelines.task_reports import BrokenRow

_FILE: Final = "changes.json"
_POSITION: Final = "position"
_TYPE: Final = "_change_type"
_BEFORE: Final = "update_preimage"
_JSON_FORM: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""A row has the same text in every session, whatever its zone is: rows are named by it. Times have all their digits."""


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


class WrittenVersions(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint keeps. table: the id that Delta gives a table. next: the first version that is not written. last: the digest of
    the one before it, empty where none was written, or by a release that kept none."""

    table: str
    to: str
    next: Annotated[int, msgspec.Meta(ge=0)]
    last: str = ""


class ChangedRows(NamedTuple):
    """Rows of a version. names: the table's columns. change: what became of a row."""

    frame: DataFrame
    names: Sequence[str]
    change: Column


@pipeline(ChangesSettings)
def changes(spark: SparkSession, *, settings: ChangesSettings, run: Run = ALONE) -> Summary:
    """Write the changes of a Delta table to a topic, each once.

    Takes the versions behind the last one that was written, up to the newest. A version that only adds rows is read from its files. One
    that updates or deletes rows is read from the table's change data feed, on the driver; the table has to keep it from that version on
    (`delta.enableChangeDataFeed`).
    """
    from orbitmq.spark.archives import plain_table
    from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
    from orbitmq.spark.pipelines.archiving.storage import table_place
    from orbitmq.spark.pipelines.archiving.table import opened, table_failures

    table = plain_table(settings.table)
    place, folder = table_place(settings.table), place_at(settings.checkpoint)
    log = DeltaLog(place)
    has_feed: bool | None = None
    rows = versions = broken = 0
    stopped = False
    with held(folder), run.progress.stage("changes", None) as stage:
        with table_failures(settings.table):  # whoever had the checkpoint until now may have written a later version
            table.update_incremental()
        written = written_of(folder, settings, str(table.metadata().id), table.version())
        check_history(log, settings, written)
        for version in range(written.next, table.version() + 1):
            if run.stop.requested:
                stopped = True
                break
            content = log.content(version) if log.can_be_opened(version) else None
            if has_feed is None and content is not None:
                there = opened(settings.table, version).metadata().configuration
                has_feed = (there.get(FEED_PROPERTY) or "").lower() == "true"
            plan = plan_version(settings.table, version, content, has_feed=bool(has_feed))
            has_feed = plan.has_feed
            if plan.where is not Where.NOWHERE:
                _check_files(place, settings, version, plan)
                found = _rows(spark, settings, plain_table(settings.table, version), plan)
                count, refused = _write(spark, settings, written.table, version, found)
                rows += count
                broken += refused
                versions += 1
                stage.advance(count)
            written = msgspec.structs.replace(written, next=version + 1, last=log.digest(version) or "")
            replace_content(folder.under(_FILE), msgspec.json.encode(written))
    return Summary(
        rows_read=rows + broken,
        rows_written=rows,
        rows_quarantined=broken,
        stopped=stopped,
        details={"table": settings.table, "topic": settings.to, "versions": versions, "next_version": written.next},
    )


def written_of(folder: FilePlace, settings: ChangesSettings, table: str, version: int) -> WrittenVersions:
    """What the checkpoint says, or where a new one begins. ConfigurationError for one of another table or topic."""
    content = folder.under(_FILE).content()
    if content is None:
        if settings.since_version > version + 1:
            raise ConfigurationError(
                f"since-version is {settings.since_version}, and the table {settings.table} has versions up to {version}",
                remedy=f"give one up to {version + 1}, the next that there will be",
            )
        return WrittenVersions(table=table, to=settings.to, next=settings.since_version)
    try:
        found = msgspec.json.decode(content, type=WrittenVersions)
    except msgspec.DecodeError as error:
        raise StoreDamagedError(
            f"{folder.under(_FILE).path} cannot be read: {error}",
            remedy="begin with another checkpoint and since-version",
        ) from error
    if (found.table, found.to) != (table, settings.to):
        raise ConfigurationError(
            f"the checkpoint {settings.checkpoint} is of the table with the id {found.table} and topic {found.to!r}; "
            f"{settings.table} has the id {table}, and the topic is {settings.to!r}",
            remedy="give each table and topic a checkpoint of its own",
        )
    if found.next > version + 1:
        raise ConfigurationError(
            f"the table {settings.table} has {version + 1} versions, and {found.next} were written: an older copy is in its place",
            remedy="give the copy another checkpoint, and say with since-version where it begins",
        )
    return found


def check_history(log: DeltaLog, settings: ChangesSettings, written: WrittenVersions) -> None:
    """Raises ConfigurationError where the last version that was written is another one now. One that left the log cannot be compared."""
    last = written.next - 1
    found = log.digest(last) if written.last else None
    if found not in (None, written.last):
        raise ConfigurationError(
            f"version {last} of the table {settings.table} is not the one that was written to topic {settings.to!r}: another history, "
            "such as that of a copy, is in its place",
            remedy="put back the table that was there; or give this one another checkpoint, and say with since-version where it begins",
        )


def _check_files(place: FilePlace, settings: ChangesSettings, version: int, plan: VersionPlan) -> None:
    """Raises ConfigurationError where a file of a version is gone."""
    for file in plan.files:
        if place.under(file).size() is None:
            raise ConfigurationError(
                f"version {version} of the table {settings.table} cannot be read any more: its file {file} is gone, as after a vacuum",
                remedy=f"begin behind it with another checkpoint, since-version = {version + 1}, and load what the table has by other "
                "means; vacuum only what was written to the topic",
            )


def _rows(spark: SparkSession, settings: ChangesSettings, table: DeltaTable, plan: VersionPlan) -> ChangedRows:
    """table: opened at the version."""
    from pyspark.sql import functions as F

    names = [field.name for field in table.schema().fields]
    if plan.where is Where.ADDED_FILES:
        from orbitmq.spark.archives import files_frame

        return ChangedRows(files_frame(spark, table, settings.table, plan.files), names, F.lit("insert"))
    frame = spark.createDataFrame(_feed(table, settings.table))
    return ChangedRows(frame if settings.before else frame.where(F.col(_TYPE) != _BEFORE), names, F.col(_TYPE))


def _feed(table: DeltaTable, place: str) -> Any:
    """The feed of a table's version as an Arrow table, in the types of the table: delta-rs gives texts as views, which Spark does not
    take. ConfigurationError where it is too large for the driver."""
    import pyarrow as pa

    from orbitmq.spark.pipelines.archiving.table import table_failures

    schema = pa.schema([*pa.schema(table.schema().to_arrow()), pa.field(_TYPE, pa.string())])
    version = table.version()
    found, size_bytes = [], 0
    with table_failures(place):
        reader = pa.RecordBatchReader.from_stream(table.load_cdf(starting_version=version, ending_version=version))
        for batch in reader:
            size_bytes += batch.nbytes
            if size_bytes > CHANGES_FEED_BYTES_MAX:
                raise ConfigurationError(
                    f"version {version} of the table {place} changed more than {CHANGES_FEED_BYTES_MAX >> 20} MiB, too much for the driver",
                    remedy="change fewer rows in a commit; to pass over this one, begin behind it with another checkpoint",
                )
            found.append(pa.table(batch).select(schema.names).cast(schema))
        return pa.concat_tables(found) if found else schema.empty_table()


def _write(
    spark: SparkSession, settings: ChangesSettings, table_id: str, version: int, rows: ChangedRows
) -> tuple[int, int]:
    """How many rows are stored, and how many are put aside."""
    name = hashlib.blake2b(f"{table_id}\0{settings.to}".encode(), digest_size=16).hexdigest()
    options: Mapping[str, str] = {
        **settings.connect_options,
        "nameServer": settings.name_server or "",
        "topic": settings.to,
        "rowKey": _POSITION,
        "idempotencyKey": f"changes.{name}",
        "idempotencyStep": str(version),
    }
    with job_errors(f"version {version} of the table {settings.table} to topic {settings.to!r}"), places_kept(spark):
        messages = _messages(rows, settings, version)
        refused: Sequence[BrokenRow] = ()
        if settings.quarantine is not None:
            refused = rows_refused(messages, write_options(options, streaming=False), "messages")
            put_aside(place_at(settings.quarantine).under(f"{version:020d}.json"), refused)
        if refused:  # by the name that they are sent under, so that they are left out of every try
            named = spark.createDataFrame([(row.values[_POSITION],) for row in refused], f"{_POSITION} string")
            messages = messages.join(named, _POSITION, "left_anti")
        found, count = counted(messages)
        found.write.format("orbitmq").options(**options).mode("append").save()
        return count_of(count), len(refused)


def _messages(rows: ChangedRows, settings: ChangesSettings, version: int) -> DataFrame:
    """Each row as a message. Equal rows are numbered: which of them has which number makes no difference."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    for column in (settings.key_column, settings.body_column):
        if column is not None and column not in rows.names:
            raise ConfigurationError(
                f"the table {settings.table} has no column {column!r}",
                remedy=f"its columns are {', '.join(rows.names)}",
            )

    def own(name: str) -> Column:
        return F.col(f"`{name.replace('`', '``')}`")

    content = F.to_json(F.struct(*map(own, rows.names)), _JSON_FORM)
    body = content if settings.body_column is None else own(settings.body_column)
    columns = [body.cast("binary").alias("body"), rows.change.alias("change"), content.alias("content")]
    if settings.key_column is not None:
        key = own(settings.key_column).cast("string")
        columns += [key.alias("keys"), key.alias("shardingKey")]
    named = rows.frame.select(*columns).withColumn("hash", F.sha2(F.concat_ws("/", "change", "content"), 256))
    number = F.row_number().over(Window.partitionBy("hash").orderBy("hash"))
    return named.select(
        F.create_map(F.lit("changeType"), "change", F.lit("tableVersion"), F.lit(str(version))).alias("properties"),
        F.concat_ws("/", "hash", number.cast("string")).alias(_POSITION),
        *(name for name in named.columns if name not in ("change", "content", "hash")),
    )
