"""What is in flight over an orderly stop: a file of its own, `config/orbitmqPop.json`.

The committed offset of a group says what is settled without a gap. Beyond it this file says what is in flight, so that what was
acknowledged there does not return, receipts stay good, and messages reappear at their time.

    {"inFlight": {"topic@group": {"<queue id>": {"next": offset, "runs": [[first offset, size, pop time, due time], ...]}}}}

Rules of this file
1. It is written at a stop and emptied at the start that has read it: after a crash there is nothing old to be believed.
2. It counts only where it fits the committed offset, and as far as the log goes. Otherwise what was in flight is delivered again.
3. RocketMQ does not know it. A Java broker that takes the store over delivers again whatever lies beyond the committed offset.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.offsets import SEPARATOR
from orbitmq.broker.pop.in_flight import LEAVING, InFlight, PopQueue
from orbitmq.broker.table_saving import read_table

logger = logging.getLogger("orbitmq.broker")

FILE = "orbitmqPop.json"


class _SavedQueue(msgspec.Struct):
    next: int
    runs: list[tuple[int, int, int, int]]


class _PopFile(msgspec.Struct, rename="camel"):
    in_flight: dict[str, dict[int, _SavedQueue]] = {}


class PopState:
    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._file = core.facilities.tables(FILE)

    def load(self, in_flight: InFlight) -> None:
        """Put back what was in flight at the stop. Raises `StoreDamagedError` for an unusable file, OSError when it cannot be emptied."""
        document = self._file.load()
        if not document:
            return
        saved = read_table(document, _PopFile, FILE, "what is in flight")
        for name, queues in saved.in_flight.items():
            topic, _, group = name.partition(SEPARATOR)
            for queue_id, queue in queues.items():
                self._restore(in_flight, PopQueue(topic, group, queue_id), queue)
        self._file.save({})

    def _restore(self, in_flight: InFlight, key: PopQueue, saved: _SavedQueue) -> None:
        committed = self._core.offsets.query(key.group, key.topic, key.queue_id)
        end = self._core.store.max_offset(key.topic, key.queue_id)
        runs = [(first, min(size, end - first), popped, due) for first, size, popped, due in saved.runs if first < end]
        if not runs or committed != runs[0][0]:
            logger.warning(
                "what group %s had in flight of queue %d of %s does not fit its offset %s: it is delivered again",
                key.group, key.queue_id, key.topic, committed,
            )  # fmt: skip
            return
        queue = in_flight.open(key, committed)
        for first, size, popped_ms, due_ms in runs:
            queue.take(range(first, first + size), first + size, popped_ms, due_ms)
        queue.next_offset = max(queue.next_offset, min(saved.next, end))

    def save(self, in_flight: InFlight) -> None:
        """Raises OSError."""
        if in_flight.message_count:
            self._file.save(document_of(in_flight))


def document_of(in_flight: InFlight) -> Mapping[str, object]:
    """The content of the file. A message that was being stored again is due at once."""
    tables: dict[str, dict[str, object]] = {}
    for key, queue in in_flight.queues.items():
        runs = [[*run[:3], 1 if run.due_ms == LEAVING else run.due_ms] for run in queue.runs()]
        if runs:
            table = tables.setdefault(f"{key.topic}{SEPARATOR}{key.group}", {})
            table[str(key.queue_id)] = {"next": queue.next_offset, "runs": runs}
    return {"inFlight": tables}
