"""Every bound of the system, each with its reason.

Rules of this file
1. A queue, batch, buffer, retry count or name length without a line here is a bug.
2. Beyond a bound the caller gets a clear error; nothing is silently cut or clamped, and memory stays bounded.
3. Units are in the names.
"""

from __future__ import annotations

from typing import Final

# --- frames -------------------------------------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 16_777_216
"""Largest frame on the wire, the four length bytes included; the limit of RocketMQ's decoder."""

# --- messages -----------------------------------------------------------------------------------------------------
BODY_BYTES_MAX: Final = 4_194_304
"""Default of `maxMessageSize`: largest body, and largest sum of a batch."""

RECORD_OVERHEAD_BYTES_MAX: Final = 65_536
"""What a stored record may have beyond its body: fixed fields, topic, properties."""

PROPERTIES_BYTES_MAX: Final = 32_767
"""The length of the encoded properties is a signed 16-bit number in the record."""

TOPIC_BYTES_MAX: Final = 127
"""Ordinary topics: the length is a signed byte in V1 records."""

RETRY_TOPIC_BYTES_MAX: Final = 255
"""`%RETRY%` and `%DLQ%` topics carry a group name of up to 255 characters (V2 records)."""

GROUP_CHARS_MAX: Final = 255
"""Consumer and producer groups; what clients up to 5.3.3 allow."""

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A body may not grow beyond this when a consumer decompresses it: stops decompression bombs."""

# --- client -------------------------------------------------------------------------------------------------------
CLIENT_IN_FLIGHT_REQUESTS_MAX: Final = 4_096
"""Unanswered requests per connection; later calls wait for a free place within their own time limit."""

CLIENT_WRITE_BUFFER_BYTES: Final = 1_048_576
"""Above this many unsent bytes on a connection callers wait before they write; bounds what a slow broker can pile up."""

CLIENT_NAME_SERVERS_MAX: Final = 64
"""More addresses than any cluster has name servers; a longer list is a mistake such as a pasted file."""

CLIENT_TOPICS_MAX: Final = 10_000
"""Topics whose routes one client keeps fresh; each costs a name-server request every 30 s."""

CLIENT_GROUPS_MAX: Final = 1_000
"""Producers plus consumers of one client; all of them travel in every heartbeat."""

CLIENT_SEND_RETRIES_MAX: Final = 64
"""Largest retry count a producer may be given; the time limit of the send ends the attempts long before."""

CLIENT_SENDS_IN_FLIGHT_MAX: Final = 1_024
"""Default of what one producer has under way, in messages; the Java client's bound for asynchronous sends."""

CLIENT_BYTES_IN_FLIGHT_MAX: Final = 100 * 1024 * 1024
"""The same in bytes of bodies."""

CLIENT_EPOCH_SENDS_MAX: Final = 65_536
"""Sends of one epoch of a producer's own scope, beyond which stragglers of the epoch before are given up: at 15,000 sends
a second the epoch can still wait four seconds for them."""

CLIENT_SEND_TEMPLATES_MAX: Final = 1_024
"""Topics for which a producer keeps an encoded send header; beyond it they are made anew."""

CLIENT_REQUESTS_WAITING_MAX: Final = 10_000
"""Requests of one client that wait for the reply of a consumer; each is a few hundred bytes and a timer."""

CLIENT_TRACES_MAX: Final = 2_048
"""Trace records that wait to be sent; further ones are dropped and counted, so that tracing never holds up a send."""

CONSUMER_TOPICS_MAX: Final = 1_000
"""Topics of one consumer; every one is rebalanced every 20 s."""

CONSUMER_CONCURRENCY_MAX: Final = 1_000
"""Handlers of one consumer that may run at the same time."""

CONSUMER_QUEUE_MESSAGES_MAX: Final = 1_000
"""Unsettled messages of one queue above which it is not pulled (RocketMQ's pullThresholdForQueue)."""

CONSUMER_QUEUE_BYTES_MAX: Final = 100 * 1024 * 1024
"""Unsettled body bytes of one queue above which it is not pulled (pullThresholdSizeForQueue)."""

CONSUMER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Unsettled body bytes of all queues of one consumer above which none is pulled; RocketMQ has no such bound."""

CONSUMER_MESSAGES_MAX: Final = 100_000
"""Unsettled messages of all queues of one consumer above which none is pulled: small messages cost more than their bytes."""

CONSUMER_BATCH_MESSAGES_MAX: Final = 1_024
"""Messages of one call of a batch handler; RocketMQ's consumeMessageBatchMaxSize."""

