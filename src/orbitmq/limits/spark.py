"""Bounds of what runs in PySpark: sessions, data sources and pipelines."""

from __future__ import annotations

from typing import Final

JAVA_MIN: Final = 17
"""The oldest Java that Spark 4 starts with."""

JAVA_ANSWER_MS: Final = 30_000
"""Patience with a Java that is asked for its version: it takes 0.1 s, and some seconds on a machine that is starting up."""

SPARK_WORKER_ANSWER_MS: Final = 30_000
"""Patience with the workers' Python that is asked, on the driver's machine, for its release: it takes 0.1 s."""

SPARK_WORKER_PROBES: Final = 256
"""Rows of the job that asks every worker whether it can run orbitmq, some for each core of a cluster of up to so many."""

# --- reading -------------------------------------------------------------------------------------------------------
SPARK_TOPICS_MAX: Final = 1_000
"""Topics of one read; each costs a question to its brokers whenever the ends of its queues are looked up."""

SPARK_PULL_MESSAGES_MAX: Final = 65_536
"""Messages one pull may ask for; no broker gives more."""

SPARK_MERGED_ROWS: Final = 10_000
"""Ranges of fewer rows share a Spark partition up to this many: a task costs some 10 ms, as much as reading so many rows."""

SPARK_PARTITIONS_MAX: Final = 100_000
"""Partitions of one batch; Spark's driver keeps several KB for each."""

SPARK_IDLE_WAIT_MS: Final = 1_000
"""How long a stream that finds nothing new waits before it tells Spark so: Spark asks again at once, and each asking costs."""

SPARK_ROUTE_MS: Final = 10_000
"""How long a topic's route is taken to hold; so long may a new queue stay unseen."""

SPARK_BACK_OFF_MS_MAX: Final = 2_000
"""Longest pause between two tries of a server that is away; the first is 50 ms, and each is twice the one before."""

SPARK_CONNECT_PARTS_MAX: Final = 16
"""Different ways to connect that one process keeps: clusters that a job reads and writes, each in few ways."""

SPARK_LINES_MAX: Final = 64
"""Idle connections kept by one process; beyond it the one that comes back is closed."""

SPARK_BACK_OFF_MS: Final = 50
"""First pause after a try of a server that is away; each is twice the one before, up to SPARK_BACK_OFF_MS_MAX."""

SPARK_FIRST_LOOK_MS: Final = 20
"""Pause before the ends are asked for again when nothing was new; each pause is twice the one before, up to offsetRefreshMs."""

# --- writing -------------------------------------------------------------------------------------------------------
SPARK_BATCH_BYTES: Final = 512 * 1024
"""Default of `batchBytes`, the messages of one request: the broker's loop takes some 10 ms for so many, and 50 us of a request
spread over them cost nothing."""

SPARK_BATCH_MESSAGES_MAX: Final = 4_096
"""Messages of one request, so that small ones do not hold the broker's loop for long."""

SPARK_ENCODED_BYTES: Final = 4 * 1024 * 1024
"""Rows that are encoded at a time, by the size of their bodies: enough for whole-array work, and what is beside them stays small."""

SPARK_IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024
"""Unanswered requests of one task, in bytes: at 100 MB/s what a broker stores in 160 ms."""

SPARK_IN_FLIGHT_MAX: Final = 256
"""Unanswered requests of one task; with single messages this is what bounds them."""

SPARK_EQUAL_ROWS_MAX: Final = 0xFFFFFF
"""Equal rows of one task; the count has six hex digits in a key."""

SPARK_IDEMPOTENCY_KEY_CHARS_MAX: Final = 64
"""The name of a job stands in every message, beside the names of brokers; a broker takes 255 bytes for both."""

SPARK_TASK_ROWS_PER_SECOND_MIN: Final = 0.001
"""The slowest a task may be asked to write; below a row in a quarter of an hour somebody has mixed up units."""

SPARK_TASK_ROWS_PER_SECOND_MAX: Final = 1_000_000
"""The fastest; no task comes near it."""

SPARK_BROKER_SET_BYTES_MAX: Final = 140
"""Names of the brokers that a job writes to, as they stand in every message; of a larger cluster it takes some."""

SPARK_SEND_BACK_OFF_MS: Final = 100
"""First pause after a failed request; each is twice the one before, up to SPARK_BACK_OFF_MS_MAX."""

SPARK_EQUAL_ROWS_TABLE_MIN: Final = 1 << 16
"""Places of the smallest table of rows that were seen: enough for 4,096 rows, in 64 KiB."""

# --- reports -------------------------------------------------------------------------------------------------------
REPORT_CELLS_MAX: Final = 2_000_000
"""Counts by topic, span and lateness that the driver takes: some 500 MB, and ten seconds to add them up."""

# --- pipelines -----------------------------------------------------------------------------------------------------
ARCHIVE_FILE_ROWS: Final = 1_000_000
"""Default of `rows-per-file` of an archive: with 1 KB messages 50 to 500 MB of Parquet, which readers like best."""

