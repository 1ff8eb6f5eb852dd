"""Time zones as offsets from UTC, and the instants at which an offset changes.

Rules of this file
1. An instant is whole seconds since the epoch; a *local time* is the same number as a clock on the wall shows it, that is
   instant + offset. Neither says which it is by its type, so the names do (`at_s`, `local_s`).
2. What a zone is comes from the machine's table of time zones, or from the package `tzdata` where it has none. Governments
   change it: offsets of the future are what the installed table says today.
"""

from __future__ import annotations

import zoneinfo
from datetime import datetime, tzinfo
from typing import Final

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
