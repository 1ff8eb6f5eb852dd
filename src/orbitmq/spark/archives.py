"""An archive as a data frame, without a jar: delta-rs says which files a version of the table has, and Spark reads them as Parquet.

Rules of this file
1. The files are fixed when the frame is made: whatever is committed or compacted later, it stays that version while `vacuum` leaves them.
2. What cannot be read as plain Parquet files, as after a change by an engine with deletion vectors, is refused.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from orbitmq.errors import ConfigurationError, StoreDamagedError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
_ESCAPED: Final = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")
_PLAIN_READER: Final = 1
"""Version of Delta's protocol for readers that know nothing but files and their partitions."""
_READABLE: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features that change nothing for who reads files."""


def archive(
    place: str,
    *,
    version: int | None = None,
    at: datetime.datetime | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The rows of an archive, or of any Delta table with plain files.

    version, at: an earlier one, by its number or as it was at a time (one without a zone is in UTC). spark: else the active session.
    The workers read the files: a local directory has to be the same for all, and an object store has to be known to Spark.
    ConfigurationError where there is no table, or only a later one.
    """
    from pyspark.sql import SparkSession

    spark = spark or SparkSession.getActiveSession()
    if spark is None:
        raise ConfigurationError("there is no session of Spark", remedy="make one: orbitmq.spark.session()")
    table = plain_table(place, version, at)
    import pyarrow as pa

    return files_frame(spark, table, place, sorted(map(unquote, pa.table(table.get_add_actions())["path"].to_pylist())))


def files_frame(spark: SparkSession, table: DeltaTable, place: str, files: Sequence[str]) -> DataFrame:
    """The rows of some files of a table, by their names below it or their URIs. SparkJobError where Spark does not find one."""
    from pyspark.sql.types import StructType

    from orbitmq.spark.pipelines.archiving.storage import table_url
    from orbitmq.spark.pipelines.failed_jobs import job_errors

    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    if not files:
        return spark.createDataFrame([], schema)
    root = table_url(place).rstrip("/")
    found = [file if file.startswith("/") or "://" in file else f"{root}/{file}" for file in files]
    _check_directories(table, place, found)
    with job_errors(f"reading the table in {place}"):
        named = (_PATTERN.sub(r"\\\g<0>", file) for file in found)  # Spark takes such a name for a pattern of names
        frame = spark.read.schema(schema).option("basePath", root).parquet(*named)
    return _with_letters(frame, table, place, files)


def kinds_of(frame: DataFrame, place: str, needed: Sequence[str], what: str) -> Mapping[str, str]:
    """Types of an archive's columns by name. ConfigurationError names those that `what` needs and are missing."""
    from orbitmq.spark.pipelines.archiving.table import check_columns

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    check_columns(place, kinds, needed, what)
    return kinds


def plain_table(place: str, version: int | None = None, at: datetime.datetime | None = None) -> DeltaTable:
    """A table whose files can be read as plain Parquet files. ConfigurationError for another one."""
    from orbitmq.spark.pipelines.archiving.table import opened, table_failures

    if version is not None and at is not None:
        raise ConfigurationError("version and at name two versions of an archive", remedy="give one of them")
    table = opened(place, version)
    if at is not None:
        with table_failures(place):
            table.load_as_version(at if at.tzinfo else at.replace(tzinfo=datetime.UTC))
    protocol = table.protocol()
    features = set(protocol.reader_features or ()) - _READABLE
    if features or (protocol.min_reader_version > _PLAIN_READER and not protocol.reader_features):
        raise ConfigurationError(
            f"the table in {place} asks its readers for {', '.join(sorted(features)) or 'column mapping'}",
            remedy="read it with Spark's Delta package; what another engine changed in this form cannot be read as plain files",
        )
    return table


def _with_letters(frame: DataFrame, table: DeltaTable, place: str, files: Sequence[str]) -> DataFrame:
    """Partitions as they are called. delta-rs escapes the bytes of a letter beyond ASCII in a directory's name, and Spark takes each of
    them for a letter. StoreDamagedError where some directories are escaped, and others not."""
    from pyspark.sql import functions as F

    directories = {file.rpartition("/")[0] for file in files}
    if not any(map(_ESCAPED.search, directories)):
        return frame
    if not all(directory.isascii() for directory in directories):
        raise StoreDamagedError(
            f"the table in {place} has partitions with letters beyond ASCII in two forms, of which Spark would read one wrongly",
            remedy="rewrite the partitions by one program, or read it with Spark's Delta package",
        )
    kinds = dict(frame.dtypes)
    texts = [name for name in table.metadata().partition_columns if kinds[name] == "string"]
    return frame.withColumns({name: F.decode(F.encode(F.col(f"`{name}`"), "ISO-8859-1"), "UTF-8") for name in texts})


def _check_directories(table: DeltaTable, place: str, files: Sequence[str]) -> None:
    """A file's directory says its partition to Spark, so it has to be that of the table."""
    for name in table.metadata().partition_columns:
        for file in files:
            if f"/{name}=" not in file:
                raise StoreDamagedError(
                    f"{file} of the table in {place} lies in no directory of a {name}",
                    remedy="read it with Spark's Delta package",
                )