ARCHIVE_RANGE_BYTES: Final = 256 * 1024 * 1024
"""How much of a commit log one task of an archive reads: a second or two of work, and files that are not small."""

ARCHIVE_BATCH_TASKS: Final = 64
"""Default of `tasks-per-batch` of an archive: what a stop request waits for, and what a run that is killed does again."""

ARCHIVE_BUFFERED_BYTES: Final = 128 * 1024 * 1024
"""Rows that a task of an archive holds for files that are open, all together; then the fullest one is written on."""

ARCHIVE_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Rows written to a file together: what a reader that wants a part of a file has to read at least."""

ARCHIVE_SORTED_BYTES: Final = 64 * 1024 * 1024
"""Rows of several topics that are sorted together; meanwhile they are in memory twice."""

ARCHIVE_MERGED_ROWS: Final = 200_000
"""Rows that are merged into a table of latest rows at a time; all of them are in memory."""

ARCHIVE_IMPORT_ROWS: Final = 8_192
"""Rows of an old archive's file that are read together; 1 KB each, 8 MB."""

ARCHIVE_COMMIT_TRIES: Final = 20
"""Versions that a batch is put as, one after the other, while others commit in between; each try costs milliseconds."""

ARCHIVE_STORAGE_TRIES: Final = 3
"""Times that a batch is put as a version that is not there afterwards. What passes was tried again by the storage's client before."""

STORAGE_REASON_CHARS: Final = 600
"""Of what a file system says when it fails: object stores add pages of XML."""

ARCHIVE_CHECKPOINT_VERSIONS: Final = 20
"""Versions between two checkpoints of an archive's log: as many small files are read when it is opened."""

ARCHIVE_BATCH_MS_MAX: Final = 24 * 3_600_000
"""How long the files of a batch may wait for their commit. `vacuum` leaves what is younger than that in any case."""

ARCHIVE_OPEN_FILES_MAX: Final = 200
"""Files that a task of an archive has open; then the oldest one is finished. A process has 1,024 file descriptors at times."""

REPLAY_SLICE_ROWS: Final = 200_000
"""Messages that a replay writes before it notes how far it is: the brokers hold their keys meanwhile, 30 MB, and a kill costs so many
repeats. A slice costs half a second whatever it holds."""

REPLAY_SLICE_MS: Final = 10_000
"""How long a slice of a replay with a rate takes: what a stop request waits for."""

REPLAY_TASK_ROWS_PER_SECOND: Final = 20_000
"""What one task of a replay with a rate writes at most; a core writes ten times as many small rows. Further tasks share a higher rate."""

REDRIVE_SLICE_LETTERS: Final = 20_000
"""Dead letters that are sent before their place is noted."""

REDRIVE_IN_FLIGHT_MAX: Final = 128
"""Unanswered dead letters of one task."""

SPARK_BROKEN_ROWS_MAX: Final = 10_000
"""Rows of one task that cannot be scheduled and are put aside; more of them are no exceptions. The driver holds a kilobyte for each."""

SCHEDULE_FILE_BYTES: Final = 48 * 1024 * 1024
"""Records of one file that is loaded into a far tier, before they are compressed. A task holds them three times; a broker that writes
the file anew takes six times that."""

SCHEDULE_PROBES: Final = 8
"""Tasks that look whether their machine sees the storage of a far tier, before any writes there."""

SCHEDULE_LOAD_PAUSE_MS: Final = 200
"""Pause between two questions how far a broker is with the files of a job."""

SCHEDULE_NEAR_PARTS: Final = 16
"""Parts of the near rows of a job. A broker remembers the keys of each while it is sent."""

REDRIVE_TASKS: Final = 8
"""Tasks that share a slice of dead letters; each sends some thousand a second."""

BROKEN_ROW_VALUE_CHARS_MAX: Final = 200
"""As much of a value of a broken row is shown, for people to find the row by."""

PIPELINE_SPAN_MS_MAX: Final = 100 * 366 * 86_400_000
"""The longest span of time of a setting, a hundred years: a thread waits for no longer than 292, and nobody means so many."""

