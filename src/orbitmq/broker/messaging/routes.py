"""QueryRoute and QueryAssignment: where the queues of a topic are, and which of them a consumer pops.

Rules of this file
1. A broker that is alone sends its clients back to the address that they used, which they can reach. Where there are several, each is
   named by the address that it publishes, this one too: clients ask any of them, and tell it the address of the one they began with.
2. A topic that is unknown is answered TOPIC_NOT_FOUND. None is made because somebody asked for it.
3. Those who waited for one answer of a name server are answered in steps: a route of a thousand queues takes milliseconds, where it was not
   answered before.
4. What a topic takes is known of those that are here. Of others every type is told that all clients know: their broker decides.

Source: RocketMQ gRPC, QueryRoute, QueryAssignment.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from orbitmq.broker.assignment.routes import TopicBroker, TopicRoute, TopicRoutes
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import taken_type
from orbitmq.broker.messaging.kept_routes import KeptRoutes, RouteKey
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.limits.grpc import (
    ENDPOINTS_BYTES_MAX,
    RESOURCE_BYTES_MAX,
    ROUTED_QUEUES_MAX,
    ROUTED_QUEUES_PER_BROKER_MIN,
    ROUTES_ANSWERED_AT_ONCE_MAX,
)
from orbitmq.protocol.grpc.decoding import read_message
from orbitmq.protocol.grpc.messages import (
    Broker,
    Code,
    Endpoints,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.resource_names import group_of, topic_of
from orbitmq.protocol.grpc.routes import (
    BrokerQueues,
    accepted_types,
    assignments,
    endpoints_at,
    endpoints_of,
    routed_queues,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.ids import unpack_host
from orbitmq.protocol.message_types import MessageType

logger = logging.getLogger("orbitmq.broker")

LATE_ROUTES: Final = "routes for many clients"
"""Name of the wake-up that answers those for whom a name server was asked together."""

Answer = QueryRouteResponse | QueryAssignmentResponse


class RouteCalls:
    def __init__(self, core: BrokerCore, routes: TopicRoutes, port: int) -> None:
        """`port`: where this broker listens for gRPC."""
        self._topics = core.topics
        self._groups = core.groups
        self._routes = routes
        self._port = port
        self._clock = core.clock
        self._statistics = core.statistics
        self._deadlines = core.deadlines
        self._kept = KeptRoutes()
        self._late: deque[Callable[[], None]] = deque()
        """Answers whose route is known and that wait their turn."""
        self._late_count = 0
        """Late answers of this step."""
        core.deadlines.define(LATE_ROUTES, self._go_on)
        self._own_endpoints = endpoints_of(unpack_host(core.facilities.store_host)[0], port)

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {
            Rpc.QUERY_ROUTE: ServedCall(partial(read_message, QueryRouteRequest), self.route),
            Rpc.QUERY_ASSIGNMENT: ServedCall(partial(read_message, QueryAssignmentRequest), self.assignment),
        }

    def route(self, call: OpenCall, request: QueryRouteRequest) -> None:
        """Raises RpcError."""
        topic = request.topic.name
        config = self._topics.get(topic)
        taken = MessageType.MIXED if config is None else taken_type(config.attributes)

        def found(brokers: list[BrokerQueues]) -> Answer:
            if not brokers:
                return QueryRouteResponse(status=status_of(Code.TOPIC_NOT_FOUND, _unknown(topic)))
            queues = routed_queues(request.topic, brokers, accepted_types(taken))
            return QueryRouteResponse(status=status_of(Code.OK), message_queues=queues)

        self._answer(call, request.topic, request.endpoints, taken, found)

    def assignment(self, call: OpenCall, request: QueryAssignmentRequest) -> None:
        """Raises RpcError."""
        topic, group = request.topic.name, self._groups.known(group_of(request.group))
        is_orderly = group is not None and group.consume_message_orderly

        def found(brokers: list[BrokerQueues]) -> Answer:
            if not brokers:
                return QueryAssignmentResponse(status=status_of(Code.TOPIC_NOT_FOUND, _unknown(topic)))
            assigned = assignments(request.topic, brokers, is_orderly=is_orderly)
            if not assigned:
                text = f"topic {topic!r} has no queue that can be read"
                return QueryAssignmentResponse(status=status_of(Code.FORBIDDEN, text))
            return QueryAssignmentResponse(status=status_of(Code.OK), assignments=assigned)

        self._answer(call, request.topic, request.endpoints, "in order" if is_orderly else "", found)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _answer(
        self,
        call: OpenCall,
        resource: Resource,
        asked_at: Endpoints,
        kind: str,
        found: Callable[[list[BrokerQueues]], Answer],
    ) -> None:
        """Answer with what `found` makes of the brokers of the topic; `kind` is what else it goes by. Raises RpcError."""
        topic = topic_of(resource)
        if resource.ByteSize() > RESOURCE_BYTES_MAX:
            raise RpcError(
                Code.ILLEGAL_TOPIC, f"the topic takes more than {RESOURCE_BYTES_MAX} bytes with its namespace"
            )
        if asked_at.ByteSize() > ENDPOINTS_BYTES_MAX:
            raise RpcError(Code.ILLEGAL_ACCESS_POINT, f"the endpoints take more than {ENDPOINTS_BYTES_MAX} bytes")

        def answer(route: TopicRoute) -> None:
            if not call.is_wanted:
                return
            _check_size(topic, route.brokers)
            own = asked_at if route.is_alone and asked_at.addresses else self._own_endpoints
            brokers = tuple(route.brokers)
            key = RouteKey(call.call.row.rpc, resource.SerializeToString(), own.SerializeToString(), brokers, kind)
            call.answer(self._kept.find(key, lambda: found(list(_named(brokers, own))).SerializeToString()))
            call.end()

        is_at_once = True

        def took(route: TopicRoute) -> None:
            if is_at_once:
                answer(route)
            else:
                self._answer_late(partial(self._try, call, partial(answer, route)))

        self._routes.route(topic, self._port, took)
        is_at_once = False

    def _try(self, call: OpenCall, answer: Callable[[], None]) -> None:
        """Answer later than the call came: nobody is there who would refuse it."""
        try:
            answer()
        except Exception as error:
            if not isinstance(error, RpcError):
                self._statistics.failed_handler_count += 1
                logger.exception("%s from %s failed", call.call.row.rpc, call.address)
            code = error.code if isinstance(error, RpcError) else Code.INTERNAL_SERVER_ERROR
            kind = QueryRouteResponse if call.call.row.rpc is Rpc.QUERY_ROUTE else QueryAssignmentResponse
            call.answer(kind(status=status_of(code, str(error))).SerializeToString())
            call.end()

    def _answer_late(self, answer: Callable[[], None]) -> None:
        """A name server has answered, perhaps for thousands of calls."""
        if self._late_count < ROUTES_ANSWERED_AT_ONCE_MAX:
            answer()
        else:
            self._late.append(answer)
        self._late_count += 1
        self._deadlines.arm(LATE_ROUTES, self._clock.monotonic_ns())

    def _go_on(self) -> None:
        """Answer some of those that wait."""
        self._late_count = min(len(self._late), ROUTES_ANSWERED_AT_ONCE_MAX)
        for _ in range(self._late_count):
            self._late.popleft()()
        if self._late_count:
            self._deadlines.arm(LATE_ROUTES, self._clock.monotonic_ns())


def _named(brokers: Iterable[TopicBroker], own_endpoints: Endpoints) -> Iterator[BrokerQueues]:
    """Brokers as clients are told of them; without those that published what is no address."""
    for broker in brokers:
        endpoints = endpoints_at(broker.endpoint) if broker.endpoint else own_endpoints
        if endpoints is not None:
            named = Broker(name=broker.name, id=0, endpoints=endpoints)
            yield BrokerQueues(named, broker.read_count, broker.write_count, broker.perm)


def _check_size(topic: str, brokers: Iterable[TopicBroker]) -> None:
    """Raises RpcError for a route that no client could take, whoever says that it is so large."""
    count = sum(max(broker.read_count, broker.write_count, ROUTED_QUEUES_PER_BROKER_MIN) for broker in brokers)
    if count > ROUTED_QUEUES_MAX:
        raise RpcError(
            Code.INTERNAL_SERVER_ERROR,
            f"the route of topic {topic!r} has {count} queues, at most {ROUTED_QUEUES_MAX} are told",
        )


def _unknown(topic: str) -> str:
    return f"topic {topic!r} does not exist: create it first"
