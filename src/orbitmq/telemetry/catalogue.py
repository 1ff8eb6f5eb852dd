"""Every metric of this program: name, kind, meaning, labels.

Names that begin with `rocketmq_` are RocketMQ 5's instruments with its labels and its units; dashboards made for it work.
Names that begin with `orbitmq_` are ours, in base units (seconds, bytes). `process_` names are Prometheus' own.

Source: RocketMQ 5, metrics; Prometheus, naming conventions.

Rules of this file
1. A metric stands here once and is given by exactly one collector. The reference page is made from this table.
2. Metrics whose labels hold topics or groups have a `fold`: their number is bounded.
"""

from __future__ import annotations

from typing import Final

from orbitmq.telemetry.metric import Fold, Metric, MetricKind

_ALL: list[Metric] = []


def _counter(name: str, text: str, *labels: str, fold: Fold | None = None) -> Metric:
    return _kept(Metric(name, MetricKind.COUNTER, text, labels, fold))


def _gauge(name: str, text: str, *labels: str, fold: Fold | None = None) -> Metric:
    return _kept(Metric(name, MetricKind.GAUGE, text, labels, fold))


def _histogram(name: str, text: str, *labels: str, fold: Fold | None = None) -> Metric:
    return _kept(Metric(name, MetricKind.HISTOGRAM, text, labels, fold))


def _summary(name: str, text: str) -> Metric:
    return _kept(Metric(name, MetricKind.SUMMARY, text, ("quantile",)))


def _kept(metric: Metric) -> Metric:
    _ALL.append(metric)
    return metric


SUM, MAX = Fold.SUM, Fold.MAX

# --- RocketMQ: traffic ------------------------------------------------------------------------------------------------
_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system")

MESSAGES_IN: Final = _counter(
    "rocketmq_messages_in_total",
    "Messages taken in from senders, without retry and dead-letter topics.",
    *_IN,
    fold=SUM,
)
THROUGHPUT_IN: Final = _counter("rocketmq_throughput_in_total", "Record bytes of those messages.", *_IN, fold=SUM)
MESSAGE_SIZE: Final = _histogram("rocketmq_message_size", "Record bytes of one message taken in.", *_IN, fold=SUM)
MESSAGES_OUT: Final = _counter("rocketmq_messages_out_total", "Messages delivered to pulls.", *_OUT, fold=SUM)
THROUGHPUT_OUT: Final = _counter("rocketmq_throughput_out_total", "Record bytes delivered to pulls.", *_OUT, fold=SUM)
SEND_TO_DLQ: Final = _counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages whose attempts were used up, by their first topic.",
    "consumer_group", "topic", "is_system", fold=SUM,
)  # fmt: skip

# --- RocketMQ: consumers ----------------------------------------------------------------------------------------------
_LAG = ("consumer_group", "topic", "is_retry", "is_system", "online")
"""`online` false: the group has no members. RocketMQ has no such series, and no such label."""

LAG_MESSAGES: Final = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages a group has not committed yet; `online` is `false` where the group has no members.",
    *_LAG,
    fold=SUM,
)
LAG_LATENCY: Final = _gauge(
    "rocketmq_consumer_lag_latency",
    "Milliseconds since the oldest message that a group has not committed was stored; 0 without lag.",
    *_LAG, fold=MAX,
)  # fmt: skip
INFLIGHT: Final = _gauge(
    "rocketmq_consumer_inflight_messages", "Messages pulled by a group and not committed yet.", *_LAG, fold=SUM
)
QUEUEING_LATENCY: Final = _gauge(
    "rocketmq_consumer_queueing_latency",
    "Milliseconds since the oldest message that a group has not pulled was stored; 0 without one.",
    *_LAG, fold=MAX,
)  # fmt: skip
READY: Final = _gauge("rocketmq_consumer_ready_messages", "Messages a group has not pulled yet.", *_LAG, fold=SUM)
PRODUCER_CONNECTIONS: Final = _gauge(
    "rocketmq_producer_connections", "Connected producers.", "language", "version", "protocol_type"
)
CONSUMER_CONNECTIONS: Final = _gauge(
    "rocketmq_consumer_connections",
    "Connected consumers.",
    "consumer_group", "language", "version", "protocol_type", "consume_mode", "is_system", fold=SUM,
)  # fmt: skip

