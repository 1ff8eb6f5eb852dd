"""What a user may do, decided from the text of the specification alone: all entries that apply, sorted.

It works on words, as requests carry them, and shares nothing with `orbitmq.access`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple


class Line(NamedTuple):
    """An entry in words."""

    policy: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: str


def rank(line: Line) -> tuple[bool, bool, int, bool]:
    """The smallest decides: a type before *, exact names before prefixes, long before short, Deny before Allow."""
    pattern = line.resource
    return (pattern == "*", pattern.endswith("*"), -len(pattern), line.decision == "Allow")


def may(
    lines: list[Line],
    resource: str,
    actions: tuple[str, ...],
    address: str,
    rank: Callable[[Line], tuple[Any, ...]] = rank,
) -> bool:
    """Whether one of `actions` on `resource`, such as `Topic:orders`, is allowed from `address`."""
    for policy in ("Custom", "Default"):
        applying = [
            line
            for line in lines
            if line.policy == policy
            and is_about(line.resource, resource)
            and ("All" in line.actions or set(line.actions) & set(actions))
            and (not line.sources or any(lies_in(address, source) for source in line.sources))
        ]
        if applying:
            return sorted(applying, key=rank)[0].decision == "Allow"
    return False


def is_about(pattern: str, resource: str) -> bool:
    if pattern.endswith("*"):
        return resource.startswith(pattern[:-1])
    return pattern == resource


def lies_in(address: str, source: str) -> bool:
    caller, network = ipaddress.ip_address(address), ipaddress.ip_network(source, strict=False)
    mapped = getattr(caller, "ipv4_mapped", None)
    return (mapped or caller) in network
