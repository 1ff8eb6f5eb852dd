"""Bounds of the client: connections, producers, consumers, and the blocking client's thread."""

from __future__ import annotations

from typing import Final

# --- client --------------------------------------------------------------------------------------------------------
CLIENT_IN_FLIGHT_REQUESTS_MAX: Final = 4_096
"""Unanswered requests per connection; later calls wait for a free place within their own time limit."""

CLIENT_WRITE_BUFFER_BYTES: Final = 1_048_576
"""Above this many unsent bytes on a connection callers wait before they write; bounds what a slow broker can pile up."""

CLIENT_NAME_SERVERS_MAX: Final = 64
"""More addresses than any cluster has name servers; a longer list is a mistake such as a pasted file."""

CLIENT_SECRET_COMMAND_S: Final = 60.0
"""Time for a command that prints a secret: it may ask its user for a passphrase."""

CLIENT_SECRET_BYTES_MAX: Final = 65_536
"""What is read of a file with a secret: tokens have some kilobytes."""

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

POP_HELD_MESSAGES_MAX: Final = 96
"""Popped messages, waiting or in hand, of one queue or broker above which none is popped; RocketMQ's popThresholdForQueue."""

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

CLIENT_CALLBACKS_MAX: Final = 64
"""Requests of brokers that a client serves at the same time; further ones are answered SYSTEM_BUSY."""

REDRIVE_REFUSALS_KEPT_MAX: Final = 100
"""Dead letters that cannot be sent and are named in the account of a run; further ones are counted."""

REDRIVE_SCOPE_LETTERS: Final = 200_000
"""Dead letters of a queue that share a scope. A scope of a broker grows with what was ever
redriven in it, and one of its owners may have three quarters of its memory."""

AWAY_BROKERS_MAX: Final = 1_024
"""Brokers of one topic that are remembered while they are away."""

AWAY_BROKER_MS_MAX: Final = 72 * 3_600_000
"""How long a broker that is away is remembered, and waited for by keys without a window of their own: what brokers keep keys for
(`idempotenceReservedTime`), unless it was changed."""

# --- calls -----------------------------------------------------------------------------------------------------------
CLIENT_SILENCE_TIMEOUT_MS: Final = 1_000
"""Calls with a shorter limit say nothing about the health of a connection."""

CLIENT_SILENCE_LOOK_MS: Final = 1_000
"""How often a client looks over which connections nothing came that is waited for."""

CLIENT_SILENCE_LOOKS: Final = 3
"""Looks in a row that found nothing new before the server is asked whether it is there: what a broker holds for half a minute says
nothing of it."""

CLIENT_QUESTION_TIMEOUT_MS: Final = 2_000
"""A server that leaves this question open is taken for gone. A group misses its leader after four seconds."""

CLIENT_QUESTION_AGAIN_TIMEOUT_MS: Final = 1_000
"""As above, over a new connection to one that was silent: a frozen process takes connections, and everybody waits for the answer."""

CLIENT_ROUTES_EARLY_MS: Final = 100
"""Pause after the routes were asked for because a broker takes no connection, does not answer or says that it is a slave, or none takes
messages; it becomes a quarter of the time that it takes already. A group has another leader a tenth of a second after the former one was
killed, and six seconds after it was frozen."""

CLIENT_ROUTES_OFTEN_MS: Final = 1_000
"""The longest such pause of the first eight seconds; then it is an eighth of the time that it takes, up to `route_refresh_ms`."""

CLIENT_ROUTES_INSIST_MS: Final = 2_000
"""After the last sign that a broker is amiss the routes are asked for so long without another one, until they are others that
have a master."""

CLIENT_ROUTES_MISSED_MS: Final = 240_000
"""For how long a broker that has left the routes is looked for more often than every half a minute, which is when an eighth of that time is
half a minute as well. A name server forgets a broker that is started again at once, and consumers would not hear of its return."""

CLIENT_GREETING_TIMEOUT_MS: Final = 500
"""How long a broker that is connected to may take to hear which groups live here, before it is asked anything else."""

CLIENT_TROUBLE_AGAIN_MS: Final = 10_000
"""Between the line of the log that says that something fails and the next one about it; doubled from then on."""

CLIENT_TROUBLE_AGAIN_MS_MAX: Final = 600_000
"""As above, the longest."""

CLIENT_TROUBLE_QUIET_MS: Final = 5_000
"""A name server that is away, and any server that was never connected to, is in the log after so long: routes are kept meanwhile, and
whoever calls it now has the error."""

CLIENT_TROUBLES_MAX: Final = 4_096
"""Things that fail at present and are remembered; beyond it the oldest has its first line once more."""

CLIENT_GOODBYE_MS: Final = 1_000
"""How long a connection that is closed is waited for: what is written leaves and, with TLS, the server answers the goodbye."""

