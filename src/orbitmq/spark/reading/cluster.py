"""What a read asks a cluster besides messages: topics, routes, bounds of queues, offsets by time; and telling it a group's offsets.

Rules of this file
1. One `Cluster` per process and set of name servers (`cluster_of`), because Spark keeps its Python processes and makes readers anew for
   every batch. It is never pickled.
2. Questions about many queues leave together, one round trip for each broker.
3. Nothing is retried here, but a connection that was kept and broke is dialled anew once. Patience is the caller's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.client.addresses import NameServerChoice
from orbitmq.client.answers import remote_error
from orbitmq.client.bulk.wave_connection import WaveConnection
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.client.pulling.pull_request import queue_fields, queue_name
from orbitmq.client.route import Route, build_route
from orbitmq.errors import ClientError, ConnectionLostError, RequestTimeoutError, RouteNotFoundError
from orbitmq.limits.spark import SPARK_LINES_MAX, SPARK_ROUTE_MS
from orbitmq.protocol.names import is_system_topic, reply_topic
from orbitmq.protocol.remoting.bodies import ClusterInfo, MessageQueue, TopicList, TopicRouteData, TopicStatsTable
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.spark.connect_options import connect_parts
from orbitmq.spark.reading.offsets import Extent
from orbitmq.spark.reading.range_pull import Pace
from orbitmq.spark.reading.retrying import RetryClock

GROUP_TOPIC_MARK: Final = "%"
"""Stands in the names of retry and dead-letter topics, and in no other."""

_CLUSTERS: Final[dict[tuple[int, tuple[str, ...], int, ConnectSettings], Cluster]] = {}

_PLAIN: Final = ConnectSettings()


def cluster_of(name_servers: tuple[str, ...], timeout_ms: int, connect: ConnectSettings = _PLAIN) -> Cluster:
    """The cluster behind these name servers, the same one whenever this process asks."""
    key = (os.getpid(), name_servers, timeout_ms, connect)  # a forked process must not write into its parent's sockets
    found = _CLUSTERS.get(key)
    if found is None:
        found = _CLUSTERS[key] = Cluster(name_servers, timeout_ms, connect)
    return found


def _create(topic: str) -> str:
    return f"create it: orbitmq topic create {topic}; or correct the option that names it"


class Cluster:
    """Questions to the servers of one cluster, each waiting at most `timeout_ms` for an answer."""

    def __init__(
        self,
        name_servers: Iterable[str],
        timeout_ms: int,
        connect: ConnectSettings = _PLAIN,
        clock: RetryClock | None = None,
    ) -> None:
        self._tls, self.credentials = connect_parts(connect)
        self.paces: dict[MessageQueue, Pace] = {}
        """What pulls of a queue brought lately, for the next batch that this process reads of it."""
        self._choice = NameServerChoice(name_servers)
        self._timeout_ms = timeout_ms
        self._clock = clock or RetryClock()
        self._lines: dict[str, list[WaveConnection]] = {}
        self._routes: dict[str, tuple[Route, int]] = {}
        self._topics: tuple[list[str], int] | None = None

    # --- connections

    def take_line(self, address: str) -> WaveConnection:
        """A connection that nobody else uses until it is given back."""
        kept = self._lines.get(address)
        while kept:
            line = kept.pop()
            if not line.closed:
                return line
        return self._dial(address)

    def _dial(self, address: str) -> WaveConnection:
        return WaveConnection(address, self._timeout_ms, self._tls, self.credentials)

    def give_back(self, line: WaveConnection) -> None:
        """A connection on which nothing is unanswered."""
        if sum(map(len, self._lines.values())) >= SPARK_LINES_MAX:
            line.close()
        if not line.closed:
            self._lines.setdefault(line.address, []).append(line)

    def ask(self, address: str, commands: list[Command]) -> list[Command]:
        """The answers of one server, whatever their codes."""
        kept = bool(self._lines.get(address))
        line = self.take_line(address)
        try:
            answers = line.exchange(commands)
        except ConnectionLostError:
            if not kept:
                raise
            line = self._dial(address)  # it may have been dead for long
            answers = line.exchange(commands)
        self.give_back(line)
        return answers

    # --- name servers

    def topics(self) -> list[str]:
        """All topics but those of the system, in order, as they were at most `SPARK_ROUTE_MS` ago.

        Clusters and brokers have topics of their names, which are the system's as well.
        """
        now_ms = self._clock.now_ms()
        if self._topics is not None and now_ms - self._topics[1] < SPARK_ROUTE_MS:
            return self._topics[0]
        names = TopicList.decode(
            self._body_of(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "listing topics")
        ).topic_list
        info = self._info()
        own = {name for cluster in info.cluster_addr_table for name in (cluster, reply_topic(cluster))}
        own.update(info.broker_addr_table)
        found = sorted(name for name in names if name not in own and not is_system_topic(name))
        self._topics = (found, now_ms)
        return found

    def _info(self) -> ClusterInfo:
        return ClusterInfo.decode(self._body_of(RequestCode.GET_BROKER_CLUSTER_INFO, "listing brokers"))

    def _body_of(self, code: RequestCode, doing: str) -> bytes:
        answer = self._ask_name_servers(request(code), doing)
        if answer.code != ResponseCode.SUCCESS:
            raise remote_error(answer.code, answer.remark, self._choice.current, doing)
        return bytes(answer.body)

    def matching(self, pattern: str) -> list[str]:
        """Topics whose whole name matches; those of groups (`%RETRY%...`, `%DLQ%...`) only if the pattern has a `%` as well."""
        matches = re.compile(pattern).fullmatch
        of_groups = GROUP_TOPIC_MARK in pattern
        return [topic for topic in self.topics() if matches(topic) and (of_groups or GROUP_TOPIC_MARK not in topic)]

    def route(self, topic: str, *, fresh: bool = False) -> Route:
        """Where a topic's queues are, not older than `SPARK_ROUTE_MS`. `RouteNotFoundError` for an unknown topic."""
        known = self._routes.get(topic)
        now_ms = self._clock.now_ms()
        if known is not None and not fresh and now_ms - known[1] < SPARK_ROUTE_MS:
            return known[0]
        doing = f"looking up topic {topic!r}"
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = self._ask_name_servers(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields), doing)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFoundError(
                f"the name servers ({', '.join(self._choice)}) know no topic {topic!r}",
                remedy=_create(topic),
            )
        if answer.code != ResponseCode.SUCCESS:
            raise remote_error(answer.code, answer.remark, self._choice.current, doing)
        route = build_route(topic, TopicRouteData.decode(bytes(answer.body)))
        self._routes[topic] = (route, now_ms)
        return route

    def forget_routes(self) -> None:
        """Look everything up anew when it is needed next: a broker did not answer where it was."""
        self._routes.clear()
        self._topics = None

    def address(self, queue: MessageQueue) -> str:
        """Where to ask about a queue: its broker's master, or another member."""
        for fresh in (False, True):
            address = self.route(queue.topic, fresh=fresh).reader(queue.broker_name)
            if address is not None:
                return address
        raise ConnectionLostError(
            f"topic {queue.topic!r} has no broker {queue.broker_name!r} at present",
            request_sent=False,
            remedy="see: orbitmq topic route",
        )

    def is_gone(self, queue: MessageQueue) -> bool:
        """Whether a queue's broker is there and has no such queue any more. Of a broker that is away nobody knows."""
        if queue.broker_name not in self._info().broker_addr_table:
            return False
        try:
            route = self.route(queue.topic, fresh=True)
        except RouteNotFoundError:
            return True
        return queue not in route.subscribe_queues and queue not in route.publish_queues

    def _ask_name_servers(self, command: Command, doing: str) -> Command:
        failures: list[str] = []
        for address in self._choice.candidates():
            try:
                [answer] = self.ask(address, [command])
                return answer
            except (ConnectionLostError, RequestTimeoutError) as error:
                failures.append(str(error.args[0]))
                self._choice.failed(address)
        raise ConnectionLostError(
            f"no name server answered while {doing}: {'; '.join(failures)}",
            request_sent=False,
            remedy="check option nameServer, and that a name server runs there",
        )

    # --- brokers

    def extents(self, topics: Iterable[str]) -> dict[MessageQueue, Extent]:
        """Bounds of every readable queue of these topics. One question for each topic and broker."""
        asked: dict[str, list[str]] = {}
        readable: set[MessageQueue] = set()
        for topic in topics:
            route = self.route(topic)
            readable.update(route.subscribe_queues)
            for broker_name in sorted({queue.broker_name for queue in route.subscribe_queues}):
                asked.setdefault(self.address(MessageQueue(topic, broker_name, 0)), []).append(topic)
        found: dict[MessageQueue, Extent] = {}
        for address, names in asked.items():
            commands = [request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}) for topic in names]
            for topic, answer in zip(names, self.ask(address, commands), strict=True):
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:  # deleted since the name servers were asked
                    raise RouteNotFoundError(f"the broker {address} has no topic {topic!r}", remedy=_create(topic))
                if answer.code != ResponseCode.SUCCESS:
                    raise remote_error(
                        answer.code, answer.remark, address, f"asking for the offsets of topic {topic!r}"
                    )
                table = TopicStatsTable.decode(bytes(answer.body)).offset_table
                found.update({queue: Extent(at.min_offset, at.max_offset) for queue, at in table.items()})
        return {queue: found[queue] for queue in sorted(readable) if queue in found}

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """By queue, the offset of the first message stored at or after a time; the end of the queue when there is none."""
        commands = {
            queue: request(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue_fields(queue), "timestamp": str(times_ms[queue])}
            )
            for queue in times_ms
        }
        found: dict[MessageQueue, int] = {}
        for queue, answer in self._ask_brokers(commands).items():
            offset = answer.optional_integer("offset")
            if offset is None or offset < 0:
                raise ClientError(f"the broker of {queue_name(queue)} answered without an offset")
            found[queue] = offset
        return found

    def publish(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store how far a group is. The brokers have it on return."""
        self._ask_brokers(
            {
                queue: request(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {**queue_fields(queue), "consumerGroup": group, "commitOffset": str(offset)},
                )
                for queue, offset in offsets.items()
            }
        )

    def _ask_brokers(self, commands: Mapping[MessageQueue, Command]) -> dict[MessageQueue, Command]:
        """One question about each queue; `RemoteError` for an answer that is none."""
        at: dict[str, list[MessageQueue]] = {}
        for queue in sorted(commands):
            at.setdefault(self.address(queue), []).append(queue)
        found: dict[MessageQueue, Command] = {}
        for address, queues in at.items():
            for queue, answer in zip(queues, self.ask(address, [commands[q] for q in queues]), strict=True):
                if answer.code != ResponseCode.SUCCESS:
                    raise remote_error(answer.code, answer.remark, address, f"asking about {queue_name(queue)}")
                found[queue] = answer
        return found

    def close(self) -> None:
        """Close the connections that are kept."""
        for lines in self._lines.values():
            for line in lines:
                line.close()
        self._lines.clear()
