"""Bounds of a broker's tables and answers: topics, groups, held pulls, clients, idempotent sends."""

from __future__ import annotations

from typing import Final

# --- broker --------------------------------------------------------------------------------------------------------
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

HELD_ENDED_AT_ONCE_MAX: Final = 200
"""Waiting pulls and pops that end in one step because their time is over, 0.1 ms each: clients begin thousands in one moment, which
end in one."""

PULL_EXPRESSION_CHARS_MAX: Final = 65_536
"""Characters of a pull's tag expression, its own or of its group's subscription: parsing 10,000 tags holds the loop for 10 ms."""

PULL_TAGS_MAX: Final = 1_000_000
"""Tags in the tests of all pulls that wait, 80 bytes each; tests of up to four are not counted."""

PULL_EXPRESSIONS_CHARS_MAX: Final = 2_000_000
"""Characters of the SQL92 expressions that pulls have, those that wait and the last ones used: each takes 100 bytes when it is compiled."""

EXPRESSIONS_CACHED_CHARS_MAX: Final = 262_144
"""Characters of the SQL92 expressions that are kept compiled, the last ones used: 25 MB. Consumers send the same ones with every pull."""

PULL_SCAN_BYTES_MAX: Final = 1_048_576
"""Records that one pull with an SQL92 expression looks at, where its answer may not be larger anyway: what is cold has to be read
for it. With a kilobyte each these are a thousand, as many as RocketMQ looks at, and take 6 ms."""

PULL_SCAN_STEPS_MAX: Final = 40_000
"""Operations of SQL92 expressions (as in EXPRESSION_STEPS_MAX) after which such a pull stops looking, for messages whose properties have
up to a kilobyte; it is answered with what it has found. About 15 ms; 800 messages are looked at with up to 25 comparisons each."""

SENDERS_MAX: Final = 8_192
"""Connections of which a broker knows when they sent last, 200 bytes each; half of them stay when there are more."""

SENDERS_NAMED_MAX: Final = 16
"""Of these the ones that are named to whoever asks: more than a person looks for one by one."""

PULL_SUSPEND_MS_MAX: Final = 120_000
"""Longest wait of a held pull; a connection that is silent for longer is closed anyway."""

SLAVE_PULL_PAUSE_MS: Final = 1_000
"""A pull from a slave that serves none waits so long for its answer: its client asks again at once, until its next look at the route (30 s)
tells it where the master is by now."""

SLAVE_PULLS_MAX: Final = 10_000
"""Pulls that wait for that answer; a further one gets it at once."""

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

QUEUES_PER_LOCK_RECORD: Final = 256
"""Queues with neighbouring numbers whose owners are one entry of a record, for copies: 2 KB with usual client ids, for each renewal."""

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

CUT_OFFSETS_LOGGED_MAX: Final = 100
"""Saved offsets beyond their queues that a start names one by one; the rest is a count."""

SURVIVORS_EXPECTED_MS: Final = 86_400_000
"""So long after a crash or take-over a first pull beyond what was left is taken for that of a consumer that lives on."""

SURVIVORS_LOGGED_MAX: Final = 100
"""Consumers taken back to what was left of a queue that are named, after each crash or take-over."""

NAMED_TOPICS_MAX: Final = 20
"""Topics without a table that a start names; the others are counted."""

NOTED_OFFSETS_MAX: Final = 1_000
"""Pairs of group and topic whose commits beyond the end were logged; later ones are only counted."""

WISHES_COMPARED_MAX: Final = 64
"""Topics of one member whose subscriptions are kept word by word, to tell members that differ; a consumer has a few."""

MEMBERS_COMPARED_MAX: Final = 256
"""Members of one group that are compared, those that joined first: whenever one joins or leaves, 5 ms if all of them differ."""

CLIENT_WISHES_MAX: Final = 200_000
"""Subscriptions of members that are kept to compare them, each different set once per group: at most some 80 MB. Beyond
it further members are not compared."""

