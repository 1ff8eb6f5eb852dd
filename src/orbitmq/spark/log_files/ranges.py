"""Which task reads what: files of a log cut into ranges of bytes.

Rules of this file
1. Pure: sizes in, ranges out.
2. A range owns the records that begin in it, so the ranges of a log own every record exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.limits.columns import LOG_PARTITIONS_MAX
from orbitmq.spark.log_files.directory import LogDirectory


class LogRange(NamedTuple):
    """The records of one file that begin at log positions from `first` to before `end`."""

    path: str
    base: int
    size: int
    first: int
    end: int
    log_end: int
    """Where the log ends: in this file, or behind it."""
    begins_record: bool
    """A record begins at `first`; else one has to be searched."""
    goes_on: bool
    """Another range of the same file begins at `end`."""


def cut(directory: LogDirectory, starting: int | None, ending: int | None, partition_bytes: int) -> list[LogRange]:
    """The ranges between two positions of the log, in order; at the first of them a record has to begin.

    Raises ConfigurationError when they are too many, and StoreDamagedError when the beginning was removed.
    """
    first = directory.start if starting is None else starting
    end = directory.end if ending is None else min(ending, directory.end)
    if first < min(directory.start, end):
        raise StoreDamagedError(
            f"the log begins at position {directory.start}, it was to be read from {first}",
            remedy="its oldest files were removed; begin at a later position, or leave startingPosition out",
        )
    ranges = list(islice(_ranges(directory, first, end, partition_bytes), LOG_PARTITIONS_MAX + 1))
    if len(ranges) > LOG_PARTITIONS_MAX:
        raise ConfigurationError(
            f"{end - first} bytes in ranges of {partition_bytes} are more than {LOG_PARTITIONS_MAX} ranges",
            remedy="set a larger maxPartitionBytes",
        )
    return ranges


def _ranges(directory: LogDirectory, first: int, end: int, partition_bytes: int) -> Iterable[LogRange]:
    for file in directory.files:
        last = min(file.end, end)
        at = max(file.base, first)
        while at < last:
            # Boundaries lie at the same positions whatever is asked for, so that a repeated read has the same ranges.
            following = file.base + ((at - file.base) // partition_bytes + 1) * partition_bytes
            stop = min(following, last)
            begins_record = at in (file.base, first)
            yield LogRange(file.path, file.base, file.size, at, stop, directory.end, begins_record, stop < last)
            at = stop
