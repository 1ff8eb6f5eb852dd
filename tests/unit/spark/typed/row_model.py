"""What a JSON body is by the plain rules: Python's `json`, one body, one field at a time. The judge of the decoders of many."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

MISSING = object()


class Unfit(Exception):
    """The value is none of the type."""


def json_payload(body: bytes, kind: pa.DataType) -> Any:
    """The payload, or `Unfit`."""
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_no_constant, parse_float=Number, parse_int=Number)
    except (ValueError, RecursionError) as problem:
        raise Unfit from problem
    if re.search(r"(?i)\\u(d[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab]..\\u)d[c-f])", text):
        raise Unfit
    return fit(value, kind)


class Number(str):
    """A number as it is written."""


def _no_constant(name: str) -> None:
    raise ValueError(name)


def fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise Unfit
        return {field.name: fit(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise Unfit
        return [fit(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise Unfit
        return [(name, fit(one, kind.item_type)) for name, one in value.items()]
    return _scalar(value, kind)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return _if(isinstance(value, bool), lambda: value)
    if isinstance(value, bool | dict | list):
        raise Unfit
    if pa.types.is_integer(kind):
        whole = isinstance(value, Number) and re.fullmatch(r"-?\d+", value) is not None
        bound = 2 ** (kind.bit_width - 1)
        return _if(whole and -bound <= int(value) < bound, lambda: int(value))
    if pa.types.is_floating(kind):
        return _if(isinstance(value, Number) and abs(float(value)) != float("inf"), lambda: float(value))
    if pa.types.is_decimal(kind):
        try:
            exact = Decimal(value)
            fitted = exact.quantize(Decimal(1).scaleb(-kind.scale))
        except InvalidOperation as problem:
            raise Unfit from problem
        return _if(exact == fitted and abs(exact) < 10 ** (kind.precision - kind.scale), lambda: fitted)
    if isinstance(value, Number):
        raise Unfit
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        try:
            return pa.array([value], pa.string()).cast(kind)[0].as_py()
        except pa.ArrowInvalid as problem:
            raise Unfit from problem
    return value


def _if(fits: bool, value: Callable[[], Any]) -> Any:
    if not fits:
        raise Unfit
    return value()