# --- RocketMQ: the broker ---------------------------------------------------------------------------------------------
_STORED = ("storage_type", "storage_medium")
_CREATED = ("invocation_status", "is_system")

PROCESSOR_WATERMARK: Final = _gauge(
    "rocketmq_processor_watermark",
    "Requests that wait: `send` counts the line of read requests and sends that wait for their flush, `pull` held pulls.",
    "processor",
)
BROKER_PERMISSION: Final = _gauge("rocketmq_broker_permission", "Permission bits of the broker: 4 read, 2 write.")
TOPIC_NUMBER: Final = _gauge("rocketmq_topic_number", "Topics of this broker, system topics included.")
GROUP_NUMBER: Final = _gauge("rocketmq_consumer_group_number", "Consumer groups known to this broker.")
TOPIC_CREATE_TIME: Final = _histogram(
    "rocketmq_topic_create_execution_time", "Milliseconds to create or change a topic by request.", *_CREATED
)
GROUP_CREATE_TIME: Final = _histogram(
    "rocketmq_consumer_group_create_execution_time",
    "Milliseconds to create or change a consumer group by request.",
    *_CREATED,
)
STORAGE_SIZE: Final = _gauge("rocketmq_storage_size", "Bytes of the commit log that are kept.", *_STORED)
FLUSH_BEHIND: Final = _gauge("rocketmq_storage_flush_behind_bytes", "Bytes written and not yet synced.", *_STORED)
DISPATCH_BEHIND: Final = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes written and not yet visible.", *_STORED
)
RESERVE_TIME: Final = _gauge(
    "rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message that is kept was stored.", *_STORED
)

# --- delays -----------------------------------------------------------------------------------------------------------
LATENESS: Final = _histogram(
    "orbitmq_delay_lateness_seconds", "How long after its due time a delayed message became visible."
)
DELAY_PENDING: Final = _gauge("orbitmq_delay_pending_messages", "Delayed messages not delivered yet.", "level")
DELAY_BEHIND: Final = _gauge(
    "orbitmq_delay_behind_seconds", "How long the earliest pending message has been due; 0 when none is due."
)
DELAY_RELEASED: Final = _counter("orbitmq_delay_released_total", "Delayed messages delivered to their topics.")
DELAY_QUARANTINED: Final = _counter(
    "orbitmq_delay_quarantined_total", "Delayed messages that could not be delivered and went to quarantine."
)
DELAY_OUT_OF_ORDER: Final = _counter(
    "orbitmq_delay_out_of_order_total", "Delayed messages made late by a clock that stepped back very often."
)
RECURRING: Final = _gauge(
    "orbitmq_recurring_messages",
    "Recurring messages: active, paused, ended, or in trouble because their runs cannot be stored.",
    "state",
)
RECURRING_RUNS: Final = _counter("orbitmq_recurring_runs_total", "Runs of recurring messages that were stored.")
RECURRING_LEFT_OUT: Final = _counter(
    "orbitmq_recurring_left_out_total",
    "Times at which one or more runs were left out: missed while the broker was down, overlap, or refused.",
    "reason",
)
RECURRING_LATENESS: Final = _histogram(
    "orbitmq_recurring_lateness_seconds", "From the instant of a run to the moment its message became visible."
)
RECURRING_REWRITTEN: Final = _counter(
    "orbitmq_recurring_rewritten_total", "Definitions written anew, for retention or to keep starts short."
)
DELAY_CLAMPED: Final = _counter(
    "orbitmq_delay_lowered_levels_total", "Sends whose delay level was above the last one and became it."
)

