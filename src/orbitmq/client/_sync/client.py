"""One client: its connections, routes, timers and groups.

    with orbitmq.sync.connect("localhost:9876") as mq:
        receipt = mq.send("orders", b"...", tag="created", after=timedelta(hours=2))

Rules of this file
1. A client is started once and closed once; `with` does both.
2. Everything a client runs in the background belongs to it and ends with it.
3. Several producers and consumers of different groups share one client; two members of one consumer group need two clients, because a
   group knows its members by client id.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/client.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, overload

from orbitmq.client._async import client as source
from orbitmq.client._sync.administration.admin import Admin
from orbitmq.client._sync.administration.transactions import StoredTransactions
from orbitmq.client._sync.consuming.consumer import Consumer
from orbitmq.client._sync.handler_threads import listening
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client._sync.popping.pop_consumer import PopConsumer
from orbitmq.client._sync.pulling.lite_pull import LiteConsumer
from orbitmq.client._sync.pulling.pull_consumer import PullConsumer
from orbitmq.client._sync.sending.producer import Producer, SendingCalls
from orbitmq.client._sync.timers.recurring import Recurring
from orbitmq.client._sync.timers.timers import Timers
from orbitmq.client.consuming.subscription import Sql
from orbitmq.client.options import ClientOptions, ConsumerOptions, ProducerOptions
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.client.stored import StoredMessage
from orbitmq.protocol.remoting.bodies import MessageQueue


class Client(SendingCalls):
    """A connection to a cluster, named by its name servers. Made by `connect`.

    What it sends itself is sent by a producer whose group all programs share that do not name one.

    Cost: one connection per broker in use, four timers, a heartbeat to each broker every 30 s, and a question to each that holds a pull and
    has said nothing for three seconds.
    """

    def __init__(self, twin: source.Client) -> None:
        self._loop = LoopThread(f"client {twin.client_id}")
        self._twin: source.Client = twin
        self._admin: Admin | None = None
        self._timers: Timers | None = None
        self._recurring: Recurring | None = None
        self._transactions: StoredTransactions | None = None

    @property
    def client_id(self) -> str:
        return self._twin.client_id

    @property
    def options(self) -> ClientOptions:
        return self._twin.options

    def start(self) -> None:
        """Start the timers. No server is contacted before something is sent or consumed."""
        self._loop.open(self._twin.start())

    def close(self) -> None:
        """Close consumers and producers, then the connections. Closing twice is harmless. Where it is cancelled, what it waited for is
        left as it is, and the rest is closed all the same.
        """
        self._loop.close(self._twin.close())

    def __enter__(self) -> Self:
        self._loop.open(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.close(self._twin.__aexit__(error_type, error, trace))

    def reply(
        self,
        message: StoredMessage,
        body: bytes,
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3000,
    ) -> None:
        """`ReceivedMessage.reply` for a message that was read in another way."""
        self._loop.run(self._twin.reply(message, body, tag=tag, properties=properties, timeout_ms=timeout_ms))

    def producer(self, group: str, options: ProducerOptions | None = None) -> Producer:
        """A producer with a group and settings of its own; `with` or `close` ends it."""
        found = self._loop.do(self._twin.producer, group, options)
        return Producer(found, self._loop)

    @overload
    def consumer(
        self, group: str, topic: str, *, tags: str = "*", sql: str | None = None, options: ConsumerOptions | None = None
    ) -> Consumer: ...

    @overload
    def consumer(
        self, group: str, topic: Mapping[str, str | Sql], *, options: ConsumerOptions | None = None
    ) -> Consumer: ...

    def consumer(
        self,
        group: str,
        topic: str | Mapping[str, str | Sql],
        *,
        tags: str = "*",
        sql: str | None = None,
        options: ConsumerOptions | None = None,
    ) -> Consumer:
        """A member of consumer group `group`, to be started with `with`.

        topic: one topic, with `tags` or `sql` as filter; or several as a mapping from topic to tag expression or `Sql`. All members of a
        group must subscribe to the same topics and filters: the broker keeps only one subscription per group and topic.
        sql: only messages for which this expression over their properties is true, such as `price > 10 AND region = 'eu'`.
        """
        consumer: Callable[..., Any] = self._twin.consumer
        found = self._loop.do(consumer, group, topic, tags=tags, sql=sql, options=options)
        return Consumer(found, self._loop)

    def dead_letter_consumer(self, group: str, *, options: ConsumerOptions | None = None) -> Consumer:
        """A consumer of what `group` has given up, a member of group `<group>-dead-letters`.

        options: without them from the oldest letter on. `message.topic` is where a letter came from. One that fails here is tried
        again as any message, and is in the end a letter of the reading group.
        """
        found = self._loop.do(self._twin.dead_letter_consumer, group, options=options)
        return Consumer(found, self._loop)

    def pop_consumer(
        self,
        group: str,
        topic: str | Mapping[str, str | Sql],
        *,
        tags: str = "*",
        sql: str | None = None,
        options: PopOptions | None = None,
    ) -> PopConsumer:
        """As `consumer`, a member that takes messages one by one and owns no queue; needs a broker of RocketMQ 5.1 or ours.

        The broker remembers who has which message. Any number of members share a queue, and a slow message holds up no other.
        """
        found = self._loop.do(self._twin.pop_consumer, group, topic, tags=tags, sql=sql, options=options)
        return PopConsumer(found, self._loop)

    def pull_consumer(self, group: str) -> PullConsumer:
        """Explicit pulls of chosen queues from chosen offsets, which `group` may store; nothing runs in the background."""
        found = self._loop.do(self._twin.pull_consumer, group)
        return PullConsumer(found, self._loop)

    def lite_consumer(
        self,
        group: str,
        options: LiteConsumerOptions | None = None,
        *,
        on_assignment: Callable[[tuple[MessageQueue, ...], tuple[MessageQueue, ...]], None] | None = None,
    ) -> LiteConsumer:
        """A consumer that is polled, to be started with `with`; its `subscribe` or `assign` says what it reads.

        on_assignment: called after the queues it reads have changed, with those taken and those given up.
        """
        found = self._loop.do(
            self._twin.lite_consumer,
            group,
            options,
            on_assignment=None if on_assignment is None else listening(on_assignment),
        )
        return LiteConsumer(found, self._loop)

    @property
    def admin(self) -> Admin:
        """Administration of the cluster: topics, groups, look-ups."""
        if self._admin is None:
            self._admin = Admin(self._loop.do(lambda: self._twin.admin), self._loop)
        return self._admin

    @property
    def timers(self) -> Timers:
        """Timer messages that wait: recalling, rescheduling, listing and counting them."""
        if self._timers is None:
            self._timers = Timers(self._loop.do(lambda: self._twin.timers), self._loop)
        return self._timers

    @property
    def recurring(self) -> Recurring:
        """Messages that a broker sends again and again, by a cron expression or an interval."""
        if self._recurring is None:
            self._recurring = Recurring(self._loop.do(lambda: self._twin.recurring), self._loop)
        return self._recurring

    @property
    def transactions(self) -> StoredTransactions:
        """Transactions that the brokers know of: which are undecided, and what became of one."""
        if self._transactions is None:
            self._transactions = StoredTransactions(self._loop.do(lambda: self._twin.transactions), self._loop)
        return self._transactions


def connect(
    name_servers: str | Iterable[str] = "localhost:9876",
    *,
    options: ClientOptions | None = None,
    producer_options: ProducerOptions | None = None,
) -> Client:
    """A client of the cluster behind these name servers (`host:port`, several separated by `;`).

    `with connect(...) as client` starts and closes it. producer_options: for `Client.send` and producers made without options.
    """
    return Client(source.connect(name_servers, options=options, producer_options=producer_options))
