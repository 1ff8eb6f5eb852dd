"""Accounts of RocketMQ 4 as users and policies of RocketMQ 5, as its own migration makes them, but that nobody may more than before.

    admin                            a super user, which has no need of the entries that are made for it
    topicPerms, groupPerms           Custom entries, DENY as Deny All
    defaultTopicPerm, -GroupPerm     Default entries about Topic:* and Group:*; none for DENY, since what no entry allows is denied
    a name with less than those      a Default entry besides, which denies: what an account may do with a name stands instead of its
                                     default, an entry about a name only before it
    a name with a *                  left out: it was the name of nothing, and would be the beginning of many

An address from which an account needs no signature (`whiteRemoteAddress`, `globalWhiteRemoteAddresses`) has no counterpart.

(RocketMQ broker: ACL in 4.x, auth in 5.x.)
"""

from __future__ import annotations

from orbitmq.access.plain.accounts import PlainAccount, PlainPermission
from orbitmq.access.policies import ALL_ACTIONS, Acl, Decision, Entry, Match, ResourcePattern
from orbitmq.access.users import User
from orbitmq.protocol.remoting.requests import Action, ResourceType


def moved_over(account: PlainAccount) -> tuple[User, Acl]:
    """The user of an account, and its policies, which may be empty."""
    custom: list[Entry] = []
    default: list[Entry] = []
    for type_, permissions, others in (
        (ResourceType.TOPIC, account.topics, account.default_topic),
        (ResourceType.GROUP, account.groups, account.default_group),
    ):
        named = [(_pattern(type_, name), permission) for name, permission in permissions.items() if "*" not in name]
        custom += [_entry(pattern, permission) for pattern, permission in named]
        default += [
            _entry(pattern, PlainPermission.DENY)
            for pattern, permission in named
            if permission and others & ~permission
        ]
        if others:
            default.append(_entry(ResourcePattern(type_, Match.ALL), others))
    return account.user, Acl(account.access_key, tuple(custom), tuple(default))


def _pattern(type_: ResourceType, name: str) -> ResourcePattern:
    return ResourcePattern(type_, Match.EXACT, name)


def _entry(pattern: ResourcePattern, permission: PlainPermission) -> Entry:
    if not permission:
        return Entry(pattern, ALL_ACTIONS, (), Decision.DENY)
    named = {PlainPermission.PUB: Action.PUB, PlainPermission.SUB: Action.SUB}
    return Entry(pattern, frozenset(named[part] for part in permission), (), Decision.ALLOW)
