"""Bounds of the store: look-ups by key, free space, moving what is pending, checking."""

from __future__ import annotations

from typing import Final

# --- key index -----------------------------------------------------------------------------------------------------
INDEX_CHAIN_STEPS_MAX: Final = 200_000
"""Entries that one look-up by key walks at most (about 0.1 s); only a very frequent key asked for an old time gets there."""

INDEX_HASH_CHUNKS_MAX: Final = 32_768
"""Remembered hashes of three-character pieces of keys; hexadecimal and decimal keys need some 5,000."""

INDEX_HASH_PREFIXES_MAX: Final = 512
"""Remembered hashes of starts of keys, per topic; a start repeats for minutes while its producer lives."""

INDEX_HASH_TOPICS_MAX: Final = 64
"""Topics whose starts of keys are remembered at a time."""

# --- retention -----------------------------------------------------------------------------------------------------
DISK_FREE_ENOUGH_BYTES: Final = 2 * 1024 * 1024 * 1024
"""RocketMQ's percent rules about full disks apply only when less than this is free: a large disk at 91 % has room."""

DISK_LOOK_SOON_FREE_BYTES: Final = 4 * 1024 * 1024 * 1024
"""With less free space than this besides the reserve it is looked at every second: more than a fast disk takes in ten."""

# --- pending messages that move ------------------------------------------------------------------------------------
REWRITE_RESERVE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Free space kept for putting pending records again: at most a default commit log file, twice what one such file may need."""

REWRITE_BATCH_MAX: Final = 256
"""Pending records put again in one loop turn: about 5 ms of work, as much as a release of due ones."""

# --- checking ------------------------------------------------------------------------------------------------------
CHECK_FINDINGS_MAX: Final = 1_000
"""Findings of one store check that are kept in words; further ones are counted."""
