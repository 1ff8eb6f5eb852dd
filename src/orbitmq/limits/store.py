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

# --- work on threads -----------------------------------------------------------------------------------------------
REFUSED_RETRY_MS: Final = 100
"""Pause before a sync of the log is asked for again that found no thread to run on: senders wait for it."""

SAVE_RETRY_MS: Final = 1_000
"""Pause before a durable save that failed is tried again; it doubles up to SAVE_RETRY_MS_MAX."""

SAVE_RETRY_MS_MAX: Final = 30_000
"""Longest pause between two tries of a durable save: bounds what the next start has to scan by what comes in half a minute."""

REMOVE_RETRY_MS: Final = 10_000
"""Pause before files that could not be removed are tried again; as long as between two looks at what has expired."""

UNSYNCED_INTERVALS_MAX: Final = 10
"""A log that was not synced for as many intervals of flush is no longer ready: what is acknowledged is not safe."""

UNSYNCED_READY_MS_MIN: Final = 2_000
"""However short the interval of flush is: a disk that is busy for less than this is no trouble."""

# --- saving queues -------------------------------------------------------------------------------------------------
WRITTEN_QUEUES_MAX: Final = 32
"""Consume queues whose units are written in one go: 1 ms of the loop, some 5 ms where their files are made."""

WRITTEN_QUEUES_PAUSE_MS: Final = 5
"""From one such go to the next: messages come first. 6,000 queues take a second and a fifth of the loop."""

SYNCED_QUEUES_MAX: Final = 8
"""Files of consume queues that a durable save syncs in one go: 5 ms of a disk that has the log to sync as well."""

SYNCED_QUEUES_PAUSE_MS: Final = 10
"""From one such go to the next: syncs of the log, for which senders wait, have the disk in between. 6,000 queues take 12 s."""

# --- reading -------------------------------------------------------------------------------------------------------
FETCHED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Old records that are fetched at once for a look-up by key or place: as much as fits one answer."""

FETCH_ROUNDS_MAX: Final = 64
"""How often a request is begun anew because the next old record has to be fetched: a search by time takes some thirty. Beyond it the
rest is read where it is needed."""

# --- a full disk ---------------------------------------------------------------------------------------------------
RESERVE_LOG_FILES: Final = 16
"""One part in as many of a commit log file is set aside for what must be written on a full disk: tables, queues, the orderly stop."""

RESERVE_BYTES_MIN: Final = 64 * 1024
"""Set aside at least: the recovery mark, RocketMQ's checkpoint and a page for each of a few queues."""

RESERVE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Set aside at most: a page for each of 10,000 queues, and tables of some megabytes twice."""

SPACE_CHECK_INTERVAL_MS: Final = 500
"""How often it is looked whether a full disk has room again: sends are to resume within 1.5 s."""

SPACE_RESUMED_BYTES: Final = 1024 * 1024
"""Free besides what is set aside before messages are taken again, so that the next one finds room."""

# --- retention -----------------------------------------------------------------------------------------------------
UNREAD_PAIRS_MAX: Final = 20_000
"""Pairs of group and topic of which it is looked whether files of the log go unread by them: some 40 ms, when files go."""

UNREAD_NAMED_MAX: Final = 10
"""Groups named in the line about files that went unread; of further ones the number is told."""

PINNED_FILE_MS_MAX: Final = 3 * 24 * 3_600_000
"""How long after its time a file of the log may stay because of messages that are popped and renewed, as long as the longest invisible
time; then renewals are answered NO_MESSAGE, and the messages come back at their time."""

DISK_LOOK_SOON_FREE_BYTES: Final = 4 * 1024 * 1024 * 1024
"""With less free space than this besides the reserve it is looked at every second: more than a fast disk takes in ten."""

# --- pending messages that move ------------------------------------------------------------------------------------
REWRITE_RESERVE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Free space kept for putting pending records again: at most a default commit log file, twice what one such file may need."""

# --- checking ------------------------------------------------------------------------------------------------------
CHECK_FINDINGS_MAX: Final = 1_000
"""Findings of one store check that are kept in words; further ones are counted."""

QUEUE_BLOCKS_MAX: Final = 256
"""Queues of which such a block is kept: 4 MB."""

WRITEV_PARTS_MAX: Final = 1024
"""Most parts of one gathered write; IOV_MAX of Linux."""

HOUSEKEEPING_SOON_MS: Final = 1_000
"""Pause between two looks while sends could use up in one usual pause what is free besides the reserve, and while they are refused:
they are to be taken again within 1.5 s."""

QUEUE_TAILS_BYTES_MAX: Final = 1024 * 1024
"""Units of all queues that may wait in memory; what comes on top is written whether a save is due or not."""

SCAN_UNITS_MIN: Final = 800
"""Units that are looked at for one answer at least where a filter, or the end of old records, passes them over: bounds the work."""

REGION_KNOWN_NS: Final = 100_000_000
"""So long it is believed that a region is in memory. The system takes pages away that were not used for long, by seconds."""

REGIONS_KNOWN_MAX: Final = 1024
"""Regions that are remembered: 1 GiB of the log, more than is read within the time that they are believed."""

CHECKPOINT_GUARD_MS: Final = 3000
"""RocketMQ steps this far back behind its checkpoint, because its fields are not written at one moment."""

WRITTEN_SAVE_MS: Final = 200
"""From the first change to the save: what must be scanned after the process was killed, besides what comes while a save runs."""

DURABLE_SAVE_MS: Final = 5_000
"""From the first change to the save: what must be scanned after a power failure, besides what comes while a save runs."""

WORKER_JOBS_MAX: Final = 1024
"""Jobs waiting at most: they are few by nature; reaching this means that the disk hangs."""

QUEUE_FINDINGS_MAX: Final = 3
"""Findings of one queue in words: a shifted queue would repeat the same one for every message."""

TABLE_PIECE_PAUSE_S: Final = 0.0001
"""Between two pieces: enough for a thread that waits for the interpreter to get it."""

COARSE_CLOCK_NS: Final = 1_000_000
"""A time of change that is a multiple of this comes from a file system that counts in milliseconds or seconds: two changes may have one
time there. Of one that counts finely, every millionth file is taken for such a one, which costs a look into it."""

# --- bytes of another log ------------------------------------------------------------------------------------------
RAW_SLICE_BYTES: Final = 256 * 1024
"""Bytes of another log that are checked and written together: about 2 ms for records of 1 KiB."""

RAW_RECORD_BYTES_MAX: Final = 128 * 1024 * 1024
"""Longest record that is taken from another log: it is kept in memory until it is whole. The longest message that can be configured is
shorter."""

RAW_TOPIC_BYTES_MAX: Final = 255
"""Longest name of a topic in another log: it becomes the name of a directory."""

# --- backups -------------------------------------------------------------------------------------------------------
BACKUP_PIECE_BYTES: Final = 256 * 1024
"""What a backup reads and compares at a time: fits the cache of a core, and a hole of that size is not copied."""

BACKUP_TRIES_MAX: Final = 8
"""How often a backup begins a part anew whose files are replaced or removed while it is copied. The next try has little left to copy, so a
second one is rare."""

BACKUP_QUIET_NS: Final = 1_000_000_000
"""A file that changed so short before it was copied is looked at again by the next run: the clock of the file system may be coarse."""
