"""Finished epochs of idempotent sends in the log: a copy that was not told would keep the keys of every batch until they are too old, and
take no idempotent send once it leads, because there is no room.

Rules of this file
1. An end is taken up and never taken back: what is forgotten here for its age or for room is forgotten by each broker by itself. A record
   that a name is gone only ends its last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from orbitmq.broker.idempotence.finished import Finished
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.clock import Clock
from orbitmq.protocol.remoting.bodies import DataVersion


class RecordedFinishedEpochs:
    """A key is the name of a scope or batch; its value `[epoch, mark, brief]`."""

    record_name: ClassVar[str] = "finishedEpochs"
    is_gathered: ClassVar[bool] = True

    def __init__(self, idempotence: Idempotence, clock: Clock) -> None:
        self._idempotence = idempotence
        self._finished = idempotence.memory.finished
        self._clock = clock
        self.version = DataVersion()
        self.changes: KeyChanges = idempotence.memory.finished.changes

    def recorded_keys(self) -> Iterable[str]:
        return [name for name, _ in self._finished]

    def recorded_value(self, key: str) -> bytes | None:
        finished = self._finished.get(key)
        return None if finished is None else msgspec.json.encode(finished)

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        now_ms = self._clock.now_ms()
        for name, value in values.items():
            if value is not None:
                self._idempotence.finish(name, msgspec.json.decode(value, type=Finished), now_ms)
        self.changes.discard(values)

    def differs(self, key: str, value: bytes | None) -> bool:
        return value is not None and self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        return False
