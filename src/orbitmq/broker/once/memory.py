"""What was sent: the keys of each scope's current and previous epoch, and where the first send of each went.

Rules of this file
1. Pure: no clock, no file. Two times come in: `wall_ms` ages lasting scopes, `steady_ms` (it never jumps) the transient ones.
2. The first send wins. A later record with the same key changes nothing.
3. Only two epochs of a scope exist: the highest that was seen, and the one that was highest before. Any other lower one is
   stale, also one that was never seen: it has no keys to compare with. In a transient scope it is no repeat instead: its
   producer has promised not to repeat it, so it comes from a program that copies the properties of what it received.
4. A transient scope may be forgotten after `ONCE_TRANSIENT_IDLE_MS` without a send, a lasting one after the time that is
   set for it; nothing else forgets a key but a later epoch, or the word of its sender that the epoch is finished. When there is
   no room, the send is refused.
5. Keys lie in tables of a bounded size, so that neither the growth of a table nor its end holds the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.broker.once.identity import TRANSIENT_PREFIX, Once
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.broker import (
    ONCE_FINISHED_IDLE_MS,
    ONCE_KEYS_PER_EPOCH_MAX,
    ONCE_MEMORY_BYTES_MAX,
    ONCE_SCOPES_MAX,
    ONCE_TRANSIENT_IDLE_MS,
)
from orbitmq.protocol.remoting.commands import ResponseCode

KEY_BYTES: Final = 160
"""Memory of one key: two numbers of 48 bytes and a place in a table. Measured: 125, and up to 150 when a table just grew."""

SCOPE_BYTES: Final = 1_536
"""Memory of one scope without its keys: its name, its two epochs and a small table each. Measured: 985 and the name."""

TABLE_KEYS: Final = 16_384
"""Keys of one table: it grows and goes in less than a millisecond."""

TABLES: Final = 64
"""Further tables of a large epoch; `ONCE_KEYS_PER_EPOCH_MAX` keys fill them about as far as the first."""

TOUCH_MS: Final = 1_000
"""How exactly the last use of a scope is known."""

EXPIRED_AT_ONCE_MAX: Final = 16
"""Scopes forgotten in one step."""


class OnceBounds(msgspec.Struct, frozen=True, kw_only=True):
    scopes: int = ONCE_SCOPES_MAX
    keys_per_epoch: int = ONCE_KEYS_PER_EPOCH_MAX
    memory_bytes: int = ONCE_MEMORY_BYTES_MAX
    transient_idle_ms: int = ONCE_TRANSIENT_IDLE_MS
    lasting_idle_ms: int = 72 * 3_600_000
    finished_idle_ms: int = ONCE_FINISHED_IDLE_MS


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a send went, as its sender was told."""

    physical_offset: int
    queue_offset: int
    queue_id: int

    def packed(self) -> int:
        return pack(self.physical_offset, self.queue_offset, self.queue_id)


def pack(physical_offset: int, queue_offset: int, queue_id: int) -> int:
    """One number: 64, 64 and 32 bits. A key and its place are kept for hours; three numbers take three times as much."""
    return physical_offset << 96 | queue_offset << 32 | queue_id


def unpack(place: int) -> Place:
    return Place(place >> 96, place >> 32 & 0xFFFFFFFFFFFFFFFF, place & 0xFFFFFFFF)


class EpochKeys:
    """The keys of one epoch of the scope of that name: one table, and `TABLES` more for what it does not hold."""

    __slots__ = ("count", "epoch", "scope", "tables")

    def __init__(self, scope: str, epoch: int) -> None:
        self.scope = scope
        self.epoch = epoch
        self.tables: list[dict[int, int]] = [{}]
        self.count = 0

    def get(self, digest: int) -> int | None:
        tables = self.tables
        found = tables[0].get(digest)
        if found is None and len(tables) > 1:
            return tables[1 + digest % TABLES].get(digest)
        return found

    def put(self, digest: int, place: int) -> None:
        tables = self.tables
        table = tables[0]
        if len(table) >= TABLE_KEYS:
            if len(tables) == 1:
                tables += [{} for _ in range(TABLES)]
            table = tables[1 + digest % TABLES]
        table[digest] = place
        self.count += 1

    def remove(self, digest: int, place: int) -> bool:
        for table in self.tables:
            if table.get(digest) == place:
                del table[digest]
                self.count -= 1
                return True
        return False


