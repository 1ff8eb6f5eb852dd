"""Messages that push consumers have and have not settled: when each is to be hidden for longer, and by which handle it is known now.

A push consumer keeps the handle that it was given with a message, for hours where it has to. Meanwhile the broker hides the message anew,
again and again, and each time the message gets another handle. Whatever the client says with its old one counts as said with the newest.

Rules of this file
1. No clock is read and nothing is hidden here: the shell (`renewal`) does, and says what came of it. Times are wall clock milliseconds.
2. A handle is known to the client that was given it, in requests about the topic and the group that it was given for, and to nobody else.
3. What is held has two bounds, for a client and for all. What does not fit is not renewed: it comes back when its first time is over.

Source: RocketMQ gRPC, auto-renew, handle substitution.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count

import msgspec

from orbitmq.limits.grpc import HELD_OF_ALL_MAX, HELD_OF_CLIENT_MAX, RENEWALS_MS


class HeldMessage(msgspec.Struct, eq=False, kw_only=True):
    """One message.

    first_handle: what its client was given. handle: what it is known by now. attempts_before: how often it was delivered before.
    """

    owner: Hashable
    topic: str
    group: str
    first_handle: str
    handle: str
    first_ms: int
    attempts_before: int
    renewal_count: int = 0
    failure_count: int = 0
    is_held: bool = True

    def next_ms(self, now_ms: int, total_ms: int) -> int | None:
        """For how long to hide it now; None when it was hidden for `total_ms` since it was popped, and is to be renewed no more."""
        if now_ms - self.first_ms >= total_ms:
            return None
        return RENEWALS_MS[min(self.renewal_count, len(RENEWALS_MS) - 1)]


class HeldMessages:
    """What all clients of a broker hold."""

    def __init__(self, *, of_client_max: int = HELD_OF_CLIENT_MAX, of_all_max: int = HELD_OF_ALL_MAX) -> None:
        self._of_client_max = of_client_max
        self._of_all_max = of_all_max
        self._held: dict[Hashable, dict[str, HeldMessage]] = {}
        """By owner and first handle."""
        self._count = 0
        self._looks: list[tuple[int, int, HeldMessage]] = []
        """Heap of when to look at each; some entries are out of date."""
        self._order = count()

    def __len__(self) -> int:
        return self._count

    def hold(self, held: HeldMessage, look_ms: int) -> bool:
        """Hold a message, and look at it then. False: there is no room for it."""
        of_client = self._held.get(held.owner)
        if self._count >= self._of_all_max or (of_client is not None and len(of_client) >= self._of_client_max):
            return False
        if of_client is None:
            of_client = self._held[held.owner] = {}
        before = of_client.get(held.first_handle)
        if before is not None:
            before.is_held = False
        else:
            self._count += 1
        of_client[held.first_handle] = held
        self.look_at(held, look_ms)
        return True

    def find(self, owner: Hashable, topic: str, group: str, handle: str) -> HeldMessage | None:
        """The message that a client means by a handle that it was given."""
        of_client = self._held.get(owner)
        held = None if of_client is None else of_client.get(handle)
        return held if held is not None and held.topic == topic and held.group == group else None

    def drop(self, held: HeldMessage) -> None:
        """Hold a message no more. Calling again does nothing."""
        if not held.is_held:
            return
        held.is_held = False
        of_client = self._held[held.owner]
        del of_client[held.first_handle]
        self._count -= 1
        if not of_client:
            del self._held[held.owner]

    def take_all(self, owner: Hashable) -> list[HeldMessage]:
        """Everything that a client held, which is held no more."""
        of_client = self._held.pop(owner, {})
        self._count -= len(of_client)
        for held in of_client.values():
            held.is_held = False
        return list(of_client.values())

    def take_due(self, now_ms: int, limit: int) -> list[HeldMessage]:
        """Held messages to be looked at, the longest due first, at most `limit`. Each is looked at again when `look_at` says so."""
        due: list[HeldMessage] = []
        looks = self._looks
        while looks and looks[0][0] <= now_ms and len(due) < limit:
            held = heapq.heappop(looks)[2]
            if held.is_held:
                due.append(held)
        return due

    def look_at(self, held: HeldMessage, look_ms: int) -> None:
        """Have a held message among those that are due then."""
        if len(self._looks) > 2 * self._count + len(RENEWALS_MS):
            self._looks = [look for look in self._looks if look[2].is_held]
            heapq.heapify(self._looks)
        heapq.heappush(self._looks, (look_ms, next(self._order), held))
