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

CONSUMER_SPAN_MAX: Final = 2_000
"""Distance from the first to the last unsettled offset of a queue above which it is not pulled: one stuck message
may hold back the committed offset, and with it cause redelivery after a crash, only this far."""

CONSUMER_PULL_MESSAGES_MAX: Final = 1_024
"""Largest number of messages one pull may ask for."""

CONSUMER_PULL_BYTES: Final = 262_144
"""Bytes one pull asks for at most; the broker's own transfer bound."""

CLIENT_OFFLOAD_BYTES: Final = 65_536
"""Bodies from this size are compressed and decompressed on a thread, so that the event loop is not held for more than
about a millisecond."""

# --- name server --------------------------------------------------------------------------------------------------
NAMESERVER_BROKERS_MAX: Final = 10_000
"""Registered broker addresses. Anybody may register; an invented broker must not fill the memory."""

NAMESERVER_TOPICS_MAX: Final = 500_000
"""Topics in the route table; ten times what large installations report."""

NAMESERVER_KV_BYTES_MAX: Final = 16 * 1024 * 1024
"""Sum of all names, keys and values of the KV table; the whole table is one file, rewritten on a change."""

NAMESERVER_ROUTE_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Encoded route answers kept; beyond it the cache starts again empty."""
