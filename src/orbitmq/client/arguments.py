"""Kinds of what programs hand in, where nothing else looks at them.

A wrong kind would fail somewhere inside, by an error that names neither the parameter nor what to write instead.

Rules of this file
1. `ConfigurationError` names the parameter and its value, shortened.
2. A text is a text whatever class it has: members of a `StrEnum`, texts of numpy. It can be written as UTF-8.
"""

from __future__ import annotations

from reprlib import Repr

from orbitmq.errors import ConfigurationError

_shown = Repr()
_shown.maxstring = _shown.maxother = 100


def check_text(name: str, value: object, *, or_none: bool = True) -> None:
    """None passes unless `or_none` is False."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                f"{name}={_shown.repr(value)}: character {error.start} has no form in UTF-8",
                remedy="decode bytes by their own encoding; surrogates come from names of files that are not UTF-8",
            ) from None
    elif value is not None or not or_none:
        raise ConfigurationError(f"{name}={_shown.repr(value)}: must be text")


def check_whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(f"{name}={_shown.repr(value)}: must be a whole number {low} to {high}")


def check_timeout_ms(value: object) -> None:
    """A time for one call, in milliseconds. Fractions pass."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigurationError(
            f"timeout_ms={_shown.repr(value)}: must be at least 1, a number of milliseconds, or None for the default"
        )


def check_instance(name: str, value: object, kind: type, *, or_none: bool = True) -> None:
    """As for an options object, a message queue, or a message."""
    if not isinstance(value, kind) and (value is not None or not or_none):
        raise ConfigurationError(f"{name}={_shown.repr(value)}: must be an object of class {kind.__name__}")
