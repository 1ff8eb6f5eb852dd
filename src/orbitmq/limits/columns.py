"""Bounds of reading records in bulk: what is taken into memory at a time, and how far a search goes."""

from __future__ import annotations

from typing import Final

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Bytes of one column of a batch, and of the data that one batch is made of: the offsets of Arrow's strings have 32 bits."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records of a batch, as stored: between 2 and 8 MB the hand-over to Spark costs least, and a batch bounds the memory of a task."""

REPEATED_NAMES_LOOKED_AT: Final = 24
"""Properties of one message up to which names are compared one with the other; from there on they are sorted."""

# --- commit-log files ------------------------------------------------------------------------------------------------
LOG_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much of a commit-log file is read at a time; a larger record is read whole."""

LOG_SEARCH_BYTES: Final = 256 * 1024
"""How much is read in one step when the beginning of a record is searched: most are near."""

LOG_RECORD_BYTES_MAX: Final = 256 * 1024 * 1024
"""A size beyond this is damage: no broker takes such messages, and a task must not take a gigabyte for some flipped bits."""

LOG_PARTITION_BYTES: Final = 128 * 1024 * 1024
"""Default of `maxPartitionBytes`, as for Spark's own files."""

LOG_PARTITIONS_MAX: Final = 100_000
"""Ranges of one read; Spark's driver keeps several KB for each."""

LOG_ROWS_KEPT_BYTES: Final = 2 * 1024 * 1024
"""Smaller batches, left over by a filter, are put together up to this size before they are given to Spark."""

QUARANTINED_BYTES_MAX: Final = 64 * 1024
"""Bytes of one damaged place that are copied into its line of the quarantine file."""
