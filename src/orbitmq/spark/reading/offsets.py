"""Where a stream is in every queue, and which offset it goes to next.

Rules of this file
1. Pure. Offsets are `{queue: offset}` inside, and `{topic: {broker: {"0": offset}}}` for Spark's checkpoint, sorted: Spark compares
   the text.
2. Start and end of a batch alone say what it reads, so a batch that is run again reads the same. Hence a queue that is new to a stream
   *enters*: it stands in the end of one batch at the place where it begins, without rows, and is read from the next batch on.
3. A queue that is gone keeps its offset. Nothing is ever forgotten silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue

FORM: Final = "@form"
"""Beside the topics of a checkpoint's offsets, of which none can be named so: which form they are in. Without it, the first."""

KNOWN_FORM: Final = 1

Offsets = dict[MessageQueue, int]
Json = dict[str, dict[str, dict[str, int]]]


class Extent(NamedTuple):
    """What a queue holds: offsets from `low` on and below `high`."""

    low: int
    high: int


class Behind(NamedTuple):
    """How many messages of each queue a stream has not read yet: fewest, mean and most of a queue, and all together."""

    min: int
    avg: float
    max: int
    messages: int


class Loss(NamedTuple):
    """Messages that should be there and are not: offsets from `begin` on and below `end`; `present` is None where the queue is gone."""

    queue: MessageQueue
    begin: int
    end: int | None
    present: Extent | None

    @property
    def ends_before(self) -> bool:
        """The queue is there and ends before the place: it began anew, or a slave that lags answered for it."""
        return self.present is not None and self.begin > self.present.high


def to_json(offsets: Mapping[MessageQueue, int]) -> Json:
    """The form that Spark keeps, always in the same order."""
    found: Json = {}
    for queue in sorted(offsets):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return found


def to_checkpoint(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """The form that Spark keeps in a checkpoint, with which form it is."""
    return {FORM: KNOWN_FORM, **to_json(offsets)}


def from_checkpoint(value: Any) -> Offsets:
    """What `to_checkpoint` made, of this release or an earlier one. `ConfigurationError` for anything else."""
    form = value.get(FORM, KNOWN_FORM) if isinstance(value, dict) else KNOWN_FORM
    if form != KNOWN_FORM:
        raise ConfigurationError(
            f"the checkpoint holds offsets in form {form!r}, and this release reads form {KNOWN_FORM}",
            remedy="run the query with the release that wrote it or a later one, or give it another checkpointLocation",
        )
    return from_json(
        {topic: rest for topic, rest in value.items() if topic != FORM} if isinstance(value, dict) else value
    )


def from_json(value: Any) -> Offsets:
    """What `to_json` made. `ConfigurationError` for anything else, such as the offsets of another source."""
    try:
        topics = msgspec.convert(value, Json)
        return {
            MessageQueue(topic, broker_name, int(queue_id)): offset
            for topic, brokers in topics.items()
            for broker_name, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint holds no offsets of this source: {error}",
            remedy="use the checkpoint of this query, or another checkpointLocation for a new one",
        ) from error


def behind(position: Mapping[MessageQueue, int], extents: Mapping[MessageQueue, Extent]) -> Behind:
    """How far a stream that stands at `position` is behind. A queue that it has not entered yet counts whole."""
    first = first_there(position, extents)
    counts = [
        max(extent.high - max(position.get(queue, 0), first.get(queue, 0)), 0) for queue, extent in extents.items()
    ]
    total = sum(counts)
    return Behind(min(counts, default=0), total / max(len(counts), 1), max(counts, default=0), total)


def first_there(position: Mapping[MessageQueue, int], extents: Mapping[MessageQueue, Extent]) -> Offsets:
    """The oldest messages of queues in which a stream stands before them, or has not entered: from there on their messages count."""
    return {queue: extent.low for queue, extent in extents.items() if position.get(queue, 0) < extent.low}


def check_topics(start: Iterable[MessageQueue], topics: Iterable[str]) -> None:
    """Raises when a checkpoint is of a stream that reads other topics."""
    wanted, seen = sorted(set(topics)), sorted({queue.topic for queue in start})
    foreign = [topic for topic in seen if topic not in wanted]
    if foreign and len(foreign) == len(seen):
        raise ConfigurationError(
            f"the checkpoint belongs to a stream of {_names(seen)}, this one reads {_names(wanted)}",
            remedy="give this query a checkpointLocation of its own, or read those topics",
        )


def _names(topics: list[str]) -> str:
    return "no topic" if not topics else ("topic " if len(topics) == 1 else "topics ") + ", ".join(topics)


def losses(start: Mapping[MessageQueue, int], extents: Mapping[MessageQueue, Extent]) -> list[Loss]:
    """What a stream that stands at `start` cannot read any more, or not from there."""
    found: list[Loss] = []
    for queue, offset in sorted(start.items()):
        extent = extents.get(queue)
        if extent is None:
            found.append(Loss(queue, offset, None, None))
        elif offset < extent.low:
            found.append(Loss(queue, offset, extent.low, extent))
        elif offset > extent.high:
            found.append(Loss(queue, offset, None, extent))
    return found


def advance(
    start: Mapping[MessageQueue, int],
    extents: Mapping[MessageQueue, Extent],
    entries: Mapping[MessageQueue, int],
    limit: int | None,
) -> Offsets:
    """The end of the batch that begins at `start` and has at most about `limit` rows.

    extents: the queues there are; `high` is how far may be read. entries: where queues that are not in `start` enter; they bring no
    rows to this batch. A queue that begins anew, with offsets below where the stream stands, enters at its oldest message.
    """
    backlog: dict[MessageQueue, int] = {}
    end: Offsets = {}
    for queue, offset in start.items():
        extent = extents.get(queue)
        end[queue] = offset
        if extent is None:
            continue
        if offset > extent.high:
            end[queue] = extent.low
        elif offset < extent.high:
            backlog[queue] = extent.high - max(offset, extent.low)
    for queue, rows in share(backlog, limit).items():
        end[queue] = max(start[queue], extents[queue].low) + rows
    for queue, offset in entries.items():
        end.setdefault(queue, offset)
    return end


def share(backlog: Mapping[MessageQueue, int], limit: int | None) -> dict[MessageQueue, int]:
    """Rows of each queue: all of them, or `limit` in proportion to the backlog, and at least one of every queue that has any.

    The sum is the limit exactly, unless there are more queues than that.
    """
    waiting = {queue: rows for queue, rows in sorted(backlog.items()) if rows > 0}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return waiting
    shares = {queue: max(1, rows * limit // total) for queue, rows in waiting.items()}
    spare = limit - sum(shares.values())
    by_size = sorted(waiting, key=lambda queue: waiting[queue] - shares[queue], reverse=True)
    for queue in by_size:  # what rounding left, to those that wait longest
        if spare <= 0:
            break
        more = min(1, waiting[queue] - shares[queue])
        shares[queue] += more
        spare -= more
    for queue in sorted(shares, key=lambda queue: shares[queue], reverse=True):  # what the ones at least took away
        if spare >= 0:
            break
        less = min(shares[queue] - 1, -spare)
        shares[queue] -= less
        spare += less
    return shares
