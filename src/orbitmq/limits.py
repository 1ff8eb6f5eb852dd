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
