"""Bounds of what travels and is stored: frames, messages, properties, JSON, and what is remembered of them."""

from __future__ import annotations

from typing import Final

# --- frames --------------------------------------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 16_777_216
"""Largest frame on the wire, the four length bytes included; the limit of RocketMQ's decoder."""

HEADER_BYTES_MAX: Final = 524_288
"""Largest header that a server reads: the longest tag expression of a pull with every character escaped, and a third more. RocketMQ has
no bound of its own; one of 12 MB with a million fields held the loop for a second."""

# --- messages ------------------------------------------------------------------------------------------------------
BODY_BYTES_MAX: Final = 4_194_304
"""Default of `maxMessageSize`: largest body, and largest sum of a batch."""

RECORD_OVERHEAD_BYTES_MAX: Final = 65_536
"""What a stored record may have beyond its body: fixed fields, topic, properties."""

PROPERTIES_BYTES_MAX: Final = 32_767
"""The length of the encoded properties is a signed 16-bit number in the record."""

PROPERTIES_ROOM_BYTES: Final = 1_024
"""Room in the properties of a new message that stays free for those that it may get later: while it waits for a time (slot, due time,
hops, source), in its group's retry topic, and as a dead letter (`RETRY_TOPIC`, `ORIGIN_MESSAGE_ID`, `DLQ_ORIGIN_*`, a group of 255
characters in `REAL_TOPIC`). A test adds them up. What waits for a time leaves twice the length of its unique key free beside that:
after some reschedules it waits under another key, and its cancel record names the key three times."""

PROPERTIES_PLAIN_MAX: Final = 10_000
"""Properties up to this leave that room whatever their unique key, so that nothing has to be reckoned."""

TOPIC_BYTES_MAX: Final = 127
"""Ordinary topics: the length is a signed byte in V1 records."""

RETRY_TOPIC_BYTES_MAX: Final = 255
"""`%RETRY%` and `%DLQ%` topics carry a group name of up to 255 characters (V2 records)."""

GROUP_CHARS_MAX: Final = 255
"""Consumer and producer groups; what clients up to 5.3.3 allow."""

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A body may not grow beyond this when a consumer decompresses it: stops decompression bombs."""

BATCH_MESSAGES_MAX: Final = 32_768
"""Messages in one batch frame. A batch is handled in one piece, which others wait for: this many take about 0.3 s. The
Java client writes at least 100 bytes for each message, so its batches of 4 MiB hold no more than 42,000 empty ones."""

RECALL_HANDLE_CHARS_MAX: Final = 8_192
"""Characters of a recall handle: a topic, a broker name and a unique key of everyday length fit many times."""

POP_RECEIPT_CHARS_MAX: Final = 2_048
"""Characters of a receipt of a pop: eight numbers and a broker name."""

# --- records, properties, hashes -----------------------------------------------------------------------------------
KEY_PREFIX_HASHES_MAX: Final = 4_096
"""Cached hashes of `topic#` and of `topic#` with a client's part of its unique keys: one line per topic and sending client."""

TAG_HASHES_MAX: Final = 4_096
"""Cached hashes of tags; a program uses few different ones, and one that does not only loses the cache."""

CACHED_TAG_CHARS_MAX: Final = 128
"""A longer tag is hashed each time, so that the cache of tags has a bound in bytes as well."""

FILTERS_CACHED_MAX: Final = 4_096
"""Tag expressions kept parsed: consumers that send theirs with every pull repeat a few."""

FILTER_CACHED_CHARS_MAX: Final = 256
"""Longer tag expressions are parsed each time: a client could fill the memory with long ones."""

EXPRESSION_CHARS_MAX: Final = 16_384
"""Characters of an SQL92 filter expression: parsing one of them holds the loop for about 30 ms. RocketMQ has no bound of its own."""

EXPRESSION_DEPTH_MAX: Final = 100
"""How deep the parts of a filter expression may lie in one another. Parsing takes five frames of the stack for each, and RocketMQ's parser
overflows its own some thousands deep."""

EXPRESSION_STEPS_MAX: Final = 4_000
"""Operations and looks at properties that a filter expression may need for one message, half a microsecond each; more is
SUBSCRIPTION_PARSE_FAILED. BETWEEN asks its left side twice, so that 32 of them in one another would be thousands of millions. A list of IN
is one operation."""

NUMBER_CHARS_MAX: Final = 1_100
"""Characters of a property that is compared as a number; one that is longer is none. The longest decimal of a double has 1,077, and a
property may have 32,767 that would be read for every comparison."""

# --- delay levels --------------------------------------------------------------------------------------------------
DELAY_LEVELS_MAX: Final = 256
"""Levels in `messageDelayLevel`; each is a consume queue of the schedule topic with files of its own."""

DELAY_LEVEL_MS_MAX: Final = 100 * 365 * 86_400_000
"""Longest delay of a level, a century: a larger number is a slip of the pen, and due times must stay far inside 64 bits."""

# --- JSON bodies ---------------------------------------------------------------------------------------------------
JSON_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest JSON document: configuration tables may be larger than any frame; bodies are bounded by their frame."""

JSON_DEPTH_MAX: Final = 100
"""Nesting of a JSON document in fastjson's dialect; the deepest body of the protocol has eight levels."""

JSON_VALUES_MAX: Final = 2_000_000
"""Values of a JSON document after its references are resolved: a few bytes of references could stand for billions."""
