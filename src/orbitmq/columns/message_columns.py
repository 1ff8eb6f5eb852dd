"""Which columns a message has, for everybody who names them, and without a library that reads them.

Rules of this file
1. Names and order are a promise to users: those of the Scala connector first, ours behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

PROPERTIES: Final = "properties"


class PropertiesForm(StrEnum):
    """What the column `properties` holds."""

    MAP = "map"
    """Name to value."""
    JSON = "json"
    """A JSON object in text."""
    NONE = "none"
    """There is no such column."""


COLUMN_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "topic": "string",
        "flag": "int",
        "body": "binary",
        PROPERTIES: "map<string,string>",
        "brokerName": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "bornTimestamp": "timestamp",
        "storeTimestamp": "timestamp",
        "msgId": "string",
        "tags": "string",
        "keys": "string",
        "reconsumeTimes": "int",
        "sysFlag": "int",
        "commitLogOffset": "bigint",
        "bornHost": "string",
        "storeHost": "string",
        "deliverTimestamp": "timestamp",
    }
)
"""Every column there is, in the order of the read schema, with its type as Spark calls it; `properties` in its form `map`."""


def column_types(form: PropertiesForm) -> dict[str, str]:
    """All columns with their types, in order; without `properties` for NONE."""
    if form is PropertiesForm.NONE:
        return {name: kind for name, kind in COLUMN_TYPES.items() if name != PROPERTIES}
    return {**COLUMN_TYPES, PROPERTIES: "string"} if form is PropertiesForm.JSON else dict(COLUMN_TYPES)


def ddl(names: Iterable[str]) -> str:
    """These columns as Spark takes a schema in text."""
    return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in names)
