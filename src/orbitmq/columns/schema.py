"""The columns of a message as Arrow sees them.

Rules of this file
1. Every column may be null and times are microseconds in UTC, because Spark compares batches with exactly that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from orbitmq.columns.message_columns import PropertiesForm, column_types
from orbitmq.errors import ConfigurationError

TIME: Final = pa.timestamp("us", tz="UTC")

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": TIME,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(names: Iterable[str], form: PropertiesForm) -> pa.Schema:
    """The schema of a batch with these columns, in the order given. ConfigurationError for one that does not exist."""
    known = column_types(form)
    fields = []
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no column {name!r}", remedy=f"the columns are {', '.join(known)}")
        fields.append(pa.field(name, _ARROW[known[name]]))
    return pa.schema(fields)
