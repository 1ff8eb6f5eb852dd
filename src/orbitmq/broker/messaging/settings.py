"""What a broker allows clients of RocketMQ 5 and tells them: the settings of its front end.

They are keys of RocketMQ's proxy, and have its defaults, with one exception: a delivery time may lie as far ahead as timers go. What
other front ends read as well (registration, transactions, timers, the type of a topic) stands in `broker/settings.py`.
"""

from __future__ import annotations

import msgspec

from orbitmq.limits.grpc import (
    MESSAGE_GROUP_BYTES_MAX,
    RECOVERY_SECONDS_MAX,
    USER_PROPERTIES_BYTES_MAX,
    USER_PROPERTIES_MAX,
)
from orbitmq.limits.pop import POP_MESSAGES_MAX
from orbitmq.store.settings import StoreSettings


class MessagingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole front end's settings; each module reads its own."""

    # --- sends -----------------------------------------------------------------------------------------------------------
    body_bytes_max: int | None = None
    """Largest body; None: what the broker takes, which is never exceeded."""

    user_properties_max: int = USER_PROPERTIES_MAX
    user_properties_bytes_max: int = USER_PROPERTIES_BYTES_MAX
    """Bytes of the names and values of user properties, the tag and the keys of a message together."""

    message_group_bytes_end: int = MESSAGE_GROUP_BYTES_MAX + 1
    """A message group has fewer bytes."""

    recovery_seconds_max: int = RECOVERY_SECONDS_MAX
    """Longest time before the first check of a transaction."""

    delay_ms_max: int | None = None
    """How far ahead a delivery time may be; None for as far as timers go."""

    checks_types: bool = True
    """Refuse a message of a type that its topic does not take, and have producers refuse it as well."""

    # --- receives --------------------------------------------------------------------------------------------------------
    polling_ms_min: int = 5_000
    polling_ms_max: int = 20_000
    """How long a receive may wait: what a client wants is moved between these two."""

    receive_batch_max: int = POP_MESSAGES_MAX
    """Messages of one receive."""

    invisible_ms_min: int = 10_000
    """Shortest invisible time of a receive; of a change there is none."""

    invisible_ms_max: int = 43_200_000
    """Longest invisible time of a receive or a change."""

    # --- renewal of what is being consumed ---------------------------------------------------------------------------------
    renews: bool = True
    """Renew the invisible time of a receive that asks for it; without, it is given what `renewed_invisible_ms` says, once."""

    renewed_invisible_ms: int = 60_000
    """Invisible time of a receive that asks to be renewed."""

    renewal_period_ms: int = 5_000
    """Longest time between two looks at what has to be renewed."""

    renewal_ahead_ms: int = 10_000
    """Renewed is what would be visible within this time."""

    renewal_total_ms: int = 10_800_000
    """Nothing is renewed for longer than this since it was first popped."""

    renewal_failures_max: int = 3
    """Failed renewals after which a message is given up to its invisible time."""

    # --- what producers are told -------------------------------------------------------------------------------------------
    producer_attempts: int = 3
    producer_backoff_initial_ms: int = 10
    producer_backoff_max_ms: int = 1_000
    producer_backoff_multiplier: int = 2
    """How often they try to send a message, and how long they wait in between."""

    def body_bytes_max_of(self, store: StoreSettings) -> int:
        """Largest body of a message for that store."""
        return (
            store.max_message_size if self.body_bytes_max is None else min(self.body_bytes_max, store.max_message_size)
        )
