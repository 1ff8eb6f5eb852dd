"""A leader lets another member lead: because a person asked, because it stops, or because its disk is full or hangs.

Rules of this file
1. Nothing is appended from the moment on in which another one is to lead: it has to have everything.
2. Where nobody leads in time this one goes on.
3. Who has no room either does not lead because it is asked: of several the next one is asked.
"""

from __future__ import annotations

import logging

from orbitmq.clock import Clock
from orbitmq.limits.group import SWITCH_MS
from orbitmq.replication.member import TimedReplica
from orbitmq.server.replication.group.driver_ports import Duties
from orbitmq.store.store import MessageStore
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")


class LeaderSwitch:
    """Of one member."""

    def __init__(self, member: TimedReplica, store: MessageStore, duties: Duties, clock: Clock) -> None:
        self._member = member
        self._replica = member.replica
        self._store = store
        self._duties = duties
        self._clock = clock
        self._stands_still = False
        self._next_ns = 0
        """When a disk is a reason again."""
        self._asked: set[str] = set()
        """Who was asked for that reason."""

    def stand_still(self, successor: str) -> bool:
        """Append nothing more, so that this one can lead. False where that is not possible."""
        replica, view = self._replica, self._replica.view
        if not replica.serves or view is None or successor == replica.name or successor not in view.in_sync:
            return False
        self._duties.stand_still()
        self._stands_still = True
        return True

    def look(self) -> str:
        """Time has passed. Answers who is to lead because of this disk; empty where it does what it should."""
        replica, view, now_ns = self._replica, self._replica.view, self._clock.monotonic_ns()
        if self._stands_still and replica.serves and not replica.switching_to:
            self._stands_still = False
            logger.warning("no other member has become leader in time: this one goes on")
            self._duties.go_on()
        if not (replica.serves and self._disk_trouble) or view is None or now_ns < self._next_ns:
            return ""
        self._next_ns = now_ns + 2 * SWITCH_MS * NS_PER_MS
        others = {name for name in view.in_sync if name != replica.name}
        if others <= self._asked:
            self._asked.clear()
        successor = "" if replica.switching_to else self._member.successor(sorted(others - self._asked))
        self._asked.add(successor)
        if successor:
            logger.warning("%s is asked to lead: %s", successor, self._disk_trouble)
        return successor

    @property
    def _disk_trouble(self) -> str:
        """Why this member confirms nothing that comes now, because of its disk; empty where it does."""
        if self._store.lacks_room:
            return self._store.trouble
        is_confirmed_without = self._replica.safe_end == self._replica.log.written
        return "" if is_confirmed_without else self._store.unsynced_trouble

    def over(self) -> None:
        """This member leads no more."""
        self._stands_still = False
