"""Who may follow without a ticket: slaves of RocketMQ have no name to give, only an address.

    authentication   haPeerAddresses   without a ticket
    off              none              from everywhere, as at a broker of RocketMQ
    off              some              from there
    on               none              from nowhere
    on               some              from there

Rules of this file
1. Whoever has the log has every message, so with authentication on an address has to be named.
2. An address that is none is not named.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.access.policies import Network


def may_follow_unnamed(address: str, peers: Sequence[Network], *, authenticates: bool) -> bool:
    """`address` is that of the connection, without its port."""
    return is_peer(address, peers) if peers else not authenticates


def is_peer(address: str, peers: Sequence[Network]) -> bool:
    """Whether the settings name this address of a slave."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = read.ipv4_mapped if isinstance(read, ipaddress.IPv6Address) else None
    return any((mapped or read) in network for network in peers)
