"""Scopes whose sends have windows: each key is remembered for a time, however many come.

Keys whose windows end at about the same time lie together, and go together: what a send costs does not grow with the keys, and nothing is
looked for in order to be forgotten. Such a set of keys is an epoch of its scope, numbered by its end in milliseconds since 1970, so
the journal and the tables of copies hold it as they hold any other.

Rules of this file
1. Pure. A set ends after the windows of all its keys: by up to a quarter of the window more is remembered than was asked for.
2. Nothing else forgets a key. When there is no room, the send is refused.
3. A key stands for the last record with it, whichever set it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from orbitmq.broker.idempotence.epoch_keys import KEY_BYTES, EpochKeys
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.owners import Owners
from orbitmq.limits.broker import SCOPES_EXPIRED_AT_ONCE_MAX
from orbitmq.limits.clock import CLOCK_JUMP_MS

WINDOW_SCOPE_BYTES: Final = 1_024
"""Memory of a scope without its sets: its name, its owner and a table."""

WINDOW_KEYS_BYTES: Final = 512
"""Memory of a set without its keys, and of its place among those that end."""


def end_of(sent_ms: int, window_ms: int) -> int:
    """When the set ends that a key sent then belongs to: the end of its window, rounded up to a power of two that is an eighth to a
    quarter of the window. So a scope with one window has five to nine sets, and one with any windows some ten for each power of two."""
    step = 1 << (window_ms // 4).bit_length() - 1
    return -(-(sent_ms + window_ms) // step) * step


class WindowKeys(EpochKeys):
    """Keys whose windows end together."""

    __slots__ = ("until_ms",)

    def __init__(self, scope: str, end_ms: int, owners: Owners) -> None:
        super().__init__(scope, end_ms, owners.of(scope))
        self.until_ms = end_ms
        """When they are forgotten: earlier than at their end where a clock that was ahead named it."""


class Windows:
    __slots__ = ("_ends", "_latest_ms", "_owners", "_scopes")

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._scopes: dict[str, dict[int, WindowKeys]] = {}
        """By scope, and by end."""
        self._ends: list[tuple[int, str, int]] = []
        """A heap: when a set is forgotten, and which."""
        self._latest_ms = 0
        """No set is forgotten later."""

    def __iter__(self) -> Iterator[WindowKeys]:
        return chain.from_iterable(ends.values() for ends in self._scopes.values())

    def find(self, identity: SendIdentity, now_ms: int) -> int | None:
        """The packed place of the last send with that key. It may have been sent up to a quarter of its window too long ago. Cost: about
        0.1 us for each set, 1 us where it has more than 16,384 keys."""
        ends = self._scopes.get(identity.scope)
        if ends is None:
            return None
        digest, found = identity.digest, -1
        for keys in ends.values():
            place = keys.get(digest)
            if place is not None and place > found and keys.epoch > now_ms:
                found = place
        return None if found < 0 else found

    def keys_of(self, scope: str, end_ms: int) -> WindowKeys | None:
        ends = self._scopes.get(scope)
        return None if ends is None else ends.get(end_ms)

    def has(self, keys: EpochKeys) -> bool:
        """Whether these keys are remembered."""
        return self.keys_of(keys.scope, keys.epoch) is keys

    def needed_bytes(self, identity: SendIdentity, now_ms: int) -> tuple[bool, int]:
        """Whether the scope of a send is remembered, and what memory one more key of it takes."""
        ends = self._scopes.get(identity.scope)
        if ends is None:
            return False, WINDOW_SCOPE_BYTES + WINDOW_KEYS_BYTES + KEY_BYTES
        keys = ends.get(end_of(now_ms, identity.window_ms))
        return True, WINDOW_KEYS_BYTES + KEY_BYTES if keys is None else keys.next_bytes

    def enter(self, scope: str, end_ms: int) -> WindowKeys:
        """The keys of a scope that end then; made where there are none."""
        ends = self._scopes.get(scope)
        if ends is None:
            self._owners.enters(scope, WINDOW_SCOPE_BYTES)
            ends = self._scopes[scope] = {}
        keys = ends.get(end_ms)
        if keys is None:
            keys = ends[end_ms] = WindowKeys(scope, end_ms, self._owners)
            self._owners.takes(keys.owner, WINDOW_KEYS_BYTES)
            heappush(self._ends, (end_ms, scope, end_ms))
            self._latest_ms = max(self._latest_ms, end_ms)
        return keys

    def ended(self, now_ms: int) -> list[WindowKeys]:
        """Sets that are forgotten by now, a bounded number at a time; with their keys still counted."""
        gone: list[WindowKeys] = []
        while self._ends and self._ends[0][0] <= now_ms and len(gone) < SCOPES_EXPIRED_AT_ONCE_MAX:
            _, scope, end_ms = heappop(self._ends)
            ends = self._scopes[scope]
            keys = ends.pop(end_ms)
            self._owners.takes(keys.owner, -WINDOW_KEYS_BYTES)
            if not ends:
                del self._scopes[scope]
                self._owners.leaves(scope, keys.owner, WINDOW_SCOPE_BYTES)
            gone.append(keys)
        return gone

    def correct_future(self, now_ms: int, longest_ms: int) -> int:
        """Keys that were sent far later than now, by a clock that was ahead, count as sent now. How many sets. longest_ms: the longest
        window that a key may have. Costs a look at each set, where there is one to correct."""
        latest_ms = now_ms + longest_ms * 5 // 4 + CLOCK_JUMP_MS
        if self._latest_ms <= latest_ms:
            return 0
        wrong = [keys for keys in self if keys.until_ms > latest_ms]
        for keys in wrong:
            keys.until_ms = latest_ms
        self._ends = [(keys.until_ms, keys.scope, keys.epoch) for keys in self]
        heapify(self._ends)
        self._latest_ms = latest_ms
        return len(wrong)

    def believe_ends(self) -> None:
        """The clock was put forward: what looked like the far future may be near. Costs a look at each set."""
        for keys in self:
            keys.until_ms = keys.epoch
        self._ends = [(keys.epoch, keys.scope, keys.epoch) for keys in self]
        heapify(self._ends)
        self._latest_ms = max((keys.epoch for keys in self), default=0)
