"""Where a reset puts a group's offset on one queue.

Rules of this file
1. Decisions only; the bounds of the queue and what its broker found are passed in.
2. An offset outside the queue is refused, never moved to its edge.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue


class ResetTo(Enum):
    """What the new offset is."""

    EARLIEST = "earliest"
    """The oldest message that the broker still has."""
    LATEST = "latest"
    """The end: everything stored so far is skipped."""
    TIME = "time"
    """The first message stored at or after an instant."""
    OFFSET = "offset"
    """A given number."""


class OffsetMove(NamedTuple):
    """One queue of a reset. before: None when the group had no offset there."""

    queue: MessageQueue
    before: int | None
    after: int


def check_reset(to: ResetTo, at_ms: int | None, offset: int | None) -> None:
    """`ConfigurationError` unless exactly what `to` needs is given."""
    if (to is ResetTo.TIME) != (at_ms is not None) or (to is ResetTo.OFFSET) != (offset is not None):
        raise ConfigurationError(
            f"a reset to {to.name} with at_ms={at_ms} and offset={offset}",
            remedy="give at_ms with ResetTo.TIME, offset with ResetTo.OFFSET, and neither otherwise",
        )


def planned_offset(
    to: ResetTo, queue: MessageQueue, first: int, end: int, found: int | None, offset: int | None
) -> int:
    """The new offset of one queue that holds `first` to `end - 1`. found: the broker's answer for the instant."""
    match to:
        case ResetTo.EARLIEST:
            return first
        case ResetTo.LATEST:
            return end
        case ResetTo.TIME:
            assert found is not None
            return min(max(found, first), end)
        case ResetTo.OFFSET:
            assert offset is not None
            if not first <= offset <= end:
                raise ConfigurationError(
                    f"offset {offset} is outside queue {queue.broker_name}/{queue.queue_id} of topic {queue.topic!r}, "
                    f"which holds {first} to {end}",
                    remedy="choose an offset within, or a queue with --queue and --broker",
                )
            return offset