CONSUMER_SPAN_MAX: Final = 2_000
"""Distance from the first to the last unsettled offset of a queue above which it is not pulled: one stuck message
may hold back the committed offset, and with it cause redelivery after a crash, only this far."""

CONSUMER_PULL_MESSAGES_MAX: Final = 1_024
"""Largest number of messages one pull may ask for."""

CONSUMER_PULL_BYTES: Final = 262_144
"""Bytes one pull asks for at most; the broker's own transfer bound."""

ALLOCATION_VIRTUAL_NODES_MAX: Final = 10_000
"""Places of one member on the ring of the consistent-hash strategy; every rebalance computes all of them for all members."""

PULL_WAIT_MS_MAX: Final = 110_000
"""Longest wait one explicit pull may ask for: brokers close connections that are silent for 120 s."""

LITE_MESSAGES_MAX: Final = 10_000
"""Messages of all queues of a lite consumer, waiting to be polled or in hand, above which none is pulled (pullThresholdForAll)."""

LITE_ASSIGNED_QUEUES_MAX: Final = 16_384
"""Queues that may be assigned to one lite consumer; each is one held request at its broker."""

LITE_WATCHES_MAX: Final = 1_000
"""Topics whose queues one lite consumer watches; each costs a look at the name servers every 30 s."""

OFFSETS_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Offsets file of a broadcasting consumer: some 150,000 queues. A larger one is no such file."""

CLIENT_STACKS_CHARS_MAX: Final = 65_536
"""Where the tasks of a client stand, as an administrator's request is answered; a screen or two is what people read."""

CLIENT_OFFLOAD_BYTES: Final = 65_536
"""Bodies from this size are compressed and decompressed on a thread, so that the event loop is not held for more than
about a millisecond."""

# --- name server --------------------------------------------------------------------------------------------------
NAMESERVER_BROKERS_MAX: Final = 10_000
"""Registered broker addresses. Anybody may register; an invented broker must not fill the memory."""

NAMESERVER_TOPIC_ENTRIES_MAX: Final = 1_000_000
"""Entries of the route table, one for each topic on each group; ten times what large installations report."""

NAMESERVER_NAME_CHARS_MAX: Final = 512
"""Names in a registration. The longest legal topic has 262 characters; together with the number of entries this
bounds the memory that invented topics can take."""

NAMESERVER_FILTER_SERVERS_MAX: Final = 64
"""Filter servers of one broker; RocketMQ 4 started at most a handful beside it, later ones have none."""

NAMESERVER_MAPPED_QUEUES_MAX: Final = 1_000_000
"""Queues in the mappings of static topics, of all brokers; as many as the route table has entries."""

NAMESERVER_KV_BYTES_MAX: Final = 16 * 1024 * 1024
"""Sum of all names, keys and values of the KV table; the whole table is one file, rewritten on a change."""

NAMESERVER_ROUTE_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Encoded route answers kept; beyond it the cache starts again empty."""

# --- broker -------------------------------------------------------------------------------------------------------
TOPICS_MAX: Final = 50_000
"""Topics of one broker. All of them travel in every registration, which is one frame."""

QUEUES_PER_TOPIC_MAX: Final = 16_384
"""Queues of one topic: sixteen times the largest system topic. Statistics answers list every one."""

GROUPS_MAX: Final = 50_000
"""Consumer groups of one broker; an unknown group is created at first sight, so anybody could invent them."""

OFFSET_QUEUES_MAX: Final = 2_000_000
"""Stored consumer offsets (group, topic, queue); the whole table is one file, rewritten every few seconds."""

CLIENT_GROUPS_PER_CONNECTION_MAX: Final = 2_048
"""Groups one connection may join; a client process has a handful."""

REMARK_CHARS_MAX: Final = 1_000
"""Longest remark of a refusal: it may quote a name that is a megabyte long."""

HELD_PULLS_MAX: Final = 100_000
"""Pulls waiting for a message, of all connections; RocketMQ's bound for the same."""

HELD_PULLS_PER_QUEUE_MAX: Final = 4_096
"""Pulls waiting on one message queue: every arrival looks at all of them."""