# --- transactions -----------------------------------------------------------------------------------------------------
HALF_MESSAGES: Final = _gauge("rocketmq_half_messages", "Undecided transactions.", "topic", fold=SUM)
COMMIT_MESSAGES: Final = _counter("rocketmq_commit_messages_total", "Transactions committed.", "topic", fold=SUM)
ROLLBACK_MESSAGES: Final = _counter("rocketmq_rollback_messages_total", "Transactions rolled back.", "topic", fold=SUM)
FINISH_MESSAGE_LATENCY: Final = _histogram(
    "rocketmq_finish_message_latency", "Seconds from a half message to its decision.", "topic", fold=SUM
)
TRANSACTION_CHECKS: Final = _counter(
    "orbitmq_transaction_checks_total", "Questions about undecided transactions that were sent to a producer."
)
TRANSACTIONS_GIVEN_UP: Final = _counter(
    "orbitmq_transactions_given_up_total",
    "Transactions that nobody decided; their messages are in TRANS_CHECK_MAX_TIME_TOPIC.",
)

# --- POP --------------------------------------------------------------------------------------------------------------
POP_REVIVE_IN: Final = _counter(
    "rocketmq_pop_revive_in_message_total",
    "Records for the revive topic that were put into the log: checkpoints (CK) and acknowledgements (ACK) of pops that last.",
    "consumer_group", "topic", "revive_message_type", "put_status", fold=SUM,
)  # fmt: skip
POP_REVIVE_OUT: Final = _counter(
    "rocketmq_pop_revive_out_message_total",
    "Records of the revive topic that were read.",
    "consumer_group", "topic", "queue_id", "revive_message_type", fold=SUM,
)  # fmt: skip
POP_RETRIED: Final = _counter(
    "rocketmq_pop_revive_retry_messages_total",
    "Messages that were not acknowledged in time and stored again, by the topic that they were popped of.",
    "consumer_group", "topic", "put_status", fold=SUM,
)  # fmt: skip
POP_REVIVE_LAG: Final = _gauge(
    "rocketmq_pop_revive_lag", "Records of the revive topic that are not done with.", "queue_id"
)
POP_REVIVE_LATENCY: Final = _gauge(
    "rocketmq_pop_revive_latency",
    "Milliseconds since the messages of the oldest of those should have come back; 0 where none is late.",
    "queue_id",
)
POP_MESSAGES: Final = _gauge("rocketmq_pop_offset_buffer_size", "Messages that are popped and not settled.")
POP_UNSTORED: Final = _gauge("rocketmq_pop_checkpoint_buffer_size", "Pops in memory of which no checkpoint is stored.")
POP_RENEWALS: Final = _counter(
    "orbitmq_pop_renewals_total",
    "Messages of push consumers of RocketMQ 5: hidden for longer, not held because there is no room or no settings came, given up.",
    "outcome",
)
POP_GIVEN_BACK: Final = _counter(
    "orbitmq_pop_given_back_total",
    "Popped messages that were visible again at once because a client or a call had gone.",
    "gone",
)
POP_STORING_TIME: Final = _histogram(
    "rocketmq_pop_buffer_scan_time_consume",
    "Milliseconds that it took to store the checkpoints of pops that lasted long enough.",
)

