"""Consuming by asking: the program polls for messages and decides where each queue goes on.

    async with client.lite_consumer("report") as consumer:
        await consumer.subscribe("orders", "created || paid")
        while True:
            for message in await consumer.poll():
                ...

Two modes exclude each other for the life of a consumer. `subscribe` joins the group: its members share the queues. `assign` reads the
queues it is given and joins nothing; the group only names the offsets.

What is finished is exact. Whatever a poll gave is *in hand* until the next poll (in an iteration: until the next message is asked for),
which says that it is finished. A commit never covers what is in hand, except a `commit()` of the program itself. So:

* automatic commit (the default): finished progress is written every `auto_commit_ms`, when a queue is given up, and at the end. What is in
  hand when the consumer ends, in whatever way, is delivered again later. `await commit()` before the end avoids that.
* without it: progress is what `commit` wrote. Everything since then is delivered again after the consumer ends or the queue moves.

So delivery is at least once. Failed messages are not sent back; a program that cannot handle one seeks, or notes it and goes on.

Rules of this file
1. One poll gives messages of one queue, in the order of their offsets.
2. A seek forgets what is pulled and what is in hand of the queue; the next poll of the queue begins at the new offset.
3. Misuse is an error of the call that misuses: mixed modes, a queue that is not assigned, polling in two tasks or after the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Self

from orbitmq.client._async.consuming.filter_check import check_filters
from orbitmq.client._async.consuming.group_check import GroupCheck
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.pulling.assignment_watch import (
    AssignmentListener,
    QueuesListener,
    tell_assignment_forever,
    tell_queues_forever,
)
from orbitmq.client._async.pulling.lite_puller import lite_pull_forever
from orbitmq.client._async.pulling.lite_queue import LiteQueue, LiteQueues
from orbitmq.client._async.pulling.lite_report import running_info
from orbitmq.client._async.pulling.lite_share import LiteShare
from orbitmq.client._async.pulling.queue_reader import QueueReader
from orbitmq.client._async.runtime import Tasks, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.consuming.consumer_state import ConsumerState
from orbitmq.client.consuming.subscription import Subscription, subscribe
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.client.pulling.pull_request import queue_name
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError
from orbitmq.limits.client import (
    CONSUMER_PULL_MESSAGES_MAX,
    CONSUMER_TOPICS_MAX,
    LITE_ASSIGNED_QUEUES_MAX,
    LITE_REQUEST_TIMEOUT_MS,
    LITE_WATCHES_MAX,
)
from orbitmq.protocol.remoting.bodies import ConsumerData, ConsumerRunningInfo, ConsumeType, MessageQueue


class Mode(Enum):
    """How a lite consumer comes by its queues."""

    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


class LiteConsumer:
    """Polls queues. Made by `Client.lite_consumer`; starts with its `async with` block and ends with it."""

    def __init__(
        self,
        client: ClientContext,
        group: str,
        options: LiteConsumerOptions,
        on_assignment: AssignmentListener | None = None,
    ) -> None:
        self.client = client
        self.group = group
        self.options = options
        self.subscriptions: dict[str, Subscription] = {}
        self.reader = QueueReader(client, group, LITE_REQUEST_TIMEOUT_MS)
        self.queues = LiteQueues(options)
        self.tasks = Tasks(f"lite consumer {group}", self._crashed)
        self.started_at_ms = 0
        self._share = LiteShare(self)
        self._check = GroupCheck(self)
        self._on_assignment = on_assignment
        self._mode: Mode | None = None
        self._sharing = False
        self._watched: set[str] = set()
        self._polling = False
        self._stopping = False
        self._state = ConsumerState.NEW
        self._failure: BaseException | None = None

    # --- life

    async def start(self) -> None:
        """Make ready for `subscribe` or `assign`; `async with` does this. Nothing is sent."""
        if self._state is not ConsumerState.NEW:
            raise ClientError(
                f"lite consumer {self.group!r} is {self._state.value}; it starts once", remedy="make a new one"
            )
        self.client.member_started(self)
        self._state = ConsumerState.RUNNING
        self.started_at_ms = self.client.clock.now_ms()
        if self.options.auto_commit:
            self.tasks.spawn(self._commit_forever(), "automatic commit")
        if self._on_assignment is not None:
            self.tasks.spawn(
                tell_assignment_forever(self.queues, self._on_assignment, self.group), "assignment listener"
            )

    def stop(self) -> None:
        """Hand out nothing more: a waiting poll returns empty, `async for` ends. Offsets can still be committed."""
        self._stopping = True
        self.queues.arrived.set()

    async def close(self) -> None:
        """Write finished progress if commits are automatic, leave the group, tell the brokers. Closing twice is harmless."""
        self.stop()
        was_running, self._state = self._state is ConsumerState.RUNNING, ConsumerState.CLOSED
        if not was_running:
            return
        try:
            await self._leave()
        finally:
            await self.client.member_closed(self)

    async def _leave(self) -> None:
        self._share.stop()
        await self.tasks.close()
        if self.options.auto_commit:
            self.queues.note_progress()
            await self.reader.write_changed(self.queues.offsets, timeout_ms=self.client.options.close_timeout_ms)
        for owned in tuple(self.queues.owned.values()):
            self.queues.remove(owned)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- which queues

    async def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Consume a topic as a member of the group; returns when this member's first share of it was worked out.

        tags, sql: only messages with one of these tags, or for which this SQL92 expression over their properties is true.

        May be called for further topics, and again for another filter, which holds from the next pull on. All members of a group must
        subscribe to the same. A topic that does not exist yet is waited for.
        """
        self._check_mode(Mode.SUBSCRIBE)
        if topic not in self.subscriptions and len(self.subscriptions) >= CONSUMER_TOPICS_MAX:
            raise ConfigurationError(f"a consumer has at most {CONSUMER_TOPICS_MAX} topics")
        subscription = subscribe(topic, tags, self.client.clock.now_ms(), sql=sql)
        await check_filters(self.client, self.group, [subscription])
        self._check_mode(Mode.SUBSCRIBE)  # once more: the consumer may have been closed while the broker was asked
        before, mode = self.subscriptions, self._mode
        self.subscriptions = {**before, topic: subscription}
        self._mode = Mode.SUBSCRIBE
        try:
            await self.client.member_subscribed(self)
        except BaseException:
            self.subscriptions, self._mode = before, mode
            raise
        await self._run_share()

    async def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic up, with what is pulled and in hand of them. The consumer stays a member of its group."""
        self._check_mode(Mode.SUBSCRIBE)
        if topic not in self.subscriptions:
            raise ClientError(f"lite consumer {self.group!r} does not subscribe to topic {topic!r}")
        self.subscriptions = {name: kept for name, kept in self.subscriptions.items() if name != topic}
        await self._share.keep_only(topics=self.subscriptions)
        self.client.heartbeat_soon()

    async def assign(self, queues: Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None) -> None:
        """Read exactly these queues; others that were assigned before are given up, those among both go on where they are.

        tags, sql: only messages with one of these tags, or for which this SQL92 expression over their properties is true.

        `NotFoundError` for a queue that its topic does not have. A queue whose start offset cannot be read now is taken later.
        """
        self._check_mode(Mode.ASSIGN)
        chosen = frozenset(queues)
        if len(chosen) > LITE_ASSIGNED_QUEUES_MAX:
            raise ConfigurationError(f"{len(chosen)} queues assigned; at most {LITE_ASSIGNED_QUEUES_MAX} are allowed")
        version = self.client.clock.now_ms()
        topics = sorted({queue.topic for queue in chosen})
        subscriptions = {topic: subscribe(topic, tags, version, sql=sql) for topic in topics}
        await check_filters(self.client, self.group, subscriptions.values())
        for topic in subscriptions:
            known = frozenset((await self.client.routes.get(topic)).subscribe_queues)
            for queue in sorted(chosen):
                if queue.topic == topic and queue not in known:
                    raise NotFoundError(
                        f"topic {topic!r} has no readable queue {queue.broker_name}/{queue.queue_id}",
                        remedy="fetch_queues() tells which there are",
                    )
        self._check_mode(Mode.ASSIGN)  # once more: the consumer may have been closed while the routes were asked for
        self._mode = Mode.ASSIGN
        self._share.chosen = chosen
        await self._share.keep_only()
        self.subscriptions = subscriptions
        await self._run_share()

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Readable queues of a topic, asked from the name servers now. `RouteNotFoundError` for an unknown topic."""
        self._check_running()
        return await self.reader.queues(topic)

    def watch_queues(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener` whenever the queues of a topic have changed, looking every `topic_check_ms`; for programs that assign."""
        self._check_running()
        if topic in self._watched:
            raise ClientError(f"topic {topic!r} is watched already", remedy="watch a topic once")
        if len(self._watched) >= LITE_WATCHES_MAX:
            raise ClientError(f"at most {LITE_WATCHES_MAX} topics can be watched")
        self._watched.add(topic)
        self.tasks.spawn(
            tell_queues_forever(self.reader, topic, listener, self.options.topic_check_ms), f"queues of {topic}"
        )

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues that are read at present."""
        return tuple(sorted(self.queues.owned))

    # --- messages

    async def poll(self, timeout_ms: int | None = None, *, max_messages: int | None = None) -> list[StoredMessage]:
        """Messages of one queue, as soon as there are some; empty when none came in time.

        Says that everything an earlier poll gave is finished. timeout_ms: None is `poll_timeout_ms`; 0 gives only what is here.
        max_messages: at most so many; None gives all that one pull brought (`pull_messages_count`).
        """
        if timeout_ms is None:
            timeout_ms = self.options.poll_timeout_ms
        if timeout_ms < 0:
            raise ConfigurationError(f"timeout_ms={timeout_ms}: must not be negative")
        if max_messages is None:
            max_messages = CONSUMER_PULL_MESSAGES_MAX
        if not 1 <= max_messages <= CONSUMER_PULL_MESSAGES_MAX:
            raise ConfigurationError(f"max_messages={max_messages}: must be 1 to {CONSUMER_PULL_MESSAGES_MAX}")
        return await self._hand_out(max_messages, timeout_ms)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredMessage:
        """The next message, however long it takes. Says that the one before is finished."""
        messages = await self._hand_out(1, None)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    # --- where to go on

    def position(self, queue: MessageQueue) -> int:
        """Offset at which the next poll of an assigned queue begins; filtered messages may lie before the next one given."""
        return self.queues.position(self._assigned(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` with an assigned queue. It must lie between the oldest message and the end of the queue.

        What was pulled and what is in hand of the queue is forgotten. With automatic commit the group's offset follows, also backwards;
        without it the next `commit` writes it. If the messages at `offset` are deleted before they are read, reading goes on
        at the oldest one that is left, with a warning in the log.
        """
        self._assigned(queue)
        first, end = await self.reader.min_offset(queue), await self.reader.max_offset(queue)
        if not first <= offset <= end:
            raise ClientError(
                f"offset {offset} of {queue_name(queue)} does not exist: the queue has {first} to {end}",
                remedy="seek_to_begin() and seek_to_end() go to its bounds",
            )
        self._jump(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> int:
        """Go on at the oldest message that the broker has; its offset."""
        self._assigned(queue)
        return self._jump(queue, await self.reader.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on behind the newest message; the offset the next one will get."""
        self._assigned(queue)
        return self._jump(queue, await self.reader.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Go on at the first message stored at or after an instant (ms since the epoch), or at the end; the offset."""
        self._assigned(queue)
        return self._jump(queue, await self.reader.offset_at(queue, timestamp_ms))

    def pause(self, queues: Sequence[MessageQueue]) -> None:
        """Pull nothing more of these assigned queues. What was pulled before can still be polled. Ends when a queue is given up."""
        for owned in [self._assigned(queue) for queue in queues]:
            owned.paused = True

    def resume(self, queues: Sequence[MessageQueue]) -> None:
        """Pull these assigned queues again."""
        for owned in [self._assigned(queue) for queue in queues]:
            owned.paused = False
            owned.room.set()

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """Assigned queues that are paused."""
        return tuple(sorted(queue for queue, owned in self.queues.owned.items() if owned.paused))

    # --- commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Write the group's offsets; the brokers have them when this returns.

        None: everything that polls gave is finished, what is in hand included. A mapping writes exactly these offsets (the first
        that is not done) of assigned queues, in either direction, and finishes nothing; an offset beyond the end of its queue is
        corrected when the queue is next read from there. `ClientError` when a broker did not take one; others may be written.
        """
        self._check_running()
        if offsets is None:
            self.queues.finish()
            self.queues.note_progress()
            table = self.queues.offsets
            changed = table.changed()
            offsets = {
                queue: owned.finished
                for queue, owned in self.queues.owned.items()
                if queue in changed or owned.finished != table.get(queue)
            }
        for queue, offset in offsets.items():
            self._assigned(queue)
            if not 0 <= offset < 2**63:
                raise ConfigurationError(
                    f"offset {offset} of {queue_name(queue)}: offsets count from 0 and fit 64 bits"
                )
        for queue, offset in offsets.items():
            await self.reader.commit(queue, offset)
            self.queues.offsets.put(queue, offset)
            self.queues.offsets.written(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset on any queue as its broker has it; None when it has none. Brokers before 5.0 say 0 for a young queue."""
        self._check_running()
        return await self.reader.committed(queue)

    # --- for the rest of the client

    def heartbeat(self) -> ConsumerData | None:
        """What brokers are told; None for a consumer of assigned queues, which is no member of its group."""
        if self._mode is not Mode.SUBSCRIBE:
            return None
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=[subscription.body() for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        self._share.soon()

    def broker_lost_us(self) -> None:
        """A broker does not know this member: introduce it again."""
        self.client.heartbeat_soon()
        self._check.soon()

    def members_changed(self) -> None:
        self._check.soon()

    async def pulling(self, owned: LiteQueue) -> None:
        await lite_pull_forever(self, owned)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets with the queues among them that are read; what is pulled and in hand of them is forgotten."""
        await self._share.begin_again(offsets)

    def progress(self, topic: str) -> dict[MessageQueue, int]:
        """Offsets below which everything is finished."""
        return {queue: owned.finished for queue, owned in self.queues.owned.items() if queue.topic == topic}

    def running_info(self, stacks: str | None) -> ConsumerRunningInfo:
        return running_info(
            self.queues,
            self.subscriptions,
            ";".join(self.client.name_servers.choice),
            self.started_at_ms,
            self.client.clock.now_ms(),
            stacks,
        )

    # --- inside

    async def _run_share(self) -> None:
        await self._share.run()
        self._check_running()  # it may have been closed meanwhile
        if not self._sharing:
            self._sharing = True
            self.tasks.spawn(self._share.run_forever(), "share")
            if self._mode is Mode.SUBSCRIBE:
                self.tasks.spawn(self._check.run_forever(), "members of the group")

    async def _hand_out(self, count: int, timeout_ms: int | None) -> list[StoredMessage]:
        self._check_running()
        self._raise_failure()
        if self._mode is None:
            raise ClientError(
                f"lite consumer {self.group!r} has no queues", remedy="call subscribe() or assign() first"
            )
        if self._polling:
            raise ClientError(
                f"lite consumer {self.group!r} is being polled already",
                remedy="poll in one task: a second poll would declare finished what the first one gave",
            )
        self._polling = True
        try:
            self.queues.finish()
            deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms
            while not self._stopping:
                messages = self.queues.take(count)
                if messages:
                    return messages
                self.queues.arrived.clear()
                left_ms = None if deadline_ms is None else deadline_ms - monotonic_ms()
                if left_ms is not None and left_ms <= 0:
                    break
                await wait_event(self.queues.arrived, left_ms)
        finally:
            self._polling = False
        self._raise_failure()
        return []

    def _jump(self, queue: MessageQueue, offset: int) -> int:
        """Begin anew at `offset`; the queue must still be assigned."""
        owned = self._assigned(queue)
        self.queues.restart(owned, offset)
        self._share.begin(owned)
        return offset

    def _assigned(self, queue: MessageQueue) -> LiteQueue:
        self._check_running()
        owned = self.queues.owned.get(queue)
        if owned is None:
            raise ClientError(
                f"queue {queue_name(queue)} is not assigned to lite consumer {self.group!r}",
                remedy="`assignment` lists the queues it has now",
            )
        return owned

    def _check_mode(self, mode: Mode) -> None:
        self._check_running()
        if self._mode not in (None, mode):
            assert self._mode is not None
            raise ClientError(
                f"lite consumer {self.group!r} works by {self._mode.value}(); it cannot {mode.value}() as well",
                remedy="make another consumer with a group of its own",
            )

    def _check_running(self) -> None:
        if self._state is not ConsumerState.RUNNING:
            raise ClientError(
                f"lite consumer {self.group!r} is {self._state.value}", remedy="use it inside its with block"
            )

    async def _commit_forever(self) -> None:
        while True:
            await sleep_ms(self.options.auto_commit_ms)
            self.queues.note_progress()
            await self.reader.write_changed(self.queues.offsets)

    def _crashed(self, error: BaseException) -> None:
        self._failure = error
        self.stop()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ClientError(
                f"lite consumer {self.group!r} stopped because of a defect: {self._failure!r}",
                remedy="please report it with the traceback from the log",
            ) from self._failure
