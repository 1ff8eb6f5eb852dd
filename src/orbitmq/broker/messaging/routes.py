"""QueryRoute and QueryAssignment: where the queues of a topic are, and which of them a consumer pops.

Rules of this file
1. A client is sent to the address that it used, for that one it can reach.
2. A topic that is unknown is answered TOPIC_NOT_FOUND. None is made because somebody asked for it.

Source: RocketMQ gRPC, QueryRoute, QueryAssignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import taken_type
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.limits.grpc import ENDPOINTS_BYTES_MAX, RESOURCE_BYTES_MAX
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
from orbitmq.protocol.grpc.routes import BrokerQueues, accepted_types, assignments, endpoints_of, routed_queues
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.ids import unpack_host
from orbitmq.protocol.remoting.bodies import TopicConfig


class RouteCalls:
    def __init__(self, core: BrokerCore, port: int) -> None:
        """`port`: where this broker listens for gRPC."""
        self._topics = core.topics
        self._groups = core.groups
        self._settings = core.settings
        self._own_endpoints = endpoints_of(unpack_host(core.facilities.store_host)[0], port)

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {
            Rpc.QUERY_ROUTE: ServedCall(partial(read_message, QueryRouteRequest), self.route),
            Rpc.QUERY_ASSIGNMENT: ServedCall(partial(read_message, QueryAssignmentRequest), self.assignment),
        }

    def route(self, call: OpenCall, request: QueryRouteRequest) -> None:
        config = self._topic(request.topic)
        queues = routed_queues(
            request.topic, self._brokers(config, request.endpoints), accepted_types(taken_type(config.attributes))
        )
        answer = QueryRouteResponse(status=status_of(Code.OK), message_queues=queues)
        call.answer(answer.SerializeToString())
        call.end()

    def assignment(self, call: OpenCall, request: QueryAssignmentRequest) -> None:
        config = self._topic(request.topic)
        group = self._groups.known(group_of(request.group))
        found = assignments(
            request.topic,
            self._brokers(config, request.endpoints),
            is_orderly=group is not None and group.consume_message_orderly,
        )
        if not found:
            raise RpcError(Code.FORBIDDEN, f"topic {config.topic_name!r} has no queue that can be read")
        answer = QueryAssignmentResponse(status=status_of(Code.OK), assignments=found)
        call.answer(answer.SerializeToString())
        call.end()

    def _topic(self, resource: Resource) -> TopicConfig:
        name = topic_of(resource)
        if resource.ByteSize() > RESOURCE_BYTES_MAX:
            raise RpcError(
                Code.ILLEGAL_TOPIC, f"the topic takes more than {RESOURCE_BYTES_MAX} bytes with its namespace"
            )
        config = self._topics.get(name)
        if config is None:
            raise RpcError(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist: create it first")
        return config

    def _brokers(self, config: TopicConfig, asked_at: Endpoints) -> list[BrokerQueues]:
        if asked_at.ByteSize() > ENDPOINTS_BYTES_MAX:
            raise RpcError(Code.ILLEGAL_ACCESS_POINT, f"the endpoints take more than {ENDPOINTS_BYTES_MAX} bytes")
        broker = Broker(
            name=self._settings.broker_name,
            id=0,
            endpoints=asked_at if asked_at.addresses else self._own_endpoints,
        )
        perm = config.perm & self._settings.broker_permission
        return [BrokerQueues(broker, config.read_queue_nums, config.write_queue_nums, perm)]
