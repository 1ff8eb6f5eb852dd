"""Consuming messages one by one, as a member of a group whose broker remembers who has which message.

    with client.pop_consumer("thumbnails", "pictures") as consumer:
        for message in consumer:
            ...
            message.ack()

No member owns a queue: any number of them take from the same one, and a slow message holds up no other. What happens to a message:

* delivered and acknowledged: done.
* `retry()`: the broker delivers it to the group again later; a message that has failed too often goes to the dead letters.
* not settled, and the `with` block is left by an exception: taken as failed, as `retry()` would.
* not settled, and the block is left in any other way: given back, to be delivered again soon. It counts as an attempt.
* in hand for long: renewed, as often as needed, until `settle_timeout_ms` have passed; then it comes again.
* the process dies: it comes again when its invisible time has passed.

So delivery is at least once: a program must be ready to see a message again.

Rules of this file
1. Messages come in no particular order.
2. How messages get to the program is that of every consumer: see `handing_out`.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/popping/pop_consumer.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from orbitmq.client._async.consuming import delivery
from orbitmq.client._async.popping import pop_consumer as source
from orbitmq.client._sync.consuming.delivery import ReceivedMessage
from orbitmq.client._sync.handler_threads import HandlerThreads
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.protocol.remoting.bodies import MessageQueue


class PopConsumer:
    """A member of a consumer group that pops. Made by `Client.pop_consumer`; starts with its `with` block and ends with it."""

    def __init__(self, twin: source.PopConsumer, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.PopConsumer = twin
        self._rescued_anext: list[delivery.ReceivedMessage] = []

    @property
    def group(self) -> str:
        return self._twin.group

    @property
    def options(self) -> PopOptions:
        return self._twin.options

    def start(self) -> None:
        """Join the group; `with` does this. Topics that do not exist yet are waited for."""
        self._loop.run(self._twin.start())

    def stop(self) -> None:
        """Deliver nothing more: `for` ends, `run` returns when its handlers have ended. Messages in hand can still be settled."""
        self._loop.end_plain(self._twin.stop)

    def close(self, error: BaseException | None = None) -> None:
        """Leave the group: give back what is not settled, as the module says, acknowledge the rest, tell the brokers."""
        self._loop.end(self._twin.close(error))

    def run(self, handler: Callable[[ReceivedMessage], None], *, concurrency: int = 20) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop` or `close`.

        Raises what broke the consumer itself; errors of the handler are logged and the message comes again later.
        """
        with HandlerThreads(
            self._loop, handler, lambda item: ReceivedMessage(item, self._loop), concurrency
        ) as handlers:
            self._loop.run(self._twin.run(handlers, concurrency=concurrency), on_interrupt=self._twin.stop)

    def run_batches(self, handler: Callable[[list[ReceivedMessage]], None], *, concurrency: int = 20) -> None:
        """As `run`, with up to `PopOptions.batch_messages_count` messages of one broker in each call.

        No call waits for more messages than there are. When the handler raises, all that it has not settled come again later.
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
        """What this member pops at present; the queue id -1 stands for all queues of a broker."""
        return self._loop.do(lambda: self._twin.queues)