PULL_SUSPEND_MS_MAX: Final = 120_000
"""Longest wait of a held pull; a connection that is silent for longer is closed anyway."""

CLIENT_ID_CHARS_MAX: Final = 1_024
"""Client ids in heartbeats and queue locks; official clients make theirs of an address, a process and a unit."""

CLIENT_SUBSCRIPTIONS_BYTES_MAX: Final = 256 * 1024 * 1024
"""What the subscriptions of all online groups may take together, as `clients` estimates it; an ordinary one takes less
than a kilobyte, but a single heartbeat could bring a whole frame of tags."""

GROUP_CONFIG_BYTES_MAX: Final = 65_536
"""Encoded settings of one consumer group; all groups are in one file. Ordinary ones have 500 bytes."""

FORBIDDEN_PAIRS_MAX: Final = 100_000
"""Pairs of group and topic with a mark that reading is forbidden; they stand in the file of the groups."""

BROKER_NAME_CHARS_MAX: Final = 512
"""Names of brokers in message queues that clients lock; as long as the name server takes them."""

QUEUE_LOCKS_MAX: Final = 262_144
"""Queue locks of all groups; an orderly group holds one per message queue. Anybody may lock queues that do not exist."""

UNANSWERED_SENDS_MAX: Final = 10_000
"""Default of `sendThreadPoolQueueCapacity`: sends waiting for their flush, beyond which SYSTEM_BUSY is answered."""

QUERY_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Records of one answer to a look-up by key; half a frame."""

STATISTIC_NAMES_MAX: Final = 20_000
"""Topics, and groups of a topic, with counters of their own."""

QUESTIONS_TO_CLIENTS_MAX: Final = 1_024
"""Questions of tools that the broker has passed on to clients and that are not answered yet; a group of a thousand
clients can be asked at once."""

CONSUME_STATS_QUEUES_MAX: Final = 50_000
"""Message queues in one report about the progress of all groups: about 10 MB of JSON and half a second."""

NOTED_OFFSETS_MAX: Final = 1_000
"""Pairs of group and topic whose commits beyond the end were logged; later ones are only counted."""

WISHES_COMPARED_MAX: Final = 64
"""Topics of one member whose subscriptions are kept word by word, to tell members that differ; a consumer has a few."""

CLIENT_WISHES_MAX: Final = 200_000
"""Subscriptions of members that are kept to compare them, each different set once per group: at most some 80 MB. Beyond
it further members are not compared."""

GROUP_WARNINGS_MAX: Final = 8
"""Sentences about one group whose members do not agree; the first ones tell what is wrong."""

QUEUE_UNITS_SHOWN_MAX: Final = 10_000
"""Consume queue units in one answer: about a megabyte of JSON."""

BATCH_MESSAGES_MAX: Final = 32_768
"""Messages in one batch frame. A batch is handled in one piece, which others wait for: this many take about 0.3 s. The
Java client writes at least 100 bytes for each message, so its batches of 4 MiB hold no more than 42,000 empty ones."""

# --- records, properties, hashes ----------------------------------------------------------------------------------
KEY_PREFIX_HASHES_MAX: Final = 4_096
"""Cached hashes of `topic#` and of `topic#` with a client's part of its unique keys: one line per topic and sending client."""

TAG_HASHES_MAX: Final = 4_096
"""Cached hashes of tags; a program uses few different ones, and one that does not only loses the cache."""

CACHED_TAG_CHARS_MAX: Final = 128
"""A longer tag is hashed each time, so that the cache of tags has a bound in bytes as well."""

DELAY_LEVELS_MAX: Final = 256
"""Levels in `messageDelayLevel`; each is a consume queue of the schedule topic with files of its own."""

DELAY_LEVEL_MS_MAX: Final = 100 * 365 * 86_400_000
"""Longest delay of a level, a century: a larger number is a slip of the pen, and due times must stay far inside 64 bits."""

# --- key index ----------------------------------------------------------------------------------------------------
INDEX_CHAIN_STEPS_MAX: Final = 200_000
"""Entries that one look-up by key walks at most (about 0.1 s); only a very frequent key asked for an old time gets there."""

INDEX_HASH_CHUNKS_MAX: Final = 32_768
"""Remembered hashes of three-character pieces of keys; hexadecimal and decimal keys need some 5,000."""

