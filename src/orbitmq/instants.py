"""Instants and spans of time as people write them: `2024-05-01T12:00:00Z`, `10m`, milliseconds since the epoch.

Rules of this file
1. Text for people is UTC with milliseconds, so that it can be compared with a log and sorted.
2. What people write has a unit or is a full instant; a bare number is milliseconds since the epoch.
3. What cannot be read is a ConfigurationError that shows the forms. `name` is what the reader knows the value by.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from orbitmq.errors import ConfigurationError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_SPAN: Final = re.compile(r"(\d{1,12})(ms|s|m|h|d)")


def instant(at_ms: int) -> str:
    """`2024-05-01T12:00:00.123Z`; empty for 0 and for instants that no calendar has."""
    if at_ms <= 0:
        return ""
    try:
        moment = datetime.datetime.fromtimestamp(at_ms / 1000, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def span(ms: int) -> str:
    """A span of time with its largest unit: `250ms`, `12s`, `3m`, `5h`, `2d`."""
    for unit, size in reversed(_UNITS_MS.items()):
        if ms >= size:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def parse_span_ms(name: str, text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `10m`, `2h`, `7d`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{name} {text!r} is no span of time such as 500ms, 30s, 10m, 2h or 7d")
    return int(found[1]) * _UNITS_MS[found[2]]


def parse_due_ms(name: str, text: str, now_ms: int) -> int:
    """As `parse_instant_ms`, for instants that lie ahead: a span is from now on."""
    text = text.strip()
    if _SPAN.fullmatch(text):
        return now_ms + parse_span_ms(name, text)
    return _parse_moment_ms(name, text, now_ms, None, "10m (from now on)")


def parse_instant_ms(name: str, text: str, now_ms: int, zone: datetime.tzinfo | None = None) -> int:
    """Milliseconds since the epoch of `2024-05-01T12:00:00Z`, of milliseconds as they are, or of a span before now (`10m`).

    An instant without an offset is local time of `zone`, or of this machine.
    """
    text = text.strip()
    if _SPAN.fullmatch(text):
        return max(0, now_ms - parse_span_ms(name, text))
    return _parse_moment_ms(name, text, now_ms, zone, "10m (ago)")


def _parse_moment_ms(name: str, text: str, now_ms: int, zone: datetime.tzinfo | None, span_form: str) -> int:
    if text == "now":
        return now_ms
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        return moment_ms(moment)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(
            f"{name} {text!r} is no instant such as 2024-05-01T12:00:00Z, 1714564800000 (ms), {span_form} or now"
        ) from error


def moment_ms(moment: datetime.datetime) -> int:
    """Milliseconds since the epoch, exactly, and rounded down. One without an offset is local time of this machine."""
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return (moment - _EPOCH) // _MILLISECOND
