"""The instants of a cron expression in a time zone.

Which local times match is asked of the library cronsim, which knows cron's fields and calendars. Which instants these are is
decided here, because a local clock is set forward and back. A rule is of one of two kinds, as with Debian's cron:

* *At fixed times*: neither the minute nor the hour begins with `*` (`30 2 * * *`, `0 9-17 * * MON-FRI`). Every local time comes
  once. A time that is left out when clocks go forward is made up for at the moment they do, once for all of them
  (02:30 runs at 03:00); one that comes twice when they go back runs the first time.
* *At every hour or minute*: one of the two begins with `*` (`*/15 * * * *`, `30 * * * *`, `*/10 2 * * *`). It runs whenever the
  clock shows a matching time: not in an hour that is left out, twice in an hour that comes twice.

Rules of this file
1. An instant is whole seconds since the epoch; a *local time* is the same number as a clock on the wall shows it, that is
   instant + offset. Neither says which it is by its type, so the names do (`at_s`, `local_s`).
2. What a zone is comes from the machine's table of time zones, or from the package `tzdata` where it has none. Governments
   change it: offsets of the future are what the installed table says today.
3. cronsim is given local times without a zone. Its own steps through zones lose runs where a change is not of a whole hour, and
   find times that do not exist where it is at midnight.
4. Instants are strictly ascending. No clock is read.
5. Work is bounded: see each method. An expression that never matches is refused when it is made, not looked for later.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Final

from cronsim import CronSim, CronSimError

from orbitmq.errors import ConfigurationError
from orbitmq.limits import recurrence as limits

STEP_S: Final = 3 * 86_400
"""How far is looked at once for a change. A zone never has two changes so close together: since 1970 the shortest distance in
the table is seven days less an hour."""


class Zone:
    """One zone of the table."""

    __slots__ = ("info", "name")

    def __init__(self, name: str) -> None:
        """`name` as in the table (`Europe/Berlin`, `UTC`). ConfigurationError when it is not there."""
        problem: Exception | None = None
        if 0 < len(name) <= limits.RECURRENCE_ZONE_CHARS_MAX:
            try:
                self.info: tzinfo = zoneinfo.ZoneInfo(name)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of zones is an OSError
                problem = error
            else:
                self.name = name
                return
        raise ConfigurationError(
            f"time zone {name[: limits.RECURRENCE_ZONE_CHARS_MAX]!r} is not in the table of time zones",
            remedy="use a name such as UTC or Europe/Berlin; for a zone that exists, update the package tzdata",
        ) from problem

    def offset_s(self, at_s: int) -> int:
        """What local clocks are ahead of UTC at an instant."""
        offset = datetime.fromtimestamp(at_s, tz=self.info).utcoffset()
        assert offset is not None  # a zone of the table always knows
        return offset.days * 86_400 + offset.seconds

    def change_after(self, from_s: int, until_s: int) -> int | None:
        """The first instant in (from, until] with another offset than that of `from_s`; None when it stays.

        Cost: one look at the table for every STEP_S, and 18 more where a change is found.
        """
        offset = self.offset_s(from_s)
        same_s = from_s
        while same_s < until_s:
            other_s = min(same_s + STEP_S, until_s)
            if self.offset_s(other_s) != offset:
                while other_s - same_s > 1:
                    middle_s = (same_s + other_s) // 2
                    if self.offset_s(middle_s) == offset:
                        same_s = middle_s
                    else:
                        other_s = middle_s
                return other_s
            same_s = other_s
        return None


_EPOCH: Final = datetime(1970, 1, 1)
_HORIZON_S: Final = limits.RECURRENCE_INSTANT_MS_MAX // 1000
_REMEDY: Final = (
    "write five fields, minute hour day-of-month month day-of-week, such as '0 9 * * MON-FRI', "
    "or six with the second in front"
)


class CronTimes:
    """What an expression means in a zone."""

    __slots__ = ("_expression", "_fixed", "_zone")

    def __init__(self, expression: str, zone: Zone) -> None:
        """ConfigurationError when the expression is malformed or never matches. Cost: 50 us; up to 20 ms for an expression whose
        fields are all legal and never come together, which takes a look at fifty years."""
        if len(expression) > limits.RECURRENCE_CRON_CHARS_MAX:
            raise ConfigurationError(
                f"the cron expression has {len(expression)} characters, at most "
                f"RECURRENCE_CRON_CHARS_MAX = {limits.RECURRENCE_CRON_CHARS_MAX} are allowed",
                remedy="use ranges and steps (0-30/5) instead of lists, or several rules",
            )
        self._expression = expression
        self._zone = zone
        try:
            parsed = CronSim(expression, _EPOCH)
            next(parsed)
        except CronSimError as error:
            raise ConfigurationError(f"cron expression {expression!r}: {_reason(error)}", remedy=_REMEDY) from error
        except StopIteration:
            raise ConfigurationError(
                f"cron expression {expression!r} matches no day of fifty years: its day of the month, month and day of the "
                "week never come together",
                remedy="check the days; a day of the month and one of the week are alternatives only if neither begins with *",
            ) from None
        _, minute, hour, *_ = parsed.parts
        self._fixed: Final = not minute.startswith("*") and not hour.startswith("*")

    def after(self, after_s: int) -> Iterator[int]:
        """Instants later than `after_s`, ascending, up to RECURRENCE_INSTANT_MS_MAX.

        Cost of one: 3 to 40 us, and 1 us for every three days between it and the one before (to see clocks change).
        """
        zone, fixed = self._zone, self._fixed
        offset_s = zone.offset_s(after_s)
        same_until_s = after_s  # the last instant that is known to have this offset
        begin_s = after_s + 1
        unseen_s = self._unseen_after(after_s, offset_s)
        while begin_s <= _HORIZON_S:
            # One turn: from `begin_s` to the next change of the clocks.
            change_s: int | None = None
            first_s = begin_s + offset_s
            for local_s in self._local_after((max(first_s, unseen_s) if fixed else first_s) - 1):
                at_s = local_s - offset_s
                if at_s > _HORIZON_S:
                    return
                if at_s > same_until_s and change_s is None:
                    change_s = zone.change_after(same_until_s, at_s + STEP_S)
                    same_until_s = at_s + STEP_S if change_s is None else change_s - 1
                if at_s > same_until_s:
                    break
                yield at_s
            assert (
                change_s is not None
            )  # the expression matches again within fifty years: the loop was left at a change
            skipped_from_s = change_s + offset_s
            offset_s = zone.offset_s(change_s)
            skipped_until_s = change_s + offset_s
            unseen_s = max(unseen_s, skipped_from_s)
            if fixed and unseen_s <= local_s < skipped_until_s:
                yield change_s
                unseen_s = skipped_until_s + 1  # a run at the very end of the gap is the one just made up for
            begin_s = same_until_s = change_s

    def latest(self, after_s: int, until_s: int, limit: int) -> list[int]:
        """The last `limit` instants in (after, until], ascending.

        Cost: that of some 3 * `limit` instants, however many there are.
        """
        offset_s = self._zone.offset_s(until_s)
        back_count = limit
        while True:
            local_s = self._local_before(until_s + offset_s + 1, back_count, after_s - STEP_S)
            # Earlier than the instant of that local time by any offset; what is found is counted, so this may be inexact.
            start_s = local_s - max(offset_s, self._zone.offset_s(local_s - offset_s)) - 1
            found = list(takewhile(lambda at_s: at_s <= until_s, self.after(max(start_s, after_s))))
            if len(found) >= limit or start_s <= after_s:
                return found[-limit:]
            back_count *= 2  # some of the local times did not exist

    def _unseen_after(self, after_s: int, offset_s: int) -> int:
        """The first local time that clocks have not shown by `after_s`: later than now where they were set back just before."""
        before_s = after_s - STEP_S
        offset_before_s = self._zone.offset_s(before_s)
        shown_s = after_s + offset_s
        if offset_before_s > offset_s:
            change_s = self._zone.change_after(before_s, after_s)
            assert change_s is not None
            shown_s = max(shown_s, change_s - 1 + offset_before_s)
        return shown_s + 1

    def _local_after(self, local_s: int) -> Iterator[int]:
        """Matching local times later than `local_s`, ascending, without end."""
        for moment in CronSim(self._expression, _EPOCH + timedelta(seconds=local_s)):
            yield _seconds(moment)

    def _local_before(self, local_s: int, count: int, enough_s: int) -> int:
        """The matching local time that is `count` places before `local_s`, or the last one that is not later than `enough_s`."""
        for moment in islice(CronSim(self._expression, _EPOCH + timedelta(seconds=local_s), reverse=True), count):
            local_s = _seconds(moment)
            if local_s <= enough_s:
                break
        return local_s


def _seconds(moment: datetime) -> int:
    passed = moment - _EPOCH
    return passed.days * 86_400 + passed.seconds


def _reason(error: CronSimError) -> str:
    """cronsim says which field is bad, in three words."""
    text = str(error)
    if text == "Wrong number of fields":
        return "it has not five fields, and not six"
    field = text.removeprefix("Bad ")
    if field == "day-of-month":
        return "the field day-of-month is malformed or out of range, or none of the months has such a day"
    return f"the field {field} is malformed or out of range"
