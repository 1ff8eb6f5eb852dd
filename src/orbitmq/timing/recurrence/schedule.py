"""The runs of a recurring message: their instants, and what tells one from all others.

A run is *planned for* an instant of its rule. With jitter it *happens* a little later, by a time that follows from its identity
and is therefore the same whenever it is worked out. The identity is a digest of the message's name, the generation of its rule
and the planned instant. It becomes the unique key of the stored message: a run that is worked out a second time, after a crash,
is recognised by it and stored once.

Rules of this file
1. Everything is a function of its arguments: no clock, no chance, no memory.
2. Runs happen in the order they are planned for, because jitter never reaches the next run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits import recurrence as limits
from orbitmq.timing.recurrence.rule import Rule, times_of

_ID_BYTES: Final = 16
_JITTER_BYTES: Final = 8


class Occurrence(NamedTuple):
    """One run."""

    planned_ms: int
    """The instant of the rule."""
    at_ms: int
    """When it happens: the planned instant and its jitter."""
    id: str
    """32 hexadecimal digits, the form of a message's unique key."""


class Schedule:
    """The runs of one generation of a recurring message."""

    __slots__ = ("_end_ms", "_jitter_ms", "_seed", "_start_ms", "_times")

    def __init__(self, name: str, generation: int, rule: Rule, begun_ms: int) -> None:
        """`begun_ms` is when this generation was made; an interval without a start is counted from there.

        ConfigurationError when the rule is not usable, with the reason.
        """
        if not 0 < len(name) <= limits.RECURRENCE_NAME_CHARS_MAX or not name.isprintable():
            raise ConfigurationError(
                f"the name of a recurring message has {len(name)} characters; 1 to RECURRENCE_NAME_CHARS_MAX = "
                f"{limits.RECURRENCE_NAME_CHARS_MAX} printable ones are allowed",
                remedy="choose a short name that says what the message is for",
            )
        self._times = times_of(rule, begun_ms)
        self._start_ms = 0 if rule.start_ms is None else rule.start_ms
        last_ms = limits.RECURRENCE_INSTANT_MS_MAX
        self._end_ms = last_ms if rule.end_ms is None else rule.end_ms - 1
        self._jitter_ms = rule.jitter_ms
        self._seed: Final = f"{name}\0{generation}\0".encode()

    def upcoming(self, after_ms: int) -> Iterator[Occurrence]:
        """Runs planned for later than `after_ms`, in their order.

        Cost: that of the rule's instants (`CronTimes.after`), 3 us for the identity, and with jitter one instant more.
        """
        planned = self._times.after(max(after_ms, self._start_ms - 1))
        return takewhile(lambda run: run.planned_ms <= self._end_ms, self._runs(planned))

    def next(self, after_ms: int) -> Occurrence | None:
        """The first run planned for later than `after_ms`; None when there is none."""
        return next(self.upcoming(after_ms), None)

    def occurrences(self, after_ms: int, until_ms: int, limit: int) -> list[Occurrence]:
        """The first `limit` runs planned for in (after, until]. The cost depends on `limit` only."""
        return list(islice(takewhile(lambda run: run.planned_ms <= until_ms, self.upcoming(after_ms)), limit))

    def latest(self, after_ms: int, until_ms: int, limit: int) -> list[Occurrence]:
        """The last `limit` runs planned for in (after, until], in their order. The cost depends on `limit` only."""
        after_ms = max(after_ms, self._start_ms - 1)
        until_ms = min(until_ms, self._end_ms)
        if until_ms <= after_ms:
            return []
        planned = self._times.latest(after_ms, until_ms, limit)
        found_count = len(planned)
        if self._jitter_ms and planned:
            planned += islice(self._times.after(planned[-1]), 1)  # how far the last one may be put off
        return list(islice(self._runs(iter(planned)), found_count))

    def id_at(self, planned_ms: int) -> str:
        """The identity of the run that is planned for this instant."""
        return self._digest(planned_ms)[:_ID_BYTES].hex().upper()

    def jitter_bound_ms(self, planned_ms: int, next_planned_ms: int | None) -> int:
        """The longest time by which a run may be put off."""
        if next_planned_ms is None:
            return self._jitter_ms
        return min(self._jitter_ms, next_planned_ms - planned_ms - 1)

    def _runs(self, planned: Iterator[int]) -> Iterator[Occurrence]:
        if not self._jitter_ms:
            for planned_ms in planned:
                yield Occurrence(planned_ms, planned_ms, self.id_at(planned_ms))
            return
        this_ms = next(planned, None)
        while this_ms is not None:
            next_ms = next(planned, None)
            yield self._jittered(this_ms, next_ms)
            this_ms = next_ms

    def _jittered(self, planned_ms: int, next_ms: int | None) -> Occurrence:
        digest = self._digest(planned_ms)
        bound_ms = self.jitter_bound_ms(planned_ms, next_ms)
        off_ms = int.from_bytes(digest[_ID_BYTES:], "big") % (bound_ms + 1)
        return Occurrence(planned_ms, planned_ms + off_ms, digest[:_ID_BYTES].hex().upper())

    def _digest(self, planned_ms: int) -> bytes:
        return hashlib.blake2b(b"%b%d" % (self._seed, planned_ms), digest_size=_ID_BYTES + _JITTER_BYTES).digest()
