"""Policies: which entry allows or denies which actions on which resources, as users of RocketMQ 5 write them.

    *                  everything            Topic:orders       this topic
    Topic:*            every topic           Topic:orders_*     topics whose names begin so
    Group:  Cluster:   the same for consumer groups and for the cluster

Rules of this file
1. What RocketMQ would refuse, or keep and never apply, is refused here with ValueError; the text says what is wrong with what.
2. An entry names a resource in one way only, so two entries about the same resource are found by comparing.

(RocketMQ broker, auth in 5.x: authorization.)
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from orbitmq.protocol.remoting.requests import Action, ResourceType


class PolicyType(enum.Enum):
    """Entries of DEFAULT count where no CUSTOM one says anything."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(enum.Enum):
    ALLOW = "Allow"
    DENY = "Deny"


class Match(enum.Enum):
    """How a pattern's name is compared, from the most to the least specific."""

    EXACT = 0
    PREFIX = 1
    ALL = 2


ALL_ACTIONS = frozenset(Action)


class ResourcePattern(NamedTuple):
    """`type` None: resources of every type. `name` is empty where all names match."""

    type: ResourceType | None
    match: Match
    name: str = ""

    @property
    def text(self) -> str:
        """As it is written in requests and shown to people."""
        if self.type is None:
            return "*"
        return f"{self.type.value}:{self.name}{'' if self.match is Match.EXACT else '*'}"


class Entry(NamedTuple):
    """One entry of a policy. `sources` are addresses and networks (CIDR); empty: from everywhere."""

    resource: ResourcePattern
    actions: frozenset[Action]
    sources: tuple[str, ...]
    decision: Decision


class Acl(NamedTuple):
    """All entries of one user. At most one entry about each resource stands in each of the two."""

    user: str
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()


def read_resource(text: str) -> ResourcePattern:
    """A resource as requests write it. ValueError for a type that does not exist and for a name that is missing."""
    if text == "*":
        return ResourcePattern(None, Match.ALL)
    type_name, colon, name = text.partition(":")
    try:
        resource = next(type_ for type_ in ResourceType if type_.value.lower() == type_name.lower())
    except StopIteration:
        known = ", ".join(f"{type_.value}:name" for type_ in ResourceType)
        raise ValueError(f"resource {text!r} is none of *, {known}; a name may end in *") from None
    if not colon or not name:
        raise ValueError(f"resource {text!r} names nothing: {resource.value}:* stands for all")
    if "*" in name[:-1]:
        raise ValueError(f"resource {text!r} has a * that is not at its end")
    if name == "*":
        return ResourcePattern(resource, Match.ALL)
    if name.endswith("*"):
        return ResourcePattern(resource, Match.PREFIX, name[:-1])
    return ResourcePattern(resource, Match.EXACT, name)
