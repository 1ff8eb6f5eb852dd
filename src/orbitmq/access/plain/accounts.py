"""Accounts: what stands in a file of RocketMQ 4's access control, as values.

    globalWhiteRemoteAddresses: [address patterns]
    accounts:
    - accessKey, secretKey        both of at least 7 characters
      whiteRemoteAddress          an address pattern: from there no signature and no permission is asked
      admin                       true or false
      defaultTopicPerm, defaultGroupPerm    DENY (where nothing stands), PUB, SUB, PUB|SUB
      topicPerms, groupPerms      lists of name=permission
    dataVersion: [{counter, timestamp}]     of the last change by request

Rules of this file
1. What RocketMQ would refuse is refused with ValueError, which names the account and the member, and never shows a secret key.
2. A permission that is none of the words is refused, where RocketMQ takes it for DENY. Members that do not exist are ignored as in
   RocketMQ, with a warning.
3. A file with nothing in it cannot be used: it is more often what a full disk or an editor left of one than somebody's wish that
   nobody be let in.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.access.plain.addresses import AddressPattern, read_address_pattern
from orbitmq.access.users import User, UserType
from orbitmq.limits.plain_access import PLAIN_SECRET_LENGTH_MIN
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from orbitmq.access.plain.yaml_text import Value


class PlainPermission(enum.Flag):
    """What may be done with a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2

    @property
    def text(self) -> str:
        """As RocketMQ writes it."""
        return "|".join(str(part.name) for part in self) or "DENY"


_PERMISSIONS: Final = {
    "DENY": PlainPermission.DENY,
    "PUB": PlainPermission.PUB,
    "SUB": PlainPermission.SUB,
    "PUB|SUB": PlainPermission.PUB | PlainPermission.SUB,
    "SUB|PUB": PlainPermission.PUB | PlainPermission.SUB,
}


class PlainAccount(msgspec.Struct, frozen=True):
    """One account. Permissions by name of topic and group; the defaults count for every other name."""

    access_key: str
    secret_key: str
    white_addresses: AddressPattern
    admin: bool
    default_topic: PlainPermission
    default_group: PlainPermission
    topics: Mapping[str, PlainPermission]
    groups: Mapping[str, PlainPermission]

    def __repr__(self) -> str:
        return f"PlainAccount({self.access_key!r}, admin={self.admin})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [("access_key", self.access_key), ("admin", self.admin)]

    @property
    def user(self) -> User:
        """The account as handlers see callers."""
        return User(self.access_key, self.secret_key, UserType.SUPER if self.admin else UserType.NORMAL)


class FileVersion(NamedTuple):
    """How often requests have changed a file, and when last (ms)."""

    counter: int = 0
    timestamp_ms: int = 0


class PlainFile(NamedTuple):
    """One file. `name` is its full path; `warnings` say what in it has no effect."""

    name: str
    white_addresses: tuple[AddressPattern, ...]
    accounts: tuple[PlainAccount, ...]
    version: FileVersion
    warnings: tuple[str, ...]


_FILE_MEMBERS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_MEMBERS: Final = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)


def read_plain_tree(tree: Value, name: str) -> PlainFile:
    """The file with this content. ValueError, beginning with its name, for one that cannot be used."""
    try:
        if tree is None:
            raise ValueError("the file is empty; one without accounts says accounts: []")
        table = _table(tree, "the file")
        entries = _list(table.get("accounts"), "accounts")
        accounts, warnings = [], _unknown(table, _FILE_MEMBERS, "the file")
        for number, entry in enumerate(entries, 1):
            members = _table(entry, f"account {number}")
            place = f"account {number}"
            if isinstance(key := members.get("accessKey"), str):
                place += f" (accessKey={key[:64]})"
            accounts.append(read_account(members, place))
            warnings += _unknown(members, _ACCOUNT_MEMBERS, place)
        white = _list(table.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
        patterns = tuple(read_address_pattern(_text(pattern, "globalWhiteRemoteAddresses")) for pattern in white)
        return PlainFile(name, patterns, tuple(accounts), read_version(table), tuple(warnings))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_account(members: Mapping[str, Value], place: str) -> PlainAccount:
    """ValueError, beginning with `place`, for an account that cannot be used."""
    try:
        access_key = _text(members.get("accessKey"), "accessKey")
        secret_key = _text(members.get("secretKey"), "secretKey")
        if min(len(access_key), len(secret_key)) < PLAIN_SECRET_LENGTH_MIN:
            raise ValueError(f"accessKey and secretKey need at least {PLAIN_SECRET_LENGTH_MIN} characters each")
        topics = _permissions(members, "topicPerms")
        groups = _permissions(members, "groupPerms")
        for topic in [topic for topic in topics if topic.startswith(RETRY_PREFIX)]:
            groups[topic.removeprefix(RETRY_PREFIX)] = topics.pop(topic)
        return PlainAccount(
            access_key,
            secret_key,
            read_address_pattern(_text(members.get("whiteRemoteAddress"), "whiteRemoteAddress")),
            _boolean(members.get("admin"), "admin"),
            _permission(_text(members.get("defaultTopicPerm"), "defaultTopicPerm") or "DENY", "defaultTopicPerm"),
            _permission(_text(members.get("defaultGroupPerm"), "defaultGroupPerm") or "DENY", "defaultGroupPerm"),
            topics,
            groups,
        )
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def read_version(table: Mapping[str, Value]) -> FileVersion:
    """The version that stands in a file; the first one where none does."""
    versions = _list(table.get("dataVersion"), "dataVersion")
    if not versions:
        return FileVersion()
    members = _table(versions[0], "dataVersion")
    numbers = [members.get("counter", 0), members.get("timestamp", 0)]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("dataVersion: counter and timestamp must be numbers")
    return FileVersion(*(number for number in numbers if isinstance(number, int)))


def _permissions(members: Mapping[str, Value], member: str) -> dict[str, PlainPermission]:
    found = {}
    for number, entry in enumerate(_list(members.get(member), member), 1):
        place = f"{member}, entry {number}"
        name, equals, permission = (part.strip() for part in _text(entry, place).partition("="))
        if not name or not equals:
            raise ValueError(f"{place} must be a name, =, and a permission, as in orders=PUB|SUB")
        found[name] = _permission(permission, place)
    return found


def _permission(text: str, place: str) -> PlainPermission:
    permission = _PERMISSIONS.get(text.strip())
    if permission is None:
        raise ValueError(f"{place}: {text[:64]!r} is none of {', '.join(_PERMISSIONS)}")
    return permission


def _table(value: Value, place: str) -> Mapping[str, Value]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{place} must be a table of names and values")
    return value


def _list(value: Value, place: str) -> list[Value]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{place} must be a list")
    return value


def _text(value: Value, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        raise ValueError(f"{place} must be a single text")
    return str(value)


def _boolean(value: Value, place: str) -> bool:
    text = _text(value, place).lower()
    if text not in ("", "true", "false"):
        raise ValueError(f"{place} must be true or false")
    return text == "true"


def _unknown(table: Mapping[str, Value], known: frozenset[str], place: str) -> list[str]:
    return [f"{place}: {member[:64]!r} has no meaning and is ignored" for member in table if member not in known]
