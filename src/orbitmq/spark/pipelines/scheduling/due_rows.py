"""From any data frame to the columns that tasks take: those of a message, with the due time as a number.

Rules of this file
1. A data frame is refused before anything of it runs: an unknown column, a column of a wrong type, no due time, no body.
2. A due time that cannot be one stays in its row, as null beside the text it came from, so that the task can name the row.
3. Nothing here is evaluated; these are expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.scheduling.row_checks import DueLayout
from orbitmq.spark.pipelines.scheduling.settings import ScheduleSettings
from orbitmq.spark.writing.row_columns import ROW_COLUMNS, ROW_KEY, row_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DUE: Final = "deliverTimestamp"
DUE_MS: Final = "dueMs"
DUE_TEXT: Final = "dueText"
"""What stood in a due time of text."""

_OTHER_TIMES: Final = ("delaySeconds", "delayLevel")
_WHOLE: Final = ("bigint", "int")


def due_rows(frame: DataFrame, settings: ScheduleSettings) -> tuple[DataFrame, DueLayout]:
    """A data frame in the form of the tasks, and where things stand in it. ConfigurationError for columns that do not make messages."""
    from pyspark.sql import functions

    due_column, row_key, body_json = settings.due_column, settings.row_key, settings.body_json
    types = {field.name.lower(): (field.name, field.dataType.simpleString()) for field in frame.schema.fields}
    chosen = _chosen(types, settings)
    due_name, due_type = types[due_column.lower()]
    if settings.topic is not None and "topic" in chosen:
        raise ConfigurationError(
            "there is both a setting topic and a column topic", remedy="drop the column, or leave the setting out"
        )
    selected: list[Column] = []
    if body_json:
        selected.append(functions.to_json(functions.struct("*")).alias("body"))
    selected += [_quoted(types[source.lower()][0]).alias(name) for name, source in chosen.items()]
    key_name = None
    if row_key is not None:
        key_name = next((name for name, source in chosen.items() if source.lower() == row_key.lower()), ROW_KEY)
        if key_name == ROW_KEY:
            selected.append(_quoted(types[row_key.lower()][0]).alias(ROW_KEY))
    due = len(selected)
    selected.append(_due_ms(due_name, due_type).alias(DUE_MS))
    due_text = None
    if due_type == "string":
        due_text = due + 1
        selected.append(_quoted(due_name).alias(DUE_TEXT))
    made = frame.select(*selected)
    layout = DueLayout(
        names=tuple(made.columns),
        places=row_columns(made.dtypes[:due], key_name, topic_needed=settings.topic is None),
        due=due,
        due_text=due_text,
        due_name=due_column,
        topic=settings.topic,
        max_message_bytes=settings.max_message_bytes,
        by_key=row_key is not None,
    )
    return made, layout


def _chosen(types: Mapping[str, tuple[str, str]], settings: ScheduleSettings) -> dict[str, str]:
    """Column of a message -> column of the data frame."""
    due_column, row_key, body_json = settings.due_column, settings.row_key, settings.body_json
    known = {column.name.lower(): column.name for column in ROW_COLUMNS}
    names = ", ".join(name for name, _ in types.values())
    for what, name in (("due_column", due_column), ("row_key", row_key)):
        if name is not None and name.lower() not in types:
            raise ConfigurationError(f"{what} names {name!r}, and the rows have no such column: they have {names}")
    chosen: dict[str, str] = {}
    for given, source in (settings.column or {}).items():
        name = known.get(given.lower(), "")
        if not name or name == DUE or name in _OTHER_TIMES:
            possible = [column.name for column in ROW_COLUMNS if column.name != DUE and column.name not in _OTHER_TIMES]
            raise ConfigurationError(
                f"column: {given!r} is nothing that a scheduled message has",
                remedy=f"it is one of {', '.join(possible)}",
            )
        if source.lower() not in types:
            raise ConfigurationError(f"column {name}={source}: the rows have no column {source!r}: they have {names}")
        chosen[name] = source
    taken = {source.lower() for source in chosen.values()} | {due_column.lower()}
    for lower, (name, _) in types.items():
        message_name = known.get(lower)
        if (
            lower in taken
            or message_name in chosen
            or (row_key is not None and lower == row_key.lower() and not message_name)
        ):
            continue
        if message_name is not None and message_name != DUE and message_name not in _OTHER_TIMES:
            if not (body_json and message_name == "body"):
                chosen[message_name] = name
        elif not body_json:
            raise ConfigurationError(
                f"column {name!r} is nothing that a scheduled message has",
                remedy="leave it out, say which of a message's columns it is by column NAME=COLUMN, or take the whole row as the body "
                "with body_json",
            )
    if body_json and "body" in chosen:
        raise ConfigurationError("there is both a column for the body and body_json", remedy="leave one of them out")
    return chosen


def _quoted(name: str) -> Column:
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")


def _due_ms(name: str, kind: str) -> Column:
    """Milliseconds since 1970, rounded up: nothing is early. Null where there is no time."""
    from pyspark.sql import functions

    quoted = "`" + name.replace("`", "``") + "`"
    if kind == "timestamp":
        return functions.expr(f"(unix_micros({quoted}) + 999) div 1000")
    if kind in _WHOLE:
        return functions.expr(f"cast({quoted} as bigint)")
    if kind == "string":
        return functions.expr(
            f"coalesce(try_cast(trim({quoted}) as bigint), (unix_micros(try_cast(trim({quoted}) as timestamp)) + 999) div 1000)"
        )
    remedy = "cast it to timestamp in the data frame, so that its time zone is plain"
    raise ConfigurationError(
        f"due_column {name!r} is of type {kind}",
        remedy=f"a due time is a timestamp, a text with one, or whole milliseconds since 1970: {remedy}",
    )
