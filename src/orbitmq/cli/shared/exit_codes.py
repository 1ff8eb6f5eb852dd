"""Exit codes that scripts may rely on.

Rules of this file
1. A number never changes its meaning; new ones are added at the end.
2. Every error of the tree has a code; an error outside the tree is a defect and shows its traceback (exit code 1).
"""

from __future__ import annotations

import enum

from orbitmq.errors import (
    ConfigurationError,
    ConnectionLostError,
    MessageIllegalError,
    NotFoundError,
    OrbitError,
    PortTakenError,
    RemoteError,
    RequestTimeoutError,
    StoreLockedError,
)


class ExitCode(enum.IntEnum):
    """What became of a command."""

    OK = 0
    """Done; a check found nothing wrong."""
    FAILED = 1
    """A check has findings, or the command could not do its work."""
    USAGE = 2
    """The command line, the configuration or a message is wrong; nothing was done."""
    UNREACHABLE = 3
    """No server answered in time."""
    REFUSED = 4
    """A server answered with an error."""
    NOT_FOUND = 5
    """The topic, group, message or broker asked for does not exist."""
    IN_USE = 6
    """Another process holds the store or the port."""
    GIVEN_UP = 7
    """A stop did not wait for what was under way, because its time had passed; the next start does it again."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


def exit_code_of(error: OrbitError) -> ExitCode:
    """The exit code for an error that reached the command line."""
    match error:
        case StoreLockedError() | PortTakenError():
            return ExitCode.IN_USE
        case ConfigurationError() | MessageIllegalError():
            return ExitCode.USAGE
        case ConnectionLostError() | RequestTimeoutError():
            return ExitCode.UNREACHABLE
        case NotFoundError():
            return ExitCode.NOT_FOUND
        case RemoteError():
            return ExitCode.REFUSED
        case _:
            return ExitCode.FAILED
