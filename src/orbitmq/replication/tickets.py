"""Tickets of slaves: the frames of replication carry no names, so a slave says on another way who it is, and gets a secret to present.

The request for a ticket comes over the main port, signed like every other; the ticket is the first thing that the slave sends on the port
of replication (`orbitmq.protocol.replication.opening`).

Rules of this file
1. A ticket is good once and for a while. Of one slave only the last one is good.
2. A ticket is for a slave of this group, with an id that no master has, and with a store that is not ours. An id belongs to the store that
   came with it first, until an operator forgets it: another store under a known id would make a copy that never was one.
3. What is kept is a hash of the secret: who looks into this memory cannot connect with what is found there.
4. No randomness and no clock here: the secret is passed in, and so is monotonic time.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from orbitmq.limits.replication import COPIES_MAX, SLAVE_NAME_CHARS_MAX, TICKET_BYTES, TICKET_MS, TICKETS_MAX
from orbitmq.units import NS_PER_MS


class TicketRefusal(enum.Enum):
    """Why no ticket is issued, or why one is not good. The value is for people."""

    OTHER_GROUP = "the slave belongs to another group"
    BAD_ID = "a slave has an id from 1"
    BAD_NAME = "the name of the group or of the store is missing or too long"
    OWN_STORE = "the slave has the store of its master: a copied directory keeps its identity, so remove it there"
    OTHER_STORE = (
        "another store had this id; give the slave another one, or remove the old one with orbitmq replica remove"
    )
    TOO_MANY = "too many slaves, or tickets that were not used; orbitmq replica remove forgets a slave that is gone"
    UNKNOWN = "no such ticket, or it was used"
    EXPIRED = "the ticket is too old"


class TicketBearer(NamedTuple):
    """Who a slave is: `store` is the identity of its directory, `address` its main port, `is_damaged` whether its log lacks something."""

    group: str
    slave_id: int
    store: str
    address: str = ""
    is_damaged: bool = False


class _Issued(msgspec.Struct, frozen=True):
    bearer: TicketBearer
    ends_ns: int


class Tickets:
    """Those of one master, and the stores that its slaves' ids belong to."""

    __slots__ = ("_group", "_issued", "_store", "_stores")

    def __init__(self, group: str, store: str, known_stores: Mapping[int, str] | None = None) -> None:
        """`store` is our own. `known_stores` by id, as `stores` was when it was saved."""
        self._group = group
        self._store = store
        self._stores = dict(known_stores or {})
        self._issued: dict[bytes, _Issued] = {}

    @property
    def stores(self) -> Mapping[int, str]:
        """The store that each id belongs to; to be saved."""
        return dict(self._stores)

    def forget(self, slave_id: int) -> bool:
        """The next store that comes with this id has it. False: the id was not known."""
        self._drop(slave_id)
        return self._stores.pop(slave_id, None) is not None

    def issue(self, bearer: TicketBearer, secret: bytes, now_ns: int) -> TicketRefusal | None:
        """Makes `secret` a ticket, which the bearer is to be told; or says why not."""
        if len(secret) != TICKET_BYTES:
            raise ValueError(f"a ticket has {TICKET_BYTES} bytes, not {len(secret)}")
        refusal = self.refusal(bearer)
        if refusal is not None:
            return refusal
        self._drop(bearer.slave_id)
        if len(self._issued) >= TICKETS_MAX:
            self._issued = {digest: one for digest, one in self._issued.items() if one.ends_ns > now_ns}
            if len(self._issued) >= TICKETS_MAX:
                return TicketRefusal.TOO_MANY
        self._stores[bearer.slave_id] = bearer.store
        self._issued[_digest(secret)] = _Issued(bearer, now_ns + TICKET_MS * NS_PER_MS)
        return None

    def redeem(self, secret: bytes, now_ns: int) -> TicketBearer | TicketRefusal:
        """Who presents a ticket; it is not good a second time."""
        issued = self._issued.pop(_digest(secret), None)
        if issued is None:
            return TicketRefusal.UNKNOWN
        return issued.bearer if now_ns < issued.ends_ns else TicketRefusal.EXPIRED

    def refusal(self, bearer: TicketBearer) -> TicketRefusal | None:
        """Why this one would get no ticket, whoever has one."""
        if not all(0 < len(name) <= SLAVE_NAME_CHARS_MAX for name in (bearer.group, bearer.store)):
            return TicketRefusal.BAD_NAME
        if len(bearer.address) > SLAVE_NAME_CHARS_MAX:
            return TicketRefusal.BAD_NAME
        if bearer.group != self._group:
            return TicketRefusal.OTHER_GROUP
        if bearer.slave_id < 1:
            return TicketRefusal.BAD_ID
        if bearer.store == self._store:
            return TicketRefusal.OWN_STORE
        if self._stores.get(bearer.slave_id, bearer.store) != bearer.store:
            return TicketRefusal.OTHER_STORE
        if bearer.slave_id not in self._stores and len(self._stores) >= COPIES_MAX:
            return TicketRefusal.TOO_MANY
        return None

    def _drop(self, slave_id: int) -> None:
        self._issued = {digest: one for digest, one in self._issued.items() if one.bearer.slave_id != slave_id}


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
