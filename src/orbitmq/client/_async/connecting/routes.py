"""Routes of the topics in use, kept fresh.

Rules of this file
1. A topic is looked up when first needed and from then on refreshed by the client's timer, which is early where a broker takes no
   connection or does not answer, none takes messages, or one has left the routes; users of a route ask again each time.
2. A refresh that fails or finds the topic gone keeps what is known: a name server that has just restarted knows nothing yet.
3. Only what sends may fall back to the template topic from which a broker creates unknown topics. Such a guess is kept apart:
   `known`, `find` and `get` answer what a name server said of the topic itself, because who consumes by a guess misses queues.
4. A guess ends with the first route that a name server gives. What created the topic says so (`created`), and those who wait for the
   topic ask at once; sends go on by the guess until the next refresh, as with RocketMQ, so that every broker gets the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orbitmq.client._async.connecting.name_servers import NameServers
from orbitmq.client._async.connecting.troubles import AWAY
from orbitmq.client._async.runtime import Event, Lock, monotonic_ms
from orbitmq.client.route import MASTER_ID, Route, build_route
from orbitmq.client.sending.known_queues import AwayQueues
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    MasterAwayError,
    ProtocolError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from orbitmq.limits.client import CLIENT_ROUTES_MISSED_MS, CLIENT_TOPICS_MAX
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.protocol.remoting.bodies import TopicRouteData
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)


class Routes:
    """Routes by topic, and the addresses of all brokers in them.

    on_changed: told the topic whenever a known route was replaced by a different one.
    on_unwritable: called for every send that finds no broker to go to: while a master is away its topics have a route to its slaves.
    """

    def __init__(
        self,
        name_servers: NameServers,
        on_changed: Callable[[str], None],
        on_unwritable: Callable[[], None] = lambda: None,
    ) -> None:
        self._name_servers = name_servers
        self._on_changed = on_changed
        self._on_unwritable = on_unwritable
        self._routes: dict[str, Route] = {}
        self.known_queues = AwayQueues()
        self._lookups: dict[str, Lock] = {}
        self._guessed: dict[str, Route] = {}
        self.moved = Event()
        """Is set when a route changes next: whoever asks a broker in vain takes it before, and does not pause for longer."""
        self._last_address: dict[str, str] = {}
        """Of the master of each broker."""
        self._names: dict[str, str] = {}
        """Of brokers, by an address that their master has or had."""
        self._not_created: set[str] = set()
        """Guessed topics of which nothing has said yet that they are there."""
        self._missed: dict[str, int] = {}
        """Brokers that have left the routes, and since when (`monotonic_ms`)."""

    def known(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    def known_for_sending(self, topic: str) -> Route | None:
        """A route with a writable queue, which may be a guess."""
        route = self._routes.get(topic)
        if route is None:
            return self._guessed.get(topic)
        return route if route.publish_queues else None

    def created(self, topic: str) -> None:
        """A broker took something for `topic`: if its route was a guess, whoever waits for the topic asks again now."""
        if topic in self._not_created:
            self._not_created.discard(topic)
            self._on_changed(topic)

    async def find(self, topic: str) -> Route | None:
        """The route, asked for if it is not known; None when the name servers do not know the topic."""
        route = self._routes.get(topic)
        if route is not None:
            return route
        lock = self._lookups.setdefault(topic, Lock())
        try:
            async with lock:
                return self._routes.get(topic) or await self.refresh(topic)
        finally:
            self._lookups.pop(topic, None)

    async def get(self, topic: str) -> Route:
        """As `find`, but `RouteNotFoundError` instead of None."""
        route = await self.find(topic)
        if route is None:
            raise RouteNotFoundError(
                f"the name servers know no topic {topic!r}", remedy=f"create it: orbitmq topic create {topic}"
            )
        return route

    async def for_sending(self, topic: str, queues_max: int) -> Route:
        """A route with at least one writable queue.

        For an unknown topic: the brokers that create topics on demand, with at most `queues_max` queues each.
        """
        route = self.known_for_sending(topic)
        if route is not None:
            return route
        route = await self.find(topic)
        if route is None:
            data = await self._ask(AUTO_CREATE_TOPIC)
            if data is None:
                raise RouteNotFoundError(
                    f"the name servers know no topic {topic!r}, and no broker creates topics on demand",
                    remedy=f"create it: orbitmq topic create {topic}",
                )
            route = build_route(topic, data, queues_max=queues_max)
            if topic not in self._routes:  # somebody may have found it meanwhile
                self._check_room(topic)
                self._guessed[topic] = route
                self._not_created.add(topic)
        if not route.publish_queues:
            self._on_unwritable()
            raise (MasterAwayError if route.awaits_master else RouteNotFoundError)(
                f"topic {topic!r} has no writable queue on a broker with a master",
                remedy="check the topic's permission and whether its master brokers run: orbitmq topic route",
            )
        return route

    def awaited(self) -> None:
        """A send waits for a broker that is in no route: they are asked for soon."""
        self._on_unwritable()

    async def refresh(self, topic: str) -> Route | None:
        """Ask for one topic now; None when the name servers do not know it. Errors are the caller's."""
        data = await self._ask(topic)
        if data is None:
            return None
        route = build_route(topic, data)
        told = self._routes.get(topic)
        before = told or self._guessed.get(topic)
        self._check_room(topic)
        self._note_addresses(route)
        self._routes[topic] = route
        self._note_missed(told, route)
        self._guessed.pop(topic, None)
        self._not_created.discard(topic)
        if before is not None and before != route:
            if told is not None:
                self.known_queues.changed(told, route, monotonic_ms())
            self.moved.set()
            self.moved = Event()
            self._on_changed(topic)
        return route

    async def refresh_all(self) -> None:
        """Refresh every known topic; failures are logged and what is known stays."""
        for topic in (*self._routes, *self._guessed):
            try:
                await self.refresh(topic)
                self._name_servers.network.troubles.worked(f"refreshing the route of topic {topic}")
            except (ClientError, ProtocolError) as error:
                self._name_servers.network.troubles.failed(f"refreshing the route of topic {topic}", error)
                if isinstance(error, ConnectionLostError | RequestTimeoutError):
                    return  # the name servers do not answer; the timer asks again

    def master(self, broker_name: str, topic: str | None = None) -> str | None:
        """Address of a broker's master in any known route; in that of `topic` first."""
        likely = self._routes.get(topic) or self._guessed.get(topic) if topic is not None else None
        if likely is not None:
            address = likely.master(broker_name)
            if address is not None:
                return address
        for route in self._all():
            address = route.master(broker_name)
            if address is not None:
                return address
        return None

    def last_master(self, broker_name: str) -> str | None:
        """Where a broker's master was last, also when no route leads there any more."""
        return self._last_address.get(broker_name)

    def missed_masters(self, topic: str) -> list[tuple[str, str]]:
        """Brokers that have left the route of a topic lately, and where their masters were: they have what they stored."""
        queues = self.known_queues.with_those_away(topic, (), CLIENT_ROUTES_MISSED_MS, monotonic_ms())
        found = [(name, self._last_address.get(name)) for name in sorted({queue.broker_name for queue in queues})]
        return [(name, address) for name, address in found if address is not None]

    def name_of(self, address: str) -> str:
        """The broker at an address, as the log names it."""
        for route in self._all():
            for name, members in route.brokers.items():
                if address in members.values():
                    return f"broker {name} ({address})"
        return f"name server {address}" if address in self._name_servers.choice else f"server {address}"

    def successor(self, address: str) -> str:
        """The master's address of the broker whose master was at this one; the same where nothing is known of it."""
        name = self._names.get(address)
        return address if name is None else self.master(name) or address

    def no_address(self, broker_name: str) -> ConnectionLostError:
        """What to raise, and to say once, where no name server knows an address of a broker. See `has_address`."""
        troubles = self._name_servers.network.troubles
        if self._last_address.get(broker_name, "") not in troubles:  # else it is said that nobody answers there
            troubles.note(broker_name, AWAY, f"broker {broker_name}", "no name server knows an address of it")
        return ConnectionLostError(f"no address of broker {broker_name} is known", request_sent=False)

    def topic_on(self, broker_name: str) -> str | None:
        """Some topic in use with a queue on this broker."""
        for topic, route in self._routes.items():
            if any(queue.broker_name == broker_name for queue in route.subscribe_queues):
                return topic
        return None

    def some_topic(self) -> str | None:
        """Of those in use."""
        return next(iter(self._routes), None)

    @property
    def await_master(self) -> bool:
        """Whether a broker in one of them has no master at present."""
        return any(route.awaits_master for route in self._all())

    @property
    def misses_brokers(self) -> bool:
        """Whether a broker has left the routes lately and is in none: as likely as not it is being started again."""
        if self._missed:
            oldest_ms = monotonic_ms() - CLIENT_ROUTES_MISSED_MS
            self._missed = {name: since_ms for name, since_ms in self._missed.items() if since_ms > oldest_ms}
        return bool(self._missed)

    def reader(self, broker_name: str, wanted_id: int = MASTER_ID) -> str | None:
        for route in self._routes.values():
            address = route.reader(broker_name, wanted_id)
            if address is not None:
                return address
        return None

    def addresses(self, *, masters_only: bool = False) -> set[str]:
        """Brokers of all known routes."""
        found: set[str] = set()
        for route in self._all():
            for members in route.brokers.values():
                if not masters_only:
                    found.update(members.values())
                elif MASTER_ID in members:
                    found.add(members[MASTER_ID])
        return found

    async def _ask(self, topic: str) -> TopicRouteData | None:
        answer = await self._name_servers.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
            doing=f"looking up topic {topic!r}",
            accept=_FOUND_OR_NOT,
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        try:
            return TopicRouteData.decode(bytes(answer.body))
        except ProtocolError as error:
            raise ClientError(f"the name server's route of topic {topic!r} cannot be read: {error}") from error

    def _note_addresses(self, route: Route) -> None:
        """A broker that was away and is at another address now is back, or somebody is in its place."""
        troubles = self._name_servers.network.troubles
        for name in route.brokers:
            address = route.master(name)
            if address is not None:
                before, self._last_address[name] = self._last_address.get(name), address
                if before != address:
                    kept = {old: other for old, other in self._names.items() if other != name or old == before}
                    self._names = kept | {address: name}
                troubles.worked(name)
                if before is not None and before != address:
                    troubles.worked(before)

    def _note_missed(self, former: Route | None, route: Route) -> None:
        for name in route.brokers:
            self._missed.pop(name, None)
        for name in () if former is None else former.brokers:
            if not any(name in known.brokers for known in self._all()):
                self._missed.setdefault(name, monotonic_ms())

    def _all(self) -> Iterator[Route]:
        yield from self._routes.values()
        yield from self._guessed.values()

    def _check_room(self, topic: str) -> None:
        known = topic in self._routes or topic in self._guessed
        if not known and len(self._routes) + len(self._guessed) >= CLIENT_TOPICS_MAX:
            raise ClientError(
                f"this client uses {CLIENT_TOPICS_MAX} topics already; {topic!r} would be one more",
                remedy="spread the topics over several clients",
            )