INDEX_HASH_PREFIXES_MAX: Final = 512
"""Remembered hashes of starts of keys, per topic; a start repeats for minutes while its producer lives."""

INDEX_HASH_TOPICS_MAX: Final = 64
"""Topics whose starts of keys are remembered at a time."""

# --- connections --------------------------------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 20_000
"""Accepted connections of one listener; each costs a file descriptor and a few kilobytes."""

DESCRIPTORS_MAX: Final = 1_048_576
"""To this the server raises its own limit of open files, where the system allows it; Linux's usual maximum."""

CONNECTION_IDLE_MS: Final = 120_000
"""A connection without a byte in either direction for this long is closed; RocketMQ's value, clients rely on it."""

IDLE_SWEEP_MS: Final = 10_000
"""How often a listener with connections looks for idle ones: one timer for all of them."""

WRITE_HIGH_WATER_BYTES: Final = 1_048_576
"""Unsent bytes of a connection above which nothing more is read from it: four answers of the largest pull size."""

WRITE_LOW_WATER_BYTES: Final = 262_144
"""Unsent bytes below which a blocked connection is read again."""

WRITE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes of a connection at which it is cut: answers to requests that were accepted before it blocked fit."""

HELD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of frames that have not arrived whole, and of requests whose senders take no answers, of all connections of a
listener: sixteen frames of the largest size."""

REQUESTS_TO_PEER_MAX: Final = 256
"""Requests of ours to one client that wait for its answer; RocketMQ allows 64 for a whole server."""

WAITING_REQUESTS_MAX: Final = UNANSWERED_SENDS_MAX
"""Requests that were read and wait to be handled, of all connections, together with sends that wait for their flush."""

WAITING_REQUESTS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the requests that wait to be handled: sixteen bodies of the largest size, or 10,000 of 6 KiB."""

TURN_SLICE_MS: Final = 20
"""How long a loop turn reads and handles before what it did is written and answered; under a flood reading and handling
take slices of this length in turn, so a small request waits for about two of them."""

READ_ROUND_BYTES: Final = 200_000
"""After a read of this size a connection waits until the others have been read: an event loop would otherwise empty one
socket (up to 8 MiB) before it looks at the next."""

HANDLED_AT_ONCE_MAX: Final = 64
"""Requests of one read that are handled without a look at the clock; more of them wait in the line."""

STOP_GRACE_MS: Final = 1_000
"""Time that connections get at an orderly stop to take the answers already written."""

LISTEN_BACKLOG: Final = 1_024
"""Connections the kernel may hold before they are accepted; RocketMQ's value."""

# --- configuration ------------------------------------------------------------------------------------------------
CONFIG_FILE_BYTES_MAX: Final = 1_048_576
"""Largest configuration file that is read; RocketMQ's longest examples are a few kilobytes."""

CONFIG_UPDATE_BYTES_MAX: Final = 65_536
"""Largest body of a request that changes the configuration: every key of a broker fits several times."""

CLIENT_CALLBACKS_MAX: Final = 64
"""Requests of brokers that a client serves at the same time; further ones are answered SYSTEM_BUSY."""

# --- JSON bodies --------------------------------------------------------------------------------------------------
JSON_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest JSON document: configuration tables may be larger than any frame; bodies are bounded by their frame."""

JSON_DEPTH_MAX: Final = 100
"""Nesting of a JSON document in fastjson's dialect; the deepest body of the protocol has eight levels."""

JSON_VALUES_MAX: Final = 2_000_000
"""Values of a JSON document after its references are resolved: a few bytes of references could stand for billions."""

# --- calls to other servers ---------------------------------------------------------------------------------------
OUTBOUND_CONNECT_MS: Final = 3_000
"""Time for a TCP connection to a name server or broker; RocketMQ's value."""

OUTBOUND_CALLS_MAX: Final = 1_024
"""Calls that wait for an answer on one connection to another server."""

OUTBOUND_ADDRESSES_MAX: Final = 256
"""Connections kept for notices; the oldest is closed for a new one."""

OUTBOUND_PAUSE_FIRST_MS: Final = 250
"""Pause after the first failed attempt to connect."""

OUTBOUND_PAUSE_LAST_MS: Final = 10_000
"""The doubling pause ends here: a name server that comes back is found within ten seconds."""

REGISTRATION_TIMEOUT_MS: Final = 24_000
"""Time for one registration; RocketMQ's value."""

