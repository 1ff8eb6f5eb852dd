"""Which clients are connected, in which groups, and what they subscribe to.

Source: RocketMQ broker, client registry and heartbeats.

Rules of this file
1. A member is a session, by its identity and not by its client id: it leaves when the session ends. A connection of remoting is one
   (`Peer`); a front end whose clients come over several connections has sessions of its own.
2. Consume type, message model and starting point of a group are those of the last heartbeat; mixed groups are not
   refused.
3. A group has *changed* when a member joined or left, or the set of its topics differs. A new expression for the same
   topic updates the data without a notice.
4. What a connection may hold here is bounded, and so are the subscriptions of all together. A heartbeat that would pass a
   bound is refused; what it said before that stays.
5. Members that differ, or share a client id, are not refused: it is logged once per change, and tools are told
   (`agreement`).
6. A client id belongs to the user who has it first, as long as that connection lasts: replies to it are nobody else's.
7. Members that speak remoting are told through `notify`, except those of broadcasting groups; whether a group wants notices is the
   caller's decision (`wants_notice`). Others have no such notice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from orbitmq.broker.agreement import Voice, Wishes, disagreements, wishes_of
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.broker import CLIENT_GROUPS_PER_CONNECTION_MAX, CLIENT_SUBSCRIPTIONS_BYTES_MAX, CLIENT_WISHES_MAX
from orbitmq.protocol.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.versions import Language

REMOTING: Final = "remoting"

logger = logging.getLogger("orbitmq.broker")


class ClientSession(Protocol):
    """A client that says now and then that it is there, as this registry and those who ask it something see it.

    What brokers ask of clients are remoting requests (a notice that the group changed, the check of a transaction, a message to consume at
    once, what it is doing): a session whose client speaks otherwise translates them.
    """

    @property
    def address(self) -> tuple[str, int]:
        """Remote IP text and port, of the connection that it came over last."""
        ...

    @property
    def writable(self) -> bool:
        """False while what the client is told would be lost or has to wait: there is no way to it now, or too much is on it."""
        ...

    def send(self, command: Command) -> None:
        """Tells the client something that it does not answer. Never blocks or fails; what cannot be sent is dropped."""
        ...

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        """Asks the client and calls back once: with its answer, or with None as `Peer.request` does."""
        ...

    def close(self, reason: str) -> None:
        """Ends the session; whoever owns it tells the registry. Calling again does nothing."""
        ...


class GroupMember(msgspec.Struct, eq=False):
    """One connection in one group. `seen_ms` is wall time for display, `seen_ns` monotonic for expiry."""

    session: ClientSession
    client_id: str
    language: Language | None
    version: int
    seen_ms: int
    seen_ns: int
    user: str
    """Who sent the last heartbeat; empty while nobody is asked who they are."""
    wishes: Wishes | None = None
    """What it subscribes to, for comparison; None for producers, and until a heartbeat tells it."""
    protocol: str = REMOTING
    """What its client speaks, as metrics name it."""


class KeptWishes(msgspec.Struct, eq=False):
    """What members of one group want, and how many of them."""

    wishes: Wishes
    member_count: int = 0


class ConsumerGroup(msgspec.Struct, eq=False):
    """The online part of a consumer group; it exists while it has a member."""

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    members: dict[ClientSession, GroupMember] = msgspec.field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    fingerprint: int | None = None
    disagreements: tuple[str, ...] = ()
    """What its members differ about, in words; empty for a sound group."""

    kept: dict[frozenset[tuple[str, str]], KeptWishes] = msgspec.field(default_factory=dict)
    """What its members want, by what it says; members that want the same share theirs."""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        return sorted({member.client_id for member in self.members.values()})


class HeartbeatSender(msgspec.Struct, frozen=True, eq=False):
    """Who sent a heartbeat, and when."""

    session: ClientSession
    client_id: str
    language: Language | None
    version: int
    now_ms: int
    now_ns: int
    user: str = ""
    protocol: str = REMOTING

    def member(self) -> GroupMember:
        return GroupMember(
            self.session, self.client_id, self.language, self.version, self.now_ms, self.now_ns, self.user,
            protocol=self.protocol,
        )  # fmt: skip


class ClientRegistry:
    def __init__(
        self,
        notify: Callable[[str, Iterable[ClientSession]], None],
        wants_notice: Callable[[str], bool],
        expiry_ns: int,
    ) -> None:
        """`notify(group, sessions)` tells members that their group has changed."""
        self._notify = notify
        self._wants_notice = wants_notice
        self._expiry_ns = expiry_ns
        self._producers: dict[str, dict[ClientSession, GroupMember]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[ClientSession, set[tuple[str, bool]]] = {}
        """Per connection the groups it is in; True marks a consumer group. Makes closing cheap and bounds a heartbeat."""
        self._requesters: dict[str, HeartbeatSender] = {}
        self._requester_ids: dict[ClientSession, str] = {}
        """Producers by client id, and back: replies are handed on to a client, whatever its group."""
        self._next_scan_ns: int | None = None
        self.expired_count = 0
        self._subscribed_bytes = 0
        self._wish_count = 0

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def producer_seen(self, group: str, who: HeartbeatSender) -> None:
        """Raises `Refusal` beyond a bound."""
        self._enter(group, who, consumer=False)
        _touch(self._producers.setdefault(group, {}), who)
        known = self._requesters.get(who.client_id)
        if known is not None and known.session is who.session and known.user == who.user:
            return  # as before
        self._forget_requester(who.session)
        known = self._requesters.get(who.client_id)
        if known is None or known.user == who.user:
            self._requesters[who.client_id] = who
            self._requester_ids[who.session] = who.client_id

    def consumer_seen(self, data: ConsumerData, who: HeartbeatSender, *, is_repeat: bool = False) -> bool:
        """Take in one group of a full heartbeat; whether the group has changed (its members are then told).

        `is_repeat`: this session said the same before, which is not looked at again. Raises `Refusal` beyond a bound.
        """
        self._enter(data.group_name, who, consumer=True)
        group = self._group_of(data)
        changed = self._consumer_touched(group, who)
        if self._subscribe(group, data.subscription_data_set):
            changed = True
        member = group.members[who.session]
        if not is_repeat or member.wishes is None:
            wishes = wishes_of(data)
            if member.wishes != wishes:
                self._forget_wishes(group, member)
                self._keep_wishes(group, member, wishes)
                self._compare(group)
        if changed:
            self._tell(group)
        return changed

    def consumer_alive(self, data: ConsumerData, who: HeartbeatSender) -> bool:
        """As `consumer_seen` for a heartbeat without subscriptions: those that are known stay."""
        self._enter(data.group_name, who, consumer=True)
        group = self._group_of(data)
        changed = self._consumer_touched(group, who)
        if changed:
            self._tell(group)
        return changed

    def fingerprint_changed(self, group: str, fingerprint: int) -> bool:
        """Remember the fingerprint of a version 2 heartbeat; whether it differs from the one before (or is the first)."""
        info = self._consumers.get(group)
        if info is None:
            return True
        changed = info.fingerprint != fingerprint
        info.fingerprint = fingerprint
        return changed

    # --- leaving ----------------------------------------------------------------------------------------------------

    def unregister(self, session: ClientSession, producer_group: str | None, consumer_group: str | None) -> None:
        """A client stops one of its instances on a connection that may go on."""
        if producer_group:
            self._leave_producer(session, producer_group)
        if consumer_group:
            self._leave_consumer(session, consumer_group)

    def session_ended(self, session: ClientSession) -> None:
        for group, is_consumer in sorted(self._groups_of.get(session, ())):
            if is_consumer:
                self._leave_consumer(session, group)
            else:
                self._leave_producer(session, group)

    def expire(self, now_ns: int) -> list[ClientSession]:
        """Connections with a membership whose last heartbeat is too old; the caller closes them. Plans the next look."""
        stale: dict[ClientSession, None] = {}
        oldest: int | None = None
        for member in self._members():
            if now_ns - member.seen_ns >= self._expiry_ns:
                stale[member.session] = None
            elif oldest is None or member.seen_ns < oldest:
                oldest = member.seen_ns
        self._next_scan_ns = None if oldest is None else oldest + self._expiry_ns
        self.expired_count += len(stale)
        return list(stale)

    def next_expiry_ns(self) -> int | None:
        """Monotonic time at which `expire` may find something; None without members."""
        return self._next_scan_ns

    # --- reading ----------------------------------------------------------------------------------------------------

    def consumer(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def consumer_groups_of(self, session: ClientSession) -> list[ConsumerGroup]:
        """The consumer groups that a connection is in."""
        return [self._consumers[group] for group, is_consumer in self._groups_of.get(session, ()) if is_consumer]

    def consumers(self) -> list[ConsumerGroup]:
        return list(self._consumers.values())

    def producer(self, group: str) -> list[GroupMember]:
        return list(self._producers.get(group, {}).values())

    def requester(self, client_id: str) -> ClientSession | None:
        """The connection on which this client last was a producer."""
        known = self._requesters.get(client_id)
        return None if known is None else known.session

    def producer_groups(self) -> list[str]:
        return sorted(self._producers)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)

    def member(self, group: str, client_id: str) -> GroupMember | None:
        info = self._consumers.get(group)
        if info is None:
            return None
        return next((member for member in info.members.values() if member.client_id == client_id), None)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _members(self) -> Iterable[GroupMember]:
        for producers in self._producers.values():
            yield from producers.values()
        for group in self._consumers.values():
            yield from group.members.values()

    def _enter(self, group: str, who: HeartbeatSender, *, consumer: bool) -> None:
        groups = self._groups_of.setdefault(who.session, set())
        if (group, consumer) not in groups:
            if len(groups) >= CLIENT_GROUPS_PER_CONNECTION_MAX:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"this connection is in {len(groups)} groups and cannot join {group!r} as well; "
                    "spread the groups over several clients",
                )
            groups.add((group, consumer))
        if self._next_scan_ns is None:
            self._next_scan_ns = who.now_ns + self._expiry_ns

    def _group_of(self, data: ConsumerData) -> ConsumerGroup:
        group = self._consumers.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.group_name, data.consume_type, data.message_model, data.consume_from_where)
            self._consumers[data.group_name] = group
        else:
            group.consume_type = data.consume_type
            group.message_model = data.message_model
            group.consume_from_where = data.consume_from_where
        return group

    def _subscribe(self, group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Bring the group's subscriptions up to those of one heartbeat; whether the set of topics changed."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        known = group.subscriptions
        changed = wanted.keys() != known.keys()
        for topic in [topic for topic in known if topic not in wanted]:
            self._subscribed_bytes -= _size(known.pop(topic))
        for topic, subscription in wanted.items():
            current = known.get(topic)
            if current is None or subscription.sub_version > current.sub_version:
                growth = _size(subscription) - (0 if current is None else _size(current))
                if growth > 0 and self._subscribed_bytes + growth > CLIENT_SUBSCRIPTIONS_BYTES_MAX:
                    raise Refusal(
                        ResponseCode.SYSTEM_ERROR,
                        f"the subscription of group {group.name!r} to {topic[:127]!r} does not fit: those of all online "
                        f"groups take {self._subscribed_bytes} of {CLIENT_SUBSCRIPTIONS_BYTES_MAX} bytes",
                    )
                self._subscribed_bytes += growth
                known[topic] = subscription
        return changed

    def _leave_producer(self, session: ClientSession, group: str) -> None:
        self._forget(session, group, consumer=False)
        members = self._producers.get(group)
        if members is not None:
            members.pop(session, None)
            if not members:
                del self._producers[group]

    def _leave_consumer(self, session: ClientSession, name: str) -> None:
        self._forget(session, name, consumer=True)
        group = self._consumers.get(name)
        member = None if group is None else group.members.pop(session, None)
        if group is None or member is None:
            return
        self._forget_wishes(group, member)
        if group.members:
            self._compare(group)
            self._tell(group)
        else:
            del self._consumers[name]
            self._subscribed_bytes -= sum(map(_size, group.subscriptions.values()))

    def _forget(self, session: ClientSession, group: str, *, consumer: bool) -> None:
        groups = self._groups_of.get(session)
        if groups is not None:
            groups.discard((group, consumer))
            if not any(not is_consumer for _, is_consumer in groups):
                self._forget_requester(session)
            if not groups:
                del self._groups_of[session]

    def _forget_requester(self, session: ClientSession) -> None:
        client_id = self._requester_ids.pop(session, None)
        if client_id is not None and self.requester(client_id) is session:
            del self._requesters[client_id]

    def _consumer_touched(self, group: ConsumerGroup, who: HeartbeatSender) -> bool:
        """Note a heartbeat; whether the member is new."""
        before = group.members.get(who.session)
        is_new = _touch(group.members, who)
        if is_new and before is not None:
            self._forget_wishes(group, before)
        return is_new

    def _keep_wishes(self, group: ConsumerGroup, member: GroupMember, wishes: Wishes) -> None:
        """Keep what a member wants if there is room. Members whose wishes are not kept are not compared."""
        key = frozenset(wishes.items())
        kept = group.kept.get(key)
        if kept is None:
            if self._wish_count + len(wishes) > CLIENT_WISHES_MAX:
                return
            kept = group.kept[key] = KeptWishes(wishes)
            self._wish_count += len(wishes)
        kept.member_count += 1
        member.wishes = kept.wishes

    def _forget_wishes(self, group: ConsumerGroup, member: GroupMember) -> None:
        wishes, member.wishes = member.wishes, None
        if wishes is None:
            return
        key = frozenset(wishes.items())
        kept = group.kept[key]
        kept.member_count -= 1
        if not kept.member_count:
            del group.kept[key]
            self._wish_count -= len(wishes)

    def _compare(self, group: ConsumerGroup) -> None:
        """Find out what the members differ about, and log it when that is another thing than before."""
        found = disagreements(
            Voice(member.client_id, endpoint(member.session), member.wishes) for member in group.members.values()
        )
        if found != group.disagreements:
            group.disagreements = found
            if found:
                logger.warning("group %s does not agree, the last heartbeat counts: %s", group.name, "; ".join(found))
            else:
                logger.info("group %s agrees again", group.name)

    def _tell(self, group: ConsumerGroup) -> None:
        if not group.is_broadcasting and self._wants_notice(group.name):
            self._notify(
                group.name, [session for session, member in group.members.items() if member.protocol == REMOTING]
            )


def _touch(members: dict[ClientSession, GroupMember], who: HeartbeatSender) -> bool:
    """Note a heartbeat; whether the connection is new in the group."""
    member = members.get(who.session)
    if member is None or member.client_id != who.client_id:
        members[who.session] = who.member()
        return True
    member.user = who.user
    member.seen_ms = who.now_ms
    member.seen_ns = who.now_ns
    return False


def endpoint(session: ClientSession) -> str:
    """The remote address as tools print it."""
    ip, port = session.address
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _size(subscription: SubscriptionData) -> int:
    """Rough memory of a subscription: its texts, each tag as a string of its own, its codes as numbers."""
    tags = sum(64 + len(tag) for tag in subscription.tags_set)
    return 512 + len(subscription.topic) + len(subscription.sub_string or "") + tags + 40 * len(subscription.code_set)
