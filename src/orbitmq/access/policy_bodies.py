"""Users and policies in the bodies of requests 3001-3010: from words to values and back.

Rules of this file
1. What RocketMQ would pass over without a word (an action or a type that does not exist) is refused with ValueError, so that nobody
   believes in a policy that does nothing. So are two entries about one resource, of which RocketMQ sometimes keeps both and sometimes
   the second.
2. No text says anything about a password.

(RocketMQ remoting, user and policy administration.)
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.access.policies import Acl, Entry, PolicyType, ResourcePattern, action_words, read_entry, read_word
from orbitmq.access.users import User, UserStatus, UserType, subject_text
from orbitmq.errors import ProtocolError
from orbitmq.limits.access import POLICY_ENTRIES_PER_USER_MAX
from orbitmq.protocol.remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.protocol.remoting.frame import Buffer

_USER = "User"


class UserChange(NamedTuple):
    """What a request says about a user. None: nothing, so a new user gets the default and an old one keeps what it has."""

    password: str | None
    type: UserType | None
    status: UserStatus | None

    def __repr__(self) -> str:
        return f"UserChange({self.type}, {self.status})"


def read_user(body: Buffer) -> UserChange:
    """The body of requests 3001 and 3002. The name stands in the header."""
    try:
        info = UserInfo.decode(body)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    return UserChange(
        info.password or None,
        # Not shown: whoever takes one member for another has written a password there.
        read_word(UserType, "user type", info.user_type, is_shown=False) if info.user_type else None,
        read_word(UserStatus, "user status", info.user_status, is_shown=False) if info.user_status else None,
    )


def user_info(user: User, *, tell_password: bool) -> UserInfo:
    """A user as answers carry it."""
    return UserInfo(user.name, user.password if tell_password else None, user.type.value, user.status.value)


def read_subject(text: str) -> str:
    """The user that a subject such as `User:alice` names."""
    kind, _, name = text.partition(":")
    if kind.lower() != _USER.lower() or not name.strip():
        raise ValueError(f"subject {text!r} is no user: write {_USER}:name")
    return name


def read_acl(body: Buffer, user: str) -> Acl:
    """The body of requests 3006 and 3007: what they say about the policies of `user`, whom the header names."""
    try:
        return read_policies(AclInfo.decode(body), user)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def read_policies(info: AclInfo, user: str) -> Acl:
    """The entries in a body, in its order. At least one; an entry without a policy type is of CUSTOM."""
    count = sum(len(policy.entries) for policy in info.policies)
    if count > POLICY_ENTRIES_PER_USER_MAX:  # reading those of a whole frame takes seconds
        raise ValueError(
            f"there are {count} entries, and a user has at most {POLICY_ENTRIES_PER_USER_MAX}: "
            "one about names with a common beginning (Topic:orders*) replaces many"
        )
    found: dict[PolicyType, dict[ResourcePattern, Entry]] = {policy: {} for policy in PolicyType}
    for policy in info.policies:
        type_ = read_word(PolicyType, "policy type", policy.policy_type) if policy.policy_type else PolicyType.CUSTOM
        for words in policy.entries:
            entry = read_entry(words.resource or "", words.actions, words.source_ips or (), words.decision)
            if found[type_].setdefault(entry.resource, entry) is not entry:
                raise ValueError(f"there are two {type_.value} entries about {entry.resource.text}: write one")
    if not any(found.values()):
        raise ValueError("there is no entry in these policies")
    return Acl(user, tuple(found[PolicyType.CUSTOM].values()), tuple(found[PolicyType.DEFAULT].values()))


def acl_info(acl: Acl) -> AclInfo:
    """Policies as answers carry them."""
    return AclInfo(
        subject_text(acl.user),
        [
            PolicyInfo(policy.value, [entry_info(entry) for entry in entries])
            for policy, entries in ((PolicyType.CUSTOM, acl.custom), (PolicyType.DEFAULT, acl.default))
            if entries
        ],
    )


def entry_info(entry: Entry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        entry.resource.text, action_words(entry.actions), list(entry.sources) or None, entry.decision.value
    )


def entry_text(entry: Entry) -> str:
    """An entry for people, such as `Allow Pub,Sub on Topic:orders from 10.0.0.0/8`."""
    sources = f" from {', '.join(entry.sources)}" if entry.sources else ""
    return f"{entry.decision.value} {','.join(action_words(entry.actions))} on {entry.resource.text}{sources}"
