"""Topics that were deleted, and where in the log: sends before that place are no first sends any more.

Rules of this file
1. Pure. An end is kept while a send is remembered that lies before it, and no longer.
2. Bounded by name. When there are too many, the oldest one ends the sends of all topics before it: what is stored twice is a
   nuisance, what is not stored is a loss.
"""

from __future__ import annotations

from typing import Final

from orbitmq.limits.broker import ONCE_ENDED_TOPICS_MAX

EVERY_TOPIC: Final = ""
"""In place of a name."""


class EndedTopics:
    """False while there is none. Cost of `position`: two look-ups."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        """In the order of the deletions."""

    def __bool__(self) -> bool:
        return bool(self._positions)

    def position(self, topic: str) -> int:
        """Sends to the topic that lie below count no more; 0 when all do."""
        get = self._positions.get
        return max(get(topic, 0), get(EVERY_TOPIC, 0))

    def of(self, topic: str) -> int | None:
        """What was said of this name alone."""
        return self._positions.get(topic)

    def items(self) -> list[tuple[str, int]]:
        return list(self._positions.items())

    def add(self, topic: str, position: int) -> None:
        """The topic was deleted when the log was that long."""
        position = max(position, self._positions.pop(topic, 0))
        self._positions[topic] = position

    def keep_few(self) -> None:
        """Let the oldest end stand for every topic while there are too many."""
        positions = self._positions
        while len(positions) > ONCE_ENDED_TOPICS_MAX:
            oldest = next(name for name in positions if name != EVERY_TOPIC)
            self.add(EVERY_TOPIC, positions.pop(oldest))

    def forget_below(self, first_position: int | None) -> None:
        """Forget the ends before which nothing is remembered: all of them when there is no first position."""
        self._positions = {
            topic: position
            for topic, position in self._positions.items()
            if first_position is not None and position > first_position
        }

    def cut(self, log_end: int) -> None:
        """The log ends there after a crash: what comes now comes after every deletion."""
        self._positions = {topic: min(position, log_end) for topic, position in self._positions.items()}