REGISTRATION_PERIOD_MS_MIN: Final = 10_000
"""Lower end of the range below: more often only costs."""

REGISTRATION_PERIOD_MS_MAX: Final = 60_000
"""`registerNameServerPeriod` is taken into this range, as RocketMQ does: half of what a name server waits at most."""

REGISTRATION_RETRY_FIRST_MS: Final = 500
"""Pause after a failed registration; it doubles up to OUTBOUND_PAUSE_LAST_MS."""

UNREGISTER_TIMEOUT_MS: Final = 1_000
"""Time for the farewell at an orderly stop; a name server notices a closed connection anyhow."""

# --- retention and checking ---------------------------------------------------------------------------------------
DISK_FREE_ENOUGH_BYTES: Final = 2 * 1024 * 1024 * 1024
"""RocketMQ's percent rules about full disks apply only when less than this is free: a large disk at 91 % has room."""

REWRITE_RESERVE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Free space kept for putting pending records again: at most a default commit log file, twice what one such file may need."""

DISK_LOOK_SOON_FREE_BYTES: Final = 4 * 1024 * 1024 * 1024
"""With less free space than this besides the reserve it is looked at every second: more than a fast disk takes in ten."""

REWRITE_BATCH_MAX: Final = 256
"""Pending records put again in one loop turn: about 5 ms of work, as much as a release of due ones."""

CHECK_FINDINGS_MAX: Final = 1_000
"""Findings of one store check that are kept in words; further ones are counted."""

FILTERS_CACHED_MAX: Final = 4_096
"""Tag expressions kept parsed: consumers that send theirs with every pull repeat a few."""

FILTER_CACHED_CHARS_MAX: Final = 256
"""Longer tag expressions are parsed each time: a client could fill the memory with long ones."""

# --- watching -----------------------------------------------------------------------------------------------------
METRIC_SERIES_MAX: Final = 2_000
"""Series of one metric whose labels hold topics or groups; further ones share `(others)`. About 4 MB of text when all
metrics are full, which takes 40 slices to write."""

SCRAPE_SLICE_MS: Final = 2
"""How long a scrape may hold the loop before it lets requests through."""

SCRAPE_PAUSE_MS: Final = 100
"""Scrapes begin at most this often; who asks earlier gets the answer of the next one. Monitoring asks every few seconds,
a loop of requests must not take the loop's time."""

SCRAPE_COLD_READS_MAX: Final = 2_000
"""Old records of which one scrape reads the store time, to tell how long a group is behind."""

SCRAPE_COLD_WAIT_MS: Final = 1_000
"""How long a scrape waits for them; a disk that hangs must not hide the metrics that tell so."""

HTTP_CONNECTIONS_MAX: Final = 64
"""Connections to the HTTP port: a few monitoring systems and probes, and nobody else."""

HTTP_REQUEST_BYTES_MAX: Final = 16_384
"""Request line and headers; ours are a few hundred bytes. Bodies are not taken at all."""

HTTP_REQUEST_MS: Final = 5_000
"""Time from the first byte of a request to its last; slower clients are cut."""

HTTP_ANSWER_MS: Final = 10_000
"""Time a client gets to take an answer."""

HTTP_IDLE_MS: Final = 120_000
"""A connection without a request for this long is closed; monitoring systems keep theirs between scrapes."""

LOG_REPEATS_MAX: Final = 100
"""Default of `logRepeatsMax`: log lines of one wording within LOG_WINDOW_MS; further ones are counted and the count is reported.
Peers can cause lines, and a million of them must not fill the disk that the log shares with the store."""

LOG_WINDOW_MS: Final = 10_000
"""The time over which LOG_REPEATS_MAX counts."""

LOG_WORDINGS_MAX: Final = 1_024
"""Wordings that are counted apart; the source has some 200. Beyond it all further ones count as one."""

LOOP_STALL_MS: Final = 250
"""A loop turn, or a timer's delay, of this length is a stall: it is counted, and reported in the log."""

# --- command line -------------------------------------------------------------------------------------------------
CLI_CONTEXTS_MAX: Final = 256
"""Named clusters in the user's file: a list that a person still reads."""

BENCH_SAMPLES_MAX: Final = 5_000_000
"""Times that one run of a benchmark keeps, each a float: two minutes at full speed."""