# --- timers -----------------------------------------------------------------------------------------------------------
TIMER_ENQUEUE_LAG: Final = _gauge(
    "rocketmq_timer_enqueue_lag", "Records of the timer topic that the timers have not taken in; 0 in a sound broker."
)
TIMER_ENQUEUE_LATENCY: Final = _gauge(
    "rocketmq_timer_enqueue_latency", "Milliseconds since the oldest of those was stored; 0 without one."
)
TIMER_DEQUEUE_LAG: Final = _gauge("rocketmq_timer_dequeue_lag", "Timer messages that wait and are near, exactly.")
TIMER_DEQUEUE_LATENCY: Final = _gauge(
    "rocketmq_timer_dequeue_latency", "Milliseconds the earliest pending timer message has been due; 0 when none is."
)
TIMER_ENQUEUED: Final = _counter(
    "rocketmq_timer_enqueue_total", "Timer messages that began to wait, by the topic they go to.", "topic", fold=SUM
)
TIMER_DEQUEUED: Final = _counter(
    "rocketmq_timer_dequeue_total", "Timer messages delivered to their topics.", "topic", fold=SUM
)
TIMING_MESSAGES: Final = _gauge(
    "rocketmq_timing_messages",
    "Pending timer messages by the topic they go to, without the far tier.",
    "topic",
    fold=SUM,
)
TIMER_SNAPSHOT: Final = _gauge(
    "rocketmq_timer_message_snapshot",
    "Pending timer messages that fall due within so many seconds, counted by the minute or wider.",
    "timer_bound_s",
)
TIMER_ASKED: Final = _histogram(
    "rocketmq_delay_message_latency", "Seconds from the storing of a timer message to the time it asked for."
)
TIMER_PENDING: Final = _gauge("orbitmq_timer_pending_messages", "Timer messages not delivered yet.", "tier")
TIMER_LATENESS: Final = _histogram(
    "orbitmq_timer_lateness_seconds", "How long after its due time a timer message became visible."
)
TIMER_QUARANTINED: Final = _counter(
    "orbitmq_timer_quarantined_total", "Timer messages that could not be delivered and went to quarantine."
)
TIMER_RECALLED: Final = _counter("orbitmq_timer_recalled_total", "Timer messages recalled by request.")
TIMER_RESCHEDULED: Final = _counter("orbitmq_timer_rescheduled_total", "Timer messages given a new due time.")
TIMER_CROWDED: Final = _counter(
    "orbitmq_timer_crowded_total", "Timer messages refused because their slot was crowded (timerCongestNumEachSlot)."
)
TIMER_INDEX_READY: Final = _gauge(
    "orbitmq_timer_index_ready", "1 when pending timer messages can be searched, 0 while their index is made ready."
)
FAR_IN_LOG: Final = _gauge(
    "orbitmq_far_in_log_messages", "Far timer messages that lie in the log alone, in no file yet."
)
FAR_FILES: Final = _gauge("orbitmq_far_files", "Files of the far tier.")
FAR_LANDED: Final = _counter("orbitmq_far_landed_total", "Far timer messages written to files.")
FAR_PROMOTED: Final = _counter(
    "orbitmq_far_promoted_total", "Messages that came from files of the far tier to the near ones."
)
FAR_LANDING_AGE: Final = _gauge(
    "orbitmq_far_landing_age_seconds", "Age of the oldest far message that no file holds; it should stay below 600."
)
FAR_PROMOTION_LAG: Final = _gauge(
    "orbitmq_far_promotion_lag_seconds",
    "How long the earliest far message should have been among the near ones; it is late when this reaches timerFarHorizonSec.",
)
FAR_QUARANTINED: Final = _counter(
    "orbitmq_far_quarantined_total",
    "Far timer messages that could not come to the near ones and went to quarantine.",
)
FAR_DAMAGED: Final = _gauge(
    "orbitmq_far_damaged_files", "Files of the far tier that are left out because they cannot be read."
)
FAR_TROUBLE: Final = _gauge(
    "orbitmq_far_trouble",
    "1 while the far tier cannot be reached and is tried again, else 0; `orbitmq timer far status` says why.",
)
FAR_FAILURES: Final = _counter("orbitmq_far_failures_total", "Steps of the far tier that failed and were tried again.")

