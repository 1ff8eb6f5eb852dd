"""The account of a run: what was sent, what came back, and what must not have happened.

Rules of this file
1. Numbers in, findings out; no clock, no network. The account is told of a delivery when the program gets the message, not
   when it settles it.
2. A message whose send returned must arrive. One whose send failed "not stored" must not. One whose send failed
   "perhaps stored" may.
3. Deliveries may repeat, but first deliveries of one queue come in the order of its offsets.
4. `copies` counts stored copies, told by somebody who read the queues to their ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Fate(Enum):
    """How the send of a message ended."""

    STORED = "the send returned"
    PERHAPS = "the send failed, the message may be stored"
    REFUSED = "the send failed, the message is not stored"


class Place(NamedTuple):
    """Where a message stands."""

    broker: str
    queue_id: int
    offset: int


@dataclass
class Account:
    """One run. Messages are numbers."""

    fates: dict[int, Fate] = field(default_factory=dict)
    deliveries: Counter[int] = field(default_factory=Counter)
    copies: Counter[int] = field(default_factory=Counter)
    strangers: list[object] = field(default_factory=list)
    """Bodies that nobody sent, or that came back changed."""
    disorder: list[tuple[Place, int]] = field(default_factory=list)
    """First deliveries behind a later one of their queue, each with the offset that had been seen."""
    _seen: dict[tuple[str, int], int] = field(default_factory=dict)
    _places: set[Place] = field(default_factory=set)

    def sent(self, number: int, fate: Fate) -> None:
        assert number not in self.fates, f"message {number} was entered before"
        self.fates[number] = fate

    def delivered(self, number: int, place: Place) -> None:
        self.deliveries[number] += 1
        if place in self._places:
            return
        self._places.add(place)
        queue = (place.broker, place.queue_id)
        seen = self._seen.get(queue, -1)
        if place.offset < seen:
            self.disorder.append((place, seen))
        self._seen[queue] = max(seen, place.offset)

    def missing(self) -> list[int]:
        """Messages that must arrive and have not yet."""
        return [number for number, fate in self.fates.items() if fate is Fate.STORED and not self.deliveries[number]]

    def findings(self, *, ordered: bool = True) -> list[str]:
        """Everything that must not be; empty after a good run."""
        known = set(self.fates)
        refused = {number for number, fate in self.fates.items() if fate is Fate.REFUSED}
        found = [
            ("lost although the send returned", self.missing()),
            ("delivered although its send was refused", sorted(refused & set(self.deliveries))),
            ("delivered but never sent", sorted(set(self.deliveries) - known)),
            ("bodies that nobody sent", self.strangers),
        ]
        if ordered:
            found.append(("first deliveries out of the order of their queue", self.disorder))
        return [f"{len(items)} {what}: {_some(items)}" for what, items in found if items]

    def duplicates(self) -> list[str]:
        """Messages stored more than once; empty when every send was idempotent."""
        twice = sorted(number for number, count in self.copies.items() if count > 1)
        absent = sorted(
            number for number, fate in self.fates.items() if fate is Fate.STORED and self.copies[number] == 0
        )
        found = [("stored more than once", twice), ("not stored although the send returned", absent)]
        return [f"{len(items)} {what}: {_some(items)}" for what, items in found if items]

    def summary(self) -> str:
        fates = Counter(self.fates.values())
        repeats = sum(self.deliveries.values()) - len(self.deliveries)
        return (
            f"{len(self.fates)} sends: {fates[Fate.STORED]} stored, {fates[Fate.PERHAPS]} perhaps, "
            f"{fates[Fate.REFUSED]} refused; {len(self.deliveries)} messages delivered, {repeats} repeats"
        )


def _some(items: Iterable[object]) -> str:
    listed = list(items)
    return f"{listed[:5]}{' ...' if len(listed) > 5 else ''}"
