"""Accounts of RocketMQ 4 as users and policies of RocketMQ 5, as its own migration makes them.

    admin                            a super user, which has no need of the entries that are made for it
    topicPerms, groupPerms           Custom entries, DENY as Deny All
    defaultTopicPerm, -GroupPerm     Default entries about Topic:* and Group:*; none for DENY, since what no entry allows is denied

An address from which an account needs no signature (`whiteRemoteAddress`, `globalWhiteRemoteAddresses`) has no counterpart.

(RocketMQ broker: ACL in 4.x, auth in 5.x.)
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.access.plain.accounts import PlainAccount, PlainPermission
from orbitmq.access.policies import ALL_ACTIONS, Acl, Decision, Entry, Match, ResourcePattern
from orbitmq.access.users import User
from orbitmq.protocol.remoting.requests import Action, ResourceType


def moved_over(account: PlainAccount) -> tuple[User, Acl]:
    """The user of an account, and its policies, which may be empty."""
    custom = [
        *_entries(ResourceType.TOPIC, account.topics),
        *_entries(ResourceType.GROUP, account.groups),
    ]
    default = [
        _entry(ResourcePattern(type_, Match.ALL), permission)
        for type_, permission in (
            (ResourceType.TOPIC, account.default_topic),
            (ResourceType.GROUP, account.default_group),
        )
        if permission
    ]
    return account.user, Acl(account.access_key, tuple(custom), tuple(default))


def _entries(type_: ResourceType, permissions: Mapping[str, PlainPermission]) -> list[Entry]:
    return [_entry(ResourcePattern(type_, Match.EXACT, name), permission) for name, permission in permissions.items()]


def _entry(pattern: ResourcePattern, permission: PlainPermission) -> Entry:
    if not permission:
        return Entry(pattern, ALL_ACTIONS, (), Decision.DENY)
    named = {PlainPermission.PUB: Action.PUB, PlainPermission.SUB: Action.SUB}
    return Entry(pattern, frozenset(named[part] for part in permission), (), Decision.ALLOW)
