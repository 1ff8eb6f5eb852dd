"""Settings of the broker: identity, topics and groups, delay levels, pulling, offsets, overload.

Rules of this file
1. A plain value object: it reads no file and no environment. Loading, bounds and key names belong to the server.
2. Field names are RocketMQ's keys in snake case, with the unit as a suffix where the key has none or misspells it.
3. Defaults are RocketMQ 5.3's; where they are wider than a careful default (listening on every address) ours says so.
"""

from __future__ import annotations

import msgspec

from orbitmq.limits.broker import ONCE_MEMORY_BYTES_MAX, UNANSWERED_SENDS_MAX

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The 18 levels of every RocketMQ version."""


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one broker decides by configuration. A runtime change makes a new value."""

    # --- identity ---
    broker_name: str = "broker-a"
    """Name of the broker group; clients address queues by it."""

    broker_cluster_name: str = "DefaultCluster"
    """Cluster the broker registers with; also the name of a system topic."""

    broker_id: int = 0
    """0 is the master; other numbers are slaves."""

    broker_ip1: str = ""
    """Address given to clients; empty means the bound address, else the first one that is not loopback."""

    listen_port: int = 10_911
    """Main port. Clients of old default also use `listen_port - 2`."""

    namesrv_addr: tuple[str, ...] = ()
    """Name servers to register with, each `host:port`. Empty: the one in the same process, or none."""

    register_name_server_period_ms: int = 30_000
    """Pause between registrations; used within 10,000 to 60,000."""

    region_id: str = "DefaultRegion"
    """Written into every message as MSG_REGION."""

    trace_on: bool = True
    """Written into every message as TRACE_ON: whether clients should trace it."""

    slave_read_enable: bool = False
    """A slave serves pulls; a master sends consumers there that are far behind."""

    # --- topics and groups ---
    broker_permission: int = 6
    """Permission bits of the whole broker (4 read, 2 write); every topic's bits are cut by it."""

    auto_create_topic_enable: bool = True
    """A send to an unknown topic creates it from the template topic named in the request."""

    auto_create_subscription_group: bool = True
    """An unknown consumer group is created at first sight."""

    default_topic_queue_nums: int = 8
    """Queues of the template topic TBW102: most queues of an automatically created topic."""

    cluster_topic_enable: bool = True
    """The topic named like the cluster can be read and written."""

    broker_topic_enable: bool = True
    """The topic named like the broker can be read and written."""

    trace_topic_enable: bool = False
    """Create the trace topic at start."""

    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    """Name of the trace topic."""

    validate_system_topic_when_update_topic: bool = True
    """Refuse to create or change a system topic by request."""

    enable_mixed_message_type: bool = False
    """Allow the topic attribute `message.type=MIXED`."""

    enforce_message_type: bool = False
    """Refuse messages of a type that their topic does not take (its attribute `message.type`)."""

    reject_transaction_message: bool = False
    """Answer half messages with NO_PERMISSION."""

    transaction_time_out_ms: int = 6_000
    """Age of a half message at which its producer is asked, unless the message names another."""

    transaction_check_interval_ms: int = 30_000
    """From one question about a transaction to the next."""

    transaction_check_max: int = 15
    """Questions after which a transaction is given up; its message goes to TRANS_CHECK_MAX_TIME_TOPIC."""

    store_reply_message_enable: bool = True
    """Store replies of request-reply calls in the reply topic, beside handing them on."""

    # --- delay levels ---
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    """Delays of levels 1, 2, ..., separated by single blanks; units s, m, h, d."""

    # --- timer messages ---
    timer_wheel_enable: bool = True
    """Take messages with timer properties, and have the topic they wait in."""

    timer_precision_ms: int = 1_000
    """Width of a slot of RocketMQ's timer files. Messages are delivered to the millisecond whatever it is."""

    timer_roll_window_slot: int = 172_800
    """Slots from now on in which messages wait at their own time; those that are further away hop, where there is no far tier."""

    timer_stop_dequeue: bool = False
    """Deliver no timer messages. They go on waiting, and new ones are taken."""

    mapped_file_size_timer_log: int = 104_857_600
    """Size of a file of the timer log."""

    timer_far_enable: bool = True
    """Take messages that are due beyond the horizon into the far tier, where the extra for it is installed."""

    timer_far_horizon_s: int = 259_200
    """What is due later than this waits in the far tier; what comes nearer joins the others."""

    timer_far_url: str = ""
    """Where the far tier's files lie: a directory, or a URL that pyarrow knows; a master and its slaves may share one. Empty: `far` in
    the data directory, which is never shared."""

    timer_max_delay_sec: int = 0
    """Timer messages that are further away are refused. 0: none is too far before the end of the year 9999."""

    timer_congest_num_each_slot: int = 2**31 - 1
    """Pending messages of one slot from which on further ones are refused at random; from twice as many all are."""

    recall_message_enable: bool = True
    """Serve recalls of pending timer messages; RocketMQ refuses them by default."""

    allow_recall_when_broker_not_writeable: bool = True
    """Serve recalls also while the broker's permission takes no messages."""

    # --- idempotent sends ---
    idempotence_memory_max_bytes: int = ONCE_MEMORY_BYTES_MAX
    """What the keys of idempotent sends may take together, 160 bytes each and 48 in large epochs; beyond it such sends are refused."""

    idempotence_reserved_time_hours: int = 72
    """A scope that nobody sends in for this long is forgotten with its keys; transient ones after a minute."""

    # --- pulling ---
    long_polling_enable: bool = True
    """Hold a pull that found nothing as long as the client asked; otherwise `short_polling_time_ms`."""

    short_polling_time_ms: int = 1_000
    """How long a pull without result is held when long polling is off."""

    lite_pull_message_enable: bool = True
    """Serve LITE_PULL_MESSAGE."""

    enable_property_filter: bool = True
    """Serve subscriptions by SQL92 expressions over properties; RocketMQ refuses them by default."""

    filter_support_retry: bool = False
    """Filter pulls of retry topics by the expression that their group has for the topic that a message came from."""

    reject_pull_consumer_enable: bool = False
    """Refuse pulls from connections that are not registered in the group they name."""

    default_query_max_num: int = 32
    """Most messages that one look-up by unique key returns."""

    # --- popping ---
    pop_from_retry_probability: int = 20
    """Of 100 pops so many take of the retry topic first; the others when the topic did not give enough."""

    enable_retry_topic_v2: bool = False
    """Store messages that were not acknowledged in `%RETRY%<group>+<topic>` instead of `%RETRY%<group>_<topic>`."""

    retrieve_message_from_pop_retry_topic_v1: bool = True
    """With `enable_retry_topic_v2`, take messages of the old retry topic too."""

    clear_retry_topic_when_delete_topic: bool = True
    """Delete the retry topics of pops of a topic with it."""

    pop_response_return_actual_retry_topic: bool = False
    """Give messages of a retry topic out under its name and without their receipt, as they are stored."""

    enable_pop_message_threshold: bool = False
    """Give out nothing of a queue of which a group has more than `pop_inflight_message_threshold` messages in flight."""

    pop_inflight_message_threshold: int = 10_000
    """Messages in flight of one queue and group, with `enable_pop_message_threshold`."""

    pop_from_retry_probability_for_priority: int = 0
    """The same of pops that read by priority."""

    priority_order_asc: bool = True
    """0 is the lowest priority; otherwise the highest."""

    use_separate_retry_queue: bool = False
    """A message that was not acknowledged goes to the queue of the retry topic with the number of its own; otherwise all go to one."""

    init_pop_offset_by_check_msg_in_mem: bool = True
    """A group that begins at the end of a queue begins with its first message while that is young and still there."""

    pop_ck_stay_buffer_time_ms: int = 10_000
    """A pop whose messages are in flight for so long is stored as a checkpoint."""

    # --- assignment by the broker ---
    default_message_request_mode: str = "PULL"
    """How a group reads a topic where nobody has said so: PULL or POP."""

    default_pop_share_queue_num: int = -1
    """Of how many members behind it a member pops the queues too, where nobody has said so; 0 or less: everybody pops every queue."""

    server_load_balancer_enable: bool = True
    """Share the queues of a topic among those who ask which are theirs; otherwise all of them get all."""

    # --- groups, offsets ---
    notify_consumer_ids_changed_enable: bool = True
    """Tell the members of a group when one joins or leaves."""

    flush_consumer_offset_interval_ms: int = 5_000
    """Pause between saves of consumer offsets."""

    consumer_offset_update_version_step: int = 500
    """Offset commits after which the data version of the consumer offsets moves."""

    channel_expired_timeout_ms: int = 120_000
    """A client that has not sent a heartbeat for this long is removed from its groups."""

    # --- overload ---
    start_accept_send_request_timestamp: int = 0
    """Sends before this instant (milliseconds since the epoch) are refused."""

    broker_fast_failure_enable: bool = True
    """Answer SYSTEM_BUSY to requests that waited longer than their limit."""

    wait_time_ms_in_send_queue: int = 200
    """Longest wait of a send from its last byte read to its handling."""

    wait_time_ms_in_pull_queue: int = 5_000
    """The same for pulls."""

    send_thread_pool_queue_capacity: int = UNANSWERED_SENDS_MAX
    """Unanswered sends beyond which further ones are answered SYSTEM_BUSY."""
