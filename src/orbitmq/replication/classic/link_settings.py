"""How a master and a slave talk to each other: the settings of both ends of a link."""

from __future__ import annotations

import msgspec

from orbitmq.limits.replication import (
    LINK_HEARTBEAT_MS,
    LINK_RATE_BYTES_PER_S,
    LINK_RECONNECT_FIRST_MS,
    LINK_RECONNECT_MS,
    LINK_SILENCE_MS,
    LINK_UNAPPENDED_BYTES_MAX,
    LINK_WINDOW_BYTES,
    TRANSFER_BATCH_BYTES,
)
from orbitmq.protocol.records import BLANK_BYTES_MIN
from orbitmq.protocol.replication.frames import TRANSFER_BODY_BYTES_MAX
from orbitmq.units import NS_PER_MS


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """ValueError where the values do not go together."""

    batch_bytes: int = TRANSFER_BATCH_BYTES
    """Of the log in one transfer. A single record may be larger."""
    body_bytes_max: int = TRANSFER_BODY_BYTES_MAX
    """Of the log in one transfer that has a single record; a larger record is cut."""
    window_bytes: int = LINK_WINDOW_BYTES
    """Sent and not acknowledged."""
    unappended_bytes_max: int = LINK_UNAPPENDED_BYTES_MAX
    """Received and not appended."""
    limits_rate: bool = False
    rate_bytes_per_s: int = LINK_RATE_BYTES_PER_S
    """To one slave, where the rate is limited."""
    heartbeat_ms: int = LINK_HEARTBEAT_MS
    silence_ms: int = LINK_SILENCE_MS
    reconnect_ms: int = LINK_RECONNECT_MS
    """The longest pause before a slave connects again."""
    reconnect_first_ms: int = LINK_RECONNECT_FIRST_MS
    """The first one; it doubles."""

    def __post_init__(self) -> None:
        if not BLANK_BYTES_MIN <= self.batch_bytes <= self.body_bytes_max <= TRANSFER_BODY_BYTES_MAX:
            allowed = f"{BLANK_BYTES_MIN} to {self.body_bytes_max}"
            raise ValueError(f"a transfer has from {allowed} bytes of the log, not {self.batch_bytes}")
        if self.window_bytes < self.body_bytes_max:
            raise ValueError(f"a window of {self.window_bytes} bytes is less than the largest transfer")
        if self.rate_bytes_per_s < 1:
            raise ValueError(f"a rate of {self.rate_bytes_per_s} bytes a second sends nothing")
        if not 0 < self.heartbeat_ms < self.silence_ms:
            raise ValueError(f"a heartbeat every {self.heartbeat_ms} ms does not end a silence of {self.silence_ms} ms")

    @property
    def heartbeat_ns(self) -> int:
        return self.heartbeat_ms * NS_PER_MS

    @property
    def silence_ns(self) -> int:
        return self.silence_ms * NS_PER_MS

    @property
    def reconnect_ns(self) -> int:
        return self.reconnect_ms * NS_PER_MS

    def pause_ns(self, failures: int) -> int:
        """Before a slave connects again, after that many connections in a row that failed or did not last; from 0."""
        doublings = min(failures, self.reconnect_ms.bit_length())
        return min(self.reconnect_first_ms << doublings, self.reconnect_ms) * NS_PER_MS