CLIENT_TIMER_EARLY_S: Final = 0.0005
"""An event loop may call a timer this much before its time."""

CLIENT_LOG_SELDOM_MS: Final = 1_000
"""What happens with every message is logged once in this time."""

CLIENT_KEY_MATCHES_MAX: Final = 64
"""Default of how many messages a look-up by key answers, and how many one by id looks through; RocketMQ's tools show as
many."""

# --- sending ---------------------------------------------------------------------------------------------------------
SEND_REPEAT_PAUSE_MS: Final = 100
"""Before a message goes for the first time to a broker that has failed for it; the pause doubles from then on."""

SEND_REPEAT_PAUSE_MS_MAX: Final = 400
"""As above, the longest: a broker that was started again within `send_timeout_ms` is met by all who wait for it."""

SEND_LAST_ATTEMPT_MS: Final = 200
"""The last attempt of a send begins at the latest so long before the end of its time, or a fifth of that time."""

SEND_FAILURE_LATENCY_MS: Final = 10_000
"""A failed attempt counts as one that took so long, however fast it failed."""

BROKER_PROBE_INTERVAL_MS: Final = 3_000
"""How often an unreachable broker is probed."""

BROKER_PROBE_TIMEOUT_MS: Final = 200
"""A broker that takes longer to answer a trivial question is not ready for more."""

TRANSIENT_EPOCH_MS: Final = 30_000
"""Age at which the epoch of a producer's own scope rolls."""

TRANSIENT_REPEAT_MS_MAX: Final = 50_000
"""How long a producer may repeat a send of its own scope: a minute, after which a broker may forget it, less what a repeat may
be under way."""

REPLY_TIMEOUT_MS: Final = 3_000
"""For a reply, unless the replier says otherwise. A broker waits up to ten seconds for whoever asked to confirm it."""

TRACE_PAUSE_MS: Final = 5_000
"""Trace records wait no longer than this for others; RocketMQ's value."""

TRACE_SEND_TIMEOUT_MS: Final = 5_000
"""For one batch of trace records; one that could not be sent until then is dropped and counted."""

# --- consuming -------------------------------------------------------------------------------------------------------
CONSUMER_SLICE_MS: Final = 5
"""How long handlers that never wait may keep the event loop."""

CONSUMER_RETRY_DELAYS_MAX: Final = 64
"""Delays that a consumer may be given for its attempts; a message has 16 unless somebody says otherwise."""

WORKER_HANDLERS_MAX: Final = 64
"""Handlers of one worker, each of which is a consumer with pulls of its own."""

WORKER_STOP_MS: Final = 30_000
"""How long a worker that is told to stop waits for handlers that run: what supervisors give a process before they kill it."""

WORKER_END_S: Final = 10.0
"""`orbitmq worker` ends this long after the time of a stop at the latest. Leaving a broker that is silent takes 4 s."""

WORKER_LOOK_MS: Final = 50
"""Pause between two looks of a worker with threads whether its handlers have come to their end."""

CONSUMER_LOCAL_RETRY_MS: Final = 5_000
"""Pause before a message that no broker took back is delivered here once more."""

CONSUMER_SEND_BACK_TIMEOUT_MS: Final = 5_000
"""For sending a message back to its broker, and for each other way to a retry; RocketMQ's value."""

CONSUMER_OFFSET_TIMEOUT_MS: Final = 5_000
"""For a question about an offset, and for writing one while a consumer runs; RocketMQ's value."""

CONSUMER_GROUP_TIMEOUT_MS: Final = 3_000
"""For a question about the group that a rebalance or a look at the group waits for, and for the offset of a queue that is given
up."""

CONSUMER_SAMPLE_MS: Final = 10_000
"""How often the totals of a consumer are noted, from which its rates of the last minute are made."""

REDRIVE_COMMIT_MS: Final = 1_000
"""How often a run that sends dead letters again commits its place."""

# --- pulling ---------------------------------------------------------------------------------------------------------
LITE_REQUEST_TIMEOUT_MS: Final = 5_000
"""For one request of a lite consumer about a queue, beside the time that a broker may hold it."""

PULL_HOLD_MS: Final = 15_000
"""How long a broker may hold a pull that finds nothing; RocketMQ's value."""

PULL_TIMEOUT_MS: Final = 30_000
"""How long the client waits for the answer of a pull, which the broker may hold; RocketMQ's value."""

LITE_PULL_HOLD_MS: Final = 20_000
"""How long a broker may hold a lite pull that finds nothing; RocketMQ's value."""

PULL_AFTER_ERROR_MS: Final = 1_000
"""Before a queue is pulled again after a failed pull."""

PULL_AFTER_FLOW_CONTROL_MS: Final = 20
"""Before a queue is pulled again that was refused because its broker is busy; RocketMQ's value."""

