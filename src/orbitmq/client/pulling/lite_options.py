"""Settings of lite consumers, and when one of their queues must not be pulled.

Rules of this file
1. As in `options`: checked when made, defaults of RocketMQ's lite pull consumer unless the field's line says otherwise.
2. Thresholds are looked at before a pull, so up to one pull more than a threshold may be held.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from orbitmq.client.consuming.allocation import AllocateAverage, Strategy
from orbitmq.client.options import ConsumeFrom, ConsumerOptions, check_range, check_switch
from orbitmq.limits import client as limits


class LiteConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one lite consumer.

    pull_messages_count: messages asked for by one pull, and so the most that one poll gives (RocketMQ: 10).
    auto_commit: take what earlier polls gave as finished, and write that progress every `auto_commit_ms`.
    poll_timeout_ms: how long `poll` waits when it is not told.
    topic_check_ms: how often watched topics are compared.
    queue_messages_max, queue_bytes_max, span_max: what one queue may hold, pulled and not finished, before its next pull.
    messages_max, bytes_max: the same for all queues together.
    strategy: how the members of a subscribing group share the queues; all must use the same. See `ConsumerOptions`.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    from_timestamp_ms: int | None = None
    pull_messages_count: int = 32
    auto_commit: bool = True
    auto_commit_ms: int = 5_000
    poll_timeout_ms: int = 5_000
    topic_check_ms: int = 30_000
    queue_messages_max: int = limits.CONSUMER_QUEUE_MESSAGES_MAX
    queue_bytes_max: int = limits.CONSUMER_QUEUE_BYTES_MAX
    messages_max: int = limits.LITE_MESSAGES_MAX
    bytes_max: int = limits.CONSUMER_BYTES_MAX
    span_max: int = limits.CONSUMER_SPAN_MAX
    strategy: Strategy = AllocateAverage()

    def __post_init__(self) -> None:
        for name, low, high in (
            ("auto_commit_ms", 1_000, 3_600_000),
            ("poll_timeout_ms", 0, 3_600_000),
            ("topic_check_ms", 1_000, 3_600_000),
            ("messages_max", 1, 6_553_500),
        ):
            check_range(self, name, low, high)
        check_switch(self, "auto_commit")
        # The other fields are those of every consumer and obey the same rules.
        ConsumerOptions(
            consume_from=self.consume_from,
            from_timestamp_ms=self.from_timestamp_ms,
            pull_messages_count=self.pull_messages_count,
            queue_messages_max=self.queue_messages_max,
            queue_bytes_max=self.queue_bytes_max,
            bytes_max=self.bytes_max,
            span_max=self.span_max,
            strategy=self.strategy,
        )


class LiteHold(Enum):
    """Why a queue of a lite consumer is not pulled now."""

    PAUSED = "the program has paused it"
    MESSAGES = "too many of its messages are not finished"
    BYTES = "too many bytes of it are not finished"
    SPAN = "its first unfinished message lies too far back"
    ALL_MESSAGES = "too many messages of all queues are not finished"
    ALL_BYTES = "too many bytes of all queues are not finished"


def lite_hold(
    messages_count: int,
    bytes_total: int,
    span: int,
    all_messages_count: int,
    all_bytes_total: int,
    options: LiteConsumerOptions,
) -> LiteHold | None:
    """The first threshold that forbids a pull now, or None. The first three are the queue's own."""
    if messages_count > options.queue_messages_max:
        return LiteHold.MESSAGES
    if bytes_total > options.queue_bytes_max:
        return LiteHold.BYTES
    if span > options.span_max:
        return LiteHold.SPAN
    if all_messages_count > options.messages_max:
        return LiteHold.ALL_MESSAGES
    if all_bytes_total > options.bytes_max:
        return LiteHold.ALL_BYTES
    return None
