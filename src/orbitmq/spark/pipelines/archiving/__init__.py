"""The pipeline `archive`: topics, or the logs of brokers, into one Delta table, every message once.

    archive.py     the pipeline: settings, and batch after batch
    topics.py      what is new in topics of a cluster
    logs.py        what is new in store directories
    tasks.py       what a Spark task does: read ranges, write files, say which
    landing.py     one attempt's files: by day, sorted by topic
    reached.py     how far an archive is, as numbers of applications; pure
    committing.py  adding a batch exactly once, whatever happens in between; pure
    table.py       the table, by delta-rs
    delta_log.py   its log: numbers, repairs, syncs
    storage.py     where it lies
    upkeep.py      merging, giving space back, deleting, counting
    latest.py      the latest row of each key, in a table beside it
    importing.py   an archive from before there was a table, taken over once

Rules of this package
1. Files and numbers of queues change in one commit. What is planned from a snapshot is committed only where the numbers are still those.
2. What a task writes bears a name that was never used, and is part of the archive when a commit names it.
"""
