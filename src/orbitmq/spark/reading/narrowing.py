"""What the filters of a query say about which queues and offsets it can want.

Rules of this file
1. Filters only narrow: whatever is not understood narrows nothing, and Spark compares the rows again.
2. A store time narrows from below only. Store times rise along a queue, unless the broker's clock was set back; then rows in between
   may be missed, as with startingTimestamp. That is why all of it is used only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

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
    if isinstance(each, EqualTo | EqualNullSafe | In):
        values = frozenset(each.value if isinstance(each, In) else (each.value,)) - {None}
        return _among(found, name, values)
    if not isinstance(each, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return found
    value = each.value
    if name == "queueOffset" and isinstance(value, int):
        if isinstance(each, GreaterThan | GreaterThanOrEqual):
            lowest = value + 1 if isinstance(each, GreaterThan) else value
            return msgspec.structs.replace(found, begin=max(found.begin, lowest))
        end = value if isinstance(each, LessThan) else value + 1
        return msgspec.structs.replace(found, end=min(found.end, max(end, 0)))
    if name == "storeTimestamp" and isinstance(each, GreaterThan | GreaterThanOrEqual):
        return _stored_from(found, value)
    return found


def _among(found: Narrowing, name: str, values: frozenset[object]) -> Narrowing:
    """`name` is one of `values`."""
    if name in _NAMED:
        field, kind = _NAMED[name]
        if not all(isinstance(value, kind) for value in values):
            return found
        before = getattr(found, field)
        return msgspec.structs.replace(found, **{field: values if before is None else before & values})
    numbers = [value for value in values if isinstance(value, int)]
    if name == "queueOffset" and numbers and len(numbers) == len(values):
        return msgspec.structs.replace(
            found, begin=max(found.begin, min(numbers)), end=min(found.end, max(max(numbers) + 1, 0))
        )
    if name == "storeTimestamp" and len(values) == 1:
        [value] = values
        return _stored_from(found, value)
    return found


_NAMED: dict[str, tuple[str, type]] = {
    "topic": ("topics", str),
    "brokerName": ("brokers", str),
    "queueId": ("queue_ids", int),
}


def _stored_from(found: Narrowing, value: object) -> Narrowing:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return found
    at_ms = moment_ms(value)
    return msgspec.structs.replace(found, stored_from_ms=max(found.stored_from_ms or 0, at_ms))
