"""What of a log a master may send, and what it reads of it next."""

from __future__ import annotations

from typing import NamedTuple


class LogExtent(NamedTuple):
    """What of the log may be sent: from its first byte up to the end of a record."""

    start: int
    end: int
    file_bytes: int
    """Size of a file of the log; files begin at multiples of it."""

    @property
    def newest_file(self) -> int:
        return self.end - self.end % self.file_bytes


class LogRead(NamedTuple):
    """Bytes of the log that the link wants to send next."""

    position: int
    size: int