PIPELINE_INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The latest instant of a setting: the end of the year 9999, where calendars end."""

PIPELINE_FILE_DEPTH_MAX: Final = 32
"""Tables and lists in each other in a setting of a file of pipelines; a name of Spark has some dots, each of which is a table."""

PIPELINE_LOOK_MS: Final = 1_000
"""How often the driver looks whether it is asked to stop, and how far a job is, while the job runs."""

PROGRESS_LINE_NS: Final = 1_000_000_000
"""Between two lines that say how far a stage is; a person reads them."""

REPLAY_TIMEOUT_MS: Final = 3_000
"""For one question about the topics of a replay, as the data source has it."""

REPLAY_RETRY_TIMEOUT_MS: Final = 60_000
"""For tries of servers that are away when a replay is planned, as the data source has it."""

# --- typed payloads --------------------------------------------------------------------------------------------------
PAYLOAD_SCHEMA_CHARS_MAX: Final = 1024 * 1024
"""The text of a schema, or the bytes of its file: it travels in the plan of every query, and a megabyte holds ten thousand fields."""

PAYLOAD_FIELDS_MAX: Final = 2_000
"""Fields of a payload, inner ones too: each is a column of its own in memory, also where no message has it."""

PAYLOAD_DEPTH_MAX: Final = 32
"""How deep the type of a payload goes; types that name themselves would have no end."""

AVRO_NUMBER_BYTES_MAX: Final = 10
"""Bytes of a number in an Avro body: 64 bits, seven in each byte."""

PAYLOAD_REASON_CHARS_MAX: Final = 300
"""Why a body cannot be decoded, for people to read; a reason may quote what was found."""

PAYLOAD_SUBJECTS_MAX: Final = 100
"""Subjects of one read; each is a request to the registry for each batch."""

PAYLOAD_SCHEMAS_MAX: Final = 1_000
"""Versions of one subject: each is fetched, and travels with every task."""

PAYLOAD_REFERENCES_MAX: Final = 100
"""Schemas that one schema refers to, all the way down."""

PAYLOAD_REGISTRIES_MAX: Final = 16
"""Registries, with what was seen there, that a process keeps."""

PAYLOAD_REGISTRY_TIMEOUT_MS: Final = 10_000
"""Patience with one request to a schema registry."""

PAYLOAD_REGISTRY_RETRIES: Final = 3
"""How often a request to a schema registry is tried again; its client waits a second, two, four in between."""

# --- the service of pipelines ---------------------------------------------------------------------------------------
SERVICE_PARTS_MAX: Final = 64
"""Streams and jobs of one service: each has a thread, and all share one driver."""

SERVICE_NAME_CHARS_MAX: Final = 64
"""The name of a stream or job: it stands in metrics, in log lines, and as the name of a directory."""

SERVICE_RESTART_MS: Final = 1_000
"""Pause before a stream or job that failed is begun again; each further failure doubles it."""

SERVICE_RESTART_MS_MAX: Final = 300_000
"""The longest of these pauses: what was repaired goes on within five minutes, and what stays broken writes 300 log lines a day."""

SERVICE_STOP_MS: Final = 60_000
"""Default of `stop-within`: as long as a batch of the sizes that are usual here takes on a busy machine."""

SERVICE_STOP_MS_MAX: Final = 3_600_000
"""The longest; no supervisor waits for more."""

SERVICE_LOOK_MS: Final = 500
"""How often a stream looks at its query, and the service at its session."""

SERVICE_UNANSWERED_LOOKS_MAX: Final = 120
"""Looks of the service, each of SERVICE_LOOK_MS, that Spark may leave without an answer: a minute, longer than Java's longest pauses."""

SERVICE_BATCH_ROWS: Final = 100_000
"""Default of `rows-per-batch` of a stream: a second or two of work."""

SERVICE_REASON_CHARS_MAX: Final = 500
"""As much of the reason of a failure is shown by `/readyz`; the log has all of it."""

SERVICE_HTTP_TIMEOUT_S: Final = 5.0
"""Patience with a client of the HTTP port that says nothing."""

SERVICE_HTTP_REQUESTS_MAX: Final = 16
"""Requests of the HTTP port that are answered at a time; for a further one the oldest is broken off."""

SERVICE_HTTP_ROOM_S: Final = 1.0
"""For the thread of such a request to end; it waits for nothing any more."""

SERVICE_HTTP_PAUSE_S: Final = 0.1
"""Pause after a connection that could not be taken, for want of descriptors."""

SERVICE_HTTP_WAITING_MAX: Final = 128
"""Connections that the system keeps for the HTTP port until they are taken; a flood of 500 leaves room for a probe sooner."""

SERVICE_LOG_REPEATS_MAX: Final = 1_000
"""Log lines of one wording in ten seconds: ten batches a second of every stream that there may be."""

SERVICE_LINEAGE_EVENTS_MAX: Final = 1_000
"""Events that wait for a lineage server that is slow or away; further ones are dropped and counted."""

SERVICE_LINEAGE_TIMEOUT_MS: Final = 5_000
"""Patience with one request to a lineage server."""

SERVICE_CLOCK_LOOK_MS: Final = 10_000
"""Longest wait for the next run of a job without a look at the clock, which may have been set."""

SERVICE_END_SLACK_MS: Final = 2_000
"""Beside the time of a stop, for the thread of a query to say that it gave its batch up."""

SERVICE_SESSION_END_MS: Final = 10_000
"""For the end of the Spark session; then its Java ends with the process."""

ARCHIVE_WRITER_VERSION_MAX: Final = 7
"""Of the protocol of Delta tables that an archive is written to: from this version on a table lists its features."""

CHANGES_FEED_BYTES_MAX: Final = 1 << 30
"""Changes of one version of a table that the driver reads: delta-rs gives them there, and there only."""

DEAD_LETTER_COUNTS_MAX: Final = 100_000
"""Counts of dead letters by group, topic, reason and time that the driver takes: some 50 MB. More are a reason with an id in it."""
