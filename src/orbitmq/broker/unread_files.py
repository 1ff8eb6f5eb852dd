"""What groups had not read of the files that retention takes.

Rules of this file
1. Counted is what went between a group's offset, or the queue's beginning where that was higher, and the queue's new beginning. A group
   without an offset on a queue misses nothing that could be told; those of the broker and of tools are no readers.
2. A bounded number of groups is looked at, however many offsets strangers left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from orbitmq.broker.offsets import SEPARATOR, OffsetTable
from orbitmq.limits.store import UNREAD_PAIRS_MAX
from orbitmq.protocol.names import is_users_group
from orbitmq.store.housekeeping import Unread
from orbitmq.store.store import MessageStore


def going_unread(offsets: OffsetTable, store: MessageStore) -> Callable[[], list[Unread]]:
    """Called before files go; the answer, called after that, tells what went unread, most first. Costs 1 us a queue, twice."""
    firsts = {(queue.topic, queue.queue_id): queue.min_offset for queue in store.queues}

    def missed(topic: str, queue_id: int, offset: int) -> int:
        queue = store.queues.get(topic, queue_id)
        return 0 if queue is None else max(queue.min_offset - max(offset, firsts.get((topic, queue_id), 0)), 0)

    def went() -> list[Unread]:
        found = []
        for key in islice(offsets.recorded_keys(), UNREAD_PAIRS_MAX):
            topic, _, group = key.partition(SEPARATOR)
            if not is_users_group(group):
                continue
            count = sum(missed(topic, queue_id, offset) for queue_id, offset in offsets.queues(group, topic).items())
            if count:
                found.append(Unread(group, topic, count))
        return sorted(found, key=lambda one: -one.messages)

    return went