GROUP_WARNINGS_MAX: Final = 8
"""Sentences about one group whose members do not agree; the first ones tell what is wrong."""

QUEUE_UNITS_SHOWN_MAX: Final = 10_000
"""Consume queue units in one answer: about a megabyte of JSON."""

REQUEST_MODES_MAX: Final = 200_000
"""Pairs of topic and group for which somebody has said whether it pulls or pops, 300 bytes each; the whole table is one file."""

ROUTES_KEPT_MAX: Final = 10_000
"""Topics whose queues on all brokers are remembered; the oldest goes."""

ROUTES_ASKED_MAX: Final = 1_000
"""Topics that name servers are being asked for at a time: what they answer in a tenth of a second. Whoever asks for another one is told
what is known here."""

ROUTE_FRESH_NS: Final = 20_000_000_000
"""Age from which what a name server said is asked for again, beside the answer, as RocketMQ's proxy does; its brokers do so every 30 s."""

ROUTE_LIFE_NS: Final = 300_000_000_000
"""Age from which it is asked for again before the answer, as in RocketMQ's proxy."""

# --- records of tables ---------------------------------------------------------------------------------------------
TABLE_RECORD_BYTES_MAX: Final = 131_072
"""What changed in a table goes into records of about this size: 400 topics, 0.3 ms to make."""

TABLE_KEYS_PER_TURN_MAX: Final = 1_024
"""Changed entries of one table that are recorded in one loop turn: 1 ms. The others follow in the next turns."""

TABLE_RECORDS_PER_TURN_MAX: Final = 4
"""Records of tables in one loop turn, where entries are large."""

TABLE_GATHERING_NS: Final = 1_000_000_000
"""Changes of consumer offsets, and of what is popped in order, are gathered for so long: what a new leader may deliver again."""

TABLE_MOVING_PAUSE_NS: Final = 20_000_000
"""Between two turns in which entries are recorded anew so that a log file can go: 50,000 entries a second, a tenth of the loop."""

TABLE_RECORDS_READ_MAX: Final = 2_048
"""Records of tables that a start reads behind the oldest that counts, 25 us each; beyond it that one's entries are recorded anew."""

TABLE_MOVED_BYTES_MAX: Final = 524_288
"""Bytes of table entries that are recorded anew in one loop turn, where entries are large: four records, 1 ms."""

TABLE_KEYS_REWRITTEN_MAX: Final = 64
"""Entries that are recorded anew at a time, because a start would read too many records."""

# --- idempotent sends ----------------------------------------------------------------------------------------------
ONCE_SCOPE_BYTES_MAX: Final = 255
"""The name of a scope; as long as the name of a group."""

ONCE_KEY_BYTES_MAX: Final = 1_024
"""The key of a send, in characters: it is hashed, and stays in the properties of the message."""

ONCE_WINDOW_SCOPE_BYTES_MAX: Final = 126
"""The name of a scope within its topic, whose own has 127 bytes at most: with what divides them they are a scope's 255."""

ONCE_WINDOW_MS_MIN: Final = 1_000
"""The shortest window of a key: a repeat comes after a lost answer, which takes longer to miss."""

ONCE_WINDOW_MS_DEFAULT: Final = 86_400_000
"""A day: a caller's retries, and a crash of the night that is mended in the morning. The longest is `idempotenceReservedTime`."""

ONCE_SCOPES_MAX: Final = 20_000
"""Scopes remembered at a time: one for every connection a listener takes. Three quarters of them may be of one owner, transient, or
of lasting names without `/`."""

ONCE_MEMORY_BYTES_MAX: Final = 384 * 1024 * 1024
"""Default of `idempotenceMemoryMax`: 2.5 million keys of small epochs, 8.3 million of large ones. One owner may have three quarters: a
stream's first batch of five million rows at one broker, and one of a million behind it."""

