"""Whether the payload that somebody wants is what a schema of Avro or Protobuf gives.

Rules of this file
1. Found out on the driver, before anything is read or written: a field that no schema has would be null in every row, and look like one
   that is missing.
2. Whole numbers and floats may be wanted wider than they are; nothing else is converted.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from orbitmq.errors import ConfigurationError


def check_fits(wanted: Any, given: Any, what: str, path: str = "payload") -> None:
    """`ConfigurationError` where values of the type `given` are none of the type `wanted`. what: who says it, for the error."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        for field in wanted:
            if given.get_field_index(field.name) < 0:
                raise no_field(f"{path}.{field.name}", what, given.names)
            check_fits(field.type, given.field(field.name).type, what, f"{path}.{field.name}")
        return
    if pa.types.is_list(wanted) and pa.types.is_list(given):
        check_fits(wanted.value_type, given.value_type, what, f"{path}[]")
        return
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        check_fits(wanted.item_type, given.item_type, what, f"{path}[]")
        return
    if wanted != given and not _is_wider(wanted, given):
        raise ConfigurationError(
            f"{path} is {given} by {what}, and {wanted} is asked for", remedy="take it as it is and cast it"
        )


def no_field(path: str, what: str, names: list[str]) -> ConfigurationError:
    return ConfigurationError(f"{what} has no {path}", remedy=f"the fields there are {', '.join(names[:100])}")


def _is_wider(wanted: Any, given: Any) -> bool:
    for is_kind in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_kind(wanted) and is_kind(given):
            return bool(wanted.bit_width >= given.bit_width)
    return False


def ddl_of(kind: Any) -> str:
    """The type in Spark's DDL."""
    if pa.types.is_struct(kind):
        fields = (f"`{field.name.replace('`', '``')}`: {ddl_of(field.type)}" for field in kind)
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string, {ddl_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return _NAMES[str(kind)]


_NAMES = {
    "string": "string", "binary": "binary", "bool": "boolean", "int32": "int", "int64": "bigint", "float": "float", "double": "double",
    "date32[day]": "date",
}  # fmt: skip
