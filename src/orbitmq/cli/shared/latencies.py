"""Percentiles of measured times.

Rules of this file
1. Every value is kept and sorted: what is printed is a value that was measured, not the edge of a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

SHOWN: Final = ((50.0, "p50_ms"), (90.0, "p90_ms"), (99.0, "p99_ms"), (99.9, "p999_ms"))


def percentiles(values_ms: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99, p99.9, mean and largest, in ms; None for each when nothing was measured."""
    ordered = sorted(values_ms)
    found: dict[str, float | None] = {name: _at(ordered, percent) for percent, name in SHOWN}
    found["max_ms"] = round(ordered[-1], 3) if ordered else None
    found["mean_ms"] = round(sum(ordered) / len(ordered), 3) if ordered else None
    return found


def _at(ordered: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of all do not exceed."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)], 3)
