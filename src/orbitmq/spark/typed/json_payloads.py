"""JSON bodies as columns.

`msgspec` reads each body into an object with a slot for each wanted field, and columns are made of the slots. Many bodies are not parsed
together: a parser of lines, such as `pyarrow.json`, counts values and not lines, so that a blank body and one of two values shift the rows
between them; it pays for every byte, also of fields that nobody wants; and it is no quicker where many are wanted.

Rules of this file
1. A row does not depend on its neighbours: a bad body costs its own row.
2. A field that is not there is null, as one that says null. Fields that no type names are passed over.
3. A body deeper than Python recurses is a bad one, whatever is wanted of it.
"""

from __future__ import annotations

import math
import operator
import typing
from collections.abc import Callable
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.spark.typed.decoded import (
    Builder,
    Decoded,
    OneDecoded,
    fitted,
    loose_type,
    reason_of,
    row_by_row,
)
from orbitmq.spark.typed.framing import HEAD_BYTES, schema_id_of

_DECIMAL_PLACES: Final = 38
"""By how many places Arrow can move the point of a decimal(38, s)."""

_BODY_END: Final = 2**31 - 1
"""Behind the last byte of any body. It is named because Arrow, left to itself, fails for every even number of bodies."""

_NO_SLOT: Final = frozenset(map(chr, range(32))) | {'"', "\\"}
"""Names with such characters stay names: `msgspec` gives them no slot."""


class JsonDecoder:
    """Decodes bodies that are objects with the fields of `kind`, a struct."""

    def __init__(self, kind: Any, *, framed: bool = False) -> None:
        """framed: a schema's id stands before each body."""
        self._kind = kind
        self._framed = framed
        loose = loose_type(kind)
        self._one = msgspec.json.Decoder(typing.Optional[_python_type(kind)])  # noqa: UP045 -- a value of types, not an annotation
        columns = [(_getter(kind, at), _columns(field.type)) for at, field in enumerate(loose)]
        whole = _columns(loose)
        self._builder = Builder(
            lambda values: fitted(whole(values), kind),
            lambda value, at: fitted(columns[at][1]([columns[at][0](value)]), kind[at].type),
        )

    def decode(self, bodies: Any) -> Decoded:
        if not self._framed:
            return self._decoded(bodies)
        reasons = pa.array(
            [_frame_problem(head) for head in pc.binary_slice(bodies, 0, HEAD_BYTES).to_pylist()], pa.string()
        )
        found = self._decoded(pc.binary_slice(bodies, HEAD_BYTES, _BODY_END))
        if reasons.null_count == len(reasons):
            return found
        fine = pc.is_null(reasons)
        return Decoded(pc.if_else(fine, found.values, pa.scalar(None, self._kind)), pc.coalesce(reasons, found.reasons))

    def _decoded(self, bodies: Any) -> Decoded:
        return row_by_row(bodies, self._read, self._kind, self._builder)

    def _read(self, body: bytes) -> OneDecoded:
        try:
            body.decode()  # msgspec does not look at texts that it passes over
            return self._one.decode(body), None
        except RecursionError:
            return None, "it is nested too deeply"
        except (msgspec.MsgspecError, ValueError) as problem:
            return None, reason_of(problem) if body.strip() else "the body is blank"


def _python_type(kind: Any) -> Any:
    """The type of `msgspec` for values of an Arrow type."""
    if pa.types.is_struct(kind):
        types = [typing.Optional[_python_type(field.type)] for field in kind]  # noqa: UP045
        if not _has_slots(kind):
            named = {_name(field): one for field, one in zip(kind, types, strict=True)}
            return typing.TypedDict("Payload", named, total=False)  # type: ignore[operator]
        slots = [(f"f{at}", one, None) for at, one in enumerate(types)]
        names = {f"f{at}": _name(field) for at, field in enumerate(kind)}
        return msgspec.defstruct("Payload", slots, rename=names, gc=False)
    if pa.types.is_list(kind):
        return list[typing.Optional[_python_type(kind.value_type)]]  # type: ignore[misc]  # noqa: UP045
    if pa.types.is_map(kind):
        return dict[str, typing.Optional[_python_type(kind.item_type)]]  # type: ignore[misc]  # noqa: UP045
    for is_kind, plain in _PLAIN:
        if is_kind(kind):
            return plain
    return str


