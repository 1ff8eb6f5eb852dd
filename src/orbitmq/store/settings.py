"""Settings of the message store: file sizes, flushing, retention, disk limits, reading.

Rules of this file
1. A plain value object: it reads no file and no environment. Loading, bounds and key names belong to the server.
2. Field names are RocketMQ's keys in snake case, with the unit as a suffix where the key has none or misspells it.
3. Defaults are RocketMQ 5.3's, so that a directory of either program opens in the other without configuration.
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

from orbitmq.limits.wire import BODY_BYTES_MAX

CONSUME_QUEUE_UNIT_BYTES = 20
"""Size of one consume queue unit; a consume queue file holds a whole number of them."""


class FlushDiskType(enum.Enum):
    """When a send is answered: after the write (ASYNC_FLUSH) or after fdatasync (SYNC_FLUSH)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one store directory is written, kept and read. File sizes must be those the directory was made with."""

    # --- files ---
    store_path_commit_log: Path | None = None
    """Folder of the commit log; None means `commitlog` in the store root."""

    mapped_file_size_commit_log: int = 1_073_741_824
    """Bytes of one commit log file. Files are sparse until written."""

    mapped_file_size_consume_queue: int = 6_000_000
    """Bytes of one consume queue file; a multiple of 20."""

    max_hash_slot_num: int = 5_000_000
    """Hash slots of one index file (4 bytes each)."""

    max_index_num: int = 20_000_000
    """Entries of one index file (20 bytes each, entry 0 unused)."""

    message_index_enable: bool = True
    """Write the key index; without it look-ups by key find nothing."""

    # --- records ---
    max_message_size: int = BODY_BYTES_MAX
    """Largest body in bytes; a whole record may have 64 KiB more."""

    # --- flushing ---
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Whether an acknowledged message has reached the disk or only the page cache."""

    flush_interval_commit_log_ms: int = 500
    """Pause between background flushes of the commit log (asynchronous mode)."""

    flush_commit_log_thorough_interval_ms: int = 10_000
    """At least this often everything written is flushed, however little it is."""

    sync_flush_timeout_ms: int = 5_000
    """A send in SYNC_FLUSH mode that is not on disk by then is answered FLUSH_DISK_TIMEOUT; the record stays."""

    # --- copies ---
    confirms_tail: bool = True
    """Whether a start counts what it finds behind the last confirmed offset. Not where copies decide that: it stays in the log and nobody
    sees it (`MessageStore.confirmation`). What RocketMQ wrote always counts."""

    needs_sound: bool = False
    """Whether a start is refused where something derived lacks what a damaged record of the log said; else it goes on without that."""

    # --- retention ---
    file_reserved_time_hours: int = 72
    """Age (of the last change of the file) after which a commit log file may be deleted."""

    delete_when: tuple[int, ...] = (4,)
    """Local hours of the day, 0 to 23, during which expired files are deleted."""

    clean_resource_interval_ms: int = 10_000
    """Pause between two looks at expired files and disk use."""

    delete_file_batch_max: int = 10
    """Commit log files deleted in one round at most."""

    disk_max_used_space_ratio: int | None = None
    """Percent of disk use above which expired files are deleted at any hour. None: 75, while little is free as well."""

    disk_space_clean_forcibly_ratio: int | None = None
    """Percent of disk use above which the oldest files are deleted whatever their age. None: 85, while little is free as well."""

    disk_space_warning_level_ratio: int | None = None
    """Percent of disk use above which sends are refused. None: 90, while little is free as well."""

    disk_space_free_enough_bytes: int = 2_147_483_648
    """Little is free: less than this. It has no say about a ratio that is set."""

    clean_file_forcibly_enable: bool = True
    """Allow deletion by disk use regardless of age."""

    # --- reading ---
    max_transfer_bytes_on_message_in_memory: int = 262_144
    """Bytes of one pull answer at most."""

    max_transfer_count_on_message_in_memory: int = 32
    """Messages of one pull answer at most."""

    access_message_in_memory_max_ratio: int = 40
    """Percent of physical memory: records nearer to the end of the log than that count as warm."""

    @property
    def flush_pause_ms(self) -> int:
        """How long after a write the log is synced in the background."""
        return min(self.flush_interval_commit_log_ms, self.flush_commit_log_thorough_interval_ms)