PULL_QUICK_MS: Final = 50
"""An empty answer that comes sooner was not held by the broker."""

PULL_IDLE_ANSWERS_MAX: Final = 3
"""Quick empty answers in a row before pulls are spaced; one now and then is a wake-up for somebody else's message."""

PULL_AFTER_IDLE_MS: Final = 200
"""Between pulls of a queue whose broker answers at once without messages."""

PULL_EXPIRED_MS: Final = 120_000
"""A queue not pulled for so long is given up at the next rebalance and taken anew."""

# --- rebalance -------------------------------------------------------------------------------------------------------
POP_POLL_MS: Final = 15_000
"""How long a broker may hold a pop that finds nothing; RocketMQ's value."""

POP_TIMEOUT_MS: Final = 25_000
"""For one pop with its wait; RocketMQ's value."""

POP_REQUEST_TIMEOUT_MS: Final = 3_000
"""For acknowledging and renewing; RocketMQ's value."""

POP_AFTER_ERROR_MS: Final = 1_000
"""Pause before what failed is asked for again: a pop, an acknowledgement, a renewal."""

POP_LEAVE_WAIT_MS: Final = 500
"""How long a consumer that leaves waits for the answers to its pops, to give back what they bring. An answer that comes later is lost
until its invisible time has passed."""

REBALANCE_INTERVAL_MS: Final = 20_000
"""How often a consumer computes its queues anew when nothing tells it to; RocketMQ's value."""

REBALANCE_INTERVAL_MIN_MS: Final = 300
"""Between two runs, however often something changes: with the pause before queues are taken over, a queue of a member that has
left is taken within a second."""

REBALANCE_RETRY_MS: Final = 1_000
"""Before an incomplete run is repeated for the first time, and every time while another member holds a lock."""

REBALANCE_TAKE_OVER_PAUSE_MS: Final = 500
"""Before queues of another member are taken, so that it can write its offsets: fewer repeats."""

REBALANCE_IN_HAND_WAIT_MS: Final = 500
"""How long a run waits for the message in hand of a queue that is to be given up; the next run waits again."""

QUEUE_LOCK_LIFE_MS: Final = 30_000
"""A queue lock that the broker has not confirmed for so long counts as lost; the broker itself keeps it for 60 s."""

QUEUE_LOCK_RENEW_MS: Final = 20_000
"""How often a consumer in order renews its locks; RocketMQ's value. With the answer it is shorter than the life of a lock."""

QUEUE_LOCK_RENEW_AGAIN_MS: Final = 1_000
"""Before locks are renewed that a broker did not confirm."""

QUEUE_LOCK_TIMEOUT_MS: Final = 1_000
"""For one request to lock or unlock queues; RocketMQ's value."""

GROUP_CHECK_PERIOD_MS: Final = 120_000
"""How often a consumer looks whether the members of its group agree: a broker shows only who sent the last heartbeat."""

GROUP_CHECK_SETTLE_MS: Final = 1_000
"""Between a change of a group and the look at it: members that start together have then sent a heartbeat."""

GROUP_CHECK_AGAIN_MS: Final = 5_000
"""Between the first look at something suspicious in a group and the second."""

GROUP_CHECK_INTERVAL_MIN_MS: Final = 2_000
"""Between two looks at a group, however often something changes."""

# --- blocking client -----------------------------------------------------------------------------------------------
SYNC_ACK_DELAY_MS: Final = 10
"""How long an acknowledgement may wait on its way to the client's thread, so that a hundred of them wake it once; little beside
the seconds until offsets are written."""

SYNC_EXIT_WAIT_MS: Final = 1_000
"""How long the interpreter's exit waits for the thread of a client that nobody closed."""

# --- blocking connections that ask in waves ------------------------------------------------------------------------
BULK_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Buffer of one such connection at first, and about what a wave of pulls should bring: some thousand messages of 1 KiB, which is
what decoding them together needs to pay."""

BULK_READ_BYTES_MIN: Final = 65_536
"""Free room in that buffer for one read of the socket; less would cost a system call for every few messages."""

BULK_PULLS_MAX: Final = 128
"""Pulls of one wave: 4,096 messages of a broker that gives 32 for one."""

BULK_REQUEST_BYTES_MAX: Final = 49_152
"""Bytes of the requests of one wave: they fit into the buffers of the kernel, so that writing them cannot wait for a server that
waits for its answers to be read."""

CHECKED_EXPRESSIONS_MAX: Final = 64
"""SQL92 expressions whose check is remembered: explicit pulls repeat a few. Each has at most 16,384 characters."""

CLIENT_UNCONFIRMED_DECISIONS_MAX: Final = 10_000
"""Transactions of a producer that run, or whose decision no broker has confirmed, 200 bytes each; the oldest are forgotten first, and are
the matter of the group's checker then."""
