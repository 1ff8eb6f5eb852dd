"""Instants for people: milliseconds since the epoch as UTC text, and durations with one unit.

Rules of this file
1. Text is UTC with milliseconds, so that it can be compared with a log and sorted.
"""

from __future__ import annotations

import datetime


def instant(at_ms: int) -> str:
    """`2024-05-01T12:00:00.123Z`; empty for 0 and for instants that no calendar has."""
    if at_ms <= 0:
        return ""
    try:
        moment = datetime.datetime.fromtimestamp(at_ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
