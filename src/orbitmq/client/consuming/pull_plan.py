"""When to pull a queue, with which flags, and what an answer means.

Rules of this file
1. Decisions only; the puller sends, waits and applies them.
2. The thresholds are checked before a pull, so up to one pull more than a threshold may be held.
3. Waiting for room ends when messages are settled, not after a fixed time: no polling.
"""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import NamedTuple

from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import OrbitError, RemoteError
from orbitmq.limits.client import PULL_AFTER_ERROR_MS, PULL_AFTER_FLOW_CONTROL_MS
from orbitmq.protocol.remoting.codes import ResponseCode


class PullFlag(IntFlag):
    """System flags of a pull request."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullStatus(Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


PULL_ANSWERS = frozenset(status.value for status in PullStatus)


class Hold(Enum):
    """Why a queue is not pulled now."""

    MESSAGES = "too many unsettled messages of this queue"
    BYTES = "too many unsettled bytes of this queue"
    SPAN = "an unsettled message lies too far back"
    TOPIC_MESSAGES = "too many unsettled messages in all queues of the topic"
    TOPIC_BYTES = "too many unsettled bytes in all queues of the topic"
    CONSUMER_MESSAGES = "too many unsettled messages in all queues of the consumer"
    CONSUMER_BYTES = "too many unsettled bytes in all queues of the consumer"

    @property
    def is_shared(self) -> bool:
        """Whether settling a message of another queue may end it."""
        return self not in (Hold.MESSAGES, Hold.BYTES, Hold.SPAN)


class Unsettled(NamedTuple):
    """What is pulled and not settled, of one queue or of several."""

    messages_count: int
    bytes_total: int


def hold(queue: Unsettled, span: int, topic: Unsettled, consumer: Unsettled, options: ConsumerOptions) -> Hold | None:
    """The first threshold that forbids a pull of a queue now, or None. `topic` and `consumer` include the queue."""
    if queue.messages_count > options.queue_messages_max:
        return Hold.MESSAGES
    if queue.bytes_total > options.queue_bytes_max:
        return Hold.BYTES
    if span > options.span_max and not options.orderly:
        return Hold.SPAN
    if options.topic_messages_max is not None and topic.messages_count > options.topic_messages_max:
        return Hold.TOPIC_MESSAGES
    if options.topic_bytes_max is not None and topic.bytes_total > options.topic_bytes_max:
        return Hold.TOPIC_BYTES
    if consumer.messages_count > options.messages_max:
        return Hold.CONSUMER_MESSAGES
    if consumer.bytes_total > options.bytes_max:
        return Hold.CONSUMER_BYTES
    return None


def pull_flags(*, commit_offset: int, from_master: bool, with_subscription: bool) -> PullFlag:
    """A commit travels with the pull only to a master, and only when there is progress."""
    flags = PullFlag.SUSPEND
    if commit_offset > 0 and from_master:
        flags |= PullFlag.COMMIT_OFFSET
    if with_subscription:
        flags |= PullFlag.SUBSCRIPTION
    return flags


def wait_after_error_ms(error: OrbitError) -> int:
    """Pause before the next pull of a queue whose last one failed."""
    if isinstance(error, RemoteError) and error.code == ResponseCode.FLOW_CONTROL:
        return PULL_AFTER_FLOW_CONTROL_MS
    return PULL_AFTER_ERROR_MS