class Finished(NamedTuple):
    """How an epoch ended: `mark` stands for everything that was sent in it. brief: nobody repeats it but a task that was replaced."""

    epoch: int
    mark: int
    brief: bool


class Scope:
    __slots__ = ("current", "finished", "name", "previous", "used_ms")

    def __init__(self, name: str, epoch: int, used_ms: int) -> None:
        self.name = name
        self.current = EpochKeys(name, epoch)
        self.previous: EpochKeys | None = None
        self.finished: Finished | None = None
        """The last epoch whose sender said that it had ended."""
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


class OnceMemory:
    def __init__(self, bounds: OnceBounds) -> None:
        self.bounds = bounds
        self.key_count = 0
        self.forgotten_count = 0
        """Scopes that were forgotten because nobody used them."""
        self._transient: dict[str, Scope] = {}
        self._lasting: dict[str, Scope] = {}
        """Both in the order of their last use, within `TOUCH_MS`."""
        self._brief: dict[str, int] = {}
        """Lasting scopes that ended briefly -> when, oldest first."""
        self._going: list[dict[int, int]] = []
        """Tables nobody looks at any more; they are given back a few at a time."""

    # --- asking -----------------------------------------------------------------------------------------------------

    @property
    def scope_count(self) -> int:
        return len(self._transient) + len(self._lasting)

    @property
    def used_bytes(self) -> int:
        return self.key_count * KEY_BYTES + self.scope_count * SCOPE_BYTES

    def scope(self, name: str) -> Scope | None:
        return self._table(name).get(name)

    def _table(self, name: str) -> dict[str, Scope]:
        return self._transient if name.startswith(TRANSIENT_PREFIX) else self._lasting

    def find(self, once: Once) -> int | None:
        """The packed place of the first send, None when this is none of those remembered. Raises `Refusal` for a stale epoch.

        Cost: about 0.4 us, 1 us among a million keys.
        """
        keys = self._keys_for(once)
        return None if keys is None else keys.get(once.digest)

    def find_all(self, sends: Sequence[Once]) -> list[int | None]:
        """`find` for sends of one scope and epoch, at least one. Cost: about 0.15 us each."""
        keys = self._keys_for(sends[0])
        if keys is None:
            return [None] * len(sends)
        get = keys.get if len(keys.tables) > 1 else keys.tables[0].get
        return [get(once.digest) for once in sends]

    def _keys_for(self, once: Once) -> EpochKeys | None:
        """The keys among which a send is looked for; None when nothing of its epoch is remembered. Raises `Refusal` for a stale one."""
        scope = self._table(once.scope).get(once.scope)
        if scope is None or once.epoch > scope.current.epoch:
            return None
        keys = scope.keys_of(once.epoch)
        if keys is None and not once.scope.startswith(TRANSIENT_PREFIX):
            raise _stale(once, scope)
        return keys

    def has_room(self, once: Once, count: int) -> bool:
        """Whether a known scope may have `count` more keys in its current epoch. False says only: look with `make_room`."""
        scope = self._table(once.scope).get(once.scope)
        return (
            scope is not None
            and scope.current.epoch == once.epoch
            and scope.current.count + count <= self.bounds.keys_per_epoch
            and self.used_bytes + count * KEY_BYTES <= self.bounds.memory_bytes
        )

    def make_room(self, once: Once, count: int, wall_ms: int, steady_ms: int) -> None:
        """Raises `Refusal` when `count` more keys of this scope and epoch would pass a bound, and idle scopes, which are
        forgotten first, do not give enough."""
        bounds = self.bounds
        scope = self.scope(once.scope)
        keys = scope.keys_of(once.epoch) if scope is not None else None
        known = 0 if keys is None else keys.count
        if known + count > bounds.keys_per_epoch:
            raise _full(
                f"epoch {once.epoch} of scope {once.scope!r} has {known} keys, at most {bounds.keys_per_epoch} are "
                "remembered; begin a new epoch, or divide the work among several scopes"
            )
        if scope is None:
            while self.scope_count >= bounds.scopes and self.expire(wall_ms, steady_ms):
                pass
            if self.scope_count >= bounds.scopes:
                raise _full(
                    f"{self.scope_count} scopes are remembered, at most {bounds.scopes} may be; use fewer scopes with "
                    f"epochs, or let {TRANSIENT_PREFIX}-scopes rest for {bounds.transient_idle_ms // 1000} s"
                )
        needed = count * KEY_BYTES + (SCOPE_BYTES if scope is None else 0) - self._replaced_bytes(scope, once.epoch)
        while self.used_bytes + needed > bounds.memory_bytes and self.expire(wall_ms, steady_ms):
            pass
        if self.used_bytes + needed > bounds.memory_bytes:
            raise _full(
                f"{self.key_count} keys of {self.scope_count} scopes are remembered, about {self.used_bytes >> 20} MiB "
                f"of {bounds.memory_bytes >> 20} (idempotenceMemoryMax); begin new epochs sooner, or give it more"
            )

    @staticmethod
    def _replaced_bytes(scope: Scope | None, epoch: int) -> int:
        """What a new epoch gives back: the keys of the one before the current."""
        if scope is None or scope.previous is None or epoch <= scope.current.epoch:
            return 0
        return scope.previous.count * KEY_BYTES

    # --- remembering ------------------------------------------------------------------------------------------------

    def keep(self, once: Once, place: int, wall_ms: int, steady_ms: int) -> EpochKeys | None:
        """Remember a send. The keys it was put among; None when its epoch is stale or its key is known."""
        keys = self._enter(once.scope, once.epoch, wall_ms, steady_ms)
        if keys is None or keys.get(once.digest) is not None:
            return None
        keys.put(once.digest, place)
        self.key_count += 1
        return keys

    def keep_new(self, sends: Sequence[Once], places: Sequence[int], wall_ms: int, steady_ms: int) -> EpochKeys | None:
        """Remember sends of one scope and epoch of which `find_all` has just said that none is known, and no two of which are the
        same. The keys they were put among; None when their epoch is stale. Cost: about 0.4 us each."""
        first = sends[0]
        keys = self._enter(first.scope, first.epoch, wall_ms, steady_ms)
        if keys is not None:
            for once, place in zip(sends, places, strict=True):
                keys.put(once.digest, place)
            self.key_count += len(sends)
        return keys

    def keep_all(self, name: str, epoch: int, places: Iterable[tuple[int, int]], wall_ms: int, steady_ms: int) -> None:
        """`keep` for many sends of one epoch, given as digest and place. Cost: about 1 us each."""
        keys = self._enter(name, epoch, wall_ms, steady_ms)
        if keys is None:
            return
        before = keys.count
        for digest, place in places:
            if keys.get(digest) is None:
                keys.put(digest, place)
        self.key_count += keys.count - before

    def _enter(self, name: str, epoch: int, wall_ms: int, steady_ms: int) -> EpochKeys | None:
        """The keys of an epoch in which somebody sends; a new one ends the one before the current. None when it is stale."""
        table = self._table(name)
        now_ms = steady_ms if table is self._transient else wall_ms
        scope = table.get(name)
        if scope is None:
            scope = table[name] = Scope(name, epoch, now_ms)
        elif epoch > scope.current.epoch:
            self._leave(scope.previous)
            scope.previous, scope.current = scope.current, EpochKeys(name, epoch)
        if now_ms - scope.used_ms >= TOUCH_MS:
            scope.used_ms = now_ms
            table[name] = table.pop(name)
        return scope.keys_of(epoch)

    def forget(self, once: Once, place: int) -> None:
        """That send did not reach the log after all."""
        scope = self._table(once.scope).get(once.scope)
        keys = scope.keys_of(once.epoch) if scope is not None else None
        if keys is not None and keys.remove(once.digest, place):
            self.key_count -= 1

    def finish(self, name: str, finished: Finished, wall_ms: int, steady_ms: int) -> bool:
        """The sender has all its answers: forget the keys of the epoch and those before it, and refuse its sends from now on.

        False when the epoch had ended before with another mark: then two senders had different things to send.
        """
        scope = self._table(name).get(name)
        if scope is not None and finished.epoch < scope.current.epoch:
            return (
                scope.finished is None or scope.finished.epoch != finished.epoch or scope.finished.mark == finished.mark
            )
        if scope is None and self.scope_count >= self.bounds.scopes:
            return True  # nothing of it is remembered, and nothing needs to be
        self._enter(name, finished.epoch, wall_ms, steady_ms)
        scope = self._table(name)[name]
        self._leave(scope.previous)
        self._leave(scope.current)
        scope.previous, scope.current = None, EpochKeys(name, finished.epoch + 1)
        scope.finished = finished
        if finished.brief and not name.startswith(TRANSIENT_PREFIX):
            self._brief.pop(name, None)
            self._brief[name] = wall_ms
        return True

    def scopes(self, prefix: str, limit: int) -> list[Scope]:
        """Scopes whose names begin so, at most `limit`. Cost: a look at each scope, 2 ms for 20,000."""
        found = []
        for table in (self._lasting, self._transient):
            for name, scope in table.items():
                if name.startswith(prefix):
                    found.append(scope)
                    if len(found) >= limit:
                        return found
        return found

    def is_live(self, keys: EpochKeys) -> bool:
        """Whether these keys are still remembered."""
        scope = self._table(keys.scope).get(keys.scope)
        return scope is not None and (keys is scope.current or keys is scope.previous)

    def live_epochs(self) -> frozenset[tuple[str, int]]:
        return frozenset(
            (scope.name, keys.epoch)
            for table in (self._transient, self._lasting)
            for scope in table.values()
            for keys in (scope.current, scope.previous)
            if keys is not None
        )

    # --- forgetting -------------------------------------------------------------------------------------------------

    def expire(self, wall_ms: int, steady_ms: int) -> bool:
        """Forget scopes that rested too long, oldest first, a bounded number at a time. Whether there was one."""
        bounds = self.bounds
        before = self.forgotten_count
        for table, limit in (
            (self._transient, steady_ms - bounds.transient_idle_ms),
            (self._lasting, wall_ms - bounds.lasting_idle_ms),
        ):
            for _ in range(EXPIRED_AT_ONCE_MAX):
                oldest = next(iter(table.values()), None)
                if oldest is None or oldest.used_ms > limit:
                    break
                del table[oldest.name]
                self._leave(oldest.current)
                self._leave(oldest.previous)
                self.forgotten_count += 1
        for _ in range(EXPIRED_AT_ONCE_MAX):
            name = next(iter(self._brief), None)
            if name is None or self._brief[name] > wall_ms - bounds.finished_idle_ms:
                break
            del self._brief[name]
            scope = self._lasting.get(name)
            if scope is not None and scope.finished is not None and not scope.key_count:
                del self._lasting[name]
                self.forgotten_count += 1
        return self.forgotten_count > before

    def _leave(self, keys: EpochKeys | None) -> None:
        if keys is not None:
            self.key_count -= keys.count
            self._going += [table for table in keys.tables if table]
            keys.tables = [{}]

    def give_back(self, count: int) -> None:
        """Free about that many keys of what was forgotten: 1 to 2 us each, most of it cache misses."""
        going = self._going
        while going and count > 0:
            table = going[-1]
            step = min(len(table), count)
            for _ in range(step):
                table.popitem()
            count -= step + 1
            if not table:
                going.pop()


def _stale(once: Once, scope: Scope) -> Refusal:
    previous = "" if scope.previous is None else f", the one before {scope.previous.epoch}"
    return Refusal(
        ResponseCode.STALE_EPOCH,
        f"epoch {once.epoch} of scope {once.scope!r} is over: its current epoch is {scope.current.epoch}{previous}; "
        "whoever still sends in it was replaced and should stop",
    )


def _full(what: str) -> Refusal:
    return Refusal(ResponseCode.IDEMPOTENCE_FULL, f"the memory of idempotent sends is full: {what}")
