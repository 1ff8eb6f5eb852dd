"""The lists of delay levels that were in force, as a recorded table: a new leader computes due times as the old one did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.clock import Clock
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.timing.levels.history import LevelHistory, Period

_KEY: Final = "periods"


class RecordedLevelLists:
    """One key. A history that is what every broker begins with is not recorded."""

    record_name: ClassVar[str] = "delayLevels"
    is_gathered: ClassVar[bool] = False

    def __init__(self, history: LevelHistory, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self.version = DataVersion()
        self.changes = KeyChanges()

    def recorded_keys(self) -> Iterable[str]:
        return () if self._history.is_usual else (_KEY,)

    def recorded_value(self, key: str) -> bytes | None:
        return None if key != _KEY or self._history.is_usual else msgspec.json.encode(self._history.periods)

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        value = values.get(_KEY)
        if value is not None:
            periods = msgspec.json.decode(value, type=list[Period])
            if self._history.take(periods, self._clock.now_ms()):
                self.changes.note(_KEY)

    def differs(self, key: str, value: bytes | None) -> bool:
        return self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """The log has older lists, and this broker perhaps another one since; see `LevelHistory.take`."""
        return False

    def save(self) -> None:
        self._history.keep()
