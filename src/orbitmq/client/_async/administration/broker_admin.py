"""Administration of running brokers and name servers: figures, settings, write permission, the table of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.client._async.administration.admin_calls import AdminCalls
from orbitmq.errors import ClientError, ConnectionLostError, RequestTimeoutError
from orbitmq.limits.replication import DEMOTE_LEVEL_MS, HAND_OVER_ATTEMPTS, HAND_OVER_CALL_MS, HAND_OVER_PAUSE_MS
from orbitmq.protocol.java_properties import format_properties, read_properties
from orbitmq.protocol.names import Perm
from orbitmq.protocol.remoting.bodies import BrokerStatsData, HaRuntimeInfo, KVTable, TopicRouteData
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    ForgetRequest,
    PromoteAnswer,
    PromoteRequest,
    ReseedAnswer,
    ReseedRequest,
)

DEMOTE_MS: Final = DEMOTE_LEVEL_MS + HAND_OVER_ATTEMPTS * (HAND_OVER_CALL_MS + HAND_OVER_PAUSE_MS)
"""Longest time that a broker takes for it on purpose."""


class AtNameServer(NamedTuple):
    """What a name server tells clients of one broker name: its processes, as address -> id, and whether they may write to its queues."""

    broker_ids: Mapping[str, int]
    is_writable: bool


class BrokerAdmin(AdminCalls):
    """Calls about brokers and name servers."""

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Figures of a running broker by name, as text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, doing="reading runtime figures")
        return KVTable.decode(answer.body).table

    async def broker_ha_status(self, address: str) -> HaRuntimeInfo:
        """What a broker tells of replication: a master of each slave, a slave of its master. Refused by RocketMQ before 5.0."""
        answer = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS, doing="reading the state of replication")
        return HaRuntimeInfo.decode(answer.body)

    async def promote_slave(
        self,
        address: str,
        *,
        synchronous: bool = False,
        although_master_lives: bool = False,
        although_behind: bool = False,
    ) -> int:
        """Make the slave at this address the master of its group, `synchronous` or not; where its log ended then. While it follows a master
        that lives, or another slave of its group has more of the log, it refuses, unless told otherwise: what the other one has, or takes
        from then on, is lost. orbitmq's brokers only."""
        wanted = PromoteRequest(
            synchronous=synchronous, although_master_lives=although_master_lives, although_behind=although_behind
        )
        body = wanted.encode()
        answer = await self._ask(address, RequestCode.PROMOTE_SLAVE, body=body, doing="making a slave the master")
        return PromoteAnswer.decode(answer.body).end

    async def demote_master(self, address: str, wanted: DemoteRequest) -> DemoteAnswer:
        """Make the master at this address a slave, which takes nothing any more; with `wanted.hands_over` a slave of it the master. While
        no slave has its log, or the slave does not become master, it refuses and leads on. orbitmq's brokers only."""
        answer = await self._ask(
            address,
            RequestCode.DEMOTE_MASTER,
            body=wanted.encode(),
            doing="making a master a slave",
            more_ms=DEMOTE_MS,
        )
        return DemoteAnswer.decode(answer.body)

    async def reseed_slave(self, address: str, *, although_parted: bool = False) -> ReseedAnswer:
        """Have the slave at this address put its store aside and copy its master anew: at once, or at its next start. Where no master
        answers, or the slave has what its master has not, it refuses, the second unless told otherwise. orbitmq's brokers only."""
        wanted = ReseedRequest(although_parted=although_parted)
        answer = await self._ask(
            address, RequestCode.RESEED_SLAVE, body=wanted.encode(), doing="having a slave begin anew"
        )
        return ReseedAnswer.decode(answer.body)

    async def forget_slave(self, address: str, slave_id: int) -> bool:
        """Let another directory come with this id to the master at this address; whether the id was known. orbitmq's brokers only."""
        answer = await self._ask(
            address,
            RequestCode.FORGET_SLAVE,
            body=ForgetRequest(broker_id=slave_id).encode(),
            doing=f"forgetting slave {slave_id}",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return answer.code == ResponseCode.SUCCESS

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of a running broker by name, as text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG, doing="reading the configuration")
        return read_properties(bytes(answer.body), where=f"configuration of {address}")

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker; it keeps them over a restart. A refused key changes nothing."""
        body = format_properties(changes.items()).encode()
        await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body, doing="changing the configuration")

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData | None:
        """A broker's counter over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic; None without any traffic."""
        answer = await self._ask(
            address,
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": name, "statsKey": key},
            doing=f"reading {name} of {key!r}",
            accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),  # the second says: nothing counted
        )
        return BrokerStatsData.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None

    async def broker_at_name_servers(self, broker: str) -> dict[str, AtNameServer | None]:
        """What every name server tells of a broker (by name), as its own topic shows; None for one that does not answer."""
        found: dict[str, AtNameServer | None] = {}
        for address in self._client.name_servers.choice:
            try:
                answer = await self._client.network.request(
                    address,
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    {"topic": broker, "acceptStandardJsonOnly": "true"},
                    timeout_ms=self._client.options.request_timeout_ms,
                    doing=f"looking up broker {broker}",
                    accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
                )
            except (ConnectionLostError, RequestTimeoutError):
                found[address] = None
                continue
            is_there = answer.code == ResponseCode.SUCCESS
            route = TopicRouteData.decode(answer.body) if is_there else TopicRouteData()
            found[address] = AtNameServer(
                {
                    member: broker_id
                    for one in route.broker_datas
                    if one.broker_name == broker
                    for broker_id, member in one.broker_addrs.items()
                },
                any(one.broker_name == broker and one.perm & Perm.WRITE for one in route.queue_datas),
            )
        return found

    async def wipe_write_permission(self, broker: str) -> int:
        """Take the topics of a broker (by name) out of the routes for sending, on every name server; how many there were."""
        return await self._permission(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker, "wipeTopicCount")

    async def add_write_permission(self, broker: str) -> int:
        """Undo `wipe_write_permission`; how many topics can be sent to again."""
        return await self._permission(RequestCode.ADD_WRITE_PERM_OF_BROKER, broker, "addTopicCount")

    # --- name servers

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """Settings of every name server by its address."""
        found: dict[str, dict[str, str]] = {}
        for address in self._client.name_servers.choice:
            answer = await self._ask(address, RequestCode.GET_NAMESRV_CONFIG, doing="reading the configuration")
            found[address] = read_properties(bytes(answer.body), where=f"configuration of {address}")
        return found

    async def update_name_server_config(self, changes: Mapping[str, str], address: str | None = None) -> None:
        """Change settings of every name server, or of the one at `address`."""
        body = format_properties(changes.items()).encode()
        if address is not None:
            await self._ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body, doing="changing the configuration")
            return
        await self._client.name_servers.request_all(
            RequestCode.UPDATE_NAMESRV_CONFIG, body=body, doing="changing the configuration"
        )

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Keep a value in the table of every name server."""
        await self._client.name_servers.request_all(
            RequestCode.PUT_KV_CONFIG,
            {"namespace": namespace, "key": key, "value": value},
            doing=f"writing {namespace}/{key}",
        )

    async def get_value(self, namespace: str, key: str) -> str | None:
        """A value of the name servers' table, or None."""
        answer = await self._client.name_servers.request(
            RequestCode.GET_KV_CONFIG,
            {"namespace": namespace, "key": key},
            doing=f"reading {namespace}/{key}",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return answer.fields.get("value") if answer.code == ResponseCode.SUCCESS else None

    async def delete_value(self, namespace: str, key: str) -> None:
        """Remove a value from the table of every name server. One that is not there is no error."""
        await self._client.name_servers.request_all(
            RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key}, doing=f"deleting {namespace}/{key}"
        )

    async def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace of the name servers' table."""
        answer = await self._client.name_servers.request(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            {"namespace": namespace},
            doing=f"reading namespace {namespace}",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return dict(KVTable.decode(answer.body).table) if answer.code == ResponseCode.SUCCESS else {}

    async def _permission(self, code: RequestCode, broker: str, field: str) -> int:
        """Every name server is asked, and then the first failure raised: one that is away keeps no permission from the others."""
        count, failure = 0, None
        for address in self._client.name_servers.choice:
            try:
                answer = await self._ask(
                    address, code, {"brokerName": broker}, doing=f"changing the permission of {broker}"
                )
            except ClientError as error:
                failure = failure or error
                continue
            count = max(count, answer.integer(field))
        if failure is not None:
            raise failure
        return count
