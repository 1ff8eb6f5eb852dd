"""Where a topic is: its queues on all brokers, as this broker and the name servers know them.

Rules of this file
1. A broker without name servers knows its own queues only. Where there are some and none answers, what was known before counts.
2. For clients of gRPC the own table says what the topic is here, whatever name servers still believe: one that was just made is there.
   But where they have taken the write permission from this broker, nobody is told to send here.
3. Brokers say where they serve gRPC in a key-value table of the name servers (`GRPC_ENDPOINTS_NAMESPACE`): broker name -> `host:port`,
   or that they do not. One that says nothing, as those of RocketMQ, is looked for at the host that it is registered with.

Source: RocketMQ broker, server-side assignment; RocketMQ gRPC, QueryRoute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from orbitmq.broker.assignment.remembered import Remembered
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.topics import READ, WRITE
from orbitmq.protocol.names import NO_GRPC_ENDPOINT
from orbitmq.protocol.remoting.bodies import MessageQueue, TopicRouteData

Queues = list[MessageQueue]
TookQueues = Callable[[Queues | None], None]


class RouteSource(Protocol):
    """What a broker asks of its name servers. `took` is called once, now or later, with None when none of them answers."""

    def ask_route(self, topic: str, took: Callable[[TopicRouteData | None], None]) -> None:
        """The route of a topic; one without queues when there is no such topic."""
        ...

    def ask_brokers(self, took: Callable[[Mapping[str, str] | None], None]) -> None:
        """The names of all brokers that are registered, and where each says that it serves gRPC; an empty text for one that says
        nothing."""
        ...


class TopicBroker(NamedTuple):
    """What a topic has on one broker. `endpoint`: where it serves gRPC, empty for this broker. `perm` is what the broker allows too."""

    name: str
    endpoint: str
    read_count: int
    write_count: int
    perm: int


class TopicRoute(NamedTuple):
    """The brokers of a topic by name, so that whoever is asked names them in one order; none when nobody knows the topic. `is_alone`: the
    name servers know no other broker, so whoever reached one reached this one."""

    brokers: list[TopicBroker]
    is_alone: bool


class TopicRoutes:
    def __init__(self, core: BrokerCore) -> None:
        self._topics = core.topics
        self._settings = core.settings
        self._clock = core.clock
        self._routes: Remembered[TopicRouteData] | None = None
        self._brokers: Remembered[Mapping[str, str]] | None = None

    def ask_at(self, name_servers: RouteSource) -> None:
        """This broker has name servers."""
        self._routes = Remembered(self._clock, name_servers.ask_route)
        self._brokers = Remembered(self._clock, lambda _, took: name_servers.ask_brokers(took))

    def readable(self, topic: str, took: TookQueues) -> None:
        """Call `took` with the queues that consumers may read on all brokers, at once or when a name server has answered; None where they
        are unknown."""

        def found(route: TopicRouteData | None) -> None:
            took(readable_queues(topic, route) if route is not None and route.queue_datas else None)

        if self._routes is None:
            took(self._own_readable(topic))
        else:
            self._find(self._routes, topic, found)

    def route(self, topic: str, grpc_port: int, took: Callable[[TopicRoute], None]) -> None:
        """Call `took` with the route for clients of gRPC, as `readable` does. `grpc_port`: where brokers are looked for that do not say."""
        routes, brokers = self._routes, self._brokers
        if routes is None or brokers is None:
            took(TopicRoute(self._own(topic), is_alone=True))
            return

        answers: dict[str, Any] = {}  # both are asked at once: clients wait for 3 s

        def found(what: str, answer: object) -> None:
            answers[what] = answer
            if len(answers) == 2:
                took(self._joined(topic, answers["route"], answers["brokers"] or {}, grpc_port))

        brokers.find("all", partial(found, "brokers"))
        self._find(routes, topic, partial(found, "route"))

    # --- inside -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _find(routes: Remembered[TopicRouteData], topic: str, found: Callable[[TopicRouteData | None], None]) -> None:
        """That there is no such topic is not remembered: it may be made in the next moment."""

        def took(route: TopicRouteData | None) -> None:
            if route is not None and not route.queue_datas:
                routes.forget(topic)
            found(route)

        routes.find(topic, took)

    def _joined(
        self, topic: str, route: TopicRouteData | None, published: Mapping[str, str], grpc_port: int
    ) -> TopicRoute:
        own = self._settings.broker_name
        others = [] if route is None else _other_brokers(route, own, published, grpc_port)
        here = self._own(topic)
        if route is not None and _is_withdrawn(route, own):
            here = [broker._replace(perm=broker.perm & ~WRITE) for broker in here]
        brokers = sorted([*here, *others], key=lambda broker: broker.name)
        return TopicRoute(brokers, is_alone=not others and published.keys() <= {own})

    def _own(self, topic: str) -> list[TopicBroker]:
        config = self._topics.get(topic)
        if config is None:
            return []
        perm = config.perm & self._settings.broker_permission
        return [TopicBroker(self._settings.broker_name, "", config.read_queue_nums, config.write_queue_nums, perm)]

    def _own_readable(self, topic: str) -> Queues | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & READ else 0
        return _queues(topic, self._settings.broker_name, count)


def readable_queues(topic: str, route: TopicRouteData) -> Queues:
    """The queues that consumers may read, on brokers that have a master."""
    names = {broker.broker_name for broker in route.broker_datas if 0 in broker.broker_addrs}
    return [
        queue
        for data in route.queue_datas
        if data.perm & READ and data.broker_name in names
        for queue in _queues(topic, data.broker_name, data.read_queue_nums)
    ]


def _is_withdrawn(route: TopicRouteData, own: str) -> bool:
    return any(data.broker_name == own and not data.perm & WRITE for data in route.queue_datas)


def _other_brokers(route: TopicRouteData, own: str, published: Mapping[str, str], grpc_port: int) -> list[TopicBroker]:
    """The masters of a topic that serve gRPC, but for this broker."""
    masters = {broker.broker_name: broker.broker_addrs[0] for broker in route.broker_datas if 0 in broker.broker_addrs}
    brokers = []
    for data in route.queue_datas:
        name = data.broker_name
        if name == own or name not in masters:
            continue
        endpoint = published.get(name) or f"{masters[name].rpartition(':')[0]}:{grpc_port}"
        if endpoint != NO_GRPC_ENDPOINT:
            brokers.append(TopicBroker(name, endpoint, data.read_queue_nums, data.write_queue_nums, data.perm))
    return brokers


def _queues(topic: str, broker_name: str, count: int) -> Queues:
    return [MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id) for queue_id in range(count)]
