"""The columns of a message as Arrow and Spark see it.

Rules of this file
1. Names and order are a promise to users: those of the Scala connector first, ours behind.
2. Every column may be null and times are microseconds in UTC, because Spark compares batches with exactly that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from orbitmq.errors import ConfigurationError

_TIME: Final = pa.timestamp("us", tz="UTC")


class PropertiesAs(StrEnum):
    """What the column `properties` holds."""

    MAP = "map"
    """Name to value."""
    JSON = "json"
    """A JSON object in text."""
    RAW = "raw"
    """The stored bytes, `name 0x01 value 0x02` one after the other."""
    NONE = "none"
    """There is no such column."""


COLUMNS: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "topic": pa.string(),
        "flag": pa.int32(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "brokerName": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "bornTimestamp": _TIME,
        "storeTimestamp": _TIME,
        "msgId": pa.string(),
        "tags": pa.string(),
        "keys": pa.string(),
        "reconsumeTimes": pa.int32(),
        "sysFlag": pa.int32(),
        "commitLogOffset": pa.int64(),
        "bornHost": pa.string(),
        "storeHost": pa.string(),
        "deliverTimestamp": _TIME,
    }
)
"""Every column there is, in the order of the read schema; `properties` in its form `map`."""

_PROPERTIES_TYPES: Final = {
    PropertiesAs.MAP: COLUMNS["properties"],
    PropertiesAs.JSON: pa.string(),
    PropertiesAs.RAW: pa.binary(),
}


def column_names(properties: PropertiesAs) -> list[str]:
    """All columns, in order; without `properties` for NONE."""
    return [name for name in COLUMNS if name != "properties" or properties is not PropertiesAs.NONE]


def arrow_schema(names: Iterable[str], properties: PropertiesAs) -> pa.Schema:
    """The schema of a batch with these columns, in the order given. ConfigurationError for one that does not exist."""
    known = column_names(properties)
    fields = []
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no column {name!r}", remedy=f"the columns are {', '.join(known)}")
        fields.append(pa.field(name, _PROPERTIES_TYPES[properties] if name == "properties" else COLUMNS[name]))
    return pa.schema(fields)
