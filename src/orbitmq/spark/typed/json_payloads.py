"""JSON bodies as columns.

Many bodies are parsed together by `pyarrow.json`, one in each line. A parser of lines counts values and not lines: a blank body is no row,
a body of two values is two, and both together shift all rows between them. So bodies go together only where each is proved one value.

    The proof   Each body is UTF-8, begins with `{`, ends with `}` and has no line break. Strings cannot go over a line break. So where a
                line ends with `}` outside of a string and the next begins with `{`, a value has ended: every line holds one value at
                least. As many rows as lines: every line holds exactly one.

Rules of this file
1. `msgspec` decides what a body says, row by row. The joint way is for what both read alike; what it refuses is asked row by row.
2. So a bad body costs the rows next to it time, and never their values.
3. A field that is not there is null, as one that says null. Fields that no type names are passed over.
4. Which way is taken where both could is a matter of cost: one pays for the bytes of a body, the other for the fields that are wanted.
5. A body deeper than Python recurses is parsed alone by the joint way, which does not recurse.
6. Decimals are read row by row: Arrow moves their point by multiplying without looking whether the product fits, so 9e29 is another number
   in a decimal(38,10), and by more than 38 places to the right it makes zero.
7. Where a joined double is minus zero, rows are asked one by one: Arrow reads the integer `-0` as it reads `-0.0`, and `msgspec` as 0.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from orbitmq.columns.slices import values_of
from orbitmq.limits.spark import PAYLOAD_JOINED_FIELDS_PER_KB, PAYLOAD_JOINED_ROWS_MIN
from orbitmq.spark.typed.decoded import (
    Decoded,
    OneDecoded,
    concatenated,
    fitted,
    leaves_in,
    loose_type,
    reason_of,
    row_by_row,
    types_in,
)
from orbitmq.spark.typed.framing import HEAD_BYTES, schema_id_of

_PARTS: Final = 8
"""A piece with a body that cannot be joined is cut into so many."""

_NOT_JOINED: Final = (pa.types.is_binary, pa.types.is_map, pa.types.is_decimal)

_DECIMAL_PLACES: Final = 38
"""By how many places Arrow can move the point of a decimal(38, s)."""

_BODY_END: Final = 2**31 - 1
"""Behind the last byte of any body. It is named because Arrow, left to itself, fails for every even number of bodies."""

_APART: Final = (b"\n", b"\r", b"NaN", b"Inf")
"""What keeps a body from going together with others: line breaks, and what pyarrow takes for numbers and JSON does not know. Inside of
strings the latter cost only time."""


class JsonDecoder:
    """Decodes bodies that are objects with the fields of `kind`, a struct."""

    def __init__(
        self,
        kind: Any,
        joined_rows_min: int = PAYLOAD_JOINED_ROWS_MIN,
        *,
        fields_per_kb: int = PAYLOAD_JOINED_FIELDS_PER_KB,
        framed: bool = False,
    ) -> None:
        """joined_rows_min, fields_per_kb: fewer bodies, or fields of them, go row by row. framed: a schema's id stands before each."""
        self._kind = kind
        self._framed = framed
        self._loose = loose_type(kind)
        self._joined_rows_min = joined_rows_min
        self._fields = leaves_in(kind)
        self._fields_per_kb = fields_per_kb
        found = types_in(kind)
        # base64 and maps are things that pyarrow.json does not know, decimals those that it gets wrong
        self._joins = not any(is_kind(one) for is_kind in _NOT_JOINED for one in found)
        self._check = _places_check(kind)
        self._one = msgspec.json.Decoder(typing.Optional[_python_type(kind)])  # noqa: UP045 -- a value of types, not an annotation
        self._parsing = arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(self._loose)), unexpected_field_behavior="ignore"
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
        is_worth_it = self._fields * 1_024 >= self._fields_per_kb * bodies.nbytes / max(len(bodies), 1)
        if not self._joins or not is_worth_it or len(bodies) < self._joined_rows_min:
            return self._row_by_row(bodies)
        together = joinable(bodies)
        if together.all():
            return self._together(bodies)
        order = np.argsort(~together, kind="stable")
        chosen = pa.array(together)
        parts = [self._together(bodies.filter(chosen)), self._row_by_row(bodies.filter(pc.invert(chosen)))]
        places = pa.array(np.argsort(order, kind="stable"))
        return Decoded(*(column.take(places) for column in concatenated(parts)))

    def _together(self, bodies: Any) -> Decoded:
        if len(bodies) < self._joined_rows_min:
            return self._row_by_row(bodies)
        try:
            values = self._joined(bodies)
            if _has_minus_zero(values):
                raise pa.ArrowInvalid("minus zero may be written as an integer")
            values = fitted(values, self._kind)
        except pa.ArrowInvalid:
            if len(bodies) == 1:
                return self._row_by_row(bodies)
            step = -(-len(bodies) // _PARTS)
            return concatenated([self._together(bodies.slice(at, step)) for at in range(0, len(bodies), step)])
        return Decoded(values, pa.nulls(len(bodies), pa.string()))

    def _joined(self, bodies: Any) -> Any:
        """Payloads of bodies that are all joinable, in the loose type. `ArrowInvalid` where one does not fit."""
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(bodies)], bodies), b"\n")[0].as_buffer()
        reading = arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1)
        table = arrow_json.read_json(pa.BufferReader(text), reading, self._parsing)
        if table.num_rows != len(bodies):
            raise pa.ArrowInvalid("a body holds more than one value")
        columns = [column.combine_chunks() for column in table.columns]
        return pa.StructArray.from_arrays(columns, fields=list(self._loose))

    def _row_by_row(self, bodies: Any) -> Decoded:
        return row_by_row(bodies, self._read, self._kind, self._loose)

    def _read(self, body: bytes) -> OneDecoded:
        try:
            body.decode()  # msgspec does not look at texts that it passes over
            value = self._one.decode(body)
            if self._check is not None and value is not None:
                self._check(value)
        except RecursionError:
            return self._deep(body)
        except (msgspec.MsgspecError, ValueError) as problem:
            return None, reason_of(problem) if body.strip() else "the body is blank"
        return value, None

    def _deep(self, body: bytes) -> OneDecoded:
        column = pa.array([body], pa.binary())
        try:
            if self._joins and joinable(column).all():
                return self._joined(column)[0].as_py(), None
        except pa.ArrowInvalid as problem:
            return None, reason_of(problem)
        return None, "it is nested too deeply"


