"""Queue offsets of records that this store did not number, or that are not in its log.

Every record carries its number. A queue goes on behind the last one that is in the log, dispatched or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.errors import RecordError
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.queues import ConsumeQueues


def follow(queues: ConsumeQueues, entry: Dispatched) -> None:
    """Take note of the number that another broker gave a record: the next message of its queue gets the one behind it.

    RecordError when records of the queue are missing in between. A number 0 begins the queue again: its topic was deleted.
    """
    if entry.sys_flag & TRANSACTION_MASK and not entry.has_queue_unit:
        return
    queue = queues.known.get((entry.topic, entry.queue_id)) or queues.for_append(entry.topic, entry.queue_id)
    expected = queue.next_offset
    if entry.queue_offset > expected and (expected or queue.max_offset):
        raise RecordError(
            f"the record at {entry.physical_offset} is number {entry.queue_offset} of {entry.topic}/{entry.queue_id}, "
            f"where {expected} follows"
        )
    if entry.queue_offset >= expected or entry.queue_offset == 0:
        queue.next_offset = entry.queue_offset + 1


def renumber(queues: ConsumeQueues, gone: Iterable[Dispatched], left: Iterable[Dispatched]) -> None:
    """Free the numbers of records that did not come into the log, or are in it no more: their queues go on behind what they hold and
    what is `left` of the records that are not dispatched, in log order."""
    touched = {(entry.topic, entry.queue_id) for entry in gone if entry.has_queue_unit}
    for key in touched & queues.known.keys():
        queues.known[key].next_offset = queues.known[key].max_offset
    for entry in left:
        if (entry.topic, entry.queue_id) in touched and not queues.deleted.has(entry):
            follow(queues, entry)
