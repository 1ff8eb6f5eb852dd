"""Policies: which entry allows or denies which actions on which resources, as users of RocketMQ 5 write them.

    *                  everything            Topic:orders       this topic
    Topic:*            every topic           Topic:orders_*     topics whose names begin so
    Group:  Cluster:   the same for consumer groups and for the cluster
    Namespace:         kept for RocketMQ; no request needs one

Rules of this file
1. What RocketMQ would refuse, or pass over without a word, is refused here with ValueError; the text says what is wrong with what.
2. An entry names a resource in one way only, so two entries about the same resource are found by comparing.

(RocketMQ broker, auth in 5.x: authorization.)
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from orbitmq.limits.access import (
    ACTIONS_READ_MAX,
    ADDRESSES_READ_MAX,
    ENTRY_ACTIONS_MAX,
    ENTRY_SOURCES_MAX,
    WORD_CHARS_SHOWN,
)
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
    resource = _members(ResourceType).get(type_name.lower())
    if resource is None:
        known = ", ".join(f"{type_.value}:name" for type_ in ResourceType)
        raise ValueError(f"resource {_shown(text)} is none of *, {known}; a name may end in *")
    if not colon or not name:
        raise ValueError(f"resource {_shown(text)} names nothing: {resource.value}:* stands for all")
    if "*" in name[:-1]:
        raise ValueError(f"resource {_shown(text)} has a * that is not at its end")
    if name == "*":
        return ResourcePattern(resource, Match.ALL)
    if name.endswith("*"):
        return ResourcePattern(resource, Match.PREFIX, name[:-1])
    return ResourcePattern(resource, Match.EXACT, name)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(ADDRESSES_READ_MAX)
def read_source(text: str) -> Network:
    """An address, or a network in CIDR notation, whose host bits do not matter. IPv4 in the form of IPv6 is IPv4. ValueError, also for
    a zone (`fe80::1%eth0`): callers have none, and it may be as long as a frame."""
    try:
        if "%" in text:
            raise ValueError
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(f"source {_shown(text)} is neither an address nor a network such as 10.1.0.0/16") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is None or network.prefixlen < 96:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - 96))


_Enum = TypeVar("_Enum", bound=enum.Enum)


def read_word(kind: type[_Enum], what: str, text: str | None, *, is_shown: bool = True) -> _Enum:
    """The member of `kind` that `text` means, in capitals or not; `what` names it in the ValueError, which shows the text if it may."""
    member: _Enum | None = None if text is None else _members(kind).get(text.strip().lower())
    if member is not None:
        return member
    known = ", ".join(member.value for member in kind)
    if not text:
        raise ValueError(f"{what} is missing: one of {known}")
    raise ValueError(f"{what} {_shown(text)} is none of {known}" if is_shown else f"{what} is none of {known}")


def _shown(text: str) -> str:
    """Enough of a text to be found again, in an answer that stays short."""
    return repr(text if len(text) <= WORD_CHARS_SHOWN else f"{text[:WORD_CHARS_SHOWN]}...")


@cache
def _members(kind: type[_Enum]) -> Mapping[str, _Enum]:
    return {member.value.lower(): member for member in kind}


def read_actions(words: Iterable[str]) -> frozenset[Action]:
    """Actions as requests write them. `All` is every one of them. ValueError when there are none."""
    return _actions(tuple(words))


@lru_cache(ACTIONS_READ_MAX)
def _actions(words: tuple[str, ...]) -> frozenset[Action]:
    """The same set for all entries with the same words: a large table has many."""
    actions: frozenset[Action] = frozenset()
    for word in words:
        actions |= ALL_ACTIONS if word.strip().lower() == "all" else {read_word(Action, "action", word)}
    if not actions:
        raise ValueError(f"actions are missing: All, or some of {', '.join(action.value for action in Action)}")
    return actions


def action_words(actions: frozenset[Action]) -> list[str]:
    """Actions as requests write them, in one order."""
    return list(_action_words(actions))


@lru_cache(ACTIONS_READ_MAX)
def _action_words(actions: frozenset[Action]) -> tuple[str, ...]:
    return ("All",) if actions == ALL_ACTIONS else tuple(action.value for action in Action if action in actions)


def read_entry(resource: str, actions: Sequence[str], sources: Sequence[str], decision: str | None) -> Entry:
    """An entry from its words. ValueError says which of them means nothing, or that there are too many."""
    pattern = read_resource(resource)
    if len(actions) > ENTRY_ACTIONS_MAX:
        raise ValueError(f"the entry about {_shown(pattern.text)} has {len(actions)} actions; All stands for every one")
    if len(sources) > ENTRY_SOURCES_MAX:
        raise ValueError(
            f"the entry about {_shown(pattern.text)} has {len(sources)} sources; at most {ENTRY_SOURCES_MAX} are kept: "
            "a network (10.0.0.0/8) stands for many addresses"
        )
    found = tuple(source.strip() for source in sources)
    for source in found:
        read_source(source)
    return Entry(pattern, read_actions(actions), found, read_word(Decision, "decision", decision))
