"""What was sent: the keys of each scope's current and previous epoch, and where the first send of each went. Scopes with windows are
in `windows`.

Rules of this file
1. Pure: no clock, no file. Two times come in: `wall_ms` ages lasting scopes, `steady_ms` (it never jumps) the transient ones.
2. A key stands for the last record with it: a second one is only stored when the first counts no more, because its topic was
   deleted or it was recalled, or when it was forgotten.
3. Only two epochs of a scope exist: the highest that was seen, and the one that was highest before. Any other lower one is
   stale, also one that was never seen: it has no keys to compare with. In a transient scope it is no repeat instead: its
   producer has promised not to repeat it, so it comes from a program that copies the properties of what it received.
4. A transient scope may be forgotten after `ONCE_TRANSIENT_IDLE_MS` without a send, a lasting one after the time that is
   set for it; nothing else forgets a key but the end of its window, a later epoch, or the word of its sender that the epoch is
   finished. When there is no room, the send is refused.
5. The keys of a deleted topic end with it: what lies below the log position of the deletion is no first send.
6. What an epoch may hold is bounded by what its owner may take of the memory.
7. What is finished keeps no keys, and takes no room from anybody.
8. What a send replaces whose record has not come back from the log, an epoch or an older place, comes back when that record is cut off;
   until `confirm` it is kept aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from orbitmq.broker.idempotence.ended_topics import EndedTopics
from orbitmq.broker.idempotence.epoch_keys import KEY_BYTES, EpochKeys, Scope
from orbitmq.broker.idempotence.finished import Finished, FinishedEpochs, batch_of
from orbitmq.broker.idempotence.identity import TRANSIENT_PREFIX, WINDOW_PREFIX, SendIdentity
from orbitmq.broker.idempotence.owners import TIMES_FREE, Owners, crowd_of
from orbitmq.broker.idempotence.packed_keys import PAGE_KEYS, Page
from orbitmq.broker.idempotence.scope_names import ScopeNames, ScopeState
from orbitmq.broker.idempotence.windows import Windows, end_of
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.broker import (
    ONCE_FINISHED_IDLE_MS,
    ONCE_MEMORY_BYTES_MAX,
    ONCE_SCOPES_MAX,
    ONCE_TRANSIENT_IDLE_MS,
    SCOPE_TOUCH_MS,
    SCOPES_EXPIRED_AT_ONCE_MAX,
)
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.protocol.remoting.commands import ResponseCode

SCOPE_BYTES: Final = 1_536
"""Memory of one scope without its keys: its name, its two epochs and a small table each. Measured: 985 and the name."""


class KeyBounds(msgspec.Struct, frozen=True, kw_only=True):
    scopes: int = ONCE_SCOPES_MAX
    memory_bytes: int = ONCE_MEMORY_BYTES_MAX
    transient_idle_ms: int = ONCE_TRANSIENT_IDLE_MS
    lasting_idle_ms: int = 72 * 3_600_000
    finished_idle_ms: int = ONCE_FINISHED_IDLE_MS


class SentPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a send went, as its sender was told."""

    physical_offset: int
    queue_offset: int
    queue_id: int

    def packed(self) -> int:
        return pack(self.physical_offset, self.queue_offset, self.queue_id)


def pack(physical_offset: int, queue_offset: int, queue_id: int) -> int:
    """One number: 64, 64 and 32 bits. A key and its place are kept for hours; three numbers take three times as much."""
    return physical_offset << 96 | queue_offset << 32 | queue_id


def unpack(place: int) -> SentPlace:
    return SentPlace(place >> 96, place >> 32 & 0xFFFFFFFFFFFFFFFF, place & 0xFFFFFFFF)


