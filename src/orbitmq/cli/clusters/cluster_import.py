"""Making a cluster like a document: what `orbitmq cluster import` does, thing by thing.

Rules of this file
1. Nothing is deleted, and no group is put back: what the file does not name stays, an offset only goes forward. Doing it again changes
   nothing more.
2. Each thing on each broker has an outcome of its own. What a server refuses is refused, and the others go on; a server that does not
   answer ends the import, and a second one goes on from there.
3. A dry run asks the same questions and takes what it would have made for made.
4. Brokers are found by their names. What is for a broker that is not there is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from orbitmq.access.policies import read_entry
from orbitmq.cli.clusters.cluster_document import (
    ClusterDocument,
    ClusterPart,
    GroupRow,
    OffsetRow,
    PolicyRow,
    RecurringRow,
    TopicRow,
    UserRow,
    recurring_row,
    rule_of,
)
from orbitmq.cli.clusters.cluster_export import group_settings, policy_rows
from orbitmq.cli.clusters.making import make
from orbitmq.client.admin import PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError, NotFoundError, RequestTimeoutError
from orbitmq.limits.cli import CLUSTER_QUEUES_TOLD_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig


C = TypeVar("C", "TopicConfig", "SubscriptionGroupConfig")


class ImportOutcome(StrEnum):
    """What became of a thing."""

    CREATED = "created"
    CHANGED = "changed"
    SAME = "the same"
    REFUSED = "refused"


class Done(NamedTuple):
    """An outcome, and what there is to know about it."""

    outcome: ImportOutcome
    detail: str = ""


class Imported(NamedTuple):
    """One thing of the document on one broker. broker: None for recurring messages, whose broker is chosen by their name."""

    what: str
    name: str
    broker: str | None
    done: Done


SAME: Final = Done(ImportOutcome.SAME)
MADE: Final = (ImportOutcome.CREATED, ImportOutcome.CHANGED)


def topic_done(wanted: TopicConfig, known: TopicConfig | None) -> Done:
    """What an import makes of a topic. Attributes that the file does not name stay; queues are never taken away."""
    if known is None:
        return Done(ImportOutcome.CREATED)
    pairs = {
        "read queues": (known.read_queue_nums, wanted.read_queue_nums),
        "write queues": (known.write_queue_nums, wanted.write_queue_nums),
        "perm": (known.perm, wanted.perm),
        "ordered": (known.order, wanted.order),
        **{name: (known.attributes.get(name), value) for name, value in wanted.attributes.items()},
    }
    changes = _changes(pairs)
    if wanted.read_queue_nums < known.read_queue_nums or wanted.write_queue_nums < known.write_queue_nums:
        return Done(
            ImportOutcome.REFUSED, f"it has more queues here, and messages in them ({changes}): orbitmq topic update"
        )
    return Done(ImportOutcome.CHANGED, changes) if changes else SAME


def group_done(wanted: SubscriptionGroupConfig, known: SubscriptionGroupConfig | None) -> Done:
    """The same of a group."""
    if known is None:
        return Done(ImportOutcome.CREATED)
    here, there = group_settings(known), group_settings(wanted)
    kept = {**here.pop("attributes", {}), **there.pop("attributes", {})}
    pairs = {name: (here.get(name), there.get(name)) for name in sorted({*here, *there})}
    pairs |= {name: (known.attributes.get(name), value) for name, value in kept.items()}
    changes = _changes(pairs)
    return Done(ImportOutcome.CHANGED, changes) if changes else SAME


def offset_done(wanted: int, known: int | None, end: int | None) -> tuple[Done, int | None]:
    """What an import makes of a group's offset in a queue, and where the group is put; None: nowhere. end: of the queue; None: it does not
    exist."""
    if end is None:
        return Done(ImportOutcome.REFUSED, "there is no such queue"), None
    target = min(wanted, end)
    short = f"the queue ends at {end}, before {wanted}" if target < wanted else ""
    if known is None:
        return Done(ImportOutcome.CREATED, f"{target}, as {short}" if short else ""), target
    if target > known:
        return Done(ImportOutcome.CHANGED, f"{known} -> {target}" + (f", as {short}" if short else "")), target
    return Done(ImportOutcome.SAME, f"is at {known}" + (f"; {short}" if short else "") if known != wanted else ""), None


def _changes(pairs: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{name} {before} -> {after}" for name, (before, after) in pairs.items() if before != after)


def joined_done(queues: Mapping[int, Done]) -> Done:
    """One outcome for the queues of a topic, with what there is to know of the first of them."""
    outcomes = {done.outcome for done in queues.values()}
    for outcome in (ImportOutcome.REFUSED, ImportOutcome.CHANGED, ImportOutcome.CREATED):
        if outcome in outcomes:
            break
    else:
        outcome = ImportOutcome.SAME
    told = [f"queue {queue}: {done.detail}" for queue, done in sorted(queues.items()) if done.detail]
    more = [f"and {len(told) - CLUSTER_QUEUES_TOLD_MAX} more"] if len(told) > CLUSTER_QUEUES_TOLD_MAX else []
    return Done(outcome, "; ".join([*told[:CLUSTER_QUEUES_TOLD_MAX], *more]))


class Import:
    """One import into one cluster. `done` has what came of it so far, whatever ends it."""

    def __init__(self, client: Client, document: ClusterDocument, *, dry_run: bool) -> None:
        self.done: list[Imported] = []
        self._client = client
        self._document = document
        self._dry_run = dry_run
        self._masters: dict[str, Broker] = {}
        self._topics: dict[str, dict[str, TopicConfig]] = {}
        self._groups: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        self._users: dict[str, dict[str, UserInfo]] = {}
        self._policies: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._committed: dict[str, dict[tuple[str, str], dict[int, int]]] = {}
        self._online: dict[str, bool] = {}

    async def run(self, parts: Sequence[ClusterPart]) -> None:
        """Do these parts, as far as the document has them."""
        document = self._document
        self._masters = {broker.name: broker for broker in await self._client.admin.masters()}
        for name, broker in self._masters.items():
            if name in document.brokers:
                self._topics[name] = await self._client.admin.topic_configs(broker.address)
                self._groups[name] = await self._client.admin.group_configs(broker.address)
        if ClusterPart.TOPICS in parts:
            for topic in document.topics or ():
                for broker_name in topic.brokers:
                    await self._note("topic", topic.topic, broker_name, self._topic(topic, broker_name))
        if ClusterPart.GROUPS in parts:
            for group in document.groups or ():
                for broker_name in group.brokers:
                    await self._note("group", group.group, broker_name, self._group(group, broker_name))
        if ClusterPart.ACCESS in parts:
            for user in document.users or ():
                for broker_name in user.brokers:
                    await self._note("user", user.user, broker_name, self._user(user, broker_name))
            for policy in document.policies or ():
                name = f"{policy.user}: {policy.policy} {policy.resource}"
                for broker_name in policy.brokers:
                    await self._note("policy", name, broker_name, self._policy(policy, broker_name))
        if ClusterPart.OFFSETS in parts:
            for row in document.offsets or ():
                await self._note("offsets", f"{row.group} of {row.topic}", row.broker, self._offsets(row))
        if ClusterPart.RECURRING in parts:
            for recurring in document.recurring or ():
                await self._note("recurring", recurring.name, None, self._recurring(recurring))

    async def _note(self, what: str, name: str, broker: str | None, work: Coroutine[Any, Any, Done]) -> None:
        if broker is not None and broker not in self._masters:
            work.close()
            done = Done(ImportOutcome.REFUSED, "no master of this name is registered here")
        else:
            try:
                done = await work
            except (ConnectionLostError, RequestTimeoutError):
                raise
            except (ClientError, ConfigurationError) as error:
                done = Done(ImportOutcome.REFUSED, str(error))
        self.done.append(Imported(what, name, broker, done))

    # --- topics and groups

    async def _topic(self, row: TopicRow, broker: str) -> Done:
        return await self._config(row.topic, row.config(), self._topics[broker], topic_done, broker)

    async def _group(self, row: GroupRow, broker: str) -> Done:
        return await self._config(row.group, row.config(), self._groups[broker], group_done, broker)

    async def _config(
        self, name: str, wanted: C, known: dict[str, C], decide: Callable[[C, C | None], Done], broker: str
    ) -> Done:
        done = decide(wanted, known.get(name))
        if done.outcome in MADE:
            await self._make(wanted, broker)
            known[name] = wanted
        return done

    async def _make(self, config: TopicConfig | SubscriptionGroupConfig, broker: str) -> None:
        if not self._dry_run:
            await make(self._client, config, broker)

    # --- users and policies

    async def _user(self, row: UserRow, broker: str) -> Done:
        users = await self._known_users(broker)
        known = users.get(row.user)
        is_super, enabled = row.type.lower() == "super", row.status.lower() == "enable"
        if known is None:
            if row.password is None:
                why = f"the file has no password for it: orbitmq access user create {row.user}, and import again"
                return Done(ImportOutcome.REFUSED, why)
            if not self._dry_run:
                await self._client.admin.create_user(
                    row.user, row.password, super_user=is_super, enabled=enabled, broker=broker
                )
            users[row.user] = UserInfo(row.user, row.password, row.type, row.status)
            self._policies[row.user, broker] = []
            return Done(ImportOutcome.CREATED)
        changes = _changes(
            {
                "type": ((known.user_type or "normal").lower(), row.type.lower()),
                "status": ((known.user_status or "enable").lower(), row.status.lower()),
            }
        )
        if changes and not self._dry_run:
            await self._client.admin.update_user(row.user, super_user=is_super, enabled=enabled, broker=broker)
        kept = row.password is not None and known.password not in (None, row.password)
        details = [changes] if changes else []
        details += ["its password is another one here, and stays"] if kept else []
        return Done(ImportOutcome.CHANGED if changes else ImportOutcome.SAME, "; ".join(details))

    async def _policy(self, row: PolicyRow, broker: str) -> Done:
        if row.user not in await self._known_users(broker):
            return Done(ImportOutcome.REFUSED, "there is no such user here")
        if (row.user, broker) not in self._policies:
            self._policies[row.user, broker] = await policy_rows(self._client, row.user, broker)
        wanted = policy_key(msgspec.to_builtins(row))
        known = dict(map(policy_key, self._policies[row.user, broker]))
        if known.get(wanted[0]) == wanted[1]:
            return SAME
        if not self._dry_run:
            entry = PolicyEntryInfo(row.resource, row.actions, row.sources or None, row.decision)
            await self._client.admin.set_policies(row.user, [PolicyInfo(row.policy, [entry])], broker=broker)
        return Done(ImportOutcome.CHANGED if wanted[0] in known else ImportOutcome.CREATED)

    async def _known_users(self, broker: str) -> dict[str, UserInfo]:
        if broker not in self._users:
            users = (await self._client.admin.users(broker=broker))[broker]
            self._users[broker] = {user.username or "": user for user in users}
        return self._users[broker]

    # --- offsets

    async def _offsets(self, row: OffsetRow) -> Done:
        topic = self._topics[row.broker].get(row.topic)
        if topic is None or row.group not in self._groups[row.broker]:
            return Done(ImportOutcome.REFUSED, f"there is no {'topic' if topic is None else 'group'} of this name here")
        if await self._is_online(row.group):
            return Done(
                ImportOutcome.REFUSED, "the group has members that are online and would overwrite it: stop them first"
            )
        if row.broker not in self._committed:
            address = self._masters[row.broker].address
            self._committed[row.broker] = await self._client.admin.group_offsets(address)
        known = self._committed[row.broker].get((row.group, row.topic), {})
        # In a dry run queues of the file's topics are not there yet.
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        ends = dict.fromkeys((queue_id for queue_id in row.offsets if queue_id < count), 0) | await self._ends(row)
        queues: dict[int, Done] = {}
        for queue_id, offset in row.offsets.items():
            queues[queue_id], target = offset_done(offset, known.get(queue_id), ends.get(queue_id))
            if target is not None and not self._dry_run:
                queue = MessageQueue(row.topic, row.broker, queue_id)
                await self._client.admin.commit_group_offset(row.group, queue, target)
        return joined_done(queues)

    async def _ends(self, row: OffsetRow) -> dict[int, int]:
        try:
            stats = await self._client.admin.topic_stats(row.topic)
        except NotFoundError:
            if not self._dry_run:
                raise
            return {}
        return {queue.queue_id: at.max_offset for queue, at in stats.items() if queue.broker_name == row.broker}

    async def _is_online(self, group: str) -> bool:
        if group not in self._online:
            self._online[group] = await self._client.admin.group_connections(group) is not None
        return self._online[group]

    # --- recurring messages

    async def _recurring(self, row: RecurringRow) -> Done:
        recurring = self._client.recurring
        found = await recurring.get(row.name)
        here = None if found is None else recurring_row(found)
        done = recurring_done(row, here)
        if self._dry_run or done.outcome is ImportOutcome.SAME:
            return done
        await recurring.put(
            row.name,
            row.topic,
            row.data(),
            tag=row.tag,
            key=row.keys or None,
            properties=row.properties,
            **rule_of(row),
        )
        if row.paused:
            await recurring.pause(row.name)
        return done


def recurring_done(wanted: RecurringRow, here: RecurringRow | None) -> Done:
    """What an import makes of a recurring message. One that is paused stays so."""
    if here is None:
        return Done(ImportOutcome.CREATED)
    asked = msgspec.structs.replace(
        wanted, paused=wanted.paused or here.paused, catch_up_max=wanted.catch_up_max or here.catch_up_max
    )
    names = [name for name in asked.__struct_fields__ if getattr(asked, name) != getattr(here, name)]
    stays = "it is paused here, and stays so" if here.paused and not wanted.paused else ""
    changes = f"{', '.join(names)} differ" if names else ""
    return Done(ImportOutcome.CHANGED if names else ImportOutcome.SAME, "; ".join(filter(None, (changes, stays))))


def policy_key(row: Mapping[str, Any]) -> tuple[tuple[str, str], object]:
    """Which entry a row is about, and what it says, whatever its spelling and order."""
    entry = read_entry(row["resource"], row["actions"], row["sources"], row["decision"])
    return (row["policy"].lower(), entry.resource.text), (entry.actions, frozenset(entry.sources), entry.decision)
