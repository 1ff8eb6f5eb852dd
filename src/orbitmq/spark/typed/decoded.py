"""What decoders give, and what all of them do alike.

Rules of this file
1. A value that does not fit its type is the row's own mistake: the others keep their values.
2. Times and dates are texts until a whole column is cast: text and column cannot disagree about what a time is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_DEPTH_MAX, PAYLOAD_FIELDS_MAX, PAYLOAD_REASON_CHARS_MAX

MISFITS: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for a Python value that is none of its type."""


class Decoded(NamedTuple):
    """One row for each body. values: the payloads, null where there is a reason. reasons: null where there is none."""

    values: Any
    reasons: Any


class PayloadDecoder(Protocol):
    def decode(self, bodies: Any) -> Decoded:
        """Bodies are a binary column without nulls. Never raises for what they hold."""


def library(name: str) -> Any:
    """A module of the extra `typed`."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise ConfigurationError(
            f"such payloads need a package that is not here: {problem}",
            remedy='pip install "orbitmq[typed]", for the driver and the workers',
        ) from problem


def reason_of(problem: BaseException) -> str:
    """In one line, and not longer than a person reads."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= PAYLOAD_REASON_CHARS_MAX else text[: PAYLOAD_REASON_CHARS_MAX - 1] + "…"


OneDecoded = tuple[Any, str | None]
"""A payload and None, or None and why the body cannot be decoded."""


class Builder(NamedTuple):
    """Makes columns of values. whole: one of the type of payloads, of many. field: one of the type of field number n, of that of one value.
    They raise one of `MISFITS`."""

    whole: Callable[[list[Any]], Any]
    field: Callable[[Any, int], Any]


def of_dicts(kind: Any, loose: Any) -> Builder:
    """Of dictionaries. loose: the type that their values are of, for `fitted`."""
    return Builder(
        lambda values: fitted(pa.array(values, loose), kind),
        lambda value, at: fitted(pa.array([value.get(kind[at].name)], loose[at].type), kind[at].type),
    )


def row_by_row(bodies: Any, read: Callable[[bytes], OneDecoded], kind: Any, builder: Builder) -> Decoded:
    """Payloads of bodies that are read one at a time."""
    rows = [read(body) for body in bodies.to_pylist()]
    return columns_of([value for value, _ in rows], [reason for _, reason in rows], kind, builder)


def columns_of(values: list[Any], reasons: list[str | None], kind: Any, builder: Builder) -> Decoded:
    """Values as a column of the type `kind`, a struct. What does not fit becomes null and has a reason; both lists are changed."""

    def built(begin: int, end: int) -> list[Any]:
        """Halves of what cannot be built, down to the rows that are to blame."""
        try:
            return [builder.whole(values[begin:end])]
        except MISFITS as problem:
            if end - begin == 1:
                values[begin], reasons[begin] = None, _misfit(values[begin], kind, builder, problem)
                return [pa.nulls(1, kind)]
        middle = (begin + end) // 2
        return built(begin, middle) + built(middle, end)

    return Decoded(pa.concat_arrays(built(0, len(values))), pa.array(reasons, pa.string()))


def _misfit(value: Any, kind: Any, builder: Builder, problem: BaseException) -> str:
    """The reason, with the name of the field that does not fit."""
    for at, field in enumerate(kind):
        try:
            builder.field(value, at)
        except MISFITS as narrower:
            return reason_of(ValueError(f"field {field.name!r}: {narrower}"))
    return reason_of(problem)


def check_type(kind: Any) -> None:
    """`ConfigurationError` for a payload of a type that cannot be decoded: `kind` is what a schema says."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise ConfigurationError(
            f"column payload is {kind}",
            remedy="it is a struct of what bodies hold: payload struct<id: bigint, name: string>",
        )
    count = _checked(kind, "payload", 1)
    if count > PAYLOAD_FIELDS_MAX:
        raise ConfigurationError(
            f"the schema of the payload has {count} fields; {PAYLOAD_FIELDS_MAX} are allowed",
            remedy="name only those that you need: others are passed over",
        )


def _checked(kind: Any, path: str, depth: int) -> int:
    """How many fields there are below."""
    if depth > PAYLOAD_DEPTH_MAX:
        raise ConfigurationError(
            f"the schema of the payload is deeper than {PAYLOAD_DEPTH_MAX} at {path}",
            remedy="read the inner part as bytes or text and decode it in a second step",
        )
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"{path} has two fields {name!r}")
        return sum(1 + _inner(field, f"{path}.{field.name}", depth) for field in kind)
    if pa.types.is_list(kind):
        return _inner(kind.value_field, f"{path}[]", depth)
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ConfigurationError(f"the keys of {path} are {kind.key_type}", remedy="keys of a map are strings")
        return _inner(kind.item_field, f"{path}[]", depth)
    if not any(is_kind(kind) for is_kind in _SCALARS):
        raise ConfigurationError(
            f"{path} is of a type that no payload has: {kind}",
            remedy="use string, binary, boolean, a number, date, timestamp, array, map or struct",
        )
    return 0


def _inner(field: Any, path: str, depth: int) -> int:
    if not field.nullable:
        raise ConfigurationError(f"{path} may be null", remedy="leave NOT NULL out of the schema")
    return _checked(field.type, path, depth + 1)


_SCALARS: Final = (
    pa.types.is_string, pa.types.is_binary, pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32,
    pa.types.is_float64, pa.types.is_decimal128, pa.types.is_date32, pa.types.is_timestamp,
)  # fmt: skip


def fitted(column: Any, kind: Any) -> Any:
    """A column of the loose type as `kind`. `ArrowInvalid` for what is no time, or too large.

    Arrow's own cast also looks at what lies under a null struct.
    """
    if column.type == kind:
        return column
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        children = [fitted(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, fitted(column.values, kind.value_type), type=kind, mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            column.offsets, column.keys, fitted(column.items, kind.item_type), type=kind, mask=mask
        )
    found = column.cast(kind)
    if (
        pa.types.is_float32(kind) and pc.any(pc.is_inf(found)).as_py()
    ):  # no JSON is infinity, and Arrow makes it of 1e39
        raise pa.ArrowInvalid(f"a number is too large for {kind}")
    return found


def loose_type(kind: Any) -> Any:
    """The type with texts for times and dates, and doubles for floats; `fitted` makes `kind` of it."""
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_float32(kind):
        return pa.float64()
    return with_inner(kind, loose_type)


def with_inner(kind: Any, change: Callable[[Any], Any]) -> Any:
    """The type with other ones inside of it, all of which may be null; itself where it has none. Keys of maps stay."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, change(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, change(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, change(kind.item_type))
    return kind
