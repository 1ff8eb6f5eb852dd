"""What a report is made from: messages counted by topic, span of time, kind and lateness, in one pass of Spark over them.

A cell is one combination of these. All figures come from the cells, on the driver; the messages themselves are read once.

Rules of this file
1. Only data frame calls that work in every session, also over Spark Connect.
2. Spark does arithmetic and counting; what a figure is, `figures` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import REPORT_CELLS_MAX
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.spark.pipelines.reporting.buckets import low_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("topic", "storeTimestamp", "bornTimestamp", "deliverTimestamp", "reconsumeTimes")
"""What a report reads of a message; `body` as well when bodies are to be measured."""


class MessageClass(StrEnum):
    """What a message counts as."""

    PLAIN = "plain"
    """It had no due time."""
    TIMED = "timed"
    """It was stored at its due time or after it: delivered."""
    EARLY = "early"
    """It was stored before its due time."""
    OVERDUE = "overdue"
    """It was due before it was sent, so it was delivered at once; its lateness is the sender's."""
    RETRY = "retry"
    """A further attempt of a consumer group. Its due time is that of the first attempt and says nothing."""
    DEAD = "dead"
    """A dead letter of a consumer group."""
    UNDATED = "undated"
    """It does not say when it was stored."""


class Cell(NamedTuple):
    """`slot_ms`: the begin of the span, ms since 1970; 0 if undated. `low_ms`: the lateness bucket of what is timed, else 0."""

    topic: str
    slot_ms: int
    kind: MessageClass
    low_ms: int
    rows: int
    size_bytes: int
    latest_ms: int
    """The largest lateness in it; for what is early the smallest, which is negative."""
    attempts: int
    """The largest number of attempts that failed before."""


_KIND: Final = f"""case
    when stored is null then '{MessageClass.UNDATED}'
    when startswith(topic, '{RETRY_PREFIX}') then '{MessageClass.RETRY}'
    when startswith(topic, '{DLQ_PREFIX}') then '{MessageClass.DEAD}'
    when due is null then '{MessageClass.PLAIN}'
    when due <= born then '{MessageClass.OVERDUE}'
    when stored < due then '{MessageClass.EARLY}'
    else '{MessageClass.TIMED}' end"""


def cells_of(messages: DataFrame, slot_ms: int) -> Iterator[Cell]:
    """Count `messages`, which have `COLUMNS` and may have `body`, by spans of `slot_ms`. Reads them once.

    Raises ConfigurationError that names a column that is missing, and when there are too many cells.
    """
    from pyspark.sql import functions as f

    missing = [name for name in COLUMNS if name not in messages.columns]
    if missing:
        raise ConfigurationError(
            f"a report needs the column {missing[0]!r}, which is not in {', '.join(messages.columns)}",
            remedy="read messages with the columns of format orbitmq, or an archive that the archive pipeline wrote",
        )
    size = "octet_length(body)" if "body" in messages.columns else "0"
    counted = (
        messages.selectExpr(
            "coalesce(topic, '') as topic",
            "unix_millis(storeTimestamp) as stored",
            "unix_millis(bornTimestamp) as born",
            "unix_millis(deliverTimestamp) as due",
            "coalesce(reconsumeTimes, 0) as attempts",
            f"cast(coalesce({size}, 0) as bigint) as size",
        )
        .selectExpr("*", f"{_KIND} as kind", "coalesce(stored - due, 0L) as late")
        .selectExpr(
            "topic",
            f"coalesce(stored - pmod(stored, {slot_ms}L), 0L) as slot",
            "kind",
            f"case when kind = '{MessageClass.TIMED}' then {low_sql('late')} else 0L end as low",
            "size",
            "late",
            "attempts",
        )
        .groupBy("topic", "slot", "kind", "low")
        .agg(
            f.count("*").alias("rows"),
            f.sum("size").alias("size"),
            f.expr(f"if(first(kind) = '{MessageClass.EARLY}', min(late), max(late))").alias("late"),
            f.max("attempts").alias("attempts"),
        )
        .limit(REPORT_CELLS_MAX + 1)
        .toArrow()
    )
    if counted.num_rows > REPORT_CELLS_MAX:
        raise ConfigurationError(
            f"the report would have more than {REPORT_CELLS_MAX} counts",
            remedy="take fewer topics, a shorter time, or wider spans (--per 1d)",
        )
    columns = [counted.column(name).to_pylist() for name in counted.column_names]
    for topic, slot, kind, low, rows, size_bytes, latest, attempts in zip(*columns, strict=True):
        yield Cell(topic, slot, MessageClass(kind), low, rows, size_bytes, latest, attempts)
