"""When a scheduled job runs: the rules of recurring messages, asked about one job.

Rules of this file
1. Pure: callers bring the time and the instant of the last run.
2. What was missed is made up for by one run, the latest.
3. A clock that goes back repeats no run, unless it goes back by more than RECURRENCE_AHEAD_MS_MAX: then the time before was the mistake,
   and runs go on by the time that is now.
"""

from __future__ import annotations

from orbitmq.limits.recurrence import RECURRENCE_AHEAD_MS_MAX
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.schedule import Schedule


class Timetable:
    """The runs of one job. ConfigurationError for a rule that cannot be."""

    def __init__(self, name: str, rule: Rule) -> None:
        self._schedule = Schedule(
            name, 0, rule, 0
        )  # counted from 1970, so that intervals are the same after every start
        self._is_interval = rule.interval_ms is not None

    def begin_ms(self, last_ms: int | None, now_ms: int) -> int | None:
        """The instant to keep as that of the last run before any is looked for; None where `last_ms` holds.

        It is now for a cron expression of which no run was made, and where the last run lies so far ahead that the clock was wrong then.
        Unless it is kept, the time from which runs are looked for would move on with every look, past each of them.
        """
        if last_ms is None:
            return None if self._is_interval else now_ms
        return now_ms if last_ms > now_ms + RECURRENCE_AHEAD_MS_MAX else None

    def next_ms(self, last_ms: int | None, now_ms: int) -> int | None:
        """The instant of the run that is to be made next, not later than `now_ms` where it is due; None when there is none any more.

        last_ms: the instant of the last run that was made, None before the first. An interval begins with a run at once, a cron expression
        with its next instant.
        """
        if last_ms is None and self._is_interval:
            return now_ms
        begin_ms = self.begin_ms(last_ms, now_ms)
        last_ms = last_ms if begin_ms is None else begin_ms
        assert last_ms is not None
        missed = self._schedule.latest(last_ms, now_ms, 1)
        run = missed[-1] if missed else self._schedule.next(last_ms)
        return None if run is None else run.planned_ms
