"""Bounds of a name server: what others may register and store in it."""

from __future__ import annotations

from typing import Final

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

BROKER_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
"""Longest life of a registration that a sender may ask for: a broker that is gone does not stay in the routes for ever."""

BROKER_TIMEOUT_MS: Final = 120_000
"""Life of a registration whose sender names none."""

TWO_MASTERS_TOLD_MAX: Final = 1_000
"""Pairs of masters of one group that are remembered, and reported once each; of more, some are reported again."""

MASTER_RETURNS_MS: Final = 120_000
"""A master whose place another one took, and that registers as one again within this, is one beside it: brokers register once a minute at
least. One that was lost, or deposed in a replicated group, does not."""