# --- the store --------------------------------------------------------------------------------------------------------
STORE_WRITABLE: Final = _gauge(
    "orbitmq_store_writable", "1 while the store takes messages, at a slave those of its master; else 0."
)
LOG_START: Final = _gauge("orbitmq_log_start_offset_bytes", "Position of the oldest byte of the commit log.")
LOG_END: Final = _gauge("orbitmq_log_end_offset_bytes", "Position after the newest byte of the commit log.")
UNANSWERED_SENDS: Final = _gauge("orbitmq_unanswered_sends", "Sends that were handled and wait for their flush.")
WRITE_FAILURES: Final = _counter(
    "orbitmq_store_failures_total", "Failed writes, syncs and saves of the store.", "operation"
)
DAMAGED_READS: Final = _counter("orbitmq_store_damaged_reads_total", "Records that failed their check when read.")
REMOVED_FILES: Final = _counter(
    "orbitmq_store_removed_files_total",
    "Commit log files removed by retention: `expired`, or before their time because the disk had too little room (`disk`).",
    "reason",
)
REMOVED_UNREAD: Final = _counter(
    "orbitmq_store_removed_unread_messages_total",
    "Messages that went with removed files before a group had read them, counted for each such group.",
    "reason",
)
REWRITTEN: Final = _counter(
    "orbitmq_store_rewritten_messages_total",
    "Pending messages put again at the end of the log so that their files could go.",
)
DISK_USED: Final = _gauge("orbitmq_disk_used_ratio", "Used share of the disk, 0 to 1.", "path")
DISK_FREE: Final = _gauge("orbitmq_disk_free_bytes", "Free bytes of the disk.", "path")
RECOVERY_SECONDS: Final = _gauge("orbitmq_recovery_seconds", "How long opening the store took at the last start.")
RECOVERY_RECORDS: Final = _gauge("orbitmq_recovery_scanned_records", "Records scanned at the last start.")
RECOVERY_TORN: Final = _gauge("orbitmq_recovery_torn_bytes", "Bytes of a torn end that were cut at the last start.")

# --- idempotent sends -------------------------------------------------------------------------------------------------
ONCE_SCOPES: Final = _gauge("orbitmq_once_scopes", "Scopes of idempotent sends that are remembered.")
ONCE_KEYS: Final = _gauge("orbitmq_once_keys", "Keys of idempotent sends that are remembered.")
ONCE_BYTES: Final = _gauge("orbitmq_once_memory_bytes", "Memory of those keys, estimated.")
ONCE_BYTES_MAX: Final = _gauge(
    "orbitmq_once_memory_max_bytes", "What that memory may grow to; beyond it sends are refused."
)
ONCE_FULLEST: Final = _gauge(
    "orbitmq_once_fullest_owner_ratio",
    "Of what the owner that is nearest to its bound may have of that memory, what it has; at 1 its sends are refused.",
)
ONCE_REPEATS: Final = _counter("orbitmq_once_repeats_total", "Idempotent sends answered with the first one's result.")
ONCE_REFUSED: Final = _counter("orbitmq_once_refused_total", "Idempotent sends refused.", "reason")
ONCE_FORGOTTEN: Final = _counter("orbitmq_once_forgotten_scopes_total", "Scopes forgotten because nobody used them.")

# --- requests ---------------------------------------------------------------------------------------------------------
REQUESTS: Final = _counter("orbitmq_requests_total", "Requests handled.", "role", "request")
REQUEST_FAILURES: Final = _counter(
    "orbitmq_request_failures_total", "Requests answered with another code than success.", "role", "request", "response"
)
REQUESTS_UNSUPPORTED: Final = _counter(
    "orbitmq_unsupported_requests_total", "Requests with a code that is not answered here.", "role"
)
ACCESS_DENIED: Final = _counter(
    "orbitmq_access_denied_total",
    "Requests and calls whose caller is not known (no_name, unknown_user, disabled, wrong_signature), or may not do it (not_allowed).",
    "reason",
)
HANDLER_ERRORS: Final = _counter("orbitmq_handler_errors_total", "Requests that failed by a defect of ours.", "role")
BUSY: Final = _counter(
    "orbitmq_busy_answers_total", "Requests answered SYSTEM_BUSY because they waited too long or too many waited."
)
PUT_FAILURES: Final = _counter("orbitmq_put_failures_total", "Sends that were not accepted, for whatever reason.")
PUT_LATENCY: Final = _summary(
    "orbitmq_put_latency_seconds",
    "From the arrival of a send to the moment its flush mode is satisfied, over the last one to two minutes; sampled.",
)
PULLS: Final = _counter("orbitmq_pulls_total", "Pulls answered.", "outcome")
HELD_PULLS: Final = _gauge("orbitmq_held_pulls", "Pulls that wait for a message.")
PULLS_NOT_HELD: Final = _counter("orbitmq_pulls_not_held_total", "Pulls answered at once because too many waited.")
OFFSETS_NOT_KEPT: Final = _counter(
    "orbitmq_offsets_not_kept_total", "Offset commits refused because the table is full."
)
EXPIRED_CLIENTS: Final = _counter(
    "orbitmq_expired_clients_total", "Clients that left because their heartbeats stopped."
)
LINE_WAITING: Final = _gauge("orbitmq_line_requests", "Requests that were read and wait to be handled.")
LINE_BYTES: Final = _gauge("orbitmq_line_bytes", "Bytes of those requests.")
LINE_LONGEST: Final = _gauge("orbitmq_line_longest_requests", "The longest that line has been since the start.")
LINE_REFUSED: Final = _counter("orbitmq_line_refused_total", "Requests that found the line full.")

