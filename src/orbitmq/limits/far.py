"""Bounds of the far tier: files, moves to the near ones, look-ups, and the process that keeps the files."""

from __future__ import annotations

from typing import Final

FAR_LANDING_ROWS_MAX: Final = 20_000
"""Far messages that wait in the log alone before they are written to a file. A start reads each of them: 0.3 s."""

FAR_LANDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same in bytes: one request to the process that writes files."""

FAR_LANDING_AGE_MS: Final = 600_000
"""A far message is in a file after ten minutes: few files where few messages come."""

FAR_LANDING_FILES_MAX: Final = 16
"""Landing files beyond which they are put into the files of their days: each one costs every look-up by key some milliseconds."""

FAR_DAY_FILES_MAX: Final = 8
"""Files of one day beyond which they become one."""

FAR_INDEXES_MAX: Final = 64
"""Indexes beyond which files are written anew together, so that they have fewer: each one costs every look-up by key half a millisecond."""

FAR_INDEX_ROWS_MAX: Final = 1_000_000
"""Rows of loaded files that get one index: three seconds of work, and 300 MB, of the process that keeps the files."""

FAR_DAY_ROWS_MIN: Final = 1_000
"""Rows below which a day gets no file of its own when landing files are put into days: files of a few kilobytes cost more than
they help."""

FAR_LANDING_REST_BYTES_MAX: Final = 12 * 1024 * 1024
"""Payload of such days that stays together in one file, which is written anew with the next landing files: a quarter of what is
written anew at a time."""

FAR_TOMBSTONES_MAX: Final = 20_000
"""Rows of recalled and rescheduled messages that stay in files before these are written anew: 3 MB of memory."""

FAR_COMPACT_BYTES_MAX: Final = 48 * 1024 * 1024
"""Payload that is written anew at a time; the process that does it takes about six times that."""

FAR_OPEN_FILES_MAX: Final = 800
"""Files that are kept open, or half as many as the process may open; beyond it the one that was used longest ago is closed."""

FAR_ROW_GROUP_ROWS: Final = 8_192
"""Rows that are read together from a file of the far tier."""

FAR_PROMOTION_ROWS_MAX: Final = 2_000
"""Messages that leave a file together, with one mark behind them."""

FAR_PROMOTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""The same in bytes; a single message may be larger."""

FAR_SLICE_ROWS: Final = 128
"""Promoted messages appended in one loop turn: about 2 ms."""

FAR_QUERIES_MAX: Final = 64
"""Look-ups in the far tier that wait at a time; a further one is refused."""

FAR_ANSWER_MS: Final = 60_000
"""How long an answer of the far tier may be acted upon: what is finished is remembered so long, in 70 bytes each."""

FAR_CALL_TIMEOUT_MS: Final = 120_000
"""The process that keeps the files is ended, and its call fails, when it takes and sends nothing for this long."""

FAR_IDLE_MS: Final = 60_000
"""The process that keeps the files ends when nothing was asked for this long: it holds 100 MB."""

FAR_RETRY_MS: Final = 1_000
"""First pause after the far tier could not be reached; it doubles each time."""

FAR_RETRY_MS_MAX: Final = 60_000
"""Longest such pause."""

FAR_FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest request or answer between the broker and the process that keeps the files; more is a torn stream."""

FAR_SLEEP_MS_MAX: Final = 60_000
"""Longest sleep while anything is pending: how late a forward step of the wall clock is noticed."""

FAR_COMPACTION_PAUSE_MS: Final = 60_000
"""Files are not looked at again for writing them anew before this."""

FAR_GARBAGE_MS: Final = 5_000
"""The copy of the state is written, and files that nothing needs any more are removed, within this and a durable save."""

FAR_LOAD_FILES_MAX: Final = 4_000
"""Files of one job that loads them in bulk: one record of a megabyte."""

FAR_LOADS_WAITING_MAX: Final = 16
"""Such jobs whose files are being checked at a time; a further one is asked to come again."""

FAR_LOADED_FILES_MAX: Final = 20_000
"""Files of the tier beyond which none are loaded: their list, 6 MB, is saved whenever it changed."""

FAR_LOAD_AGE_MS: Final = 6 * 86_400_000
"""Age of an attempt to load files that still counts. Its files stay a day longer, what became of its job is remembered weeks longer."""

FAR_LOAD_FILE_AGE_MS: Final = 7 * 86_400_000
"""Files that no load made count are removed so long after they were written."""

FAR_LOAD_MEMORY_MS: Final = 30 * 86_400_000
"""What became of a job that loaded files is remembered at least so long, and while a row of it waits: 300 bytes."""

FAR_LOAD_SWEEP_MS: Final = 6 * 3_600_000
"""Pause between two looks for such files."""

FAR_LOAD_NAME_CHARS_MAX: Final = 255
"""Longest name of a job that loads files; what is longer is refused."""
