"""The file of `orbitmq cluster export`: what it holds, and what makes it one.

One JSON object. Each list has a row for each form of a thing, with the brokers that have it in this form, in order: two exports of a
cluster in which nothing changed are the same bytes. A part that was not exported is absent.

Rules of this file
1. Nothing is asked and nothing is changed here. A file is wholly understood, and each row checked, before a server hears of it.
2. A file of a newer version is refused by its version, before anything else of it is looked at. A member that this version does not know
   is an error: what is passed over would be missing without a word.
3. No error quotes a password.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from orbitmq.errors import ConfigurationError, MessageIllegalError, ProtocolError
from orbitmq.limits.cli import CLUSTER_FILE_BYTES_MAX

if TYPE_CHECKING:
    from orbitmq.client.recurring import RecurringMessage
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig

FORMAT: Final = "orbitmq cluster"
VERSION: Final = 1

NOT_CONTAINED: Final = (
    "messages, timer messages and transactions",
    "settings of brokers and name servers (orbitmq broker config get)",
    "passwords of users, unless exported with --passwords by a super user; accounts in files of RocketMQ 4",
    "offsets in retry and dead-letter topics, and of broadcasting groups, whose members keep them",
    "how often recurring messages have run: their counts and intervals begin anew",
    "topics and groups of the system",
)

Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SpanMs = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ClusterPart(StrEnum):
    """What is exported and imported, in the order of an import: each may need those before it."""

    TOPICS = "topics"
    GROUPS = "groups"
    ACCESS = "access"
    OFFSETS = "offsets"
    RECURRING = "recurring"


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing of a cluster."""


class TopicRow(ClusterRow, frozen=True, kw_only=True):
    topic: Name
    read_queues: Count
    write_queues: Count
    perm: Annotated[int, msgspec.Meta(ge=0, le=15)]
    ordered: bool = False
    attributes: dict[str, str] = {}
    brokers: list[Name]

    def config(self) -> TopicConfig:
        from orbitmq.protocol.remoting.bodies import TopicConfig

        return TopicConfig(
            topic_name=self.topic,
            read_queue_nums=self.read_queues,
            write_queue_nums=self.write_queues,
            perm=self.perm,
            order=self.ordered,
            attributes=self.attributes,
        )


class GroupRow(ClusterRow, frozen=True, kw_only=True):
    """settings: by RocketMQ's names, as its own files have them; without the name of the group."""

    group: Name
    settings: dict[str, Any]
    brokers: list[Name]

    def config(self) -> SubscriptionGroupConfig:
        """`ValueError` for settings that do not exist or have no such value."""
        from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

        known = {field.encode_name for field in msgspec.structs.fields(SubscriptionGroupConfig)} - {"groupName"}
        unknown = sorted(set(self.settings) - known)
        if unknown:
            raise ValueError(f"group {self.group!r} has no setting {unknown[0]!r}")
        return SubscriptionGroupConfig.from_value({**self.settings, "groupName": self.group})


class UserRow(ClusterRow, frozen=True, kw_only=True, omit_defaults=True):
    user: Name
    type: Name
    status: Name
    password: str | None = None
    brokers: list[Name]

    def __repr__(self) -> str:
        return f"UserRow({self.user!r})"


class PolicyRow(ClusterRow, frozen=True, kw_only=True, omit_defaults=True):
    """One entry. policy: `Custom` or `Default`."""

    user: Name
    policy: Name
    resource: Name
    actions: list[Name]
    sources: list[Name] = []
    decision: Name
    brokers: list[Name]


class OffsetRow(ClusterRow, frozen=True, kw_only=True):
    """What a group has committed of a topic on one broker, by number of the queue."""

    group: Name
    topic: Name
    broker: Name
    offsets: dict[Count, Number]


class RecurringRow(ClusterRow, frozen=True, kw_only=True, omit_defaults=True):
    """body_encoding: `base64` where the body is no printable text."""

    name: Name
    topic: Name
    body: str
    body_encoding: Name = "utf-8"
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    cron: str | None = None
    every_ms: SpanMs | None = None
    zone: str = "UTC"
    start_ms: int | None = None
    end_ms: int | None = None
    count_max: Number | None = None
    jitter_ms: SpanMs = 0
    overlap: Name = "allow"
    overlap_group: str | None = None
    catch_up: Name = "latest"
    catch_up_max: Number | None = None
    paused: bool = False

    def data(self) -> bytes:
        """The body. `ValueError` when its encoding is unknown or it is not in it."""
        if self.body_encoding == "utf-8":
            return self.body.encode()
        if self.body_encoding != "base64":
            raise ValueError(f"recurring message {self.name!r}: body_encoding is neither utf-8 nor base64")
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error:
            raise ValueError(f"recurring message {self.name!r}: its body is no base64") from None


class ClusterDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file. brokers: the cluster of each broker that was asked. not_contained: for people; an import does not look at it.
    left_out: parts that the brokers did not give, and why."""

    format: str
    version: int
    brokers: dict[Name, Name]
    not_contained: list[str] = []
    left_out: dict[ClusterPart, str] = {}
    topics: list[TopicRow] | None = None
    groups: list[GroupRow] | None = None
    users: list[UserRow] | None = None
    policies: list[PolicyRow] | None = None
    offsets: list[OffsetRow] | None = None
    recurring: list[RecurringRow] | None = None


class _DocumentHead(msgspec.Struct):
    format: str
    version: int


def parts_named(text: str | None) -> tuple[ClusterPart, ...]:
    """The parts in a list with commas, in the order of an import; all of them without one. `ConfigurationError`."""
    if text is None:
        return tuple(ClusterPart)
    words = {word.strip() for word in text.split(",") if word.strip()}
    unknown = sorted(words - set(ClusterPart))
    if unknown or not words:
        raise ConfigurationError(
            f"--only {text!r} names no part of a cluster",
            remedy=f"name some of {','.join(ClusterPart)}, commas between",
        )
    return tuple(part for part in ClusterPart if part in words)


def encode(document: ClusterDocument) -> bytes:
    """The file. `ConfigurationError` when it would be too long to be read again."""
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if len(data) > CLUSTER_FILE_BYTES_MAX:
        raise ConfigurationError(
            f"the file would have {len(data)} bytes, at most CLUSTER_FILE_BYTES_MAX = {CLUSTER_FILE_BYTES_MAX} are read",
            remedy="export parts of it, with --only",
        )
    return data


def decode(data: bytes) -> ClusterDocument:
    """What a file holds, every row checked. `ValueError` says what is wrong with it, and never shows a password."""
    try:
        head = msgspec.json.decode(data, type=_DocumentHead)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is no file of `orbitmq cluster export`") from None
    if head.format != FORMAT:
        raise ValueError("it is no file of `orbitmq cluster export`")
    if head.version != VERSION:
        newer = "a newer orbitmq wrote it" if head.version > VERSION else "there is no such version"
        raise ValueError(f"it has version {head.version}, and this orbitmq reads version {VERSION}: {newer}")
    try:
        document = msgspec.json.decode(data, type=ClusterDocument)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    try:
        _check(document)
    except (ConfigurationError, MessageIllegalError, ProtocolError) as error:
        raise ValueError(str(error)) from None
    return document


def _check(document: ClusterDocument) -> None:
    """Nothing stands there twice, and each row is one that a broker could take."""
    from orbitmq.access.policies import PolicyType, read_entry, read_word
    from orbitmq.access.users import UserStatus, UserType
    from orbitmq.protocol.names import group_name_problem, topic_name_problem

    rows: list[TopicRow | GroupRow | UserRow | PolicyRow]
    rows = [*(document.topics or ()), *(document.groups or ()), *(document.users or ()), *(document.policies or ())]
    named = {broker for row in rows for broker in row.brokers} | {row.broker for row in document.offsets or ()}
    if named - set(document.brokers):
        raise ValueError(f"broker {min(named - set(document.brokers))!r} is not among its brokers")
    for topic in document.topics or ():
        _refuse(topic_name_problem(topic.topic))
    for group in document.groups or ():
        _refuse(group_name_problem(group.group))
        group.config()
    for user in document.users or ():
        read_word(UserType, f"type of user {user.user!r}", user.type, is_shown=False)
        read_word(UserStatus, f"status of user {user.user!r}", user.status, is_shown=False)
    for policy in document.policies or ():
        read_word(PolicyType, f"policy of user {policy.user!r}", policy.policy)
        read_entry(policy.resource, policy.actions, policy.sources, policy.decision)
    for recurring in document.recurring or ():
        _check_recurring(recurring)
    _check_once(document)


def _check_once(document: ClusterDocument) -> None:
    """Nothing stands there twice for a broker. Every row was checked before."""
    from orbitmq.access.policies import PolicyType, read_entry, read_word

    _once("topic", ((row.topic, broker) for row in document.topics or () for broker in row.brokers))
    _once("group", ((row.group, broker) for row in document.groups or () for broker in row.brokers))
    _once("user", ((row.user, broker) for row in document.users or () for broker in row.brokers))
    _once("offsets of group", ((row.group, row.topic, row.broker) for row in document.offsets or ()))
    _once("recurring message", ((row.name,) for row in document.recurring or ()))
    entries: list[tuple[str, ...]] = []
    for policy in document.policies or ():
        kind = read_word(PolicyType, f"policy of user {policy.user!r}", policy.policy)
        entry = read_entry(policy.resource, policy.actions, policy.sources, policy.decision)
        entries += [(policy.user, kind.value, entry.resource.text, broker) for broker in policy.brokers]
    _once("policy of user", entries)


def _check_recurring(row: RecurringRow) -> None:
    from orbitmq.client.message import Message
    from orbitmq.client.recurring import GivenRule, definition

    rule = GivenRule(**rule_of(row))
    definition(
        row.name, row.topic, Message(row.data(), tag=row.tag, key=row.keys or None, properties=row.properties), rule
    )


def rule_of(row: RecurringRow) -> dict[str, Any]:
    """When it is sent, in the words of `Client.recurring.put`."""
    from datetime import timedelta

    return {
        "cron": row.cron,
        "every": None if row.every_ms is None else timedelta(milliseconds=row.every_ms),
        "zone": row.zone,
        "start": row.start_ms,
        "end": row.end_ms,
        "count_max": row.count_max,
        "jitter": timedelta(milliseconds=row.jitter_ms),
        "overlap": row.overlap,
        "overlap_group": row.overlap_group,
        "catch_up": row.catch_up,
        "catch_up_max": row.catch_up_max,
    }


def renamed(document: ClusterDocument, names: Mapping[str, str]) -> ClusterDocument:
    """The document for brokers of other names, by their old ones. Several may become one where they say the same of each thing.
    `ValueError`: they do not, or a broker is not in the document."""
    unknown = sorted(set(names) - set(document.brokers))
    if unknown:
        raise ValueError(f"broker {unknown[0]!r} is not among its brokers: {', '.join(sorted(document.brokers))}")

    def new(broker: str) -> str:
        return names.get(broker, broker)

    changed: dict[str, Any] = {"brokers": {new(broker): cluster for broker, cluster in document.brokers.items()}}
    for part in ("topics", "groups", "users", "policies"):
        rows = getattr(document, part)
        if rows is not None:
            changed[part] = [
                msgspec.structs.replace(row, brokers=list(dict.fromkeys(map(new, row.brokers)))) for row in rows
            ]
    if document.offsets is not None:
        changed["offsets"] = [msgspec.structs.replace(row, broker=new(row.broker)) for row in document.offsets]
    result = msgspec.structs.replace(document, **changed)
    _check_once(result)
    return result


def recurring_row(recurring: RecurringMessage) -> RecurringRow:
    """A recurring message as a row; what it has done so far is not part of it."""
    from orbitmq.cli.shared.message_view import body_text

    text, encoding = body_text(recurring.body)
    return RecurringRow(
        name=recurring.name,
        topic=recurring.topic,
        body=text,
        body_encoding=encoding,
        tag=recurring.tag,
        keys=list(recurring.keys),
        properties=dict(sorted(recurring.properties.items())),
        cron=recurring.cron,
        every_ms=recurring.every_ms,
        zone=recurring.zone,
        start_ms=recurring.start_ms,
        end_ms=recurring.end_ms,
        count_max=recurring.count_max,
        jitter_ms=recurring.jitter_ms,
        overlap=recurring.overlap.value,
        overlap_group=recurring.overlap_group,
        catch_up=recurring.catch_up.value,
        catch_up_max=recurring.catch_up_max,
        paused=recurring.paused,
    )


def _once(what: str, found: Iterable[Sequence[str]]) -> None:
    seen = set()
    for names in found:
        if tuple(names) in seen:
            raise ValueError(f"{what} {names[0]!r} stands there twice for {', '.join(names[1:]) or 'the cluster'}")
        seen.add(tuple(names))


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise ValueError(problem)