# --- connections ------------------------------------------------------------------------------------------------------
CONNECTIONS: Final = _gauge("orbitmq_connections", "Open connections.", "role")
CONNECTIONS_MAX: Final = _gauge("orbitmq_connections_max", "Connections the process takes at all its ports.")
CONNECTIONS_OPENED: Final = _counter(
    "orbitmq_connection_events_total", "Connections by what became of them.", "role", "outcome"
)
HANDSHAKES: Final = _counter(
    "orbitmq_handshakes_total",
    "Connections that began with TLS or a PROXY preamble, and plain ones that were refused, by what became of them.",
    "outcome",
)
HANDSHAKES_OPEN: Final = _gauge("orbitmq_handshakes_open", "Handshakes and PROXY preambles under way.")
HANDSHAKES_OPEN_MAX: Final = _gauge("orbitmq_handshakes_open_max", "How many of them may be.")
CERTIFICATE_EXPIRY: Final = _gauge(
    "orbitmq_certificate_expiry_seconds",
    "Until the certificate of the ports expires; below 0 it has. Without one, nothing.",
)
BAD_FRAMES: Final = _counter("orbitmq_bad_frames_total", "Malformed frames.", "role")
FRAMES: Final = _counter(
    "orbitmq_frames_total",
    "Frames read (in) and written (out); of gRPC, calls that began and their answers.",
    "role",
    "direction",
)
BYTES: Final = _counter("orbitmq_network_bytes_total", "Bytes read (in) and written (out).", "role", "direction")
UNANSWERED: Final = _gauge("orbitmq_unanswered_requests", "Requests whose answer is still open.", "role")
LATE_ANSWERS: Final = _counter(
    "orbitmq_late_answers_total", "Answers of clients that nobody waited for any longer.", "role"
)
HELD_BYTES: Final = _gauge(
    "orbitmq_held_bytes", "Bytes of unfinished frames and of requests whose senders take no answers.", "role"
)

# --- the port for gRPC --------------------------------------------------------------------------------------------------
PROXY_UP: Final = _gauge(
    "rocketmq_proxy_up",
    "1 while the port for gRPC is open. RocketMQ has it of each proxy, and `proxy_mode` is `local` for one inside a broker.",
    "proxy_mode",
)
HTTP2_STREAMS: Final = _gauge(
    "orbitmq_http2_streams", "Streams of the port for gRPC that are open: calls, and answers that have not left whole."
)
HTTP2_WAITING: Final = _gauge("orbitmq_http2_waiting_bytes", "Bytes of answers that wait for windows of their clients.")
HTTP2_RESETS: Final = _counter("orbitmq_http2_resets_total", "Streams that were reset, by `client` or `server`.", "by")
HTTP2_REFUSED: Final = _counter(
    "orbitmq_http2_refused_streams_total", "Streams refused because their connection had as many as it may."
)
HTTP2_EXHAUSTED: Final = _counter(
    "orbitmq_http2_exhausted_windows_total", "Answers that had to wait because a window of their client was used up."
)
HTTP2_DROPPED: Final = _counter(
    "orbitmq_http2_dropped_answers_total", "Answers dropped, and their calls reset, because too much waited already."
)
HTTP2_ENDS: Final = _counter(
    "orbitmq_http2_connection_errors_total",
    "Connections that ended by what their clients sent, by the code of the GOAWAY.",
    "code",
)

