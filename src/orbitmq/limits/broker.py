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

# --- idempotent sends ----------------------------------------------------------------------------------------------
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

ONCE_FINISHED_IDLE_MS: Final = 3_600_000
"""Rest after which a scope may be forgotten that its sender has finished with for good. What is kept of it until then refuses the
sends of somebody who was replaced and does not know it yet."""

ONCE_SCOPES_LISTED_MAX: Final = 64
"""Scopes in one answer: a sender looks for its own, of which there is one for every set of brokers it has sent to."""

ONCE_TRANSIENT_IDLE_MS: Final = 60_000
"""Rest after which a transient scope may be forgotten. Clients promise not to repeat a send after that."""
