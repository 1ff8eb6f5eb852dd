"""The far tier: timer messages that are due in more than three days, kept as Parquet files by due date.

In the broker, without pyarrow: `far_timers` (the tier as the rest of the broker sees it), `state` (what is pending, from the log),
`buffered` (what no file holds yet), `files` (the list of the files), `state_file` (all of this on the disk), `keeper` (landing,
promotion, compaction), `plan` (when each is due), `changes` (the records that say so), `loads` (files that others wrote), `queries`
(finding messages).

In the process that keeps the files: `file_server`, `arrow_tier`, `scans`, `columns`, `storage`. Between the two: `tier` (the calls) and
`process` (carrying them).
"""
