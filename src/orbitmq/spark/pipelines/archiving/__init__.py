"""The pipeline `archive`: topics, or the logs of brokers, into Parquet files by topic and day, every message once.

    archive.py     the pipeline: settings, and batch after batch
    topics.py      what is new in topics of a cluster
    logs.py        what is new in store directories
    tasks.py       what a Spark task does: read ranges, write files, say which
    landing.py     one task's files: by topic and day, each named by the first offset in it
    state.py       how far an archive is; pure
    directory.py   the directory of an archive: one run at a time, and a batch is committed as a whole

Rules of this package
1. A batch is committed by replacing one small file. It names the files of the batch, which get their names only afterwards, so no
   reader ever sees a file that is not committed, and a run that begins finishes what the one before it committed.
2. What a task writes bears a name of its own until then. Of a task that ran twice, the files of one attempt are used.
3. Names follow from what is in the files, so the same rows always get the same names.
"""
