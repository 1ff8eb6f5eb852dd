"""Which columns a row that is written may have, and of which types.

Rules of this file
1. Pure, and without Arrow: a data frame is refused before anything of it runs.
2. Column names count in any letter case, as in Spark. An unknown one is an error that lists the known ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError

TEXT: Final = ("string",)
WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


class RowColumn(NamedTuple):
    name: str
    types: tuple[str, ...]
    meaning: str


ROW_COLUMNS: Final = (
    RowColumn("body", ("string", "binary"), "The body; text as UTF-8. The only column that is needed."),
    RowColumn("topic", TEXT, "Where the message goes, unless the option `topic` says so for all."),
    RowColumn("tags", TEXT, "The tag."),
    RowColumn("keys", TEXT, "Index keys, several separated by blanks."),
    RowColumn("properties", ("map<string,string>",), "User properties."),
    RowColumn(
        "shardingKey", TEXT, "Rows with the same one go to the same queue in their order, as with a Java producer."
    ),
    RowColumn("messageGroup", TEXT, "The same under its name in RocketMQ 5; one of the two."),
    RowColumn(
        "queueId", WHOLE, "The queue. Rows that name one keep their order in it, as far as they are in one task."
    ),
    RowColumn("brokerName", TEXT, "The broker of that queue; without it the queue of that number at any broker."),
    RowColumn("flag", WHOLE, "The flag, a number that is only handed on."),
    RowColumn("deliverTimestamp", ("timestamp",), "When the message falls due."),
    RowColumn("delaySeconds", WHOLE, "How long after it was stored it falls due."),
    RowColumn("delayLevel", WHOLE, "A delay level of 4.x. Of the three times a row has at most one."),
    RowColumn("value", ("string", "binary"), "What Kafka's sink calls the body."),
    RowColumn(
        "key",
        ("string", "binary"),
        "What Kafka's sink calls the key: `keys` and `shardingKey` in one, in UTF-8. Not where `rowKey` names it.",
    ),
    RowColumn("partition", WHOLE, "What Kafka's sink calls the queue."),
)
"""Every column of a row, in the order of the documentation."""

_KAFKA_NAMES: Final = {"value": ("body",), "key": ("keys", "shardingKey"), "partition": ("queueId",)}
_ALIASES: Final = {"varchar": "string", "char": "string"}


def row_columns(fields: Iterable[tuple[str, str]], row_key: str | None, *, topic_needed: bool) -> dict[str, int]:
    """The place of each column in a data frame, by its name as it stands here; the row key's under its own.

    fields: names and types of the data frame's columns, the types in Spark's short form. `ConfigurationError`.
    """
    known = {column.name.lower(): column for column in ROW_COLUMNS}
    places: dict[str, int] = {}
    key_place: int | None = None
    for place, (name, kind) in enumerate(fields):
        column = known.get(name.lower())
        is_key = row_key is not None and name.lower() == row_key.lower()
        if is_key:
            key_place = place
            _check_type(name, kind, TEXT + WHOLE, "a row key")
        if is_key and (column is None or column.name == "key"):  # a row key by that name is no key of Kafka's
            continue
        if column is None:
            raise ConfigurationError(
                f"column {name!r} is nothing that a message has",
                remedy=f"leave it out, or put it into body or properties; the columns are {_names()}",
            )
        _check_type(name, kind, column.types, f"column {column.name}")
        for meant in _KAFKA_NAMES.get(column.name, (column.name,)):
            if meant in places:
                other = f", as {column.name}" if meant != column.name else ""
                raise ConfigurationError(f"column {meant} is there twice{other}")
            places[meant] = place
    if "body" not in places:
        raise ConfigurationError("there is no column body", remedy=f"a message needs one; the columns are {_names()}")
    if topic_needed and "topic" not in places:
        raise ConfigurationError("nothing says where the rows go", remedy="give the option topic, or a column topic")
    if {"shardingKey", "messageGroup"} <= places.keys():
        raise ConfigurationError(
            "there are both columns shardingKey and messageGroup",
            remedy="keep one: they are two names of the same thing",
        )
    if row_key is not None:
        if key_place is None:
            raise ConfigurationError(f"option rowKey names {row_key!r}, and there is no such column")
        places[ROW_KEY] = key_place
    return places


ROW_KEY: Final = "rowKey"
"""The name under which `row_columns` gives the place of the row key."""


def _check_type(name: str, kind: str, allowed: tuple[str, ...], what: str) -> None:
    plain = kind.partition("(")[0]
    if _ALIASES.get(plain, kind) not in allowed:
        raise ConfigurationError(
            f"column {name!r} is of type {kind}", remedy=f"{what} is {' or '.join(allowed)}: cast it in the data frame"
        )


def _names() -> str:
    return ", ".join(column.name for column in ROW_COLUMNS)
