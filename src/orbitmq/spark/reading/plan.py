"""Ranges of offsets become Spark partitions.

Rules of this file
1. Pure, and the same for the same ranges and options: a batch that is run again has the same partitions.
2. A large range is split, small ones of one batch share a partition. The order of a queue is kept inside a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from orbitmq.limits.spark import SPARK_MERGED_ROWS, SPARK_PARTITIONS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue


class QueueRange(msgspec.Struct, frozen=True, order=True):
    """Offsets of a queue from `begin` on and below `end`."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin


def ranges(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """What lies between two places of a stream. A queue that only `end` names has entered and is not read yet."""
    return [
        QueueRange(queue, start[queue], stop) for queue, stop in sorted(end.items()) if start.get(queue, stop) < stop
    ]


def partitions(
    found: Iterable[QueueRange], *, min_partitions: int | None = None, max_rows: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """The ranges of each partition.

    max_rows: no partition has more. min_partitions: about so many, if there are rows enough. Without either, ranges of few rows are
    put together.
    """
    whole = sorted(piece for piece in found if piece.count > 0)
    total = sum(piece.count for piece in whole)
    if not total:
        return []
    largest = max_rows if max_rows is not None else total
    if min_partitions is not None and min_partitions > len(whole):
        largest = min(largest, -(-total // min_partitions))
    largest = max(largest, -(-total // SPARK_PARTITIONS_MAX))
    pieces = [part for piece in whole for part in _split(piece, largest)]
    room = min(SPARK_MERGED_ROWS, largest)
    if min_partitions is not None:
        room = min(room, total // min_partitions)
    return _merge(pieces, room)


def _split(piece: QueueRange, largest: int) -> list[QueueRange]:
    """Parts of equal size, none above `largest`."""
    count = -(-piece.count // largest)
    cuts = [piece.begin + piece.count * i // count for i in range(count + 1)]
    return [QueueRange(piece.queue, low, high) for low, high in pairwise(cuts)]


def _merge(pieces: list[QueueRange], room: int) -> list[tuple[QueueRange, ...]]:
    """Neighbours together while they have at most `room` rows."""
    merged: list[tuple[QueueRange, ...]] = []
    open_count = 0
    for piece in pieces:
        if merged and open_count + piece.count <= room:
            merged[-1] = (*merged[-1], piece)
            open_count += piece.count
        else:
            merged.append((piece,))
            open_count = piece.count
    return merged
