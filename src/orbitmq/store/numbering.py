"""Queue offsets of records that this store did not number, or that are not in its log.

Every record carries its number. A queue goes on behind the last one that is in the log, dispatched or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orbitmq.errors import RecordError
from orbitmq.store.consume_queue import UNIT_BYTES
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.queues import ConsumeQueues


def follow(queues: ConsumeQueues, entries: Sequence[Dispatched]) -> None:
    """Take note of the numbers that another broker gave records, in log order: the next message of a queue gets the one behind them.

    RecordError when records of a queue are missing in between. A number 0 begins the queue again: its topic was deleted.
    """
    runs = queues.runs(entries)
    if runs is None:
        for entry in entries:
            if entry.has_queue_unit:
                _note(queues, entry.topic, entry.queue_id, entry.queue_offset, 1, entry.physical_offset)
    else:
        for topic, queue_id, first, units, begin, _ in runs:
            _note(queues, topic, queue_id, first, len(units) // UNIT_BYTES, begin)


def _note(queues: ConsumeQueues, topic: str, queue_id: int, first: int, count: int, position: int) -> None:
    queue = queues.known.get((topic, queue_id)) or queues.for_append(topic, queue_id)
    expected = queue.next_offset
    if first > expected and (expected or queue.max_offset):
        raise RecordError(f"the record at {position} is number {first} of {topic}/{queue_id}, where {expected} follows")
    if first + count > expected or first == 0:
        queue.next_offset = first + count


def renumber(queues: ConsumeQueues, gone: Iterable[Dispatched], left: Iterable[Dispatched]) -> None:
    """Free the numbers of records that did not come into the log, or are in it no more: their queues go on behind what they hold and
    what is `left` of the records that are not dispatched, in log order."""
    touched = {(entry.topic, entry.queue_id) for entry in gone if entry.has_queue_unit}
    for key in touched & queues.known.keys():
        queues.known[key].next_offset = queues.known[key].max_offset
    follow(
        queues,
        [entry for entry in left if (entry.topic, entry.queue_id) in touched and not queues.deleted.has(entry)],
    )
