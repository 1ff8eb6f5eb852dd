"""Topics and groups that some brokers of a cluster have and others lack, as those do that were made while a broker was away.

Rules of this file
1. Masters of one cluster are compared with each other. What another cluster has is no matter.
2. The system's own topics and groups are left out, and so are retry and dead-letter topics: a broker makes them when it needs them.
3. A topic that was meant for one broker alone looks the same as one that is incomplete. Both are shown; nothing is made by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig

    Config = TopicConfig | SubscriptionGroupConfig


class Kind(StrEnum):
    """What may be incomplete."""

    TOPIC = "topic"
    GROUP = "group"


class Gap(NamedTuple):
    """One topic or group that some brokers of a cluster lack. settings: of those that have it, by broker."""

    kind: Kind
    name: str
    cluster: str
    settings: Mapping[str, Config]
    lacking: tuple[str, ...]

    def pattern(self, like: str | None) -> Config | None:
        """The settings to fill it with: those of broker `like`, else those of all that have it; None where they differ, or it lacks it."""
        if like is not None:
            return self.settings.get(like)
        first, *others = self.settings.values()
        return first if all(other == first for other in others) else None


def gaps_of(kind: Kind, brokers: Sequence[Broker], found: Mapping[str, Mapping[str, Config]]) -> list[Gap]:
    """Gaps by cluster and name. brokers: masters. found: what each of them has, by its name."""
    gaps = []
    for cluster in sorted({broker.cluster for broker in brokers}):
        members = [broker.name for broker in brokers if broker.cluster == cluster]
        for name in sorted({name for member in members for name in found[member]}):
            settings = {member: found[member][name] for member in members if name in found[member]}
            lacking = tuple(member for member in members if member not in settings)
            if lacking:
                gaps.append(Gap(kind, name, cluster, settings, lacking))
    return gaps


async def read_gaps(client: Client, kind: Kind, brokers: Sequence[Broker]) -> list[Gap]:
    """Ask these masters."""
    return gaps_of(kind, brokers, await read_configs(client, kind, brokers))


async def read_configs(client: Client, kind: Kind, brokers: Sequence[Broker]) -> Mapping[str, Mapping[str, Config]]:
    """What users have made on each of these masters, by name of the broker and in order."""
    if kind is Kind.TOPIC:
        return await read_topics(client, brokers)
    return await read_groups(client, brokers)


async def read_topics(client: Client, brokers: Sequence[Broker]) -> dict[str, dict[str, TopicConfig]]:
    """The topics that users have made, in the same way."""
    from orbitmq.cli.clusters.users_topics import users_topics

    cluster = await client.admin.cluster()
    found = {}
    for broker in brokers:
        topics = await client.admin.topic_configs(broker.address)
        found[broker.name] = {name: topics[name] for name in users_topics(sorted(topics), cluster)}
    return found


async def read_groups(client: Client, brokers: Sequence[Broker]) -> dict[str, dict[str, SubscriptionGroupConfig]]:
    """The groups that users have made, in the same way."""
    from orbitmq.protocol.names import is_users_group

    found = {}
    for broker in brokers:
        groups = await client.admin.group_configs(broker.address)
        found[broker.name] = {name: groups[name] for name in sorted(groups) if is_users_group(name)}
    return found