def joinable(bodies: Any) -> npt.NDArray[np.bool_]:
    """Which bodies may stand in a line of their own among others; see above."""
    data, numbers, offsets = values_of(bodies)
    starts, ends = offsets[:-1], offsets[1:]
    found = ends - starts >= 2
    inside = np.flatnonzero(found)
    found[inside] = (numbers[starts[inside]] == ord("{")) & (numbers[ends[inside] - 1] == ord("}"))
    text = memoryview(data)[offsets[0] : offsets[-1]]
    whole, part = bytes(text), numbers[offsets[0] : offsets[-1]]
    for mark in _APART:
        if mark[:1] in whole:
            places = np.flatnonzero(part[: len(part) - len(mark) + 1] == mark[0])
            for place in range(1, len(mark)):
                places = places[part[places + place] == mark[place]]
            found[np.searchsorted(offsets, places + offsets[0], "right") - 1] = False
    try:
        whole.decode()
    except UnicodeDecodeError:
        for row in np.flatnonzero(found).tolist():
            found[row] = _is_utf8(text[starts[row] - offsets[0] : ends[row] - offsets[0]])
    return found


def _has_minus_zero(values: Any) -> bool:
    if pa.types.is_struct(values.type):
        return any(_has_minus_zero(values.field(at)) for at in range(values.type.num_fields))
    if pa.types.is_list(values.type):
        return _has_minus_zero(values.values)
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.to_numpy(zero_copy_only=False)
    return bool(np.any((numbers == 0) & np.signbit(numbers)))


def _frame_problem(head: bytes) -> str | None:
    try:
        schema_id_of(head)
    except ValueError as problem:
        return reason_of(problem)
    return None


def _is_utf8(body: memoryview) -> bool:
    try:
        str(body, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _python_type(kind: Any) -> Any:
    """The type of `msgspec` for values of an Arrow type."""
    if pa.types.is_struct(kind):
        fields = {_name(field): typing.Optional[_python_type(field.type)] for field in kind}  # noqa: UP045
        return typing.TypedDict("Payload", fields, total=False)  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[typing.Optional[_python_type(kind.value_type)]]  # type: ignore[misc]  # noqa: UP045
    if pa.types.is_map(kind):
        return dict[str, typing.Optional[_python_type(kind.item_type)]]  # type: ignore[misc]  # noqa: UP045
    for is_kind, plain in _PLAIN:
        if is_kind(kind):
            return plain
    return str


def _name(field: Any) -> str:
    """msgspec compares names with the UTF-8 that Python keeps beside a text, and Python keeps it only when it was asked for: any other name
    than an ASCII one would be passed over in every body."""
    name: str = field.name
    msgspec.json.encode(name)
    return name


def _places_check(kind: Any) -> Callable[[Any], None] | None:
    """Raises ValueError for a value with a decimal whose point is too far to the left for Arrow. None where no value has one."""
    if pa.types.is_decimal(kind):
        most = kind.scale + _DECIMAL_PLACES

        def check(number: Decimal) -> None:
            exponent = number.as_tuple().exponent
            if isinstance(exponent, int) and -exponent > most:
                raise ValueError(f"a decimal has {-exponent} places after the point; {most} are allowed")

        return check
    if pa.types.is_struct(kind):
        fields = [(field.name, one) for field in kind if (one := _places_check(field.type)) is not None]

        def check_fields(value: dict[str, Any]) -> None:
            for name, one in fields:
                if (inner := value.get(name)) is not None:
                    try:
                        one(inner)
                    except ValueError as problem:
                        raise ValueError(f"field {name!r}: {problem}") from problem

        return check_fields if fields else None
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return None
    check_one = _places_check(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    if check_one is None:
        return None

    def check_all(value: Any) -> None:
        for inner in value.values() if isinstance(value, dict) else value:
            if inner is not None:
                check_one(inner)

    return check_all


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
