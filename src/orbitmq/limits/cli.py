"""Bounds of the command line."""

from __future__ import annotations

from typing import Final

# --- contexts ------------------------------------------------------------------------------------------------------
CLI_CONTEXTS_MAX: Final = 256
"""Named clusters in the user's file: a list that a person still reads."""

CLI_CONTEXT_FILE_BYTES_MAX: Final = 262_144
"""Largest file of contexts that is read: so many contexts with a kilobyte each."""

# --- benchmarks ----------------------------------------------------------------------------------------------------
BENCH_SAMPLES_MAX: Final = 5_000_000
"""Times that one run of a benchmark keeps, each a float: two minutes at full speed."""