ONCE_MEMORY_NOTICE_RATIO: Final = 0.8
"""How much of the memory that it may have an owner has before `orbitmq doctor` warns, as the alert `OrbitmqOnceMemory` does."""

ONCE_FINISHED_MAX: Final = 100_000
"""Finished scopes and batches remembered at a time, 700 bytes each: one every 2.6 s for three days. Beyond it the oldest goes, and a
repeat of that one is stored again."""

ONCE_FINISHED_IDLE_MS: Final = 3_600_000
"""Rest after which a scope may be forgotten that its sender has finished with for good. What is kept of it until then refuses the
sends of somebody who was replaced and does not know it yet."""

ONCE_ENDED_TOPICS_MAX: Final = 10_000
"""Deleted topics whose sends are known to have ended, while one of them may be remembered: as many as topics that exist."""

ONCE_SCOPES_LISTED_MAX: Final = 64
"""Scopes in one answer: a sender looks for its own, of which there is one for every set of brokers it has sent to."""

ONCE_CLOCK_BELIEVED_AFTER_MS: Final = 3_600_000
"""How long after a start, or after the wall clock was put forward, no key that may be repeated for more than a minute is forgotten for
its age, unless another one needs its room: a clock that is wrong is put right meanwhile."""

ONCE_TRANSIENT_IDLE_MS: Final = 60_000
"""Rest after which a transient scope may be forgotten. Clients promise not to repeat a send after that."""

# --- reading from the disk -----------------------------------------------------------------------------------------
COLD_PULLS_OF_PEER_MAX: Final = 2
"""Pulls of one connection that are read from the disk at a time: the next is read while one is being sent."""

COLD_PULLS_AT_ONCE_MAX: Final = 64
"""Pulls that are read from the disk at a time: 16 MiB of the largest answers."""

COLD_PULLS_WAITING_MAX: Final = 20_000
"""Pulls that wait for their turn to be read from the disk: one of every connection."""

CLIENT_ANSWER_WAIT_MS: Final = 10_000
"""How long a client may take; RocketMQ's value for forwarded calls."""

CLIENT_STATUS_WAIT_MS: Final = 4_000
"""The same for 223, which asks every client of a group: less than the five seconds that tools wait themselves, so that
those that do answer are heard."""

LATENCY_SPAN_NS: Final = 60_000_000_000
"""Percentiles of durations are taken from the span that is running and the one before it."""

STATISTICS_SAMPLE_NS: Final = 10_000_000_000
"""Time between two samples of the counters; the shortest rate that is shown covers as much."""

TRAFFIC_STEP_NS: Final = 10_000_000_000
"""The finest step; coarser ones are multiples of it."""

HELD_CHECK_NS: Final = 5_000_000_000
"""Every held pull is compared with the queue's maximum offset this often, whatever arrivals said."""

QUEUE_LOCK_LIFE_NS: Final = 60_000_000_000
"""Java clients renew every 20 s and give up a lock after 30 s without an answer."""

REPLY_PUSH_TIMEOUT_MS: Final = 10_000
"""How long the one who asked may take to confirm a reply; RocketMQ's value."""

TABLE_RETRY_NS: Final = 5_000_000_000
"""After a table could not be saved, how long to wait before trying again without a change."""

SCOPE_TOUCH_MS: Final = 1_000
"""How exactly the last use of a scope is known."""

SCOPES_EXPIRED_AT_ONCE_MAX: Final = 16
"""Scopes forgotten in one step."""

KEY_DIRECTORY_BITS_MAX: Final = 24
"""Most bits by which the directory of keys chooses a page: enough for a billion keys."""

SCOPE_BEGINNINGS_MAX: Final = 4
"""Spark's prefixes end with the first `@`, or a later one where the name of a job has some."""

TIMER_TOPIC_NAMES_MAX: Final = 10_000
"""Topics whose bytes are remembered; beyond it they are made anew."""
