"""Consuming messages as a member of a group.

    with client.consumer("billing", "orders", tags="created || paid") as consumer:
        for message in consumer:
            ...
            message.ack()

What happens to a message is exact:

* delivered and acknowledged: done; the group's offset moves past it once all messages before it in the queue are settled.
* `retry()`: the broker delivers it to the group again later, up to the group's maximum of attempts, then it is a dead letter.
* not settled, and the `with` block is left by an exception: taken as failed, sent back as `retry()` would.
* not settled, and the block is left in any other way (end of the loop, `break`, cancellation): released. It is delivered again soon,
  here or to another member, and does not count as an attempt. The same holds if the process dies.
* not settled for `settle_timeout_ms` although the consumer goes on: sent back.

So delivery is at least once: a program must be ready to see a message again. An orderly consumer sends nothing back by itself: a failed
message is tried again in its place. A broadcasting consumer leaves failed messages behind. See `failures`.

Rules of this file
1. Messages come in no particular order between queues; within a queue in the order of their offsets, retries excepted.
2. How messages get to the program is that of every consumer: see `handing_out`.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/consuming/consumer.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from orbitmq.client._async.consuming import consumer as source
from orbitmq.client._async.consuming import delivery
from orbitmq.client._sync.consuming.delivery import ReceivedMessage
from orbitmq.client._sync.handler_threads import HandlerThreads
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.options import ConsumerOptions
from orbitmq.protocol.remoting.bodies import MessageQueue


class Consumer:
    """A member of a consumer group. Made by `Client.consumer`; starts with its `with` block and ends with it."""

    def __init__(self, twin: source.Consumer, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Consumer = twin
        self._rescued_anext: list[delivery.ReceivedMessage] = []

    @property
    def group(self) -> str:
        return self._twin.group

    @property
    def options(self) -> ConsumerOptions:
        return self._twin.options

    def start(self) -> None:
        """Join the group; `with` does this. Topics that do not exist yet are waited for."""
        self._loop.run(self._twin.start())

    def stop(self) -> None:
        """Deliver nothing more: `for` ends, `run` returns when its handlers have ended. Messages in hand can still be settled."""
        self._loop.end_plain(self._twin.stop)

    def close(self, error: BaseException | None = None) -> None:
        """Leave the group: settle what is in hand as the module says, write all offsets, give up locks, tell the brokers."""
        self._loop.end(self._twin.close(error))

    def run(self, handler: Callable[[ReceivedMessage], None], *, concurrency: int = 20) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop` or `close`.

        Raises what broke the consumer itself; errors of the handler are logged and the message is sent back. A handler that raises `Retry`
        or `Reject` says what becomes of the message.
        """
        with HandlerThreads(
            self._loop, handler, lambda item: ReceivedMessage(item, self._loop), concurrency
        ) as handlers:
            self._loop.run(self._twin.run(handlers, concurrency=concurrency), on_interrupt=self._twin.stop)

    def run_batches(self, handler: Callable[[list[ReceivedMessage]], None], *, concurrency: int = 20) -> None:
        """As `run`, with up to `ConsumerOptions.batch_messages_count` messages of one queue in each call, in the order of their offsets.

        No call waits for more messages than there are. When the handler raises, all that it has not settled are sent back.
        """
        with HandlerThreads(
            self._loop, handler, lambda item: [ReceivedMessage(each, self._loop) for each in item], concurrency
        ) as handlers:
            self._loop.run(self._twin.run_batches(handlers, concurrency=concurrency), on_interrupt=self._twin.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            found = (
                self._rescued_anext.pop()
                if self._rescued_anext
                else self._loop.run(self._twin.__anext__(), rescue=self._rescued_anext.append)
            )
        except StopAsyncIteration:
            raise StopIteration from None
        try:
            return ReceivedMessage(found, self._loop)
        except BaseException:
            self._rescued_anext.append(found)
            raise

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._twin.__aexit__(error_type, error, trace))

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """Message queues this member owns at present."""
        return self._loop.do(lambda: self._twin.queues)
