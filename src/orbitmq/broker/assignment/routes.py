"""The queues of a topic on all brokers, as the name servers know them; remembered for half a minute.

Rules of this file
1. A name server is asked once for a topic at a time, whoever waits for the answer.
2. A broker without name servers knows its own queues only. Where there are some and none answers, what was known before counts; where
   nothing was, the queues are unknown.

Source: RocketMQ broker, server-side assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.topics import READ
from orbitmq.limits.broker import ROUTE_LIFE_NS, ROUTES_KEPT_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue, TopicRouteData

TookRoute = Callable[[TopicRouteData | None], None]
AskRoute = Callable[[str, TookRoute], None]
"""Ask the name servers for the route of a topic; None when none of them answers."""

Queues = list[MessageQueue]
TookQueues = Callable[[Queues | None], None]


class ReadableQueues:
    def __init__(self, core: BrokerCore) -> None:
        self.ask: AskRoute | None = None
        """Set by a process with name servers."""
        self._core = core
        self._known: Final[dict[str, tuple[int, Queues]]] = {}
        """Topic -> when it was learnt, and its queues; the oldest first."""
        self._waiting: Final[dict[str, list[TookQueues]]] = {}

    def find(self, topic: str, took: TookQueues) -> None:
        """Call `took` with the readable queues of a topic on all brokers, at once or when a name server has answered; None where they
        are unknown."""
        if self.ask is None:
            took(self._own(topic))
            return
        known = self._known.get(topic)
        if known is not None and self._core.clock.monotonic_ns() - known[0] < ROUTE_LIFE_NS:
            took(known[1])
        elif topic in self._waiting:
            self._waiting[topic].append(took)
        else:
            self._waiting[topic] = [took]
            self.ask(topic, lambda route: self._answered(topic, route))

    def _answered(self, topic: str, route: TopicRouteData | None) -> None:
        known = self._known.pop(topic, None)
        if route is not None:
            known = self._core.clock.monotonic_ns(), readable_queues(topic, route)
        if known is not None:
            self._known[topic] = known
            if len(self._known) > ROUTES_KEPT_MAX:
                del self._known[next(iter(self._known))]
        for took in self._waiting.pop(topic):
            took(None if known is None else known[1])

    def _own(self, topic: str) -> Queues | None:
        config = self._core.topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & READ else 0
        return _queues(topic, self._core.settings.broker_name, count)


def readable_queues(topic: str, route: TopicRouteData) -> Queues:
    """The queues that consumers may read, on brokers that have a master."""
    names = {broker.broker_name for broker in route.broker_datas if 0 in broker.broker_addrs}
    return [
        queue
        for data in route.queue_datas
        if data.perm & READ and data.broker_name in names
        for queue in _queues(topic, data.broker_name, data.read_queue_nums)
    ]


def _queues(topic: str, broker_name: str, count: int) -> Queues:
    return [MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id) for queue_id in range(count)]