def _has_slots(kind: Any) -> bool:
    return all(_NO_SLOT.isdisjoint(field.name) for field in kind)


def _getter(kind: Any, at: int) -> Callable[[Any], Any]:
    """Gives field number `at` of a value that is no null."""
    if _has_slots(kind):
        return operator.attrgetter(f"f{at}")
    name = kind[at].name
    return lambda value: value.get(name)


def _columns(kind: Any) -> Callable[[list[Any]], Any]:
    """Makes a column of the type `kind` from values of `_python_type`."""
    if pa.types.is_struct(kind):
        fields = list(kind)
        parts = [(_getter(kind, at), _columns(field.type)) for at, field in enumerate(fields)]

        def struct(values: list[Any]) -> Any:
            nulls = [value is None for value in values]
            if not any(nulls):
                children = [column(list(map(get, values))) for get, column in parts]
                return pa.StructArray.from_arrays(children, fields=fields)
            children = [column([None if value is None else get(value) for value in values]) for get, column in parts]
            return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(nulls))

        return struct
    if pa.types.is_map(kind):
        keys, items = _columns(kind.key_type), _columns(kind.item_type)

        def mapping(values: list[Any]) -> Any:
            ends, mask, there = _ends(values)
            inner = keys(list(chain.from_iterable(there))), items([one for value in there for one in value.values()])
            return pa.MapArray.from_arrays(ends, *inner, type=kind, mask=mask)

        return mapping
    if pa.types.is_list(kind):
        inner = _columns(kind.value_type)

        def several(values: list[Any]) -> Any:
            ends, mask, there = _ends(values)
            return pa.ListArray.from_arrays(ends, inner(list(chain.from_iterable(there))), type=kind, mask=mask)

        return several
    if pa.types.is_decimal(kind):
        most = kind.scale + _DECIMAL_PLACES

        def decimals(values: list[Any]) -> Any:
            for value in values:
                if value is not None and isinstance(exponent := value.as_tuple().exponent, int) and -exponent > most:
                    raise ValueError(f"a decimal has {-exponent} places after the point; {most} are allowed")
            return pa.array(values, kind)

        return decimals
    return lambda values: pa.array(values, kind)


def _ends(values: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Where each list begins and the last ends, which are null, and those that are not."""
    there = [value for value in values if value is not None]
    ends = pa.array(accumulate((0 if value is None else len(value) for value in values), initial=0), pa.int32())
    return ends, None if len(there) == len(values) else pa.array([value is None for value in values]), there


def _frame_problem(head: bytes) -> str | None:
    try:
        schema_id_of(head)
    except ValueError as problem:
        return reason_of(problem)
    return None


def _name(field: Any) -> str:
    """msgspec compares names with the UTF-8 that Python keeps beside a text, and Python keeps it only when it was asked for: any other name
    than an ASCII one would be passed over in every body."""
    name: str = field.name
    msgspec.json.encode(name)
    return name


_PLAIN: Final = (
    (pa.types.is_boolean, bool),
    (pa.types.is_signed_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, bytes),
)


class JsonEncoder:
    """Makes bodies of payloads: fields that are null say so, decimals are numbers, times are texts in UTC, bytes base64."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(decimal_format="number")

    def encode(self, value: Any) -> bytes:
        body = self._encoder.encode(value)
        if b"null" in body and _has_no_number(value):
            raise ValueError("it has a number that JSON does not know: NaN or infinity")  # msgspec would write null
        return body


def _has_no_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_no_number(one) for one in value.values())
    if isinstance(value, list):
        return any(_has_no_number(one) for one in value)
    return isinstance(value, float) and not math.isfinite(value)