# --- copies -----------------------------------------------------------------------------------------------------------
REPLICA_ROLE: Final = _gauge(
    "orbitmq_replica_role",
    "1; `role` is what brokerRole says, or LEADER, FOLLOWER or STOPPED in a replicated group.",
    "role",
)
REPLICA_DAMAGED: Final = _gauge(
    "orbitmq_replica_damaged_places",
    "Places where the log is damaged, and no other copy has given what is missing yet.",
)
REPLICA_MENDED: Final = _counter(
    "orbitmq_replica_mended_places_total", "Damaged places of the log that were mended from another copy."
)
REPLICA_MENDED_BYTES: Final = _counter(
    "orbitmq_replica_mended_bytes_total",
    "Bytes of the log that came from another copy, because they were damaged here.",
)
REPLICA_COPIES_NEEDED: Final = _gauge(
    "orbitmq_replica_copies_needed", "Slaves that a send waits for; 0 where it waits for none."
)
REPLICA_COPIES_MISSING: Final = _gauge(
    "orbitmq_replica_copies_missing", "Slaves that have to keep up before sends are answered without a warning again."
)
REPLICA_COUNTED: Final = _gauge(
    "orbitmq_replica_counted", "At a master: 1 while this slave keeps up and counts as a copy, else 0.", "slave"
)
REPLICA_LAG_BYTES: Final = _gauge(
    "orbitmq_replica_lag_bytes", "At a master: what was written and this slave has not reported.", "slave"
)
REPLICA_LAG_SECONDS: Final = _gauge(
    "orbitmq_replica_lag_seconds",
    "At a master: how long ago the first byte was written that this slave has not reported, as far as that is remembered; 0 without one.",
    "slave",
)
REPLICA_ACKNOWLEDGED: Final = _gauge(
    "orbitmq_replica_acknowledged_offset_bytes", "At a master: position up to which this slave has the log.", "slave"
)
REPLICA_CONNECTED: Final = _gauge("orbitmq_replica_connected", "At a slave: 1 while it follows its master, else 0.")
REPLICA_SILENCE: Final = _gauge(
    "orbitmq_replica_silence_seconds",
    "At a slave: since something last came from the master; at rest a heartbeat does.",
)
REPLICA_ENDS: Final = _counter(
    "orbitmq_replica_connection_ends_total", "Connections between master and slave that ended.", "reason"
)
REPLICA_BYTES: Final = _counter(
    "orbitmq_replica_bytes_total", "Bytes between master and slave, read (in) and written (out).", "direction"
)
GROUP_EPOCH: Final = _gauge("orbitmq_group_epoch", "Of a member of a replicated group: the epoch that it is in.")
GROUP_IN_SYNC: Final = _gauge(
    "orbitmq_group_in_sync", "Members in the in-sync set, the leader among them, as this member knows it."
)
GROUP_ELECTIONS: Final = _counter("orbitmq_group_elections_total", "Times that this member began to lead.")
GROUP_CLOCK_OFF: Final = _gauge(
    "orbitmq_group_clock_off_seconds",
    "By how much the clock of a follower is ahead of its leader's, where it has been off by more than half a second for three; else 0.",
)
GROUP_ENGINE: Final = _gauge(
    "orbitmq_group_engine_answers", "1 while the engine of the group answers this member's questions, else 0."
)
GROUP_REFUSED: Final = _counter(
    "orbitmq_group_refused_connections_total",
    "Connections to the port for members that were refused, or broke the protocol.",
)

