"""Consuming by asking: the program polls for messages and decides where each queue goes on.

    with client.lite_consumer("report") as consumer:
        consumer.subscribe("orders", "created || paid")
        while True:
            for message in consumer.poll():
                ...

Two modes exclude each other for the life of a consumer. `subscribe` joins the group: its members share the queues. `assign` reads the
queues it is given and joins nothing; the group only names the offsets.

What is finished is exact. Whatever a poll gave is *in hand* until the next poll (in an iteration: until the next message is asked for),
which says that it is finished. A commit never covers what is in hand, except a `commit()` of the program itself. So:

* automatic commit (the default): finished progress is written every `auto_commit_ms`, when a queue is given up, and at the end. What is in
  hand when the consumer ends, in whatever way, is delivered again later. `commit()` before the end avoids that.
* without it: progress is what `commit` wrote. Everything since then is delivered again after the consumer ends or the queue moves.

So delivery is at least once. Failed messages are not sent back; a program that cannot handle one seeks, or notes it and goes on.

Rules of this file
1. One poll gives messages of one queue, in the order of their offsets.
2. A seek forgets what is pulled and what is in hand of the queue; the next poll of the queue begins at the new offset.
3. Misuse is an error of the call that misuses: mixed modes, a queue that is not assigned, polling in two tasks or after the end.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/pulling/lite_pull.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from orbitmq.client._async.pulling import lite_pull as source
from orbitmq.client._sync.handler_threads import listening
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.client.stored import StoredMessage
from orbitmq.protocol.remoting.bodies import MessageQueue


class LiteConsumer:
    """Polls queues. Made by `Client.lite_consumer`; starts with its `with` block and ends with it."""

    def __init__(self, twin: source.LiteConsumer, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.LiteConsumer = twin
        self._rescued_poll: list[list[StoredMessage]] = []
        self._rescued_anext: list[StoredMessage] = []

    @property
    def group(self) -> str:
        return self._twin.group

    @property
    def options(self) -> LiteConsumerOptions:
        return self._twin.options

    def start(self) -> None:
        """Make ready for `subscribe` or `assign`; `with` does this. Nothing is sent."""
        self._loop.run(self._twin.start())

    def stop(self) -> None:
        """Hand out nothing more: a waiting poll returns empty, `for` ends. Offsets can still be committed."""
        self._loop.end_plain(self._twin.stop)

    def close(self) -> None:
        """Write finished progress if commits are automatic, leave the group, tell the brokers. Closing twice is harmless."""
        self._loop.end(self._twin.close())

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._twin.__aexit__(error_type, error, trace))

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Consume a topic as a member of the group; returns when this member's first share of it was worked out.

        tags, sql: only messages with one of these tags, or for which this SQL92 expression over their properties is true.

        May be called for further topics, and again for another filter, which holds from the next pull on. All members of a group must
        subscribe to the same. A topic that does not exist yet is waited for.
        """
        self._loop.run(self._twin.subscribe(topic, tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic up, with what is pulled and in hand of them. The consumer stays a member of its group."""
        self._loop.run(self._twin.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None) -> None:
        """Read exactly these queues; others that were assigned before are given up, those among both go on where they are.

        tags, sql: only messages with one of these tags, or for which this SQL92 expression over their properties is true.

        `NotFoundError` for a queue that its topic does not have. A queue whose start offset cannot be read now is taken later.
        """
        self._loop.run(self._twin.assign(queues, tags, sql=sql))

    def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Readable queues of a topic, asked from the name servers now. `RouteNotFoundError` for an unknown topic."""
        return self._loop.run(self._twin.fetch_queues(topic))

    def watch_queues(self, topic: str, listener: Callable[[str, tuple[MessageQueue, ...]], None]) -> None:
        """Call `listener` whenever the queues of a topic have changed, looking every `topic_check_ms`; for programs that assign."""
        self._loop.do(self._twin.watch_queues, topic, listening(listener))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues that are read at present."""
        return self._loop.do(lambda: self._twin.assignment)

    def poll(self, timeout_ms: int | None = None, *, max_messages: int | None = None) -> list[StoredMessage]:
        """Messages of one queue, as soon as there are some; empty when none came in time.

        Says that everything an earlier poll gave is finished. timeout_ms: None is `poll_timeout_ms`; 0 gives only what is here.
        max_messages: at most so many; None gives all that one pull brought (`pull_messages_count`).
        """
        found = (
            self._rescued_poll.pop()
            if self._rescued_poll
            else self._loop.run(
                self._twin.poll(timeout_ms, max_messages=max_messages), rescue=self._rescued_poll.append
            )
        )
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StoredMessage:
        """The next message, however long it takes. Says that the one before is finished."""
        try:
            found = (
                self._rescued_anext.pop()
                if self._rescued_anext
                else self._loop.run(self._twin.__anext__(), rescue=self._rescued_anext.append)
            )
        except StopAsyncIteration:
            raise StopIteration from None
        return found

    def position(self, queue: MessageQueue) -> int:
        """Offset at which the next poll of an assigned queue begins; filtered messages may lie before the next one given."""
        return self._loop.do(self._twin.position, queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` with an assigned queue. It must lie between the oldest message and the end of the queue.

        What was pulled and what is in hand of the queue is forgotten. With automatic commit the group's offset follows, also backwards;
        without it the next `commit` writes it. If the messages at `offset` are deleted before they are read, reading goes on
        at the oldest one that is left, with a warning in the log.
        """
        self._loop.run(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> int:
        """Go on at the oldest message that the broker has; its offset."""
        return self._loop.run(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on behind the newest message; the offset the next one will get."""
        return self._loop.run(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Go on at the first message stored at or after an instant (ms since the epoch), or at the end; the offset."""
        return self._loop.run(self._twin.seek_to_time(queue, timestamp_ms))

    def pause(self, queues: Sequence[MessageQueue]) -> None:
        """Pull nothing more of these assigned queues. What was pulled before can still be polled. Ends when a queue is given up."""
        self._loop.do(self._twin.pause, queues)

    def resume(self, queues: Sequence[MessageQueue]) -> None:
        """Pull these assigned queues again."""
        self._loop.do(self._twin.resume, queues)

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """Assigned queues that are paused."""
        return self._loop.do(lambda: self._twin.paused)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Write the group's offsets; the brokers have them when this returns.

        None: everything that polls gave is finished, what is in hand included. A mapping writes exactly these offsets (the first
        that is not done) of assigned queues, in either direction, and finishes nothing; an offset beyond the end of its queue is
        corrected when the queue is next read from there. `ClientError` when a broker did not take one; others may be written.
        """
        self._loop.run(self._twin.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset on any queue as its broker has it; None when it has none. Brokers before 5.0 say 0 for a young queue."""
        return self._loop.run(self._twin.committed(queue))
