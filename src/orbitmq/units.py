"""How many of a small unit make a larger one. Lengths of time are counted in nanoseconds by the monotonic clock, in milliseconds by the
wall clock."""

from __future__ import annotations

from typing import Final

US_PER_MS: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
