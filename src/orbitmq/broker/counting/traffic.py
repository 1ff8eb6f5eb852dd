"""Counters by name, with what they were a minute, an hour and a day ago.

Source: RocketMQ broker, statistics items (VIEW_BROKER_STATS_DATA): sums over three windows, a rate and a mean.

Rules of this file
1. Counting is a look-up and four additions. Nothing runs per name and period: a counter notes what it was when it is
   touched first in a new step of time, and a window is read from those notes. An idle name costs nothing.
2. A window reaches back over whole steps: a minute in steps of ten seconds, an hour of ten minutes, a day of an hour.
3. Names are bounded; further ones share one counter (`OTHERS`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits.broker import STATISTIC_NAMES_MAX, TRAFFIC_STEP_NS

OTHERS: Final = "(others)"


class Window(NamedTuple):
    """A span that is reported, in steps of `TRAFFIC_STEP_NS`: its resolution, and how far it reaches back."""

    resolution: int
    reach: int


MINUTE: Final = Window(1, 6)
HOUR: Final = Window(60, 360)
DAY: Final = Window(360, 8_640)
WINDOWS: Final = (MINUTE, HOUR, DAY)


class Sum(msgspec.Struct, frozen=True, gc=False):
    """What a counter gained in a window. `seconds` is the part of the window that the counter has lived."""

    count: int
    size: int
    times: int
    seconds: float


class _Note(msgspec.Struct, frozen=True, gc=False):
    """What a counter was before it was touched first in `step` (of its window's resolution)."""

    step: int
    count: int
    size: int
    times: int


class Counter:
    """`count` events of `size` bytes in `times` requests; they only grow."""

    __slots__ = ("_notes", "born", "count", "size", "step", "times")

    def __init__(self, step: int) -> None:
        self.count = self.size = self.times = 0
        self.step = self.born = step
        self._notes = tuple(deque([_Note(step // w.resolution, 0, 0, 0)], w.reach // w.resolution + 1) for w in WINDOWS)

    def enter(self, step: int) -> None:
        """Note the present values: they are what the counter was before `step`."""
        self.step = step
        for window, notes in zip(WINDOWS, self._notes, strict=True):
            coarse = step // window.resolution
            if notes[-1].step != coarse:
                notes.append(_Note(coarse, self.count, self.size, self.times))

    def within(self, window: Window, now_ns: int) -> Sum:
        """The growth over the last `window.reach` steps, the current one included."""
        step = now_ns // TRAFFIC_STEP_NS
        first = step // window.resolution - window.reach // window.resolution + 1
        before = next((note for note in self._notes[WINDOWS.index(window)] if note.step >= first), None)
        begin_ns = max(first * window.resolution, self.born) * TRAFFIC_STEP_NS
        seconds = max((now_ns - begin_ns) / 1e9, 1.0)
        if before is None:
            return Sum(0, 0, 0, seconds)
        return Sum(self.count - before.count, self.size - before.size, self.times - before.times, seconds)


class Traffic:
    """The counters of one kind, by name."""

    __slots__ = ("_counters",)

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}

    def add(self, name: str, count: int, size: int, step: int) -> None:
        """Count one request of `count` events. `step` is the present time divided by `TRAFFIC_STEP_NS`."""
        counter = self.at(name, step)
        counter.count += count
        counter.size += size
        counter.times += 1

    def at(self, name: str, step: int) -> Counter:
        """The counter of a name, made when it is new and there is room, ready to be counted up in `step`."""
        counter = self._counters.get(name)
        if counter is None:
            counter = self._new(name, step)
        if counter.step != step:
            counter.enter(step)
        return counter

    def get(self, name: str) -> Counter | None:
        return self._counters.get(name)

    def drop(self, name: str) -> None:
        """Forget a name, such as a deleted topic: its place is free for another."""
        self._counters.pop(name, None)

    def names(self) -> list[str]:
        return list(self._counters)

    def __iter__(self) -> Iterator[tuple[str, Counter]]:
        return iter(self._counters.items())

    def __len__(self) -> int:
        return len(self._counters)

    def _new(self, name: str, step: int) -> Counter:
        if len(self._counters) >= STATISTIC_NAMES_MAX:
            name = OTHERS
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Counter(step)
        return counter
