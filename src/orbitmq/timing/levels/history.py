"""Which level list was in force when: the due time of a delayed message that does not carry its own.

Messages accepted by orbitmq carry their due time as a property. For those of RocketMQ it stands in the consume queue;
only when that is lost it must be computed again, with the list of the time when the message was stored.

Rules of this file
1. The history only grows, by one entry per change of the list.
2. Loading writes nothing, because it comes before the store is locked; `keep` comes after.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile

HISTORY_FILE: Final = "orbitmqDelayLevels.json"
UNKNOWN_LEVEL_DELAY_MS: Final = 1_000
"""What RocketMQ takes for a level that is not in its list."""


class Period(msgspec.Struct, frozen=True):
    from_ms: int
    levels: str


class LevelHistory:
    """The lists by the time from which they held; the last one is in force."""

    __slots__ = ("_file", "_kept", "_parsed", "periods")

    def __init__(self, file: ConfigFile, periods: list[Period], *, kept: bool) -> None:
        self._file = file
        self._kept = kept
        self.periods = periods
        self._parsed = [(period.from_ms, DelayLevels.parse(period.levels)) for period in periods]

    @classmethod
    def load(cls, file: ConfigFile, current: DelayLevels, now_ms: int) -> LevelHistory:
        """Read the history and, when the list has changed, extend it in memory."""
        table = file.load() or {}
        try:
            periods = msgspec.convert(table.get("periods", []), list[Period])
            history = cls(file, periods, kept=True)
        except (msgspec.ValidationError, ConfigurationError) as error:
            raise ConfigurationError(
                f"{file.path} cannot be read: {error}", remedy="restore it from its .bak, or remove both"
            ) from error
        if periods and history._parsed[-1][1] == current:
            return history
        return cls(file, [*periods, Period(now_ms if periods else 0, current.text)], kept=False)

    def keep(self) -> None:
        """Write the history if it was extended; durable on return. Only by the owner of the store's lock."""
        if not self._kept:
            self._file.save({"periods": self.periods})
            self._kept = True

    def due_time(self, properties: dict[str, str], store_timestamp: int) -> int:
        """Due time in ms of a record in the schedule topic."""
        own = properties.get(Property.DUE_MS)
        if own is not None and own.isascii() and own.isdigit():
            return int(own)
        text = properties.get(Property.DELAY, "")
        level = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        levels = next((found for at, found in reversed(self._parsed) if at <= store_timestamp), self._parsed[0][1])
        level = levels.clamp(level)
        return store_timestamp + (levels.delay_ms(level) if level > 0 else UNKNOWN_LEVEL_DELAY_MS)
