"""Bounds of gRPC and of the HTTP/2 below it."""

from __future__ import annotations

from typing import Final

# --- header fields -------------------------------------------------------------------------------------------------
HEADER_TABLE_BYTES_MAX: Final = 4_096
"""Table of header fields that a peer may have us keep: the size of HTTP/2 itself, so no setting has to be sent. The fields of a signed call
take 1,500. A block that chooses more ends the connection."""

HEADER_LIST_BYTES_MAX: Final = 16_384
"""Header list of one call, 32 bytes for each field included; clients need less than 2,000, gRPC's own servers take 8,192 to 16,384. A
larger one is refused, the connection goes on."""

HEADER_INTEGER_BYTES_MAX: Final = 6
"""Bytes of a number in a header block, enough for 32 bits: a longer one is padded or has no use, and ends the connection."""

# --- calls ---------------------------------------------------------------------------------------------------------
GRPC_MESSAGE_BYTES_MAX: Final = 130 * 1024 * 1024
"""Largest message of a call, as in RocketMQ's proxy; a larger one ends the call with RESOURCE_EXHAUSTED. A body above 4 MiB is read and
refused with a code of its own."""

STATUS_TEXT_CHARS_MAX: Final = 512
"""Characters of the text beside a gRPC status; a longer one is cut visibly. It travels in a header field, where a character may take
twelve bytes, and clients take fields of 8 KB."""
