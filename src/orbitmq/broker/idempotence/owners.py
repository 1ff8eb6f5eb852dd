"""Who takes the memory of idempotent sends, and how much of it one may take: what is left over bounds what each has.

An *owner* is what stands before the first `/` in the name of a scope: the query or the job for Spark's, a scope without one owns itself.

An owner may hold three times as much as is free (dynamic thresholds, Choudhury and Hahne 1998). One alone gets three quarters of all,
two get three sevenths each, and whoever comes new finds room: nobody is refused because others have much.

Scopes are counted otherwise than bytes where names alone make owners: all transient scopes are one *crowd*, so are all lasting ones
without `/`, and each crowd is bounded as one owner is. Else a program with a scope for each of its messages would take them all.

Rules of this file
1. Pure. What is finished costs no owner anything.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.idempotence.identity import TRANSIENT_PREFIX

TIMES_FREE: Final = 3
"""An owner holds at most so many times what nobody holds."""


def crowd_of(scope: str) -> str:
    """Whose scopes are counted together with this one: its owner's, all transient ones, or all lasting ones that have no owner, ``."""
    if scope.startswith(TRANSIENT_PREFIX):
        return TRANSIENT_PREFIX
    owner, slash, _ = scope.partition("/")
    return owner if slash else ""


class ScopeOwner:
    __slots__ = ("name", "scope_count", "used_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.used_bytes = 0
        self.scope_count = 0


class Owners:
    """All owners that have a scope."""

    __slots__ = ("_crowds", "_owners", "scope_count", "used_bytes")

    def __init__(self) -> None:
        self._crowds: dict[str, int] = {}
        """Scopes of each that has one."""
        self._owners: dict[str, ScopeOwner] = {}
        self.used_bytes = 0
        self.scope_count = 0

    def of(self, scope: str) -> ScopeOwner:
        """The owner of a scope of that name; made where there is none, and kept when it `enters`."""
        name = scope.partition("/")[0]
        return self._owners.get(name) or ScopeOwner(name)

    def enters(self, scope: str, scope_bytes: int) -> ScopeOwner:
        """Its owner has one scope more."""
        owner = self.of(scope)
        self._owners[owner.name] = owner
        owner.scope_count += 1
        self.scope_count += 1
        crowd = crowd_of(scope)
        self._crowds[crowd] = self._crowds.get(crowd, 0) + 1
        self.takes(owner, scope_bytes)
        return owner

    def leaves(self, scope: str, owner: ScopeOwner, scope_bytes: int) -> None:
        """It has one less."""
        owner.scope_count -= 1
        self.scope_count -= 1
        crowd = crowd_of(scope)
        self._crowds[crowd] -= 1
        if not self._crowds[crowd]:
            del self._crowds[crowd]
        self.takes(owner, -scope_bytes)
        if not owner.scope_count:
            del self._owners[owner.name]

    def takes(self, owner: ScopeOwner, size_bytes: int) -> None:
        owner.used_bytes += size_bytes
        self.used_bytes += size_bytes

    def has_bytes(self, owner: ScopeOwner, needed_bytes: int, limit_bytes: int) -> bool:
        """Whether the owner may take that much more."""
        free_bytes = limit_bytes - self.used_bytes - needed_bytes
        return needed_bytes <= 0 or owner.used_bytes <= TIMES_FREE * free_bytes

    def fullest(self, limit_bytes: int) -> tuple[str, float]:
        """The owner that is nearest to its bound, and how much it has of what it could have if the others kept what they have, from 0 to
        1; no name where there is none."""
        free_bytes = max(limit_bytes - self.used_bytes, 0)
        shares = (
            (owner.used_bytes * (1 + TIMES_FREE) / (TIMES_FREE * (owner.used_bytes + free_bytes)), owner.name)
            for owner in self._owners.values()
        )
        share, name = max(shares, default=(0.0, ""))
        return name, min(share, 1.0)

    def crowd_count(self, crowd: str) -> int:
        return self._crowds.get(crowd, 0)

    def has_scope(self, crowd: str, limit: int) -> bool:
        """Whether a crowd may have a scope more."""
        free = limit - self.scope_count - 1
        return free >= 0 and self.crowd_count(crowd) <= TIMES_FREE * free
