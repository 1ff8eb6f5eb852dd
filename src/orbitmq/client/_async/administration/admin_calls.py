"""What all administrative calls build on: which brokers there are, and one call to one of them.

Rules of this file
1. What changes a topic, a group or a user is done on every master meant, also where one of them is away. The first failure is raised,
   and says where it was done and where not. A refusal ends it.
2. Results are the protocol's own bodies where they say all there is, else small named tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.client._async.parts import ClientContext
from orbitmq.client.route import MASTER_ID, Route
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    NotFoundError,
    RemoteError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from orbitmq.protocol.remoting.bodies import ClusterInfo, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command


class Broker(NamedTuple):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class AdminCalls:
    """Brokers of the cluster, and asking one of them."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client

    async def cluster(self) -> ClusterInfo:
        """Clusters, their brokers and the addresses of these."""
        answer = await self._client.name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO, doing="listing brokers")
        return ClusterInfo.decode(answer.body)

    async def brokers(self, cluster: str | None = None) -> list[Broker]:
        """All broker processes (of one cluster), ordered by cluster, name and id."""
        info = await self.cluster()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise NotFoundError(
                f"there is no cluster {cluster!r}", remedy=f"known are {sorted(info.cluster_addr_table) or 'none'}"
            )
        found = [
            Broker(cluster_name, name, broker_id, address)
            for cluster_name, names in info.cluster_addr_table.items()
            if cluster is None or cluster == cluster_name
            for name in names
            if name in info.broker_addr_table
            for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
        ]
        return sorted(found)

    async def masters(self, cluster: str | None = None) -> list[Broker]:
        """Masters, at least one; `NotFoundError` when none is registered."""
        masters = [broker for broker in await self.brokers(cluster) if broker.is_master]
        if not masters:
            raise NotFoundError("no master broker is registered at the name servers", remedy="start a broker")
        return masters

    # --- for the calls built on these

    async def _route(self, topic: str) -> Route:
        return await self._client.routes.get(topic)

    async def _reader(self, queue: MessageQueue) -> str:
        address = (await self._route(queue.topic)).reader(queue.broker_name)
        if address is None:
            raise RouteNotFoundError(
                f"topic {queue.topic!r} has no broker {queue.broker_name!r}", remedy="see: orbitmq topic route"
            )
        return address

    async def _targets(self, cluster: str | None, broker: str | None) -> list[Broker]:
        masters = await self.masters(cluster)
        if broker is None:
            return masters
        chosen = [master for master in masters if broker in (master.name, master.address)]
        if not chosen:
            raise NotFoundError(
                f"there is no master broker {broker!r}", remedy=f"known are {[master.name for master in masters]}"
            )
        return chosen

    async def _ask_all(
        self,
        targets: Sequence[Broker],
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        doing: str,
    ) -> dict[Broker, Command]:
        """The same at each of these; their answers."""
        answers: dict[Broker, Command] = {}
        failure: ClientError | None = None
        for target in targets:
            try:
                answers[target] = await self._ask(target.address, code, fields, body, doing=doing)
            except (ConnectionLostError, RequestTimeoutError) as error:
                failure = failure or error
            except RemoteError as error:
                failure = error
                break
        if failure is not None:
            if answers:
                others = ", ".join(target.name for target in targets if target not in answers)
                told = ", ".join(target.name for target in answers)
                failure.remedy = (
                    f"{doing} was done at {told}, and not as far as is known at {others}: do it again there"
                )
            raise failure
        return answers

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        doing: str,
        accept: tuple[int, ...] | frozenset[int] = (ResponseCode.SUCCESS,),
        more_ms: int = 0,
    ) -> Command:
        """One call to a broker; `more_ms` is time that the broker may take on purpose."""
        timeout_ms = self._client.options.admin_timeout_ms + more_ms
        return await self._client.network.insist(
            address, code, fields, body, timeout_ms=timeout_ms, doing=doing, accept=accept
        )
