"""Who appends to a store by itself, and when: everything that delivers, runs, promotes, checks or writes anew.

What is known of messages that wait is learnt from the log alone, at a broker that appends as at one that only copies another's log. Here is
the other half: the parts that act on it. A broker that becomes a master attaches them, one that becomes a slave detaches them, any number
of times in one process.

Rules of this file
1. Attaching and detaching change nothing in what is known. What a part has taken and the log has not given back (it is *in flight*) is
   the part's own: `detach` forgets it, and after the next `attach` the log alone says whether it is still to be done.
2. So nothing is attached before everything that the log holds has been applied: a delivery in its last bytes would be made a second time.
3. Detached means: no deadline is armed, no result of a job that still runs is looked at, nothing is appended later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from orbitmq.clock import Clock
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import RETRY_MS
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "appenders"

LOOK_MS: Final = 5
"""Between two looks whether the end of the log has been applied, which takes a sync or an answer of a copy: some milliseconds, once in the
life of a role."""


NOT_ATTACHED: Final = "this broker copies the log of another one, which takes the changes: ask the master"
"""Why a part that is not attached refuses what it would have to append."""


class Appender(Protocol):
    """A part that appends to the store while it is attached. Both methods may be called again without effect."""

    def attach(self, store: MessageStore) -> None:
        """Begin to append to `store`, all of whose log has been applied."""
        ...

    def detach(self) -> None:
        """Append nothing any more, and forget what is in flight."""
        ...


class Appenders:
    """All that append to one store. They begin in the given order, and end in the opposite one."""

    def __init__(self, store: MessageStore, clock: Clock, parts: Sequence[Appender]) -> None:
        self._store = store
        self._clock = clock
        self._parts = list(parts)
        self._begin_at: int | None = None
        """End of the log that has to be applied first; None while nobody waits for that."""
        self.are_attached = False
        store.deadlines.define(WAKEUP, self._look)

    def attach(self) -> None:
        """Let all of them begin: at once where everything in the log has been applied, otherwise as soon as it has. Raises OSError when
        one of them could not read what it needs; it is tried again."""
        if self.are_attached or self._begin_at is not None:
            return
        self._store.commit()
        self._begin_at = self._store.log.end
        self._look()

    def detach(self) -> None:
        """Let all of them end, those that wait to begin as well: what a part noted meanwhile is not going to be appended. What they
        appended until now stays in the log."""
        if not self.are_attached and self._begin_at is None:
            return
        self._begin_at = None
        self._store.deadlines.disarm(WAKEUP)
        self._store.commit()  # who appended in this turn hears of it while he knows of it
        self._end()

    def _end(self) -> None:
        self.are_attached = False
        for part in reversed(self._parts):
            part.detach()

    def _look(self) -> None:
        store, begin_at = self._store, self._begin_at
        if begin_at is None or store.is_over:
            return
        if store.is_behind or store.confirm_offset < min(begin_at, store.log.end):
            store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + LOOK_MS * NS_PER_MS)
            return
        try:
            for part in self._parts:
                part.attach(store)
        except BaseException:
            self._end()
            store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + RETRY_MS * NS_PER_MS)
            raise
        self._begin_at = None
        self.are_attached = True
