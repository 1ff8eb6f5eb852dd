"""Whether the store takes messages, and why not.

Rules of this file
1. Two kinds of reasons. A *stop* forbids every append: the disk is full, a sync failed, the store is closed, or it is a copy, which grows
   by the bytes of another log alone (`copying_stops`). A *withholding* forbids new messages only: what was taken in before, such as
   delayed messages that are due, is still appended, because delivering it is what lets its files go.
2. Each reason has a name and is lifted under it. The first occurrence of a reason is reported, repetitions are not, nor is anything once
   the store is closed: whoever closed it has the last word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

logger = logging.getLogger("orbitmq.store")

FATAL, CLOSED, SPACE, COPY = "fatal", "closed", "space", "copy"


class Writability:
    __slots__ = ("stops", "withheld")

    def __init__(self) -> None:
        self.stops: dict[str, str] = {}
        """Name -> reason; read directly by the store, whose appends ask for nothing else."""
        self.withheld: dict[str, str] = {}

    @property
    def is_open(self) -> bool:
        """Whether new messages are taken."""
        return not self.stops and not self.withheld

    @property
    def copying_stops(self) -> bool:
        """Whether bytes of another log cannot be appended either."""
        return bool(self.stops) and (len(self.stops) > 1 or COPY not in self.stops)

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more until a restart."""
        return FATAL in self.stops or CLOSED in self.stops

    @property
    def reason(self) -> str:
        return "; ".join([*self.stops.values(), *self.withheld.values()])

    @property
    def trouble(self) -> str:
        """Why nothing is written, other than that this log copies another one; empty where nothing is wrong."""
        return "; ".join([*(why for name, why in self.stops.items() if name != COPY), *self.withheld.values()])

    def stop(self, name: str, reason: str) -> None:
        self._report(self.stops, name, reason)
        self.stops[name] = reason

    def withhold(self, name: str, reason: str) -> None:
        self._report(self.withheld, name, reason)
        self.withheld[name] = reason

    def _report(self, known: Mapping[str, str], name: str, reason: str) -> None:
        if name not in known and CLOSED not in self.stops:
            logger.error("no messages are accepted: %s", reason)

    @contextmanager
    def set_aside(self, name: str) -> Iterator[str | None]:
        """A stop of that name counts for nobody meanwhile; its reason, None where there is none."""
        reason = self.stops.pop(name, None)
        try:
            yield reason
        finally:
            if reason is not None:
                self.stops.setdefault(name, reason)

    def allow(self, name: str) -> None:
        """Lift the reason of that name, of either kind; nothing happens when there is none."""
        known = self.stops.pop(name, None) or self.withheld.pop(name, None)
        if known is not None and self.is_open:
            logger.warning("messages are accepted again")
