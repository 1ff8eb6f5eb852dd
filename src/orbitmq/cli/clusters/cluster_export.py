"""Reading a cluster into a document: what `orbitmq cluster export` writes.

Rules of this file
1. Whatever cannot be read ends it: half of a cluster is not exported as the whole. What brokers do not have at all, or do not tell this
   user, is left out with the reason, unless it was asked for by name.
2. Masters are asked, one after the other; what changes meanwhile may be there in its old or its new form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.cli.clusters import cluster_document as file
from orbitmq.cli.clusters.cluster_document import ClusterDocument, ClusterPart
from orbitmq.cli.clusters.gaps import read_groups, read_topics
from orbitmq.cli.shared.joined_rows import joined
from orbitmq.errors import ClientError, RemoteError

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker


async def read_cluster(
    client: Client, parts: Sequence[ClusterPart], *, cluster: str | None, passwords: bool, named: bool
) -> ClusterDocument:
    """The document. passwords: also those of users, as far as the brokers tell them. named: the parts were asked for by name."""
    brokers = await client.admin.masters(cluster)
    lists: dict[str, Any] = {}
    left_out: dict[ClusterPart, str] = {}
    for part in parts:
        try:
            lists |= await _read_part(client, part, brokers, passwords)
        except RemoteError as error:
            if named or part not in (ClusterPart.ACCESS, ClusterPart.RECURRING):
                raise
            left_out[part] = str(error)
    return ClusterDocument(
        format=file.FORMAT,
        version=file.VERSION,
        brokers={broker.name: broker.cluster for broker in brokers},
        not_contained=list(file.NOT_CONTAINED),
        left_out=left_out,
        **lists,
    )


async def _read_part(client: Client, part: ClusterPart, brokers: Sequence[Broker], passwords: bool) -> dict[str, Any]:
    """The lists of a part, by their names in the document."""
    match part:
        case ClusterPart.TOPICS:
            return {"topics": await _topics(client, brokers)}
        case ClusterPart.GROUPS:
            return {"groups": await _groups(client, brokers)}
        case ClusterPart.ACCESS:
            return await _access(client, brokers, passwords)
        case ClusterPart.OFFSETS:
            return {"offsets": await _offsets(client, brokers)}
        case ClusterPart.RECURRING:
            return {"recurring": await _recurring(client, {broker.name for broker in brokers})}


async def _topics(client: Client, brokers: Sequence[Broker]) -> list[file.TopicRow]:
    found = await read_topics(client, brokers)
    rows = {
        broker: [
            {
                "topic": name,
                "read_queues": config.read_queue_nums,
                "write_queues": config.write_queue_nums,
                "perm": config.perm,
                "ordered": config.order,
                "attributes": dict(sorted(config.attributes.items())),
            }
            for name, config in configs.items()
        ]
        for broker, configs in found.items()
    }
    return _rows(file.TopicRow, rows, "topic")


async def _groups(client: Client, brokers: Sequence[Broker]) -> list[file.GroupRow]:
    found = await read_groups(client, brokers)
    rows = {
        broker: [{"group": name, "settings": group_settings(config)} for name, config in configs.items()]
        for broker, configs in found.items()
    }
    return _rows(file.GroupRow, rows, "group")


def group_settings(config: msgspec.Struct) -> dict[str, Any]:
    """The settings of a group by RocketMQ's names, without its own."""
    settings = msgspec.to_builtins(config)
    return {name: value for name, value in sorted(settings.items()) if name != "groupName"}


async def _access(client: Client, brokers: Sequence[Broker], passwords: bool) -> dict[str, Any]:
    users: dict[str, list[dict[str, Any]]] = {}
    policies: dict[str, list[dict[str, Any]]] = {}
    for broker in brokers:
        users[broker.name], policies[broker.name] = [], []
        for info in (await client.admin.users(broker=broker.name))[broker.name]:
            name = info.username or ""
            user = {"user": name, "type": info.user_type or "Normal", "status": info.user_status or "enable"}
            if passwords and info.password:
                user["password"] = info.password
            users[broker.name].append(user)
            policies[broker.name] += await policy_rows(client, name, broker.name)
    return {
        "users": _rows(file.UserRow, users, "user"),
        "policies": _rows(file.PolicyRow, policies, "user", "policy", "resource"),
    }


async def policy_rows(client: Client, user: str, broker: str) -> list[dict[str, Any]]:
    """The entries of a user's policies on one broker, in the words of a document and without the brokers."""
    acl = (await client.admin.user_policies(user, broker=broker))[broker]
    return [
        {
            "user": user,
            "policy": policy.policy_type or "Custom",
            "resource": entry.resource or "",
            "actions": sorted(entry.actions),
            "sources": list(entry.source_ips or ()),
            "decision": entry.decision or "",
        }
        for policy in (acl.policies if acl is not None else ())
        for entry in policy.entries
    ]


async def _offsets(client: Client, brokers: Sequence[Broker]) -> list[file.OffsetRow]:
    """Of users' groups and topics that are there; others have nobody who would go on from them."""
    topics = await read_topics(client, brokers)
    groups = await read_groups(client, brokers)
    rows = []
    for broker in brokers:
        for (group, topic), offsets in (await client.admin.group_offsets(broker.address)).items():
            if group in groups[broker.name] and topic in topics[broker.name]:
                rows.append(file.OffsetRow(group=group, topic=topic, broker=broker.name, offsets=offsets))
    return sorted(rows, key=lambda row: (row.group, row.topic, row.broker))


async def _recurring(client: Client, brokers: Set[str]) -> list[file.RecurringRow]:
    away = await client.recurring.brokers_away()
    if away:
        raise ClientError(
            f"broker {', '.join(away)}, which keeps recurring messages, is not registered: an export would lack them",
            remedy="start it, or export the other parts with --only",
        )
    names = sorted({each.name async for each in client.recurring.list() if each.broker_name in brokers})
    found = [await client.recurring.get(name) for name in names]
    return [file.recurring_row(each) for each in found if each is not None]


def _rows(kind: type[file.ClusterRow], by_broker: Mapping[str, Iterable[Mapping[str, Any]]], *keys: str) -> list[Any]:
    """Each form of a thing once with the brokers that have it, in the order of `keys`."""
    found = sorted(joined(by_broker), key=lambda row: [*(row[key] for key in keys), row["brokers"]])
    return [msgspec.convert(row, kind) for row in found]
