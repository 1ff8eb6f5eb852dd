"""What a program may be told of its client, for metrics and traces, and what it may add to messages.

Rules of this file
1. Nothing here knows of a library of metrics: a program hands the figures to its own.
2. A hook is called on the client's event loop, between two messages: it must not wait, and costs every message what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orbitmq.client.stored import StoredMessage
    from orbitmq.protocol.remoting.bodies import MessageQueue


class SendEnded(NamedTuple):
    """A send has ended, with all its attempts.

    messages_count: more than 1 for a batch. attempts_count: None where all failed. broker_name: which took it, or None. error: why
    it failed, or None.
    """

    topic: str
    group: str
    messages_count: int
    body_bytes: int
    took_ms: int
    attempts_count: int | None
    broker_name: str | None
    error: BaseException | None


class Fetched(NamedTuple):
    """A queue was pulled, with or without a message.

    unsettled_count: pulled and not settled yet, these included. behind_count: how many offsets lie beyond what was pulled, those
    that a filter leaves out included. The lag is the sum.
    """

    queue: MessageQueue
    group: str
    messages_count: int
    unsettled_count: int
    behind_count: int


class Handled(NamedTuple):
    """A message was settled.

    took_ms: since it was handed out. succeeded: acknowledged; else it is retried, or a dead letter. age_ms: since its sender made
    it, by the clocks of both. Earlier attempts: `message.reconsume_times`.
    """

    message: StoredMessage
    group: str
    took_ms: int
    age_ms: int
    succeeded: bool


class ClientHooks:
    """Base of what is given as `ClientOptions(hooks=...)`; each method does nothing here.

    An error of a hook is logged, at most once a second, and changes nothing else.
    """

    def sending(self, topic: str, properties: dict[str, str]) -> None:
        """A message is about to be sent: user properties may be added, such as `traceparent` and `tracestate` of the W3C. Called in the
        context (`contextvars`) of whoever sends."""

    def sent(self, sent: SendEnded) -> None: ...

    def fetched(self, fetched: Fetched) -> None:
        """Not called for lite, pull and pop consumers."""

    def handling(self, group: str, messages: Sequence[StoredMessage]) -> AbstractContextManager[object]:
        """Entered around each call of a handler, in whose context what it sets is seen. Programs that iterate do without."""
        return nullcontext()

    def handled(self, handled: Handled) -> None:
        """Called for every message that is settled, however it was handed out; not by lite and pull consumers."""
