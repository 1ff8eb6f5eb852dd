"""The keys of one epoch of a scope, and the two epochs that a scope has.

Rules of this file
1. Keys lie in tables and pages of a bounded size, so that neither the growth of an epoch nor its end holds the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.broker.idempotence.owners import ScopeOwner
from orbitmq.broker.idempotence.packed_keys import PACKED_KEY_BYTES, PackedKeys

KEY_BYTES: Final = 160
"""Memory of one key: two numbers of 48 bytes and a place in a table. Measured: 125, and up to 150 when a table just grew."""

TABLE_KEYS: Final = 16_384
"""Keys of an epoch in a table, which grows and goes in less than a millisecond; what comes behind is packed."""


class EpochKeys:
    """The keys of one epoch of the scope of that name: the first ones in a table, the others packed."""

    __slots__ = ("epoch", "first_position", "owner", "packed", "scope", "table")

    def __init__(self, scope: str, epoch: int, owner: ScopeOwner) -> None:
        self.scope = scope
        self.epoch = epoch
        self.owner = owner
        self.table: dict[int, int] = {}
        self.packed: PackedKeys | None = None
        self.first_position = -1
        """Log position of the first key; no other one is lower. -1 before it."""

    @property
    def count(self) -> int:
        return len(self.table) + (0 if self.packed is None else self.packed.count)

    @property
    def used_bytes(self) -> int:
        return len(self.table) * KEY_BYTES + (0 if self.packed is None else self.packed.count * PACKED_KEY_BYTES)

    @property
    def next_bytes(self) -> int:
        """Memory of one key more."""
        return KEY_BYTES if len(self.table) < TABLE_KEYS else PACKED_KEY_BYTES

    def get(self, digest: int) -> int | None:
        found = self.table.get(digest)
        if found is None and self.packed is not None:
            return self.packed.get(digest)
        return found

    def put(self, digest: int, place: int) -> int:
        """How many bytes of memory it takes: none for a key that was here."""
        table = self.table
        size = len(table)
        if size >= TABLE_KEYS and digest not in table:
            packed = self.packed
            if packed is None:
                packed = self.packed = PackedKeys()
            return PACKED_KEY_BYTES if packed.put(digest, place) else 0
        table[digest] = place
        if len(table) == size:
            return 0
        if self.first_position < 0:
            self.first_position = place >> 96
        return KEY_BYTES

    def remove(self, digest: int, place: int) -> int:
        """How many bytes of memory it gives back: none for a key that is not here with that place."""
        if self.table.get(digest) == place:
            del self.table[digest]
            return KEY_BYTES
        return PACKED_KEY_BYTES if self.packed is not None and self.packed.remove(digest, place) else 0

    def items(self) -> Iterator[tuple[int, int]]:
        """Digest and packed place of every key."""
        yield from self.table.items()
        if self.packed is not None:
            yield from self.packed.items()


class Scope:
    __slots__ = ("current", "name", "owner", "previous", "used_ms")

    def __init__(self, name: str, epoch: int, used_ms: int, owner: ScopeOwner) -> None:
        self.name = name
        self.owner = owner
        self.current = EpochKeys(name, epoch, owner)
        self.previous: EpochKeys | None = None
        self.used_ms = used_ms
        """Steady time for a transient scope, wall time for a lasting one."""

    def keys_of(self, epoch: int) -> EpochKeys | None:
        if epoch == self.current.epoch:
            return self.current
        previous = self.previous
        return previous if previous is not None and epoch == previous.epoch else None

    @property
    def key_count(self) -> int:
        return self.current.count + (self.previous.count if self.previous is not None else 0)
