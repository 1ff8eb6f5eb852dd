"""Bounds of reading records in bulk: what is taken into memory at a time, and how far a search goes."""

from __future__ import annotations

from typing import Final

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Bytes of one column of a batch, and of the data that one batch is made of: the offsets of Arrow's strings have 32 bits."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records of a batch, as stored: between 2 and 8 MB the hand-over to Spark costs least, and a batch bounds the memory of a task."""

REPEATED_NAMES_LOOKED_AT: Final = 24
"""Properties of one message up to which names are compared one with the other; from there on they are sorted."""
