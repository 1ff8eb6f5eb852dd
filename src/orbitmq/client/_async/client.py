"""One client: its connections, routes, timers and groups.

    async with orbitmq.connect("localhost:9876") as mq:
        receipt = await mq.send("orders", b"...", tag="created", after=timedelta(hours=2))

Rules of this file
1. A client is started once and closed once; `async with` does both.
2. Everything a client runs in the background belongs to it and ends with it.
3. Several producers and consumers of different groups share one client; two members of one consumer group need two clients, because a
   group knows its members by client id.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, overload

from orbitmq.client._async.connecting.name_servers import NameServers
from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.connecting.silence import Silence
from orbitmq.client._async.connecting.transport import Dial, dial_socket
from orbitmq.client._async.membership import Membership
from orbitmq.client._async.runtime import Event, Tasks, monotonic_ms, sleep_ms, wait_event
from orbitmq.client._async.sending.producer import Producer, SendingCalls
from orbitmq.client._async.sending.waiting_replies import WaitingReplies
from orbitmq.client.addresses import NameServerChoice, parse_addresses
from orbitmq.client.arguments import check_instance
from orbitmq.client.identity import DEFAULT_INSTANCE, client_id, local_ip
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.client.route import early_pause_ms
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.limits.client import CLIENT_GROUPS_MAX, CLIENT_ROUTES_INSIST_MS, CONSUMER_TOPICS_MAX
from orbitmq.protocol.ids import UniqueIds
from orbitmq.protocol.names import (
    CLIENT_INNER_PRODUCER_GROUP,
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    RETRY_PREFIX,
    dlq_topic,
    group_name_problem,
    retry_topic,
)
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request

if TYPE_CHECKING:  # what a program that only sends never uses is imported when it is asked for
    from orbitmq.client._async.administration.admin import Admin
    from orbitmq.client._async.administration.transactions import StoredTransactions
    from orbitmq.client._async.callbacks import Callbacks
    from orbitmq.client._async.connecting.transport import Channel
    from orbitmq.client._async.consuming.consumer import Consumer
    from orbitmq.client._async.hook_calls import HookCalls
    from orbitmq.client._async.parts import Member, OtherMember, Sender, Traces
    from orbitmq.client._async.popping.pop_consumer import PopConsumer
    from orbitmq.client._async.pulling.assignment_watch import AssignmentListener
    from orbitmq.client._async.pulling.lite_pull import LiteConsumer
    from orbitmq.client._async.pulling.pull_consumer import PullConsumer
    from orbitmq.client._async.timers.recurring import Recurring
    from orbitmq.client._async.timers.timers import Timers
    from orbitmq.client.consuming.subscription import Sql, Subscription
    from orbitmq.client.popping.pop_options import PopOptions
    from orbitmq.client.pulling.lite_options import LiteConsumerOptions
    from orbitmq.client.sending.outgoing import Outgoing
    from orbitmq.client.stored import StoredMessage

T = TypeVar("T")

DEFAULT_GROUP: Final = "orbitmq-producer"
"""Producer group of `Client.send` and its relatives."""

TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
"""Producer group of trace records; no heartbeat names it."""


class Client(SendingCalls):
    """A connection to a cluster, named by its name servers. Made by `connect`.

    What it sends itself is sent by a producer whose group all programs share that do not name one.

    Cost: one connection per broker in use, four timers, a heartbeat to each broker every 30 s, and a question to each that holds a pull and
    has said nothing for three seconds.
    """

    _amiss_ms = _moved_ms = 0
    """When something last said that a broker is amiss, and when a route last became another one."""

    def __init__(
        self,
        name_servers: str | Iterable[str],
        *,
        options: ClientOptions | None = None,
        producer_options: ProducerOptions | None = None,
        clock: Clock | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.options = _settings("options", options, ClientOptions)
        self.clock = clock or SystemClock()
        ip = local_ip()
        self.client_id = client_id(ip, self.options.instance_name, self.options.unit_name)
        self.stable_id = client_id(ip, self.options.instance_name or DEFAULT_INSTANCE, self.options.unit_name)
        self.unique_ids = UniqueIds(self.clock, ip)
        self.tasks = Tasks(f"client {self.client_id}")
        # Made once: what the system trusts takes 50 ms to read, and every dial would stop the loop for it.
        tls = ssl.create_default_context() if self.options.tls is True else self.options.tls or None
        self.network = Network(
            dial or partial(dial_socket, tls=tls),
            self.options.connect_timeout_ms,
            self._received,
            self._connected,
            self.options.credentials,
        )
        self.name_servers = NameServers(
            self.network, NameServerChoice(parse_addresses(name_servers)), self.options.request_timeout_ms
        )
        self._routes_due = Event()
        self.routes = Routes(self.name_servers, self._route_changed, self._amiss)
        self.waiting_replies = WaitingReplies()
        self.producers: dict[str, Producer] = {}
        self.consumers: dict[str, Member] = {}
        self.other_consumers: dict[str, OtherMember] = {}
        self.membership = Membership(
            self.client_id,
            self.network,
            self.routes,
            self.producers,
            self.consumers,
            self.other_consumers,
            self.options.request_timeout_ms,
        )
        self.inner_producer = Producer(self, CLIENT_INNER_PRODUCER_GROUP, ProducerOptions())
        self.hooks = _hook_calls(self.options, self.clock)
        self.tracer = self._traces()
        self._producer_options = _settings("producer_options", producer_options, ProducerOptions)
        self._heartbeat_due = Event()
        self._callbacks: Callbacks | None = None
        self._admin: Admin | None = None
        self._timers: Timers | None = None
        self._recurring: Recurring | None = None
        self._transactions: StoredTransactions | None = None
        self._started = False
        self._closed = False

    def _traces(self) -> Traces | None:
        if not self.options.trace:
            return None
        from orbitmq.client._async.sending.tracer import Tracer

        teller = Producer(self, TRACE_GROUP, ProducerOptions(idempotent=False))
        return Tracer(self, teller, self.options.trace_topic)

    # --- life

    async def start(self) -> None:
        """Start the timers. No server is contacted before something is sent or consumed."""
        if self._started:
            raise ClientError("this client was started before; it starts once", remedy="make a new one with connect()")
        self.network.home.check()
        self._started = True
        self.network.on_unreachable = self._unreachable
        self.network.on_unwilling = self._unwilling
        self.network.question = self._question
        self.network.greeting = self.membership.greeting
        self.network.successor = self.routes.successor
        self.network.name_of = self.routes.name_of
        self.network.is_missed = lambda address: address in self.routes.addresses()
        self.tasks.spawn(self._refresh_routes_forever(), "routes")
        self.tasks.spawn(self._heartbeat_forever(), "heartbeat")
        self.tasks.spawn(Silence(self.network).look_forever(), "silent servers")

    async def close(self) -> None:
        """Close consumers and producers, then the connections. Closing twice is harmless. Where it is cancelled, what it waited for is
        left as it is, and the rest is closed all the same."""
        if self._closed:
            return
        self.network.home.check()
        self._closed = True
        async with AsyncExitStack() as last:
            last.push_async_callback(self.network.close)
            last.push_async_callback(self.tasks.close)
            if self._callbacks is not None:
                last.push_async_callback(self._callbacks.close)
            if self.tracer is not None:
                last.push_async_callback(self.tracer.close, self.options.close_timeout_ms)
            for members in (self.producers, self.other_consumers, self.consumers):
                for member in members.values():
                    last.push_async_callback(member.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- sending

    async def reply(
        self,
        message: StoredMessage,
        body: bytes,
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3_000,
    ) -> None:
        """`ReceivedMessage.reply` for a message that was read in another way."""
        self._check_open()
        from orbitmq.client._async.sending.requests import send_reply

        await send_reply(self, message, body, tag=tag, properties=properties, timeout_ms=timeout_ms)

    def producer(self, group: str, options: ProducerOptions | None = None) -> Producer:
        """A producer with a group and settings of its own; `async with` or `close` ends it."""
        self._check_open()
        _check_group(group, "producer")
        check_instance("options", options, ProducerOptions)
        if group in self.producers:
            raise ClientError(
                f"this client has a producer of group {group!r} already", remedy="use that one, or another group"
            )
        self._check_room()
        producer = self.producers[group] = Producer(self, group, options or self._producer_options)
        return producer

    # --- consuming

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
        """A member of consumer group `group`, to be started with `async with`.

        topic: one topic, with `tags` or `sql` as filter; or several as a mapping from topic to tag expression or `Sql`. All members of a
        group must subscribe to the same topics and filters: the broker keeps only one subscription per group and topic.
        sql: only messages for which this expression over their properties is true, such as `price > 10 AND region = 'eu'`.
        """
        self._check_open()
        _check_group(group, "consumer")
        check_instance("options", options, ConsumerOptions)
        from orbitmq.client._async.consuming.consumer import Consumer
        from orbitmq.client.consuming.subscription import subscribe

        version = self.clock.now_ms()
        subscriptions = _subscriptions(topic, tags, sql, version)
        options = options or ConsumerOptions()
        if not options.broadcasting:
            retry = retry_topic(group)
            subscriptions[retry] = subscribe(retry, "*", version)
        return Consumer(self, group, subscriptions, options)

    def dead_letter_consumer(self, group: str, *, options: ConsumerOptions | None = None) -> Consumer:
        """A consumer of what `group` has given up, a member of group `<group>-dead-letters`.

        options: without them from the oldest letter on. `message.topic` is where a letter came from. One that fails here is tried
        again as any message, and is in the end a letter of the reading group.
        """
        from orbitmq.client._async.consuming.dead_letters import READER_SUFFIX

        _check_group(group, "consumer")
        options = options or ConsumerOptions(consume_from=ConsumeFrom.FIRST)
        return self.consumer(group + READER_SUFFIX, dlq_topic(group), options=options)

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
        self._check_open()
        _check_group(group, "pop consumer")
        from orbitmq.client._async.popping.pop_consumer import PopConsumer
        from orbitmq.client.popping.pop_options import PopOptions

        check_instance("options", options, PopOptions)
        subscriptions = _subscriptions(topic, tags, sql, self.clock.now_ms())
        return PopConsumer(self, group, subscriptions, options or PopOptions())

    def pull_consumer(self, group: str) -> PullConsumer:
        """Explicit pulls of chosen queues from chosen offsets, which `group` may store; nothing runs in the background."""
        self._check_open()
        _check_group(group, "pull consumer")
        from orbitmq.client._async.pulling.pull_consumer import PullConsumer

        return PullConsumer(self, group)

    def lite_consumer(
        self,
        group: str,
        options: LiteConsumerOptions | None = None,
        *,
        on_assignment: AssignmentListener | None = None,
    ) -> LiteConsumer:
        """A consumer that is polled, to be started with `async with`; its `subscribe` or `assign` says what it reads.

        on_assignment: called after the queues it reads have changed, with those taken and those given up.
        """
        self._check_open()
        _check_group(group, "lite consumer")
        from orbitmq.client._async.pulling.lite_pull import LiteConsumer
        from orbitmq.client.pulling.lite_options import LiteConsumerOptions

        check_instance("options", options, LiteConsumerOptions)
        return LiteConsumer(self, group, options or LiteConsumerOptions(), on_assignment)

    @property
    def admin(self) -> Admin:
        """Administration of the cluster: topics, groups, look-ups."""
        if self._admin is None:
            from orbitmq.client._async.administration.admin import Admin

            self._admin = Admin(self)
        return self._admin

    @property
    def timers(self) -> Timers:
        """Timer messages that wait: recalling, rescheduling, listing and counting them."""
        if self._timers is None:
            from orbitmq.client._async.timers.timers import Timers

            self._timers = Timers(self)
        return self._timers

    @property
    def recurring(self) -> Recurring:
        """Messages that a broker sends again and again, by a cron expression or an interval."""
        if self._recurring is None:
            from orbitmq.client._async.timers.recurring import Recurring

            self._recurring = Recurring(self)
        return self._recurring

    @property
    def transactions(self) -> StoredTransactions:
        """Transactions that the brokers know of: which are undecided, and what became of one."""
        if self._transactions is None:
            from orbitmq.client._async.administration.transactions import StoredTransactions

            self._transactions = StoredTransactions(self)
        return self._transactions

    # --- for the rest of the client

    async def consumer_started(self, consumer: Member) -> None:
        self._check_open()
        self._check_new_member(consumer.group)
        from orbitmq.client._async.consuming import dead_letters

        self.consumers[consumer.group] = consumer
        try:
            for topic in consumer.subscriptions:
                if not topic.startswith(RETRY_PREFIX):
                    await dead_letters.find(self, topic)
            await self.membership.beat_all()
        except BaseException:
            del self.consumers[consumer.group]
            raise

    async def consumer_closed(self, consumer: Member) -> None:
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self.membership.leave(consumer=consumer.group)

    async def producer_closed(self, producer: Sender) -> None:
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self.membership.leave(producer=producer.group)

    def member_started(self, consumer: OtherMember) -> None:
        self._check_open()
        self._check_new_member(consumer.group)
        self.other_consumers[consumer.group] = consumer

    async def member_subscribed(self, consumer: OtherMember) -> None:
        from orbitmq.client._async.consuming import dead_letters

        for topic in consumer.subscriptions:
            await dead_letters.find(self, topic)
        await self.membership.beat_all()

    async def member_closed(self, consumer: OtherMember) -> None:
        if self.other_consumers.get(consumer.group) is consumer:
            del self.other_consumers[consumer.group]
            if consumer.heartbeat() is not None:
                await self.membership.leave(consumer=consumer.group)

    async def introduce_to(self, address: str) -> None:
        await self.membership.beat(address)

    async def check_timed(self, address: str, broker_name: str, outgoing: Outgoing, timeout_ms: int) -> None:
        await self.timers.support.check(address, broker_name, outgoing, timeout_ms)

    def heartbeat_soon(self) -> None:
        self._heartbeat_due.set()

    # --- inside

    def _sender(self) -> Producer:
        producer = self.producers.get(DEFAULT_GROUP)
        return producer if producer is not None else self.producer(DEFAULT_GROUP)

    def _check_open(self) -> None:
        if not self._started or self._closed:
            state = "closed" if self._closed else "not started"
            raise ClientError(f"the client is {state}", remedy="use it inside the with block of connect(...)")

    def _check_new_member(self, group: str) -> None:
        if group in self.consumers or group in self.other_consumers:
            raise ClientError(
                f"this client has a consumer of group {group!r} already",
                remedy="a second member of the group needs a client of its own",
            )
        self._check_room()

    def _check_room(self) -> None:
        if len(self.producers) + len(self.consumers) + len(self.other_consumers) >= CLIENT_GROUPS_MAX:
            raise ClientError(f"a client has at most {CLIENT_GROUPS_MAX} groups", remedy="make another client")

    def _received(self, channel: Channel, command: Command) -> None:
        """A broker asks something."""
        if self._callbacks is None:
            from orbitmq.client._async.callbacks import Callbacks

            self._callbacks = Callbacks(self)
        self._callbacks.received(channel, command)

    def _connected(self, address: str) -> None:
        if self._timers is not None:
            self._timers.support.forget(address)

    def _route_changed(self, topic: str) -> None:
        self._moved_ms = monotonic_ms()
        for consumer in self.consumers.values():
            if topic in consumer.subscriptions:
                consumer.rebalance_soon()
        for lite in self.other_consumers.values():
            if topic in lite.subscriptions:
                lite.rebalance_soon()

    def _unreachable(self, address: str) -> None:
        """Perhaps another broker has the place of one that takes no connection or does not answer: ask for the routes soon."""
        if address in self.routes.addresses():
            self._amiss()

    def _unwilling(self, address: str) -> None:
        """As `_unreachable`, of a master that says that it is a slave, or takes no messages."""
        if address in self.routes.addresses(masters_only=True):
            self._amiss()

    def _amiss(self) -> None:
        self._amiss_ms = monotonic_ms()
        self._routes_due.set()

    def _is_amiss(self) -> bool:
        """Whether the routes are asked for again soon, though nothing new was said."""
        if self.routes.misses_brokers or self.network.are_silent(self.routes.addresses()):
            return True
        lately = monotonic_ms() - self._amiss_ms < CLIENT_ROUTES_INSIST_MS
        return lately and (self.routes.await_master or self._amiss_ms > self._moved_ms)

    def _question(self) -> Command | None:
        """What a reader of the topic may ask."""
        members: list[Member | OtherMember] = [*self.consumers.values(), *self.other_consumers.values()]
        topic = next((topic for member in members for topic in member.subscriptions), None) or self.routes.some_topic()
        return None if topic is None else request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})

    async def _refresh_routes_forever(self) -> None:
        began_ms: int | None = None
        while True:
            is_early = await wait_event(self._routes_due, self.options.route_refresh_ms)
            self._routes_due.clear()
            asked_ms = monotonic_ms()
            await self.tasks.survive(self.routes.refresh_all(), "refreshing the routes")
            is_early = is_early or self.routes.misses_brokers
            if is_early:
                now_ms = monotonic_ms()
                began_ms = now_ms if began_ms is None else began_ms
                await sleep_ms(min(early_pause_ms(now_ms - began_ms), self.options.route_refresh_ms))
                if self._is_amiss():
                    self._routes_due.set()
            if not is_early or self._moved_ms >= asked_ms:
                began_ms = None

    async def _heartbeat_forever(self) -> None:
        while True:
            await wait_event(self._heartbeat_due, self.options.heartbeat_ms)
            self._heartbeat_due.clear()
            await self.tasks.survive(self._heartbeat(), "the heartbeat")

    async def _heartbeat(self) -> None:
        self.membership.drop_unknown(frozenset(self.name_servers.choice))
        await self.membership.beat_all()


def connect(
    name_servers: str | Iterable[str] = "localhost:9876",
    *,
    options: ClientOptions | None = None,
    producer_options: ProducerOptions | None = None,
) -> Client:
    """A client of the cluster behind these name servers (`host:port`, several separated by `;`).

    `async with connect(...) as client` starts and closes it. producer_options: for `Client.send` and producers made without options.
    """
    return Client(name_servers, options=options, producer_options=producer_options)


def _settings(name: str, given: T | None, kind: type[T]) -> T:
    check_instance(name, given, kind)
    return kind() if given is None else given


def _hook_calls(options: ClientOptions, clock: Clock) -> HookCalls | None:
    if options.hooks is None:
        return None
    from orbitmq.client._async.hook_calls import HookCalls

    return HookCalls(options.hooks, clock)


def _check_group(group: str, kind: str) -> None:
    problem = group_name_problem(group)
    if problem is None and group in (DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP, CLIENT_INNER_PRODUCER_GROUP):
        problem = f"the group name {group!r} is reserved"
    if problem is not None:
        raise ConfigurationError(f"no {kind} can be made: {problem}", remedy="choose a name of your own")


def _subscriptions(
    topic: str | Mapping[str, str | Sql], tags: str, sql: str | None, version: int
) -> dict[str, Subscription]:
    """What a program wants of one topic or of several, by topic. `ConfigurationError`."""
    from orbitmq.client.consuming.subscription import Sql, subscribe

    if isinstance(topic, str):
        return {topic: subscribe(topic, tags, version, sql=sql)}
    if not isinstance(topic, Mapping):
        raise ConfigurationError(
            f"the topic is {type(topic).__name__}", remedy="name one, or give a mapping from topics to tags"
        )
    if tags != "*" or sql is not None:
        raise ConfigurationError(
            f"tags={tags!r} and sql={sql!r} beside several topics",
            remedy="give each topic its own: {'orders': 'paid', 'refunds': orbitmq.Sql('price > 10')}",
        )
    if not 0 < len(topic) <= CONSUMER_TOPICS_MAX:
        raise ConfigurationError(f"a consumer has 1 to {CONSUMER_TOPICS_MAX} topics, not {len(topic)}")
    return {
        name: subscribe(name, "*", version, sql=wanted.expression)
        if isinstance(wanted, Sql)
        else subscribe(name, wanted, version)
        for name, wanted in topic.items()
    }
