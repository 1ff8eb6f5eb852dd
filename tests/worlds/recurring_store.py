"""An open store with recurring messages alone, for tests: nothing sleeps, nothing runs in the background.

Rules of this file
1. The desk admits everything to queue 0; what brokers refuse is the broker's tests' business.
2. `kill` ends it as the kernel ends a process: what was written is there, nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from tests.worlds.little_store import SMALL, SteppedWorker, close_as_killed

from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.runner import Recurrences, Unstorable
from orbitmq.timing.recurrence.schedule import Occurrence
from orbitmq.timing.recurrence.state import Change, RecurringState, RunMessage

TOPIC = "T"


class OpenRuns:
    """A desk that refuses topics it is told to."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.committed: int | None = None

    def message_of(self, state: RecurringState, run: Occurrence, now_ms: int) -> NewMessage:
        topic = state.message.topic
        if topic in self.refused:
            raise Unstorable(self.refused[topic])
        values = {
            Property.UNIQ_KEY: run.id,
            Property.RECURRING: state.name,
            Property.PLANNED_MS: str(run.planned_ms),
            Property.RUN: str(state.generation),
        }
        return NewMessage(topic, 0, state.message.body, encode_properties(values), unique_key=run.id)

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.committed


class RecurringStore:
    """Opened and recovered; runs happen in `turn` and `advance`."""

    def __init__(
        self,
        root: Path,
        files: Files,
        clock: ManualClock,
        sender: OpenRuns,
        recurrences: Recurrences | None = None,
        **changes: Any,
    ) -> None:
        self.clock = clock
        self.worker = SteppedWorker()
        self.recurrences = Recurrences(clock) if recurrences is None else recurrences
        self.statuses: list[PutStatus] = []
        """What requests were told, in order."""
        self.store = open_store(
            root,
            msgspec.structs.replace(SMALL, **changes),
            files,
            clock,
            notify=lambda call: call(),
            derived=[self.recurrences],
            worker=self.worker,
        )
        self.recurrences.sender = sender
        self.recurrences.attach(self.store)

    def put(self, name: str, rule: Rule, *, topic: str = TOPIC, body: bytes = b"run") -> Change:
        change = self.recurrences.put(name, rule, RunMessage(topic, body), self.statuses.append)
        self.turn()
        return change

    def turn(self) -> None:
        """One turn of the loop; then the worker does what it was given."""
        self.store.run_due(self.clock.monotonic_ns())
        self.store.commit()
        self.worker.close()
        self.store.commit()

    def advance(self, ms: int) -> None:
        """Let time pass, from run to run."""
        until_ms = self.clock.now_ms() + ms
        while (now_ms := self.clock.now_ms()) < until_ms:
            due_ms = self.recurrences.next_due_ms
            at_ms = until_ms if due_ms is None else min(max(due_ms, now_ms + 200), until_ms)
            self.clock.advance(at_ms - now_ms)
            self.rest()

    def rest(self) -> None:
        """Everything that is due now happens, as far as the store takes it."""
        self.recurrences.clock_moved()
        for _ in range(64):
            self.turn()
            due_ms = self.recurrences.next_due_ms
            if due_ms is None or due_ms > self.clock.now_ms() or not self.store.writable:
                return
            self.recurrences.clock_moved()

    def records(self, topic: str = TOPIC) -> list[Record]:
        """Everything in queue 0 of a topic, in order."""
        queue = self.store.queues.get(topic, 0)
        if queue is None:
            return []
        found = []
        for physical, size, _ in queue.scan(queue.min_offset, queue.max_offset):
            view = self.store.log.read(physical, size)
            assert view is not None
            found.append(decode_record(view))
        return found

    def runs(self, topic: str = TOPIC) -> list[dict[str, str]]:
        """The properties of every stored run."""
        return [decode_properties(record.properties) for record in self.records(topic)]

    def kill(self) -> None:
        close_as_killed(self.store)
