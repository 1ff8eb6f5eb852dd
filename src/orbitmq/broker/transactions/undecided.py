"""Which transactions are undecided: a function of the records of the log, in their order.

A half message opens a transaction. A copy of it belongs to the same one, whoever's place it takes, and the offsets of any of its copies
decide all. It ends with a committed message that names one of them, with a record elsewhere that takes its place (given up, or in
quarantine), or with an op record.

Rules of this file
1. Pure: no input or output, no time. Records come once each and in log order, in recovery as in a running broker.
2. RocketMQ knows of an end by op records alone. A half message that has ended without one is *unnamed*, until an op record names it.
3. A copy of what has ended opens nothing: it is unnamed.
4. A copy whose source is gone from the log opens its transaction where nothing was known of it: at a broker that was given the log from a
   later place on. Had the transaction ended before the copy was made, an op record says so of the copy itself, as of no other newest one.
5. By its id a transaction is found within its topic. Two with the same id are two: a client that sent one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.broker.transactions.records import Ending, HalfFacts
from orbitmq.limits.transactions import COPIES_REMEMBERED_MAX, SAME_ID_MAX

NOWHERE: Final = -1
"""Log position of a copy that RocketMQ made another one of, of which the queue offset alone is known."""


UNNUMBERED: Final = -1
"""Queue offset of a copy whose record is gone from the log, and was never read here."""


class HalfPlace(NamedTuple):
    """Where one copy of a half message lies: log position and offset in the half queue."""

    physical_offset: int
    queue_offset: int


class Transaction(msgspec.Struct, eq=False, gc=False):
    """One undecided transaction. `place`, `size` and `since_ms` are those of its newest copy."""

    place: HalfPlace
    size: int
    since_ms: int
    """When it was stored or checked last."""
    first_ms: int
    """When its first half message was stored."""
    topic: str
    """Where its message goes when it is committed."""
    group: str
    unique_key: str
    check_count: int
    immunity_ms: int | None
    older: tuple[HalfPlace, ...] = ()
    """Earlier copies, oldest first."""
    ending: Ending | None = None
    """How it ends, while the records that say so are on their way into the log. Set by whoever writes them."""
    ended_at: int = 0
    """Log position of the first of these records."""

    @property
    def places(self) -> tuple[HalfPlace, ...]:
        return (*self.older, self.place)


class Undecided:
    """The undecided transactions of one broker, oldest newest-copy first."""

    __slots__ = ("_at", "_numbered", "_pending", "_with_id", "unnamed")

    def __init__(self) -> None:
        self._pending: dict[int, Transaction] = {}
        """By the log position of the newest copy: in log order, because a copy is put in last."""
        self._at: dict[int, Transaction] = {}
        """By the log position of any copy."""
        self._numbered: dict[int, Transaction] = {}
        """By the queue offset of any copy."""
        self._with_id: dict[tuple[str, str], tuple[Transaction, ...]] = {}
        """By topic and unique key, at most `SAME_ID_MAX` of each."""
        self.unnamed: dict[int, Ending] = {}
        """Queue offset of half messages that have ended and are in no op record, with how."""

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Transaction]:
        """In the order in which their newest copies lie in the log."""
        return iter(self._pending.values())

    @property
    def first(self) -> Transaction | None:
        """The one whose newest copy lies first in the log."""
        return next(iter(self._pending.values()), None)

    def at(self, physical_offset: int) -> Transaction | None:
        """The undecided transaction of which a copy lies there."""
        return self._at.get(physical_offset)

    def newest_at(self, physical_offset: int) -> Transaction | None:
        """The undecided transaction whose newest copy lies there."""
        return self._pending.get(physical_offset)

    def with_id(self, topic: str, unique_key: str) -> tuple[Transaction, ...]:
        """The undecided transactions of a topic whose half messages have this unique key, at most `SAME_ID_MAX`."""
        return self._with_id.get((topic, unique_key), ())

    def restore_unnamed(self, saved: Mapping[str, str]) -> None:
        """Take up what `unnamed` said when it was saved, as texts."""
        self.unnamed = {int(offset): Ending(ending) for offset, ending in saved.items()}

    # --- records ----------------------------------------------------------------------------------------------------

    def half(self, facts: HalfFacts, *, log_start: int = 0) -> Transaction | None:
        """A record of the half topic, of a log that begins at `log_start`. Answers the transaction that it is of, None when that has
        ended."""
        if facts.source is None and facts.original is None:
            return self.open(facts, (), facts.store_timestamp)
        known = None if facts.source is None else self._at.get(facts.source)
        if known is None and facts.original is not None:
            known = self._numbered.get(facts.original)
            if facts.source is None and (known is None or not _is_copy(facts, known)):
                # RocketMQ has passed the one before by, or a sender has claimed another's place
                older = () if known or facts.original >= facts.queue_offset else (HalfPlace(NOWHERE, facts.original),)
                return self.open(facts, older, facts.store_timestamp)
        if known is None and facts.source is not None and facts.source < log_start:
            return self.open(facts, (HalfPlace(facts.source, UNNUMBERED),), facts.store_timestamp)
        if known is None:
            self.unnamed[facts.queue_offset] = Ending.COPIED
            return None
        self._replace(known, facts)
        return known

    def open(self, facts: HalfFacts, older: tuple[HalfPlace, ...], first_ms: int) -> Transaction:
        """A transaction that nothing known decides. `older` are copies that its newest one replaced."""
        place = HalfPlace(facts.physical_offset, facts.queue_offset)
        opened = Transaction(
            place, facts.size, facts.store_timestamp, first_ms, facts.topic, facts.group, facts.unique_key, facts.check_count,
            facts.immunity_ms, older,
        )  # fmt: skip
        self._pending[place.physical_offset] = opened
        for known in opened.places:
            if known.physical_offset != NOWHERE:
                self._at[known.physical_offset] = opened
            if known.queue_offset != UNNUMBERED:
                self._numbered[known.queue_offset] = opened
        self._find_by_id(opened)
        return opened

    def _replace(self, known: Transaction, facts: HalfFacts) -> None:
        """A newer copy takes the place of the one before."""
        old, new = known.place, HalfPlace(facts.physical_offset, facts.queue_offset)
        del self._pending[old.physical_offset]
        self.unnamed[old.queue_offset] = Ending.COPIED
        known.older = (*known.older, old)
        if len(known.older) > COPIES_REMEMBERED_MAX:
            self._forget(known.older[0])
            known.older = known.older[1:]
        known.place, known.size, known.since_ms = new, facts.size, facts.store_timestamp
        known.check_count = facts.check_count
        self._pending[new.physical_offset] = known
        self._at[new.physical_offset] = self._numbered[new.queue_offset] = known
        self._find_by_id(known)

    def committed(self, half_position: int, unique_key: str | None) -> None:
        """A committed message that names the half message at that position. 0 is also what a message says that names none: there the ids
        have to agree."""
        known = self._at.get(half_position)
        if known is not None and (half_position or known.unique_key == unique_key):
            self._end(known, Ending.COMMITTED)

    def replaced(self, source: int) -> None:
        """A record outside of the half topic that takes the place of the one at `source`."""
        self._end(self._at.get(source), Ending.GIVEN_UP)

    def named(self, offsets: Iterable[int], ending: Ending | None) -> None:
        """An op record; `ending` is None for one of RocketMQ."""
        for offset in offsets:
            known = self._numbered.get(offset)
            if ending is not Ending.COPIED or (known is not None and known.place.queue_offset == offset):
                self._end(known, ending or Ending.GIVEN_UP)
            self.unnamed.pop(offset, None)

    def _end(self, known: Transaction | None, ending: Ending) -> None:
        if known is None:
            return
        del self._pending[known.place.physical_offset]
        for place in known.places:  # older copies are named once more: that is how their end is looked up
            if place.queue_offset != UNNUMBERED:
                self.unnamed[place.queue_offset] = ending
            self._forget(place)
        name = known.topic, known.unique_key
        others = tuple(other for other in self._with_id.get(name, ()) if other is not known)
        if others:
            self._with_id[name] = others
        else:
            self._with_id.pop(name, None)

    def _find_by_id(self, known: Transaction) -> None:
        """Have it found by its id; again, if others of the same id have come between."""
        name = known.topic, known.unique_key
        same = self._with_id.get(name, ())
        if known.unique_key and known not in same:
            self._with_id[name] = (*same, known)[-SAME_ID_MAX:]

    def _forget(self, place: HalfPlace) -> None:
        self._at.pop(place.physical_offset, None)
        self._numbered.pop(place.queue_offset, None)


def _is_copy(facts: HalfFacts, known: Transaction) -> bool:
    return (facts.group, facts.unique_key) == (known.group, known.unique_key)
