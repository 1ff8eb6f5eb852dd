"""Files that options name, on the driver's machine.

Rules of this file
1. Only a regular file is read: a pipe would keep the driver waiting, and a device has no end.
2. Nothing of what a file holds is in an error.
"""

from __future__ import annotations

import stat
from pathlib import Path

from orbitmq.errors import ConfigurationError


def content_of(option: str, path: str, bytes_max: int, remedy: str) -> bytes:
    """All of a file. `ConfigurationError` where there is none, where it is something else than a file, or larger."""
    try:
        file = Path(path)
        is_file = stat.S_ISREG(file.stat().st_mode)
        if is_file:
            with file.open("rb") as opened:
                content = opened.read(bytes_max + 1)
    except (OSError, ValueError) as problem:  # ValueError: a name with a zero in it
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ConfigurationError(f"option {option}: {path!r} cannot be read: {reason}", remedy=remedy) from problem
    if not is_file:
        raise ConfigurationError(f"option {option}: {path} is a directory, pipe or device, not a file", remedy=remedy)
    if len(content) > bytes_max:
        raise ConfigurationError(f"option {option}: {path} has more than {bytes_max} bytes", remedy=remedy)
    return content


def text_of(option: str, path: str, bytes_max: int, remedy: str) -> str:
    """As `content_of`, of a file whose bytes are UTF-8."""
    try:
        return content_of(option, path, bytes_max, remedy).decode("utf-8-sig")
    except UnicodeDecodeError:  # it would quote a byte
        raise ConfigurationError(f"option {option}: {path} is no text in UTF-8", remedy=remedy) from None
