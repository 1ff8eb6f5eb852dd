"""Slaves that do not follow now: where each was when it was last heard, and why it is away.

Rules of this file
1. Only slaves with an id are remembered: others come from another port each time.
2. What a slave says of its store when it asks to follow is the reason until it asks without it: its connections end over and over for that.
3. One that is refused changes the reason and nothing else: it may be somebody else who uses the id.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import msgspec

from orbitmq.limits.replication import COPIES_MAX


class AwaySlave(msgspec.Struct):
    address: str
    """Where it serves clients; empty where it did not say so."""
    position: int
    """Up to where it had the log."""
    heard_ns: int
    """Monotonic time at which it last asked, or its connection ended."""
    trouble: str = ""
    """What it said of its store."""
    ended: str = ""
    """Why its last connection ended, or it was refused."""

    @property
    def why(self) -> str:
        return (
            f"trouble with its store: {self.trouble}"
            if self.trouble
            else self.ended or "it asked to follow, and has not come"
        )


class AwaySlaves:
    """Of one broker, for as often as it leads. At most COPIES_MAX, the ones heard last; a slave that follows may be among them."""

    def __init__(self) -> None:
        self._by_slave: dict[str, AwaySlave] = {}

    def asked(self, slave: str, address: str, position: int, trouble: str, now_ns: int) -> bool:
        """It may follow. Whether its trouble is news."""
        before = self._by_slave.get(slave)
        self._note(slave, AwaySlave(address, position, now_ns, trouble, before.ended if before else ""))
        return bool(trouble) and (before is None or before.trouble != trouble)

    def refused(self, slave: str, why: str, now_ns: int) -> None:
        """Somebody with this id may not follow. Nothing happens where none has followed with it."""
        if (known := self._by_slave.get(slave)) is not None:
            known.ended, known.heard_ns = f"refused: {why}", now_ns

    def gone(self, slave: str, address: str, position: int | None, why: str, now_ns: int) -> None:
        """The connection of a slave has ended, which had the log up to `position`; None where it has not said so."""
        before = self._by_slave.get(slave)
        if position is None:
            position = 0 if before is None else before.position
        self._note(slave, AwaySlave(address, position, now_ns, self.trouble_of(slave), why))

    def _note(self, slave: str, one: AwaySlave) -> None:
        self._by_slave.pop(slave, None)
        self._by_slave[slave] = one
        if len(self._by_slave) > COPIES_MAX:
            del self._by_slave[next(iter(self._by_slave))]

    def forget(self, slave: str) -> bool:
        """Whether it was among them."""
        return self._by_slave.pop(slave, None) is not None

    def trouble_of(self, slave: str) -> str:
        """What it last said of its store; empty where all was well."""
        known = self._by_slave.get(slave)
        return "" if known is None else known.trouble

    def besides(self, following: Container[str]) -> Iterator[tuple[str, AwaySlave]]:
        """Those that do not follow, by their ids."""
        return ((slave, one) for slave, one in self._by_slave.items() if slave not in following)