class KeyMemory:
    def __init__(self, bounds: KeyBounds) -> None:
        self.bounds = bounds
        self.key_count = 0
        self.forgotten_count = 0
        """Scopes that were forgotten because nobody used them."""
        self.corrected_count = 0
        """Scopes, ends and sets of keys that lay in the future, and count as of then."""
        self.ended = EndedTopics()
        self.finished = FinishedEpochs()
        self._owners = Owners()
        self.windows = Windows(self._owners)
        self._transient: dict[str, Scope] = {}
        self._lasting: dict[str, Scope] = {}
        """Both in the order of their last use, within `SCOPE_TOUCH_MS`."""
        self._names = ScopeNames()
        """Names of lasting scopes, running or finished."""
        self._going: list[dict[int, int] | list[Page]] = []
        """Keys nobody looks at any more; they are given back a few at a time."""
        self._aside: dict[EpochKeys, EpochKeys | None] = {}
        """Of epochs that were begun by records which are not confirmed: the keys that they ended."""
        self._replaced: dict[int, int] = {}
        """Of places that are not confirmed: the place that the key had before."""

    # --- asking -----------------------------------------------------------------------------------------------------

    @property
    def scope_count(self) -> int:
        return self._owners.scope_count

    @property
    def used_bytes(self) -> int:
        return self._owners.used_bytes

    def scope(self, name: str) -> Scope | None:
        """A scope in which somebody sends; None for one whose last epoch was finished."""
        return self._table(name).get(name)

    def _table(self, name: str) -> dict[str, Scope]:
        return self._transient if name.startswith(TRANSIENT_PREFIX) else self._lasting

    @property
    def fullest(self) -> tuple[str, float]:
        """The owner that is nearest to its bound, and how much of what it may have it has, from 0 to 1. Cost: a look at each owner."""
        return self._owners.fullest(self.bounds.memory_bytes)

    def find(self, identity: SendIdentity, topic: str, now_ms: int = 0) -> int | None:
        """The packed place of the first send to `topic`, None when this is none of those remembered. Raises `Refusal` for a stale
        epoch. now_ms: of a send with a window, which was over then at the latest when its keys had ended.

        Cost: about 0.4 us, 1 us among a million keys.
        """
        if identity.window_ms:
            place = self.windows.find(identity, now_ms)
        else:
            keys = self._keys_for(identity)
            place = None if keys is None else keys.get(identity.digest)
        if place is not None and self.ended and place >> 96 < self.ended.position(topic):
            return None
        return place

    def find_all(self, sends: Sequence[SendIdentity], topic: str) -> list[int | None]:
        """`find` for sends of one scope and epoch, at least one. Cost: about 0.15 us each."""
        keys = self._keys_for(sends[0])
        if keys is None:
            return [None] * len(sends)
        get = keys.table.get if keys.packed is None else keys.get
        found = [get(identity.digest) for identity in sends]
        if self.ended and (end := self.ended.position(topic)):
            return [None if place is None or place >> 96 < end else place for place in found]
        return found

    def _keys_for(self, identity: SendIdentity) -> EpochKeys | None:
        """The keys among which a send is looked for; None when nothing of its epoch is remembered. Raises `Refusal` for a stale one."""
        scope = self._table(identity.scope).get(identity.scope)
        if scope is None:
            finished = self.finished.covering(identity.scope) if self.finished else None
            if finished is not None and identity.epoch <= finished.epoch:
                raise _finished(identity, finished)
            return None
        if identity.epoch > scope.current.epoch:
            return None
        keys = scope.keys_of(identity.epoch)
        if keys is None and not identity.scope.startswith(TRANSIENT_PREFIX):
            raise _stale(identity, scope)
        return keys

    def has_room(self, identity: SendIdentity, count: int) -> bool:
        """Whether a known scope may have `count` more keys in its current epoch. False says only: look with `make_room`."""
        scope = self._table(identity.scope).get(identity.scope)
        return (
            scope is not None
            and scope.current.epoch == identity.epoch
            and self._owners.has_bytes(scope.owner, count * scope.current.next_bytes, self.bounds.memory_bytes)
        )

    def make_room(self, identity: SendIdentity, count: int, wall_ms: int, steady_ms: int) -> None:
        """Raises `Refusal` when `count` more keys of this scope and epoch would pass a bound of their owner, and idle scopes, which
        are forgotten first, do not give enough."""
        bounds, owners = self.bounds, self._owners
        owner = owners.of(identity.scope)
        is_known, needed = self._needed_bytes(identity, count, wall_ms)
        if not is_known:
            crowd = crowd_of(identity.scope)
            while not owners.has_scope(crowd, bounds.scopes) and self.expire(wall_ms, steady_ms):
                pass
            if not owners.has_scope(crowd, bounds.scopes):
                who = {TRANSIENT_PREFIX: "transient senders have", "": "all names without '/' have"}.get(
                    crowd, f"{crowd!r} has"
                )
                raise _full(
                    f"{who} {owners.crowd_count(crowd)} scopes of {self.scope_count} that are remembered, {bounds.scopes} may be, "
                    f"and one owner may have {TIMES_FREE} times what is left; use fewer scopes with epochs, finish what has ended, or let "
                    f"{TRANSIENT_PREFIX}-scopes rest for {bounds.transient_idle_ms // 1000} s"
                )
        while not owners.has_bytes(owner, needed, bounds.memory_bytes) and self.expire(wall_ms, steady_ms):
            pass
        if not owners.has_bytes(owner, needed, bounds.memory_bytes):
            raise _full(
                f"{owner.name!r} has {owner.used_bytes >> 20} of {self.used_bytes >> 20} MiB that are remembered, "
                f"{bounds.memory_bytes >> 20} MiB may be (idempotenceMemoryMax), and one owner may have {TIMES_FREE} times what is left; "
                f"{'take shorter windows' if identity.window_ms else 'begin new epochs sooner'}, or give it more"
            )

    def _needed_bytes(self, identity: SendIdentity, count: int, wall_ms: int) -> tuple[bool, int]:
        """Whether the scope of a send is remembered, and what memory `count` more keys of it take."""
        if identity.window_ms:
            return self.windows.needed_bytes(identity, wall_ms)
        scope = self.scope(identity.scope)
        keys = None if scope is None else scope.keys_of(identity.epoch)
        needed = count * (KEY_BYTES if keys is None else keys.next_bytes) + (SCOPE_BYTES if scope is None else 0)
        return scope is not None, needed - self._replaced_bytes(scope, identity.epoch)

    @staticmethod
    def _replaced_bytes(scope: Scope | None, epoch: int) -> int:
        """What a new epoch gives back: the keys of the one before the current."""
        if scope is None or scope.previous is None or epoch <= scope.current.epoch:
            return 0
        return scope.previous.used_bytes

    # --- remembering ------------------------------------------------------------------------------------------------

    def keep(
        self, identity: SendIdentity, place: int, wall_ms: int, steady_ms: int, *, is_confirmed: bool = True
    ) -> EpochKeys | None:
        """Remember a send. The keys it was put among; None when its epoch is stale or this is known. Without `is_confirmed` it is
        confirmed or taken back later."""
        keys: EpochKeys | None
        if identity.window_ms:
            window_ms = min(identity.window_ms, self.bounds.lasting_idle_ms)
            keys = self.windows.enter(identity.scope, end_of(wall_ms, window_ms))
        else:
            keys = self._enter(identity.scope, identity.epoch, wall_ms, steady_ms, is_confirmed=is_confirmed)
        before = None if keys is None else keys.get(identity.digest)
        if keys is None or before == place:
            return None
        if before is not None and not is_confirmed:
            self._replaced[place] = before
        self._put(keys, identity.digest, place)
        return keys

    def keep_new(
        self, sends: Sequence[SendIdentity], places: Sequence[int], wall_ms: int, steady_ms: int
    ) -> EpochKeys | None:
        """Remember sends of one scope and epoch of which `find_all` has just said that none is known, and no two of which are the
        same; they are confirmed or taken back later. The keys they were put among; None when their epoch is stale. 0.4 us each."""
        first = sends[0]
        keys = self._enter(first.scope, first.epoch, wall_ms, steady_ms, is_confirmed=False)
        if keys is not None:
            taken = [keys.put(identity.digest, place) for identity, place in zip(sends, places, strict=True)]
            self.key_count += len(taken) - taken.count(0)
            self._owners.takes(keys.owner, sum(taken))
        return keys

    def keep_all(self, name: str, epoch: int, places: Iterable[tuple[int, int]], wall_ms: int, steady_ms: int) -> None:
        """`keep` for many sends of one epoch, given as digest and place. Cost: about 1.5 us each."""
        keys: EpochKeys | None
        if name.startswith(WINDOW_PREFIX):
            keys = self.windows.enter(name, epoch)
        else:
            keys = self._enter(name, epoch, wall_ms, steady_ms) or self._epoch_before(name, epoch)
        if keys is not None:
            self._put_earlier(keys, places)

    def keep_earlier(
        self, name: str, epoch: int, places: Iterable[tuple[int, int]], wall_ms: int, steady_ms: int
    ) -> tuple[EpochKeys | None, list[tuple[int, int]]]:
        """Remember sends, as digest and place, of which somebody tells after what came later: what is known stays, and the epoch may be
        the one before the current that nobody knew here. Answers the keys they were put among and those that were new; None where the
        epoch is over. Cost: about 1 us each."""
        scope = self._table(name).get(name)
        keys: EpochKeys | None
        if name.startswith(WINDOW_PREFIX):
            keys = self.windows.enter(name, epoch)
        elif scope is None or epoch > scope.current.epoch:
            keys = self._enter(name, epoch, wall_ms, steady_ms)
        else:
            keys = scope.keys_of(epoch) or self._epoch_before(name, epoch)
        if keys is None:
            return None, []
        new = [(digest, place) for digest, place in places if keys.get(digest) is None]
        self._put_earlier(keys, new)
        return keys, new

    def _epoch_before(self, name: str, epoch: int) -> EpochKeys | None:
        """Keys of an epoch before the current one, of which nobody knew here that it is the one before. None where it is not."""
        scope = self._table(name).get(name)
        if scope is None or epoch >= scope.current.epoch or (scope.previous and epoch <= scope.previous.epoch):
            return None
        self._count(scope.previous, -1)
        self._give(scope.previous)
        scope.previous = EpochKeys(name, epoch, scope.owner)
        return scope.previous

    def _put_earlier(self, keys: EpochKeys, places: Iterable[tuple[int, int]]) -> None:
        """`_put` for many, in any order."""
        put = keys.put
        lowest = -1
        key_count = taken_bytes = 0
        for digest, place in places:
            if place < lowest or lowest < 0:
                lowest = place
            if taken := put(digest, place):
                key_count += 1
                taken_bytes += taken
        if lowest >= 0:
            keys.first_position = min(keys.first_position, lowest >> 96)
        self.key_count += key_count
        self._owners.takes(keys.owner, taken_bytes)

    def _put(self, keys: EpochKeys, digest: int, place: int) -> None:
        taken = keys.put(digest, place)
        if taken:
            self.key_count += 1
            self._owners.takes(keys.owner, taken)

    def _enter(
        self, name: str, epoch: int, wall_ms: int, steady_ms: int, *, is_confirmed: bool = True
    ) -> EpochKeys | None:
        """The keys of an epoch in which somebody sends; a new one ends the one before the current. None when it is stale."""
        table = self._table(name)
        now_ms = steady_ms if table is self._transient else wall_ms
        scope = table.get(name)
        if scope is None:
            finished = self.finished.covering(name) if self.finished else None
            if finished is not None and epoch <= finished.epoch:
                return None
            scope = table[name] = Scope(name, epoch, now_ms, self._owners.enters(name, SCOPE_BYTES))
            if table is self._lasting:
                self._names.add(name)
        elif epoch > scope.current.epoch:
            self._count(scope.previous, -1)
            begun = EpochKeys(name, epoch, scope.owner)
            if is_confirmed:
                self._give(scope.previous)
            else:
                self._aside[begun] = scope.previous
            scope.previous, scope.current = scope.current, begun
        if now_ms - scope.used_ms >= SCOPE_TOUCH_MS or scope.used_ms - now_ms > CLOCK_JUMP_MS:
            scope.used_ms = now_ms
            table[name] = table.pop(name)
        return scope.keys_of(epoch)

    @property
    def keeps_aside(self) -> bool:
        """Whether something would come back with `take_back`."""
        return bool(self._aside or self._replaced)

    def confirm(self, keys: EpochKeys, place: int) -> None:
        """A send that was kept among these keys is in the log for good."""
        self._replaced.pop(place, None)
        self._give(self._aside.pop(keys, None))

    def take_back(self, keys: EpochKeys, digest: int, place: int) -> None:
        """That send is not in the log after all: what it replaced holds again."""
        scope = self._table(keys.scope).get(keys.scope)
        is_counted = self.windows.has(keys) or (scope is not None and (keys is scope.current or keys is scope.previous))
        before = self._replaced.pop(place, None)
        if before is not None and keys.get(digest) == place:
            keys.put(digest, before)
        elif (freed := keys.remove(digest, place)) and is_counted:
            self.key_count -= 1
            self._owners.takes(keys.owner, -freed)
        if not is_counted and not self.is_live(keys):
            self._give(self._aside.pop(keys, None))
        while scope is not None and not scope.current.count:
            if scope.current in self._aside:
                aside = self._aside.pop(scope.current)
                assert scope.previous is not None, "it was the current epoch when this one began"
                scope.current, scope.previous = scope.previous, aside
                self._count(aside, 1)
            else:
                if scope.previous is None:
                    self._drop(scope)
                return

    def finish(self, name: str, finished: Finished, wall_ms: int) -> bool:
        """The sender has all its answers: forget the keys of the epoch and those before it, and refuse its sends from now on. A name
        that stands for a batch ends all of its partitions.

        False when the epoch had ended before with another mark: then two senders had different things to send.
        """
        if name.startswith(TRANSIENT_PREFIX):
            return True
        before = self.finished.get(name)
        if before is not None and finished.epoch <= before.epoch:
            return before.epoch != finished.epoch or before.mark == finished.mark
        batch = batch_of(name)
        whole = None if batch is None else self.finished.get(batch)
        scope = self._lasting.get(name)
        if (whole is not None and finished.epoch <= whole.epoch) or (
            scope is not None and scope.current.epoch > finished.epoch
        ):
            return True
        for part in [name, *self._names.parts(name)]:
            if (scope := self._lasting.get(part)) is not None and scope.current.epoch <= finished.epoch:
                self._drop(scope)
            if part != name and (ended := self.finished.get(part)) is not None and ended.epoch <= finished.epoch:
                self._drop_finished(part)
        self.finished.add(name, finished, wall_ms)
        self._names.add(name)
        if (surplus := self.finished.surplus()) is not None:
            self._drop_finished(surplus)
            self.forgotten_count += 1
        return True

    def end_topic(self, topic: str) -> None:
        """The topic is deleted: what was finished for it can be sent once more. Its keys end by their place; see `ended`."""
        for name in self.finished.of_topic(topic):
            self._drop_finished(name)

    def scopes(self, prefix: str, limit: int) -> list[ScopeState]:
        """Scopes whose names begin so, at most `limit`. Cost: a few us for a prefix that ends with `@`, as Spark's do; for any other, and
        for transient scopes, a look at each scope."""
        found: dict[str, ScopeState] = {}
        batch = batch_of(prefix)
        for stored in self._beginning((prefix,) if batch is None else (prefix, batch)):
            name = prefix + stored[len(batch) :] if batch is not None and stored.startswith(batch) else stored
            scope, ended = self._table(name).get(name), self.finished.covering(name)
            ended_epoch = None if ended is None else ended.epoch
            if scope is not None:
                previous = None if scope.previous is None else scope.previous.epoch
                found[name] = ScopeState(name, scope.current.epoch, scope.key_count, previous, ended_epoch)
            elif ended is not None:
                found[name] = ScopeState(name, ended.epoch + 1, 0, None, ended_epoch)
            if len(found) >= limit:
                break
        return list(found.values())

    def _beginning(self, prefixes: tuple[str, ...]) -> Iterable[str]:
        """Names of scopes, running or finished, that begin with one of them; some names twice."""
        if not prefixes[0].startswith(TRANSIENT_PREFIX):
            found = [names for prefix in prefixes if (names := self._names.beginning(prefix)) is not None]
            if len(found) == len(prefixes):
                return chain.from_iterable(found)
        every = chain(self._lasting, self._transient, (name for name, _ in self.finished))
        return (name for name in every if name.startswith(prefixes))

    def is_live(self, keys: EpochKeys) -> bool:
        """Whether these keys are still remembered, or kept aside."""
        scope = self._table(keys.scope).get(keys.scope)
        if self.windows.has(keys) or (scope is not None and (keys is scope.current or keys is scope.previous)):
            return True
        return any(keys is aside for aside in self._aside.values())

    def ends(self) -> frozenset[tuple[str, int]]:
        """Scopes and epochs that were finished, and are not forgotten."""
        return frozenset((name, finished.epoch) for name, finished in self.finished)

    def live_epochs(self) -> frozenset[tuple[str, int]]:
        return frozenset((keys.scope, keys.epoch) for keys in self._epochs())

    def first_position(self) -> int | None:
        """No remembered send has a lower place in the log; None when there is none. Cost: a look at each scope."""
        return min((keys.first_position for keys in self._epochs() if keys.count), default=None)

    def _epochs(self) -> Iterator[EpochKeys]:
        for scope in chain(self._transient.values(), self._lasting.values()):
            yield scope.current
            if scope.previous is not None:
                yield scope.previous
        yield from self.windows
        yield from filter(None, self._aside.values())

    # --- forgetting -------------------------------------------------------------------------------------------------

    def expire(self, wall_ms: int, steady_ms: int) -> bool:
        """Forget what rested too long or has ended, oldest first, a bounded number at a time. Whether there was something."""
        is_transient = self.expire_transient(steady_ms)
        return self.expire_lasting(wall_ms) or is_transient

    def expire_transient(self, steady_ms: int) -> bool:
        """`expire` for scopes that may be forgotten soon."""
        return self._expire_scopes(self._transient, steady_ms - self.bounds.transient_idle_ms)

    def expire_lasting(self, wall_ms: int) -> bool:
        """`expire` for all others."""
        bounds = self.bounds
        latest_ms = wall_ms + CLOCK_JUMP_MS
        oldest = next(iter(self._lasting.values()), None)
        if (oldest is not None and oldest.used_ms > latest_ms) or self.finished.first_ms > latest_ms:
            self._correct_future(latest_ms, wall_ms)
        self.corrected_count += self.windows.correct_future(wall_ms, bounds.lasting_idle_ms)
        brief_ms, lasting_ms = wall_ms - bounds.finished_idle_ms, wall_ms - bounds.lasting_idle_ms
        found = self._expire_scopes(self._lasting, lasting_ms)
        for _ in range(SCOPES_EXPIRED_AT_ONCE_MAX):
            name = self.finished.oldest(brief_ms, lasting_ms)
            if name is None:
                break
            self._drop_finished(name)
            self.forgotten_count += 1
            found = True
        ended = self.windows.ended(wall_ms)
        for keys in ended:
            self._leave(keys)
        return found or bool(ended)

    def _expire_scopes(self, table: dict[str, Scope], until_ms: int) -> bool:
        found = False
        for _ in range(SCOPES_EXPIRED_AT_ONCE_MAX):
            oldest = next(iter(table.values()), None)
            if oldest is None or oldest.used_ms > until_ms:
                break
            self._drop(oldest)
            self.forgotten_count += 1
            found = True
        return found

    def _drop(self, scope: Scope) -> None:
        del self._table(scope.name)[scope.name]
        self._leave(scope.current)
        self._leave(scope.previous)
        self._owners.leaves(scope.name, scope.owner, SCOPE_BYTES)
        if scope.name not in self.finished:
            self._names.drop(scope.name)

    def _drop_finished(self, name: str) -> None:
        self.finished.drop(name)
        if name not in self._lasting:
            self._names.drop(name)

    def _correct_future(self, latest_ms: int, wall_ms: int) -> None:
        """Lasting scopes that were used or ended far later than now, by a clock that was ahead, count as used now: they would never be
        forgotten, nor those behind them. Costs a look at each."""
        wrong = [scope for scope in self._lasting.values() if scope.used_ms > latest_ms]
        for scope in wrong:
            scope.used_ms = wall_ms
            self._lasting[scope.name] = self._lasting.pop(scope.name)
        self.corrected_count += len(wrong) + self.finished.correct_future(latest_ms, wall_ms)

    def use_again(self, wall_ms: int) -> None:
        """The clock was put forward to `wall_ms`: what is remembered is not older for that. Costs a look at each scope."""
        for scope in self._lasting.values():
            scope.used_ms = wall_ms
        self.finished.end_again(wall_ms)
        self.windows.believe_ends()

    def _leave(self, keys: EpochKeys | None) -> None:
        if keys is not None:
            self._count(keys, -1)
            self._give(self._aside.pop(keys, None))
            self._give(keys)

    def _count(self, keys: EpochKeys | None, times: int) -> None:
        if keys is not None:
            self.key_count += times * keys.count
            self._owners.takes(keys.owner, times * keys.used_bytes)

    def _give(self, keys: EpochKeys | None) -> None:
        """Nobody looks at these keys any more."""
        if keys is not None:
            if keys.table:
                self._going.append(keys.table)
            if keys.packed is not None:
                self._going.append(keys.packed.pages())
            keys.table, keys.packed = {}, None

    def give_back(self, count: int) -> None:
        """Free about that many keys of what was forgotten: 1 to 2 us each, most of it cache misses."""
        going = self._going
        while going and count > 0:
            table = going[-1]
            if isinstance(table, list):
                pages = min(len(table), count // PAGE_KEYS + 1)
                del table[-pages:]
                count -= pages * PAGE_KEYS
            else:
                step = min(len(table), count)
                for _ in range(step):
                    table.popitem()
                count -= step + 1
            if not table:
                going.pop()


def _stale(identity: SendIdentity, scope: Scope) -> Refusal:
    previous = "" if scope.previous is None else f", the one before {scope.previous.epoch}"
    return Refusal(
        ResponseCode.STALE_EPOCH,
        f"epoch {identity.epoch} of scope {identity.scope!r} is over: its current epoch is {scope.current.epoch}{previous}; "
        "whoever still sends in it was replaced and should stop",
    )


def _finished(identity: SendIdentity, finished: Finished) -> Refusal:
    return Refusal(
        ResponseCode.STALE_EPOCH,
        f"epoch {identity.epoch} of scope {identity.scope!r} is over: its sender has finished epoch {finished.epoch}; "
        "whoever still sends in it was replaced and should stop",
    )


def _full(what: str) -> Refusal:
    return Refusal(ResponseCode.IDEMPOTENCE_FULL, f"the memory of idempotent sends is full: {what}")
