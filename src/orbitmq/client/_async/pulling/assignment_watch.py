"""Telling a program what changed: the queues its lite consumer reads, and the queues a topic has.

Rules of this file
1. Listeners are told after the fact, one call at a time, with what was missed in between put together.
2. A listener that raises is reported in the log, as seldom as other troubles, and told the next change all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orbitmq.client._async.pulling.lite_queue import LiteQueues
from orbitmq.client._async.pulling.queue_reader import QueueReader
from orbitmq.client._async.runtime import Seldom, log, sleep_ms, wait_event
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import MessageQueue

AssignmentListener = Callable[[tuple[MessageQueue, ...], tuple[MessageQueue, ...]], Awaitable[None]]
"""Told queues that are read now and were not before, and queues that were given up."""

QueuesListener = Callable[[str, tuple[MessageQueue, ...]], Awaitable[None]]
"""Told a topic and all its readable queues."""


async def tell_assignment_forever(queues: LiteQueues, listener: AssignmentListener, group: str) -> None:
    told: frozenset[MessageQueue] = frozenset()
    troubles = Seldom()
    while True:
        await wait_event(queues.changed)
        queues.changed.clear()
        now = frozenset(queues.owned)
        taken, given_up = tuple(sorted(now - told)), tuple(sorted(told - now))
        told = now
        if taken or given_up:
            try:
                await listener(taken, given_up)
            except Exception:
                if (left_out := troubles.due()) is not None:
                    log.exception("the assignment listener of group %s failed%s", group, _more(left_out))


async def tell_queues_forever(reader: QueueReader, topic: str, listener: QueuesListener, check_ms: int) -> None:
    """The first look only remembers; a look that fails changes nothing."""
    known: tuple[MessageQueue, ...] | None = None
    looks, calls = Seldom(), Seldom()
    while True:
        try:
            queues = await reader.queues(topic)
        except ClientError as error:
            if (left_out := looks.due()) is not None:
                log.warning("the queues of topic %s could not be compared: %s%s", topic, error, _more(left_out))
        else:
            before, known = known, queues
            if before is not None and before != queues:
                try:
                    await listener(topic, queues)
                except Exception:
                    if (left_out := calls.due()) is not None:
                        log.exception("the listener for the queues of topic %s failed%s", topic, _more(left_out))
        await sleep_ms(check_ms)


def _more(left_out_count: int) -> str:
    return f" ({left_out_count} more times before)" if left_out_count else ""
