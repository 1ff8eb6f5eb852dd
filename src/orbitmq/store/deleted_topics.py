"""Topics that were deleted while records of theirs were not dispatched yet: these get no place in a queue any more."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.store.dispatch import Dispatched


class DeletedTopics:
    """True while there are any; each is forgotten when dispatch has passed its deletion."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        """Topic -> log position below which its messages count no more."""

    def __bool__(self) -> bool:
        return bool(self._ends)

    def add(self, topic: str, log_end: int) -> None:
        self._ends[topic] = log_end

    def has(self, entry: Dispatched) -> bool:
        """Whether the topic of a record was deleted after it was written."""
        return entry.physical_offset < self._ends.get(entry.topic, 0)

    def left_of(self, entries: Sequence[Dispatched]) -> list[Dispatched]:
        """Those that still count, of the next ones in log order; at least one."""
        kept = [entry for entry in entries if not self.has(entry)]
        if entries[-1].physical_offset >= max(self._ends.values()):
            self._ends.clear()
        return kept

    def cut(self, to: int) -> None:
        """What the log held from `to` on is gone: what comes there next is no record of a deleted topic."""
        self._ends = {topic: min(end, to) for topic, end in self._ends.items()}
