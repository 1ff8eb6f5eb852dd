"""What a broker with copies knows of damage in its log: places that are damaged, and files that are to be looked at.

    a reader, a slave's connection or the check of the whole log meets a bad record  ->  its file is to be walked
    the walk comes to where the damage begins                                        ->  a damaged place, to be fetched from another copy
    it was written anew                                                              ->  no place any more; the walk goes on behind it
    no other copy gave it                                                            ->  the place stays up to where a record follows;
                                                                                         the walk goes on there, and the place is asked for
                                                                                         again later

Rules of this file
1. A walk begins where a record begins: at the first byte of a file, or at a damaged place in it.
2. Whoever reads a damaged record is to ask again while there is hope: until the other copies were asked once and none gave it.
3. A file that was found to be sound is not walked again at once for a place that somebody named before; a consume queue that names wrong
   places would have it read all the time.
4. No clock is read: times are monotonic nanoseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.limits.replication import (
    MEND_PAUSE_MS,
    MEND_PLACES_MAX,
    MEND_PLACES_SHOWN,
    MEND_SHARE,
    WALK_AGAIN_MS,
    WALKS_AGAIN_MAX,
)
from orbitmq.units import NS_PER_MS


class UnmendedPlace(NamedTuple):
    """A part of the log that is damaged."""

    end: int
    """Where a record follows, sound or not, or the file ends."""
    why: str
    was_asked_for: bool = False
    """Whether other copies were asked once, and none gave it."""


class StretchToWalk(NamedTuple):
    """Of one file, to be walked: a record begins at `begin`."""

    begin: int
    end: int


class Damage:
    """Of one log. `places` are by the log positions where they begin."""

    __slots__ = (
        "_files",
        "_named",
        "_retry_ns",
        "_segment_bytes",
        "_unwalked",
        "_walked_ns",
        "mended_bytes",
        "mended_count",
        "places",
    )

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes: Final = segment_bytes
        self._files: dict[int, bool] = {}
        """First bytes of files to be walked now, in this order; all of the file, or only the places that are known."""
        self._named: dict[int, set[int]] = {}
        """By files that are to be walked, or were lately: the positions that somebody met there."""
        self._walked_ns: dict[int, int] = {}
        """When a file was walked to its end."""
        self._retry_ns: dict[int, int] = {}
        """When a file is walked again: the places that nobody gave."""
        self._unwalked: set[int] = set()
        """Files that could not be walked to their end."""
        self.places: dict[int, UnmendedPlace] = {}
        self.mended_count = 0
        self.mended_bytes = 0

    def _base(self, position: int) -> int:
        return position - position % self._segment_bytes

    def _places_in(self, base: int) -> list[int]:
        return sorted(place for place in self.places if self._base(place) == base)

    # --- what is to be looked at ------------------------------------------------------------------------------------

    def suspect(self, position: int, now_ns: int) -> bool:
        """Somebody met a bad record there. Whether it may be sound soon: its file is going to be walked, and other copies asked."""
        base = self._base(position)
        if any(place.was_asked_for and begin <= position < place.end for begin, place in self.places.items()):
            return False
        walked_ns = self._walked_ns.get(base)
        if walked_ns is not None and now_ns - walked_ns >= WALK_AGAIN_MS * NS_PER_MS:
            del self._walked_ns[base]
            self._named.pop(base, None)
        named = self._named.setdefault(base, set())
        if base not in self._files and (position in named or len(named) >= WALKS_AGAIN_MAX):
            return False
        if len(named) < WALKS_AGAIN_MAX:
            named.add(position)
        self._files[base] = True
        return True

    def next_file(self, now_ns: int) -> int | None:
        """First byte of a file that is to be walked now."""
        for base, due_ns in list(self._retry_ns.items()):
            if due_ns <= now_ns:
                del self._retry_ns[base]
                self._files.setdefault(base, base in self._unwalked)
        return next(iter(self._files), None)

    @property
    def due_ns(self) -> int | None:
        """When `next_file` has to be asked again, if nothing else happens."""
        return min(self._retry_ns.values(), default=None)

    def stretches(self, base: int) -> list[StretchToWalk]:
        """What is to be walked of a file: all of it, or where it was damaged when it was walked last."""
        if self._files.get(base, True):
            return [StretchToWalk(base, base + self._segment_bytes)]
        return [StretchToWalk(begin, self.places[begin].end) for begin in self._places_in(base)]

    # --- what was found ---------------------------------------------------------------------------------------------

    def found(self, position: int, why: str) -> bool:
        """A walk met damage; whether that is news."""
        is_new = position not in self.places
        if is_new:
            self.places[position] = UnmendedPlace(position + 1, why)
        return is_new

    @property
    def is_full(self) -> bool:
        """No further place is remembered: the rest of a file becomes one with the place that was found last."""
        return len(self.places) > MEND_PLACES_MAX

    def mended(self, position: int, size: int) -> None:
        self.places.pop(position, None)
        named = self._named.get(self._base(position), set())
        named -= {one for one in named if position <= one < position + size}  # it may be damaged again
        self.mended_count += 1
        self.mended_bytes += size

    def not_mended(self, position: int, end: int, why: str) -> None:
        """No other copy gave what was found. A record follows at `end`, or the file ends."""
        self.places[position] = UnmendedPlace(end, why, was_asked_for=True)

    def sound(self, begin: int, end: int) -> None:
        """What a walk found between them: places there are gone."""
        for place in [place for place in self.places if begin <= place < end]:
            del self.places[place]

    def walked(self, base: int, now_ns: int, took_ns: int = 0) -> None:
        """A file was walked to its end, or is gone. Where it has places they are asked for again after a pause, and in no more than a small
        part of the time."""
        self._files.pop(base, None)
        self._unwalked.discard(base)
        self._walked_ns[base] = now_ns
        if self._places_in(base):
            self._retry_ns[base] = now_ns + max(MEND_PAUSE_MS * NS_PER_MS, took_ns * MEND_SHARE)
        else:
            self._retry_ns.pop(base, None)
        for old in [one for one, at_ns in self._walked_ns.items() if now_ns - at_ns >= WALK_AGAIN_MS * NS_PER_MS]:
            del self._walked_ns[old]
            self._named.pop(old, None)

    def not_walked(self, base: int, now_ns: int) -> None:
        """That failed: all of the file is walked after a pause."""
        self._files.pop(base, None)
        self._named.pop(base, None)
        self._unwalked.add(base)
        self._retry_ns[base] = now_ns + MEND_PAUSE_MS * NS_PER_MS

    # --- what is shown ----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """For an operator; empty where nothing is known to be damaged."""
        if not self.places:
            return ""
        shown = [f"{at} ({place.why})" for at, place in sorted(self.places.items())[:MEND_PLACES_SHOWN]]
        more = len(self.places) - len(shown)
        return f"the log is damaged at {', '.join(shown)}{f' and {more} other places' if more else ''}"
