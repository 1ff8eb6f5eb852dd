"""A file that is given to a command."""

from __future__ import annotations

from pathlib import Path

from orbitmq.errors import ConfigurationError


def read_whole(file: Path, bytes_max: int) -> bytes:
    """All of it. `ConfigurationError` where it cannot be read or is longer."""
    try:
        with file.open("rb") as opened:
            data = opened.read(bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > bytes_max:
        raise ConfigurationError(f"{file} is longer than {bytes_max} bytes")
    return data
