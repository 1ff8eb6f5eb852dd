"""When a message was or is due, from its properties.

The first of these that is a number of at most 15 digits counts: our due time of a waiting message; the time that its sender stated, unless
a delay came with it, which then had counted; the slot in which a broker put it, which lies up to a second before
its due time. A message with none of them has no due time: a delay level leaves none on what it delivered.

Rules of this file
1. A time that is no number, or lies outside of what a timestamp of microseconds holds, is none.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.columns.properties import Entries
from orbitmq.columns.schema import TIME
from orbitmq.protocol.properties import Property

_NUMBER: Final = r"^[+-]?[0-9]{1,15}$"
"""A number of milliseconds: a longer one has no place in a timestamp of microseconds."""


def due_times(entries: Entries) -> Any:
    """By message, null where it has none."""
    stated = _milliseconds(entries.values(Property.TIMER_DELIVER_MS))
    if stated.null_count < len(stated):
        for name in (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS):
            delay = entries.values(name)
            if delay.null_count < len(delay):
                stated = pc.if_else(pc.is_valid(delay), pa.scalar(None, pa.int64()), stated)
    due = _milliseconds(entries.values(Property.DUE_MS))
    slot = _milliseconds(entries.values(Property.TIMER_OUT_MS))
    times = pc.coalesce(due, stated, slot)
    return pc.multiply(times, 1000).cast(TIME)


def _milliseconds(texts: Any) -> Any:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    is_number = pc.match_substring_regex(texts, _NUMBER)
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.string()))
    return pc.utf8_ltrim(numbers, "+").cast(pa.int64())
