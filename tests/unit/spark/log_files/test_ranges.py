"""Files of a log cut into ranges of bytes."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.spark.log_files.directory import LogDirectory, LogFile
from orbitmq.spark.log_files.ranges import cut

LOG = LogDirectory((LogFile("a", 1000, 1000), LogFile("b", 2000, 1000)), 2500)


def spans(starting: int | None, ending: int | None, partition_bytes: int) -> list[tuple[str, int, int, bool, bool]]:
    return [
        (part.path, part.first, part.end, part.begins_record, part.goes_on)
        for part in cut(LOG, starting, ending, partition_bytes)
    ]


def test_whole_files_end_where_the_log_does() -> None:
    assert spans(None, None, 5000) == [("a", 1000, 2000, True, False), ("b", 2000, 2500, True, False)]


def test_ranges_of_a_file_follow_each_other() -> None:
    assert spans(None, None, 400) == [
        ("a", 1000, 1400, True, True),
        ("a", 1400, 1800, False, True),
        ("a", 1800, 2000, False, False),
        ("b", 2000, 2400, True, True),
        ("b", 2400, 2500, False, False),
    ]


def test_boundaries_stay_where_they_are() -> None:
    assert spans(1500, 2100, 400) == [
        ("a", 1500, 1800, True, True),
        ("a", 1800, 2000, False, False),
        ("b", 2000, 2100, True, False),
    ]
    assert spans(2000, 9999, 400)[0] == ("b", 2000, 2400, True, True)
    assert spans(2600, None, 400) == []


def test_a_beginning_that_is_gone_is_an_error() -> None:
    with pytest.raises(StoreDamagedError, match="begins at position 1000, it was to be read from 999"):
        cut(LOG, 999, None, 400)


def test_an_empty_log_has_no_ranges() -> None:
    assert cut(LogDirectory((), 0), None, None, 400) == []


def test_too_many_ranges() -> None:
    """They are refused before they are made: a size of one byte would otherwise fill the driver's memory."""
    with pytest.raises(ConfigurationError, match="larger maxPartitionBytes"):
        cut(LogDirectory((LogFile("a", 0, 1 << 60),), 1 << 60), None, None, 1)