# --- name servers -----------------------------------------------------------------------------------------------------
REGISTERED: Final = _gauge(
    "orbitmq_registered", "1 when the last registration at the name server succeeded, else 0.", "nameserver"
)
NS_BROKERS: Final = _gauge("orbitmq_nameserver_brokers", "Broker addresses registered at this name server.")
NS_TOPICS: Final = _gauge("orbitmq_nameserver_topics", "Topics this name server knows.")
NS_KV_BYTES: Final = _gauge("orbitmq_nameserver_kv_bytes", "Bytes of its key-value table.")
NS_ACCESS_DENIED: Final = _counter(
    "orbitmq_nameserver_access_denied_total",
    "Changes of it that were refused, by the reasons of orbitmq_access_denied_total.",
    "reason",
)

# --- the process ------------------------------------------------------------------------------------------------------
BUILD: Final = _gauge(
    "orbitmq_build_info", "1; the labels tell what runs.", "version", "python", "inner_loops", "event_loop"
)
LOOP_TURNS: Final = _histogram(
    "orbitmq_loop_turn_seconds", "From the first bytes read in a loop turn to its last written answer."
)
LOOP_DELAY: Final = _histogram(
    "orbitmq_loop_delay_seconds", "How late the event loop ran a timer: how long something else held it."
)
LOOP_STALLS: Final = _counter(
    "orbitmq_loop_stalls_total", "Loop turns and timer delays of a quarter of a second or more."
)
CLOCK_JUMPS: Final = _counter(
    "orbitmq_clock_jumps_total",
    "Jumps of the wall clock by more than 10 s: those that lasted a minute and are believed, and those that ended before.",
    "outcome",
)
CLOCK_JUMP: Final = _gauge(
    "orbitmq_clock_jump_seconds",
    "How far the wall clock is ahead of the time that goes on, while a jump is not believed; else 0.",
)
TURN_FAILURES: Final = _counter("orbitmq_turn_failures_total", "Loop turns whose end failed by a defect of ours.")
WAKEUPS: Final = _counter("orbitmq_wakeups_total", "Wake-ups of the process by timers and threads.", "name")
LOG_LINES: Final = _counter("orbitmq_log_lines_total", "Log lines written.", "level")
LOG_LEFT_OUT: Final = _counter(
    "orbitmq_log_lines_left_out_total", "Log lines left out because they repeated too often."
)
HTTP_ANSWERS: Final = _counter("orbitmq_http_answers_total", "Answers of the HTTP port.", "status")
HTTP_CONNECTIONS: Final = _counter("orbitmq_http_connections_total", "Connections to the HTTP port.", "outcome")
SCRAPES: Final = _counter("orbitmq_scrapes_total", "Scrapes of these metrics.")
SCRAPE_FAILURES: Final = _counter(
    "orbitmq_scrape_failures_total", "Groups of metrics that could not be read in a scrape."
)
LAG_LEFT_OUT: Final = _gauge(
    "orbitmq_consumer_lag_left_out",
    "Pairs of group and topic with offsets that the last scrape did not look at, because too many groups have no members.",
)
FOLDED_SERIES: Final = _gauge(
    "orbitmq_folded_series", "Series of a metric that share `(others)` because there are too many.", "metric"
)
CPU: Final = _counter("process_cpu_seconds_total", "User and system CPU time.")
RESIDENT: Final = _gauge("process_resident_memory_bytes", "Resident memory, mapped files included.")
ANONYMOUS: Final = _gauge("orbitmq_anonymous_memory_bytes", "Resident memory without mapped files.")
OPEN_FILES: Final = _gauge("process_open_fds", "Open file descriptors.")
MAX_FILES: Final = _gauge("process_max_fds", "File descriptors the process may open.")
START_TIME: Final = _gauge("process_start_time_seconds", "When the process began to serve, in seconds since 1970.")

ALL: Final[tuple[Metric, ...]] = tuple(_ALL)

CONSTANT_LABELS: Final = ("cluster", "node_type", "node_id")
"""Labels that stand on every sample."""

RESERVED_LABELS: Final = frozenset(
    {*CONSTANT_LABELS, "le", "quantile", *(label for metric in ALL for label in metric.labels)}
)
"""Names that an operator's own labels may not have."""
