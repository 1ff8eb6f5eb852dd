"""Named work that is due at a time.

A component that needs to do something later arms a name; whoever owns the event loop sleeps until the earliest deadline
and runs what is due. Nothing polls: without armed names nothing wakes. Every wake-up is counted under its name.

Rules of this file
1. Deadlines are monotonic nanoseconds.
2. A name is armed at most once; arming it again keeps the earlier deadline.
3. An action that raises is run again after a pause, unless it has armed itself; the others stay armed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from orbitmq.limits.clock import DEADLINE_RETRY_NS


class Deadlines:
    """A handful of names with deadlines and the functions that they run."""

    __slots__ = ("_actions", "_due_ns", "next_ns", "wakeups")

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[], None]] = {}
        self._due_ns: dict[str, int] = {}
        self.next_ns: int | None = None
        """The earliest deadline; None when nothing is armed. Kept up to date, because every turn looks at it."""
        self.wakeups: Counter[str] = Counter()
        """How often each name has run."""

    def define(self, name: str, action: Callable[[], None]) -> None:
        self._actions[name] = action

    def arm(self, name: str, at_ns: int) -> None:
        """Run `name` at `at_ns`, or earlier when it is armed for an earlier time already."""
        known = self._due_ns.get(name)
        if known is None or at_ns < known:
            if name not in self._actions:
                raise KeyError(f"no action is defined for {name!r}")
            self._due_ns[name] = at_ns
            if self.next_ns is None or at_ns < self.next_ns:
                self.next_ns = at_ns

    def disarm(self, name: str) -> None:
        if self._due_ns.pop(name, None) is not None:
            self.next_ns = min(self._due_ns.values(), default=None)

    def move(self, name: str, at_ns: int | None) -> None:
        """Run `name` at `at_ns` whatever it was armed for before; None disarms it."""
        if self._due_ns.get(name) != at_ns:
            self.disarm(name)
            if at_ns is not None:
                self.arm(name, at_ns)

    def run_due(self, now_ns: int) -> None:
        """Run every action whose time has come, each once; an action may arm names again. Raises what an action raises; those
        behind it are run by the next call."""
        due = sorted((at, name) for name, at in self._due_ns.items() if at <= now_ns)
        for at, name in due:
            if self._due_ns.get(name) == at:  # not disarmed by an action before it
                self.disarm(name)
                self.wakeups[name] += 1
                try:
                    self._actions[name]()
                except Exception:
                    self.arm(name, now_ns + DEADLINE_RETRY_NS)
                    raise
