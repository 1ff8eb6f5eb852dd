"""Which level list was in force when: the due time of a delayed message that does not carry its own.

Messages accepted by orbitmq carry their due time as a property. For those of RocketMQ it stands in the consume queue;
only when that is lost it must be computed again, with the list of the time when the message was stored.

Rules of this file
1. The history only grows, by one entry per change of the list; a copy takes that of its log.
2. Loading writes nothing, because it comes before the store is locked; `keep` comes after.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def _parsed(periods: Sequence[Period]) -> list[tuple[int, DelayLevels]]:
    return [(period.from_ms, DelayLevels.parse(period.levels)) for period in periods]


class LevelHistory:
    """The lists by the time from which they held; the last one is in force."""

    __slots__ = ("_current", "_file", "_kept", "_parsed", "periods")

    def __init__(self, file: ConfigFile, periods: list[Period], current: DelayLevels, *, kept: bool) -> None:
        self._file = file
        self._kept = kept
        self._current = current
        self.periods = periods
        self._parsed = _parsed(periods)

    @classmethod
    def load(cls, file: ConfigFile, current: DelayLevels, now_ms: int) -> LevelHistory:
        """Read the history and, when the list has changed, extend it in memory."""
        table = file.load() or {}
        try:
            periods = msgspec.convert(table.get("periods", []), list[Period])
            history = cls(file, periods, current, kept=True)
        except (msgspec.ValidationError, ConfigurationError) as error:
            raise ConfigurationError(
                f"{file.path} cannot be read: {error}", remedy="restore it from its .bak, or remove both"
            ) from error
        if periods and history._parsed[-1][1] == current:
            return history
        return cls(file, [*periods, Period(now_ms if periods else 0, current.text)], current, kept=False)

    @property
    def is_usual(self) -> bool:
        """Whether nothing but RocketMQ's own list was ever in force."""
        return len(self.periods) == 1 and self._parsed[0][1] == DelayLevels.parse()

    def take(self, periods: Sequence[Period], now_ms: int) -> bool:
        """The log says that these lists were in force; that of this broker is from now on, where it is another one or was begun since.
        Whether the history says more than the log. Raises ConfigurationError for a list that is none."""
        begun = [own for own in self.periods if own.from_ms > periods[-1].from_ms] if periods else self.periods
        extended = [*periods, *begun]
        if _parsed(extended[-1:])[0][1] != self._current:
            extended.append(Period(now_ms, self._current.text))
        if extended != self.periods:
            self._parsed = _parsed(extended)
            self.periods = extended
            self._kept = False
        return len(extended) > len(periods)

    def keep(self) -> None:
        """Write the history if it was extended; durable on return. Only by the owner of the store's lock."""
        if not self._kept:
            self._kept = True
            try:
                self._file.save({"periods": self.periods})
            except OSError:
                self._kept = False
                raise

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
