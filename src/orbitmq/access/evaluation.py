"""Evaluation: whether the policies of one user allow what a request needs.

    Custom before Default         Default entries count where no Custom entry applies
    typed before *                Topic:* before *
    exact, prefix, all            Topic:orders before Topic:ord* before Topic:o* before Topic:*
    Deny before Allow             between entries about the same resource

Rules of this file
1. An entry applies where its resource, at least one of its actions and, if it has any, one of its sources fit. The most specific one
   decides; where none applies, nothing is allowed.
2. A need for all resources of a type (`Needed.name` is None) is met by `Topic:*` and `*` only, and not where a Deny about some of them
   applies.
3. An address that is none fits every Deny with sources and no Allow with sources.

(RocketMQ broker, auth in 5.x: authorization. Its releases up to 5.3.3 let Allow win between entries about the same resource.)
"""

from __future__ import annotations

import bisect
import functools
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orbitmq.access.needed import Needed
from orbitmq.access.policies import Acl, Decision, Entry, Match, PolicyType, read_source
from orbitmq.limits.access import ADDRESSES_READ_MAX
from orbitmq.protocol.remoting.requests import ResourceType


class PolicyJudgement(NamedTuple):
    """`entry` of `policy` has decided; both are None where no entry applies."""

    is_allowed: bool
    entry: Entry | None
    policy: PolicyType | None


class _Rule(NamedTuple):
    """An entry made ready. `sources`: IP version, first and last address of each; empty: from everywhere."""

    entry: Entry
    sources: tuple[tuple[int, int, int], ...]


class _TypeRules:
    """Rules of one policy for resources of one type."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        by_match: dict[Match, dict[str, list[_Rule]]] = {match: defaultdict(list) for match in Match}
        self._narrow_denials: list[_Rule] = []
        for rule in sorted(rules, key=_order):
            if rule.entry.resource.match is not Match.ALL and rule.entry.decision is Decision.DENY:
                self._narrow_denials.append(rule)
            by_match[rule.entry.resource.match][rule.entry.resource.name].append(rule)
        self._exact = dict(by_match[Match.EXACT])
        self._prefixed = dict(by_match[Match.PREFIX])
        self._rest = by_match[Match.ALL][""]
        self._sorted = sorted(self._prefixed)
        self._shorter = _shorter(self._sorted)

    def about(self, name: str | None) -> Iterator[list[_Rule]]:
        """Rules whose resource fits, the most specific first."""
        if name is None:
            yield self._narrow_denials
        else:
            if name in self._exact:
                yield self._exact[name]
            before = bisect.bisect_right(self._sorted, name)
            # Every prefix of the name is the one that sorts before it, or a prefix of that.
            prefix = self._sorted[before - 1] if before else None
            while prefix is not None:
                if name.startswith(prefix):
                    yield self._prefixed[prefix]
                prefix = self._shorter[prefix]
        yield self._rest


def _order(rule: _Rule) -> tuple[bool, bool]:
    """A type before *, Deny before Allow."""
    return rule.entry.resource.type is None, rule.entry.decision is Decision.ALLOW


def _shorter(prefixes: Iterable[str]) -> dict[str, str | None]:
    """For each of these, which are sorted, the longest other one that it begins with."""
    shorter: dict[str, str | None] = {}
    begun: list[str] = []
    for prefix in prefixes:
        while begun and not prefix.startswith(begun[-1]):
            begun.pop()
        shorter[prefix] = begun[-1] if begun else None
        begun.append(prefix)
    return shorter


class Permissions:
    """The entries of one user, made ready for asking: some look-ups and the prefixes that fit, whatever the number of entries.

    Making it costs some microseconds per entry.
    """

    def __init__(self, acl: Acl) -> None:
        self._policies = [
            (policy, _by_type([_rule(entry) for entry in entries]))
            for policy, entries in ((PolicyType.CUSTOM, acl.custom), (PolicyType.DEFAULT, acl.default))
            if entries
        ]

    def judge(self, needed: Needed, address: str) -> PolicyJudgement:
        """What decides about `needed` for a caller at this IP address."""
        for policy, types in self._policies:
            for rules in types[needed.resource].about(needed.name):
                for rule in rules:
                    entry = rule.entry
                    if not entry.actions.isdisjoint(needed.actions) and (not rule.sources or _fits(rule, address)):
                        return PolicyJudgement(entry.decision is Decision.ALLOW, entry, policy)
        return _NOTHING


_NOTHING = PolicyJudgement(False, None, None)


def _fits(rule: _Rule, address: str) -> bool:
    number = _number(address)
    if number is None:
        return rule.entry.decision is Decision.DENY
    version, value = number
    return any(of == version and first <= value <= last for of, first, last in rule.sources)


def _by_type(rules: list[_Rule]) -> dict[ResourceType, _TypeRules]:
    return {
        type_: _TypeRules(rule for rule in rules if rule.entry.resource.type in (None, type_)) for type_ in ResourceType
    }


def _rule(entry: Entry) -> _Rule:
    return _Rule(entry, tuple(_bounds(source) for source in entry.sources))


def _bounds(source: str) -> tuple[int, int, int]:
    network = read_source(source)
    return network.version, int(network.network_address), int(network.broadcast_address)


@functools.lru_cache(ADDRESSES_READ_MAX)
def _number(address: str) -> tuple[int, int] | None:
    """IP version and value of an address; IPv4 in the form of IPv6 is IPv4. None for what is no address."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(read, ipaddress.IPv6Address) and read.ipv4_mapped is not None:
        read = read.ipv4_mapped
    return read.version, int(read)
