"""The rule of a recurring message: when it runs, and what happens to runs that cannot happen as planned.

A rule is a cron expression in a time zone, or an interval. An interval is counted in elapsed time from its start, so clocks
that change do not move it; a cron expression follows the clock on the wall (cron_times.py says how).

Rules of this file
1. A rule is a value: equal rules mean the same. What has become of its runs is kept elsewhere.
2. It is checked as a whole when its times are asked for; reading a rule that is stored checks nothing but its types, so that
   a bound that is lowered later makes no stored rule unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Protocol

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.names import group_name_problem
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap

if TYPE_CHECKING:
    from orbitmq.timing.recurrence.cron_times import CronTimes


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to run. Exactly one of `cron` and `interval_ms` is given."""

    cron: str | None = None
    """Five fields of cron, or six with the second in front."""
    zone: str = "UTC"
    """The time zone of `cron`."""
    interval_ms: int | None = None
    """Time from one run to the next."""
    start_ms: int | None = None
    """No run is earlier. An interval's first run is at its start; without one it is an interval after the rule was made."""
    end_ms: int | None = None
    """Runs are planned for before this instant."""
    count_max: int | None = None
    """The rule ends when so many runs have been stored. Runs that were left out do not count."""
    jitter_ms: int = 0
    """Each run is put off by a time of its own, at most this long and always less than the time to the next run."""
    overlap: Overlap = Overlap.ALLOW
    overlap_group: str | None = None
    """The consumer group that `Overlap.SKIP` asks about."""
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_max: int = limits.RECURRENCE_CATCH_UP_MAX
    """Bound of `CatchUp.ALL`."""


class Times(Protocol):
    """The instants of a rule, in whole milliseconds, without its start and end."""

    def after(self, after_ms: int) -> Iterator[int]:
        """Instants later than `after_ms`, ascending."""
        ...

    def latest(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        """The last `limit` instants in (after, until], ascending. The cost depends on `limit` only."""
        ...


class IntervalTimes:
    """Start + n * interval, n from 0."""

    __slots__ = ("_interval_ms", "_start_ms")

    def __init__(self, interval_ms: int, start_ms: int) -> None:
        self._interval_ms = interval_ms
        self._start_ms = start_ms

    def after(self, after_ms: int) -> Iterator[int]:
        for index in count(max(0, (after_ms - self._start_ms) // self._interval_ms + 1)):
            at_ms = self._start_ms + index * self._interval_ms
            if at_ms > limits.RECURRENCE_INSTANT_MS_MAX:
                return
            yield at_ms

    def latest(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        last = (min(until_ms, limits.RECURRENCE_INSTANT_MS_MAX) - self._start_ms) // self._interval_ms
        first = max(0, (after_ms - self._start_ms) // self._interval_ms + 1, last - limit + 1)
        return [self._start_ms + index * self._interval_ms for index in range(first, last + 1)]


class ZonedTimes:
    """Those of a cron expression, which has whole seconds."""

    __slots__ = ("_cron",)

    def __init__(self, cron: CronTimes) -> None:
        self._cron = cron

    def after(self, after_ms: int) -> Iterator[int]:
        for at_s in self._cron.after(after_ms // 1000):
            yield at_s * 1000

    def latest(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        until_s = min(until_ms, limits.RECURRENCE_INSTANT_MS_MAX) // 1000
        return [at_s * 1000 for at_s in self._cron.latest(after_ms // 1000, until_s, limit)]


def times_of(rule: Rule, begun_ms: int) -> Times:
    """The instants of a rule that was made at `begun_ms`.

    ConfigurationError when the rule contradicts itself, is out of bounds, has an unknown time zone, or an expression that never
    matches. Cost: see `CronTimes`.
    """
    from orbitmq.timing.recurrence.cron_times import CronTimes, Zone  # few brokers have a message that recurs

    zone = Zone(rule.zone)
    if (rule.cron is None) == (rule.interval_ms is None):
        raise ConfigurationError(
            f"a recurring message needs a cron expression or an interval, {'both' if rule.cron else 'neither'} given",
            remedy="set exactly one of cron and interval_ms",
        )
    if rule.interval_ms is not None:
        _within("interval_ms", rule.interval_ms, "RECURRENCE_INTERVAL_MS_MIN", "RECURRENCE_INTERVAL_MS_MAX")
    _check_span(rule)
    _check_policies(rule)
    if rule.cron is not None:
        return ZonedTimes(CronTimes(rule.cron, zone))
    assert rule.interval_ms is not None
    return IntervalTimes(rule.interval_ms, begun_ms if rule.start_ms is None else rule.start_ms)


def _check_span(rule: Rule) -> None:
    if rule.start_ms is not None:
        _within("start_ms", rule.start_ms, 0, "RECURRENCE_INSTANT_MS_MAX")
    if rule.end_ms is not None:
        _within("end_ms", rule.end_ms, 0, "RECURRENCE_INSTANT_MS_MAX")
        if rule.start_ms is not None and rule.end_ms <= rule.start_ms:
            raise ConfigurationError(
                f"end_ms {rule.end_ms} is not later than start_ms {rule.start_ms}: the rule has no run",
                remedy="set an end after the start, or none",
            )
    if rule.count_max is not None:
        _within("count_max", rule.count_max, 1, "RECURRENCE_COUNT_MAX")
    _within("jitter_ms", rule.jitter_ms, 0, "RECURRENCE_JITTER_MS_MAX")


def _check_policies(rule: Rule) -> None:
    _within("catch_up_max", rule.catch_up_max, 1, "RECURRENCE_CATCH_UP_MAX")
    if rule.overlap is Overlap.ALLOW:
        if rule.overlap_group is not None:
            raise ConfigurationError(
                f"overlap_group {rule.overlap_group!r} is asked about by overlap 'skip' only",
                remedy="set overlap to skip, or leave the group out",
            )
        return
    if rule.overlap_group is None:
        raise ConfigurationError(
            "overlap 'skip' needs the consumer group that is to have consumed the message before",
            remedy="set overlap_group",
        )
    problem = group_name_problem(rule.overlap_group)
    if problem is not None:
        raise ConfigurationError(f"overlap_group: {problem}", remedy="name the group that consumes the messages")
    if rule.catch_up is CatchUp.ALL:
        raise ConfigurationError(
            "overlap 'skip' and catch_up 'all' contradict each other: of runs that happen together all but one overlap",
            remedy="set catch_up to latest or none, or overlap to allow",
        )


def _within(field: str, value: int, least: int | str, most: str) -> None:
    """A bound that has a name in `limits` is given by it, so that the error can tell it."""
    least_value = getattr(limits, least) if isinstance(least, str) else least
    most_value = getattr(limits, most)
    if not least_value <= value <= most_value:
        named = f"{least} = {least_value}" if isinstance(least, str) else str(least)
        raise ConfigurationError(
            f"{field} {value} is outside {named} to {most} = {most_value}",
            remedy=f"choose a value of {field} between them",
        )
