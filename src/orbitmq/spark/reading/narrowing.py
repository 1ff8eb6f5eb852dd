"""What the filters of a query say about which queues and offsets it can want.

Rules of this file
1. Filters only narrow: whatever is not understood narrows nothing, and Spark compares the rows again.
2. A store time narrows from below only. Store times rise along a queue, unless the broker's clock was set back; then rows in between
   may be missed, as with startingTimestamp. That is why all of it is used only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.instants import moment_ms
from orbitmq.spark.reading.plan import QueueRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_ALL_BELOW = 2**63


class Narrowing(msgspec.Struct, frozen=True):
    """Allowed values; None for any. `begin` and `end` bound the queue offset, `stored_from_ms` the store time."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    begin: int = 0
    end: int = _ALL_BELOW
    stored_from_ms: int | None = None

    def apply(self, piece: QueueRange) -> QueueRange | None:
        """The part of a range that can hold wanted rows; None for none."""
        queue = piece.queue
        for allowed, value in (
            (self.topics, queue.topic),
            (self.brokers, queue.broker_name),
            (self.queue_ids, queue.queue_id),
        ):
            if allowed is not None and value not in allowed:
                return None
        begin, end = max(piece.begin, self.begin), min(piece.end, self.end)
        return QueueRange(queue, begin, end) if begin < end else None


def narrowing(filters: Iterable[Filter]) -> Narrowing:
    """What all of these filters together allow."""
    found = Narrowing()
    for each in filters:
        found = _with(found, each)
    return found


def _with(found: Narrowing, each: Filter) -> Narrowing:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )

    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    is_lower = isinstance(each, GreaterThan | GreaterThanOrEqual)
    is_upper = isinstance(each, LessThan | LessThanOrEqual)
    is_one_of = isinstance(each, EqualTo | EqualNullSafe | In)
    if name not in (*_NAMED, "queueOffset", "storeTimestamp") or not (is_lower or is_upper or is_one_of):
        return found
    value: Any = getattr(each, "value", None)
    values = frozenset(value if isinstance(each, In) else (value,)) - {None}
    if name in _NAMED and is_one_of:
        field, kind = _NAMED[name]
        if all(isinstance(value, kind) for value in values):
            before = getattr(found, field)
            return msgspec.structs.replace(found, **{field: values if before is None else before & values})
    if name == "queueOffset" and values and all(isinstance(value, int) for value in values):
        begin = found.begin if is_upper else max(found.begin, min(values) + isinstance(each, GreaterThan))
        end = found.end if is_lower else min(found.end, max(max(values) + (not isinstance(each, LessThan)), 0))
        return msgspec.structs.replace(found, begin=begin, end=end)
    if name == "storeTimestamp" and len(values) == 1 and not is_upper:
        [value] = values
        if isinstance(value, datetime) and value.tzinfo is not None:
            stored_from_ms = max(found.stored_from_ms or 0, moment_ms(value))
            return msgspec.structs.replace(found, stored_from_ms=stored_from_ms)
    return found


_NAMED: dict[str, tuple[str, type]] = {
    "topic": ("topics", str),
    "brokerName": ("brokers", str),
    "queueId": ("queue_ids", int),
}
