"""The pipeline as a service: streams and scheduled jobs in one process, with health, metrics, restarts and an orderly stop.

    service_file.py    what the file says, and everything that is wrong with it
    stream_settings.py the settings of streams into a topic or a table
    timetable.py       when a job runs; pure
    figures.py         what has become of every part: metrics and readiness; pure
    service.py         threads, pauses after failures, the stop, and how the service ended
    work.py            what the thread of each part does in Spark
    typed_table.py     typed rows into a Delta table, each batch once
    service_directory.py  the directory of a service: its lock, and which runs were made
    health_port.py     `/livez`, `/readyz`, `/metrics`
    lineage.py         OpenLineage events
    upkeep_jobs.py     looking after archives, as jobs

Rules of this package
1. A part (a stream or a job) that fails stops no other one. It is begun again after a pause, for ever.
2. Exactly once is the business of the sinks: whatever ends here, the next start goes on behind the last batch that was committed.
"""
