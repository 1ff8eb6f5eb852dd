"""Bounds of the far tier: files, moves into the wheel, look-ups, and the process that keeps the files."""

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

FAR_ROW_GROUP_ROWS: Final = 8_192
"""Rows that are read together from a file of the far tier."""

FAR_TABLE_ROW_GROUP_ROWS: Final = 20_000
"""The same of a file of the far table: such a file holds a million rows of many days, and a broker that takes one hour out of it reads
two row groups of some megabytes; more and smaller ones make its footer large, which everybody reads."""

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
"""A request to the process that keeps the files which is not answered by then has failed: the process is ended."""

FAR_IDLE_MS: Final = 60_000
"""The process that keeps the files ends when nothing was asked for this long: it holds 100 MB."""

FAR_RETRY_MS: Final = 1_000
"""First pause after the far tier could not be reached; it doubles each time."""

FAR_RETRY_MS_MAX: Final = 60_000
"""Longest such pause."""

FAR_FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest request or answer between the broker and the process that keeps the files; more is a torn stream."""

FAR_TABLE_FILES_MAX: Final = 50_000
"""Files that the catalog of the far table knows: 20 MB of memory. Ten billion rows are some thousand files; more come from jobs that
write small ones, and wait for compaction."""

FAR_TABLE_JOB_FILES_MAX: Final = 5_000
"""Files in one request to the catalog: one record of a megabyte."""

FAR_TABLE_NAME_LENGTH_MAX: Final = 255
"""Characters of a file's or a job's name in the far table."""

FAR_TABLE_JOBS_MAX: Final = 10_000
"""Jobs whose last epoch the catalog remembers, so that a repetition has no effect."""

FAR_TABLE_JOB_MEMORY_MS: Final = 30 * 86_400_000
"""A job is remembered at least this long after its last request; then another may take its place."""

FAR_TABLE_RECALLS_MAX: Final = 200_000
"""Recalled rows that are still in files: 60 MB of memory. Compaction and promotion make room."""

FAR_TABLE_PAST_RECALLS_MAX: Final = 20_000
"""Recalled rows that are remembered after they left the files, so that a repeated recall is answered like the first."""

FAR_TABLE_CLOSED_MAX: Final = 1_024
"""Closed buckets that are not finished. Each names its files; after a long time without brokers many would be closed at once."""

FAR_TABLE_FINISHED_MAX: Final = 10_000
"""Finished buckets of which it is remembered who took their rows: more than a year of hours."""

FAR_TABLE_SHARES_MAX: Final = 8
"""Shares that one broker has at a time: what it begins waits for it, so it begins what it can store soon."""

FAR_TABLE_AHEAD_MAX: Final = 2
"""A broker that got this many shares more than another one that asks, too, waits for it."""

FAR_TABLE_SNAPSHOT_RECORDS: Final = 1_000
"""Records of the far table's catalog behind its saved state, beyond which it is saved anew: 30 ms of a start."""

FAR_TABLE_SNAPSHOT_MS: Final = 10_000
"""The catalog is saved, and its copy put beside the table's files, within this after a change."""

FAR_TABLE_CLAIM_MS_MIN: Final = 200
"""Pause between two requests of a broker for a further share."""

FAR_TABLE_READ_ROWS: Final = 2_000
"""Rows of the far table that are read and stored together."""

FAR_TABLE_SLICE_ROWS: Final = 100
"""Of them appended in one loop turn: half a millisecond."""

FAR_TABLE_SYNC_LOOK_MS: Final = 50
"""Pause between two looks whether the log is synced behind promoted rows."""

FAR_TABLE_GRANT_ROWS: Final = 100_000
"""Rows that a broker may store beyond those it reported to the table's owner: one record of the catalog each, and what waits for
a broker that is away when its share is released."""

FAR_TABLE_ASK_MS: Final = 10_000
"""A request to the table's owner that is not answered by then is asked again."""

FAR_TABLE_REQUESTS_MAX: Final = 1_000
"""Requests about the far table that wait for a decision; further ones are refused."""

FAR_TABLE_SEARCH_ROWS_MAX: Final = 50_000_000
"""Rows that one recall without a due time looks through: a minute of work of the helper process."""

FAR_TABLE_RECALL_ROWS_MAX: Final = 10_000
"""Rows that one recall by key may mean: one record of a megabyte."""

FAR_TABLE_PAGE_ITEMS: Final = 1_000
"""Files, recalls or shares in one answer."""

FAR_TABLE_PAGE_READ_ROWS: Final = 2_000_000
"""Rows that one page of rows looks through before it ends with what it has: a second of work of the helper process."""

FAR_TABLE_PAGE_FILES_MAX: Final = 2_000
"""Files opened for one page of rows: some seconds. So many overlap where nobody compacts."""
