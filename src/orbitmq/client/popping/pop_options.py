"""Settings of pop consumers.

Rules of this file
1. As in `options`: checked when made, defaults of RocketMQ's consumer unless the field's line says otherwise.
"""

from __future__ import annotations

import msgspec

from orbitmq.client.consuming.outcomes import RetryDelays, check_retry_delays
from orbitmq.client.options import ConsumeFrom, check_kind, check_range
from orbitmq.errors import ConfigurationError
from orbitmq.limits.client import CONSUMER_BATCH_MESSAGES_MAX, POP_HELD_MESSAGES_MAX
from orbitmq.limits.pop import POP_MESSAGES_MAX


class PopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one pop consumer.

    consume_from: where a group begins that the broker has no offset of; FIRST or LAST, which is the last message that is there.
    invisible_ms: how long a popped message stays hidden from the group unless this consumer renews it; also the time after which it
        comes again when this process dies.
    pop_messages_count: messages of one pop at most. held_messages_max: popped, and not settled, of one queue or broker.
    batch_messages_count: largest number of messages of one call of `PopConsumer.run_batches`.
    max_retries_count: further attempts after the first before a message that fails goes to the dead-letter topic.
    settle_timeout_ms: a message not settled for so long is not renewed any more, and comes again though its handler may still run.
    retry_delays: as in `ConsumerOptions`.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    invisible_ms: int = 60_000
    pop_messages_count: int = POP_MESSAGES_MAX
    held_messages_max: int = POP_HELD_MESSAGES_MAX
    batch_messages_count: int = 1
    max_retries_count: int = 16
    settle_timeout_ms: int = 15 * 60_000
    retry_delays: RetryDelays = ()

    def __post_init__(self) -> None:
        check_kind(self, "consume_from", ConsumeFrom)
        check_retry_delays(self.retry_delays)
        for name, low, high in (
            ("invisible_ms", 5_000, 300_000),
            ("pop_messages_count", 1, POP_MESSAGES_MAX),
            ("held_messages_max", 1, 10_000),
            ("batch_messages_count", 1, CONSUMER_BATCH_MESSAGES_MAX),
            ("max_retries_count", 0, 2**31 - 1),
            ("settle_timeout_ms", 1_000, 24 * 3_600_000),
        ):
            check_range(self, name, low, high)
        if self.consume_from is ConsumeFrom.TIMESTAMP:
            raise ConfigurationError(
                "consume_from is TIMESTAMP, which brokers do not know for pops",
                remedy="start with FIRST or LAST, or reset the group's offset: orbitmq group offset reset",
            )