CLI_CONTEXT_FILE_BYTES_MAX: Final = 262_144
"""Largest file of contexts that is read: so many contexts with a kilobyte each."""

# --- the synchronous client -------------------------------------------------------------------------------------------

SYNC_ACK_DELAY_MS: Final = 10
"""How long an acknowledgement may wait on its way to the client's thread, so that a hundred of them wake it once; little beside
the seconds until offsets are written."""

SYNC_EXIT_WAIT_MS: Final = 1_000
"""How long the interpreter's exit waits for the thread of a client that nobody closed."""

REDRIVE_REFUSALS_KEPT_MAX: Final = 100
"""Dead letters that cannot be sent and are named in the account of a run; further ones are counted."""

# --- idempotent sends ---------------------------------------------------------------------------------------------
ONCE_SCOPE_BYTES_MAX: Final = 255
"""The name of a scope; as long as the name of a group."""

ONCE_KEY_BYTES_MAX: Final = 1_024
"""The key of a send, in characters: it is hashed, and stays in the properties of the message."""

ONCE_SCOPES_MAX: Final = 20_000
"""Scopes remembered at a time: one for every connection a listener takes."""

ONCE_KEYS_PER_EPOCH_MAX: Final = 1_000_000
"""Keys of one epoch of a scope: the largest batch a job should repeat as a whole. The tables of a scope are made for it."""

ONCE_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Default of `idempotenceMemoryMax`: 1.6 million keys."""

ONCE_TRANSIENT_IDLE_MS: Final = 60_000
"""Rest after which a transient scope may be forgotten. Clients promise not to repeat a send after that."""

# --- timer store --------------------------------------------------------------------------------------------------
TIMER_PRECISION_MS_MAX: Final = 1_775
"""Coarsest `timerPrecisionMs`: the span of the wheel, 1,209,600 slots, still fits the 32 bits in which RocketMQ reckons with it."""

TIMER_SLOTS_WAITING_MAX: Final = 65_536
"""Slots of the timer wheel that wait for the timer log to be synced, some 200 bytes each. Beyond it the sync should come at once."""

TIMER_TAIL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Units of the timer log that wait in memory to be written, 160,000 of them; beyond it the next batch writes them first."""

TIMER_CHAIN_UNITS_MAX: Final = 100_000
"""Units that one step of a walk along a slot reads at most: about 50 ms of work and 20 MB."""

RECALL_HANDLE_CHARS_MAX: Final = 8_192
"""Characters of a recall handle: a topic, a broker name and a unique key of everyday length fit many times."""

TIMER_CHANGES_PER_REQUEST_MAX: Final = 256
"""Timers that one request recalls, reschedules or asks about: about 10 ms of work; the answer says when there are more."""

TIMER_MATCHES_READ_MAX: Final = 1_024
"""Records read for one request to find out which timers it means, those that only look alike included."""

TIMER_COUNT_BUCKETS_MAX: Final = 100_000
"""Buckets of due times counted, over all topics: 10 MB. Beyond that those of the topic with the most become wider."""

TIMER_SCAN_MAX: Final = 20_000
"""Entries of the index that one page looks at, delivered and recalled ones included: 10 ms. The page is shorter then, and
its cursor goes on."""

TIMER_PAST_READ_MAX: Final = 32
"""Records with one unique key or key that are looked at to tell what became of a message; the newest of them."""

TIMER_PAGE_MAX: Final = 1_000
"""Pending timers in one page of a list: each is read from the log, about 5 us when it is in memory."""

TIMER_BUCKETS_MAX: Final = 10_000
"""Buckets of one count of pending timers: a year in hours, for a strip that a person looks at."""

TIMER_READ_AHEAD_RECORDS_MAX: Final = 2_048
"""Timer records read before their time that wait to be delivered: more than a second of them at the rate a disk gives."""

