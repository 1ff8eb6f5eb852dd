"""Entries of many queues in the order of the log, as what each queue gets of them together."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.leaf import twin
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.dispatch import Dispatched

QueueRun = tuple[str, int, int, bytes | bytearray, int, int]
"""Records of one queue that have consecutive numbers: topic, queue id, number of the first, their units, and the log positions at which the
first begins and the last ends."""


@twin
def queue_runs(entries: Sequence[Dispatched], alone: str) -> list[QueueRun] | None:
    """A `QueueRun` of each queue that gets units of these entries, in the order of their first ones.

    None where they have to be looked at one by one: a queue has other numbers in between, or some entry is of the topic `alone`.
    Cost: 0.3 us an entry; 1.2 us without the extension.
    """
    groups: dict[tuple[str, int], list[Dispatched]] = {}
    for entry in entries:
        if entry.topic == alone:
            return None
        if entry.has_queue_unit:
            groups.setdefault((entry.topic, entry.queue_id), []).append(entry)
    found: list[QueueRun] = []
    for (topic, queue_id), group in groups.items():
        units = bytearray()
        first, last = group[0], group[0]
        for number, entry in enumerate(group, first.queue_offset):
            if entry.queue_offset != number or (units and entry.physical_offset < last.end_offset):
                return None
            units += UNIT.pack(entry.physical_offset, entry.size, entry.tags_code)
            last = entry
        found.append((topic, queue_id, first.queue_offset, units, first.physical_offset, last.end_offset))
    return found
