"""When what happens in the story: the departures of a year, or of its first days, within a minute.

An order is due at the scheduled departure of its flight, on a scale that fits all of them between two instants. How long before
that it was placed follows from the distance of the flight. All of it is arithmetic of whole milliseconds, so that Spark and plain
Python get the same instants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from examples.order_timeout.orders import LONG_HAUL_MILES

ALLOWED_MS: Final = (2_000, 3_000, 4_000, 6_000)
"""Time to pay for flights up to the distances of LONG_HAUL_MILES, and beyond the last of them."""

LONGEST_ALLOWED_MS: Final = max(ALLOWED_MS)

IN_TIME_PERCENT: Final = 40
TOO_LATE_PERCENT: Final = 150
"""When customers pay, as a share of the time allowed. A second and more lies between a payment and the end of the time, so what
"in time" means is a matter of the rows and never of which message was faster."""

MINUTES_A_DAY: Final = 24 * 60

SHORTEST_SPREAD_MS: Final = 8_000
LONGEST_SPREAD_MS: Final = 120_000
ORDERS_A_SECOND: Final = 450
"""From the first due time to the last: so many orders a second, 45 s for 20,000, but not for ever."""

LEAD_MS: Final = 8_000
ORDERS_SCHEDULED_PER_MS: Final = 8
"""From now to the first instant: time enough to schedule everything, twice over on two cores that are idle."""


@dataclass(frozen=True, slots=True)
class Timetable:
    first_minute: int
    """The first scheduled departure of the table, in minutes since the year began."""
    last_minute: int
    first_due_ms: int
    """The instant that the first departure becomes."""
    spread_ms: int

    def due_ms(self, minute: int) -> int:
        return self.first_due_ms + (minute - self.first_minute) * self.spread_ms // self.span_minutes

    @property
    def span_minutes(self) -> int:
        return max(1, self.last_minute - self.first_minute)

    @property
    def opens_ms(self) -> int:
        """Nothing happens before."""
        return self.first_due_ms - LONGEST_ALLOWED_MS

    @property
    def ends_ms(self) -> int:
        """Nothing happens later: the last due time, and the payments that come too late for it."""
        return self.first_due_ms + self.spread_ms + LONGEST_ALLOWED_MS * (TOO_LATE_PERCENT - 100) // 100


def timetable_for(now_ms: int, order_count: int, first_minute: int, last_minute: int) -> Timetable:
    """One that leaves time to schedule `order_count` orders before anything happens."""
    opens_ms = now_ms + LEAD_MS + order_count // ORDERS_SCHEDULED_PER_MS
    spread_ms = min(max(SHORTEST_SPREAD_MS, order_count * 1_000 // ORDERS_A_SECOND), LONGEST_SPREAD_MS)
    return Timetable(first_minute, last_minute, opens_ms + LONGEST_ALLOWED_MS, spread_ms)


def allowed_ms(distance_miles: float) -> int:
    for longest, allowed in zip(LONG_HAUL_MILES, ALLOWED_MS, strict=False):
        if distance_miles <= longest:
            return allowed
    return ALLOWED_MS[-1]