TIMER_READ_AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""What these records may take: four of the largest, or 16,000 of 1 KiB."""

# --- Embedded brokers (orbitmq.testing) ---------------------------------------------------------------------------------

EMBEDDED_REST_MS: Final = 10_000
"""Real time that an embedded broker, or a consumer group that a test waits for, has to finish at one virtual instant. A test
that fails should say why while its author is still looking."""

EMBEDDED_REST_SPINS: Final = 200
"""Passes of the loop without a pause before the wait for rest pauses a millisecond between them: what the loop alone can
finish takes a few, what a thread has to finish takes longer than all of these."""

EMBEDDED_ASK_MS: Final = 2_000
"""Patience with a client that is asked what it has in hand."""

# --- recurring messages -------------------------------------------------------------------------------------------
RECURRENCE_NAME_CHARS_MAX: Final = 255
"""The name of a recurring message; as long as the name of a group."""

RECURRENCE_ZONE_CHARS_MAX: Final = 64
"""The name of a time zone; the longest in the table has 32 characters."""

RECURRENCE_CRON_CHARS_MAX: Final = 256
"""A cron expression: every minute of the hour as a list has 169."""

RECURRENCE_INTERVAL_MS_MIN: Final = 1_000
"""Shortest interval, and the step of cron's seconds: what is to come more often is a stream and belongs in the program that sends."""

RECURRENCE_INTERVAL_MS_MAX: Final = 10 * 366 * 86_400_000
"""Longest interval: ten years. A longer one is a number in the wrong unit."""

RECURRENCE_JITTER_MS_MAX: Final = 86_400_000
"""Longest time by which a run may be put off at random: a day."""

RECURRENCE_COUNT_MAX: Final = 1_000_000_000
"""Largest number of runs after which a recurring message ends: one a second for thirty years."""

RECURRENCE_CATCH_UP_MAX: Final = 1_000
"""Most runs that are made up for at a time after the broker was down: a day of minutes would flood the consumers."""

RECURRENCE_GRACE_MS: Final = 60_000
"""How late a run may begin that is not to be made up for: an orderly restart of the broker is not down time."""

RECURRENCE_PREVIEW_MAX: Final = 1_000
"""Runs that are shown at a time."""

RECURRENCE_BODY_BYTES_MAX: Final = 262_144
"""Largest body of a recurring message: it stays in memory, and its definition is written anew, four thirds as long, when the
log file it is in comes to its end."""

RECURRENCE_INSTANT_MS_MAX: Final = 250_246_627_200_000
"""There are no runs after this instant, 9900-01-01: calendars of the standard library end a hundred years later."""

RECURRENCE_DEFINITIONS_MAX: Final = 10_000
"""Recurring messages that one broker keeps: a start takes 250 us for each, its records included."""

RECURRENCE_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bodies of all recurring messages of a broker together: they stay in memory."""

RECURRENCE_RECORDS_PER_DEFINITION_MAX: Final = 4
"""Records that a start reads for each recurring message, on average: beyond it the oldest definition is written anew."""

RECURRENCE_RECORDS_KEPT_MIN: Final = 1_024
"""Records about recurring messages below whose number nothing is written anew, however few messages there are."""

RECURRENCE_NAMES_PER_TURN_MAX: Final = 64
"""Recurring messages whose runs are stored in one loop turn: about 10 ms of work at 170 us each."""

RECURRENCE_RUNS_PER_TURN_MAX: Final = 64
"""Runs of one recurring message that are made up for in one loop turn."""

RECURRENCE_PAGE_MAX: Final = 1_000
"""Recurring messages in one answer, without their bodies: a megabyte at most where names and expressions are long."""

TIMER_DELIVER_MS_MAX: Final = 253_402_300_799_999
"""Latest due time of a timer message, the last millisecond of the year 9999: calendars and columnar files know no later date."""

# --- far tier -----------------------------------------------------------------------------------------------------
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

FAR_DAY_ROWS_MIN: Final = 1_000
"""Rows below which a day gets no file of its own when landing files are put into days: files of a few kilobytes cost more than
they help."""

FAR_TOMBSTONES_MAX: Final = 20_000
"""Rows of recalled and rescheduled messages that stay in files before these are written anew: 3 MB of memory."""

FAR_COMPACT_BYTES_MAX: Final = 48 * 1024 * 1024
"""Payload that is written anew at a time; the process that does it takes about six times that."""

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
"""A request to the process that keeps the files which is not answered by then has failed: the process is ended."""

FAR_IDLE_MS: Final = 60_000
"""The process that keeps the files ends when nothing was asked for this long: it holds 100 MB."""

FAR_RETRY_MS: Final = 1_000
"""First pause after the far tier could not be reached; it doubles each time."""

FAR_RETRY_MS_MAX: Final = 60_000
"""Longest such pause."""

FAR_FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest request or answer between the broker and the process that keeps the files; more is a torn stream."""
