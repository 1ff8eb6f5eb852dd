"""What `orbitmq cluster restart` sees of a cluster: each broker as it says itself, and as name servers tell of it.

Rules of this file
1. Nothing is changed and nothing decided here.
2. What cannot be asked counts as not seen: a broker that restarts is away for a while, and so is a name server beside it.
3. Brokers that do not tell who sends are judged by their count of stored messages, which more than sends may raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.cli.restarting.one_by_one import ClusterMember, Seen
from orbitmq.limits.cli import RESTART_NAMED_MAX

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import AtNameServer

_WELL: Final = frozenset({"counted", "in sync"})
"""States of copies that have what their master has."""


class ClusterWatch:
    """Looks at the members of a cluster."""

    def __init__(self, client: Client, members: Sequence[ClusterMember]) -> None:
        self._client = client
        self._members = members
        self._puts: dict[str, tuple[str, int]] = {}
        """By address how many messages a broker that does not tell its senders had stored, and since when it is that many."""

    async def look(self) -> dict[str, Seen]:
        import asyncio

        names = sorted({member.name for member in self._members})
        told = await asyncio.gather(*(self._client.admin.broker_at_name_servers(name) for name in names))
        at = dict(zip(names, told, strict=True))
        seen = await asyncio.gather(*(self._look_at(member, at[member.name]) for member in self._members))
        return {member.address: one for member, one in zip(self._members, seen, strict=True)}

    async def _look_at(self, member: ClusterMember, at: Mapping[str, AtNameServer | None]) -> Seen:
        from orbitmq.cli.replicas.replicas import told_by
        from orbitmq.errors import ClientError, ProtocolError, RemoteError

        seen = Seen(
            is_master=any(one is not None and one.broker_ids.get(member.address) == 0 for one in at.values()),
            unknown_at=tuple(name for name, one in at.items() if one is None or member.address not in one.broker_ids),
            is_writable=any(one is not None and one.is_writable for one in at.values()),
        )
        copies: Mapping[str, object] = {}
        try:
            facts = await self._client.admin.broker_runtime(member.address)
            with contextlib.suppress(RemoteError):  # RocketMQ's brokers before 5.0 do not know the question
                copies = told_by(await self._client.admin.broker_ha_status(member.address), facts)
        except (ClientError, ProtocolError):
            return seen
        ago_ms, senders = self._last_send(member.address, facts)
        return seen._replace(
            started_ms=_number(facts.get("bootTimestamp")) or 0,
            troubles=tuple(troubles_of(copies)),
            sent_ago_ms=ago_ms,
            senders=senders,
            is_member="orbitmqReplicaMember" in facts,
        )

    def _last_send(self, address: str, facts: Mapping[str, str]) -> tuple[int | None, str]:
        ago = _number(facts.get("orbitmqLastSendAgoMillis"))
        if ago is not None:
            return (None if ago < 0 else ago), senders_of(facts)
        now_ms, count = monotonic_ms(), facts.get("msgPutTotalTodayNow", "")
        before, since_ms = self._puts.get(address, ("", now_ms))
        if before != count:
            since_ms = now_ms
        self._puts[address] = count, since_ms
        return now_ms - since_ms, "its count of stored messages grows, and it does not tell who sends"


def troubles_of(copies: Mapping[str, object]) -> list[str]:
    """Why a broker, as `replicas.told_by` shows it, or one of its copies is not well."""
    texts = [str(copies["trouble"])] if copies.get("trouble") else []
    if copies.get("connected") is False:
        texts.append("it does not follow its master")
    slaves = copies.get("slaves")
    for slave in slaves if isinstance(slaves, list) else []:
        if slave["state"] not in _WELL:
            texts.append(f"slave {slave['main_address'] or slave['slave']} is {slave['state']}")
    return texts


def senders_of(facts: Mapping[str, str]) -> str:
    """Who sent last, in words: how many in the last minute, and the ones that sent last."""
    import msgspec

    count = facts.get("orbitmqSendersOfLastMinute", "0")
    named = msgspec.json.decode(facts.get("orbitmqLastSenders", "[]"))[:RESTART_NAMED_MAX]
    texts = [f"{one['address']} {one['agoMillis'] / 1000:.1f} s ago" for one in named]
    return f"{count} connections sent in the last minute, last {', '.join(texts) or 'unknown'}"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def monotonic_ms() -> int:
    from orbitmq.clock import SystemClock

    return SystemClock().monotonic_ns() // 1_000_000
