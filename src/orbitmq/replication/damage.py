"""What a broker with copies knows of damage in its log: places that are damaged, and files that are to be looked at.

    a reader, a slave's connection or the check of the whole log meets a bad record  ->  its file is to be walked
    the walk comes to where the damage begins                                        ->  a damaged place, to be fetched from another copy
    it was written anew                                                              ->  no place any more; the walk goes on behind it
    no other copy gave it                                                            ->  the place stays, and is asked for again later

Rules of this file
1. A file is walked from a place where a record is known to begin: its first byte, or a damaged place in it.
2. Whoever reads a damaged record is to ask again while there is hope: until the other copies were asked once and none gave it.
3. No clock is read: times are monotonic nanoseconds.
"""

from __future__ import annotations

from typing import Final

from orbitmq.limits.replication import MEND_PAUSE_MS, MEND_PLACES_SHOWN, WALK_AGAIN_MS
from orbitmq.units import NS_PER_MS


class Damage:
    """Of one log. `places` are log positions, each with what is wrong there."""

    __slots__ = (
        "_files",
        "_retry_ns",
        "_segment_bytes",
        "_tried",
        "_walked_ns",
        "mended_bytes",
        "mended_count",
        "places",
    )

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes: Final = segment_bytes
        self._files: dict[int, None] = {}
        """First bytes of files to be walked now, in this order."""
        self._walked_ns: dict[int, int] = {}
        """When a file was found to be sound."""
        self._retry_ns: dict[int, int] = {}
        """When a file with a place that nobody gave is walked again."""
        self._tried: set[int] = set()
        """Files with such a place."""
        self.places: dict[int, str] = {}
        self.mended_count = 0
        self.mended_bytes = 0

    def _base(self, position: int) -> int:
        return position - position % self._segment_bytes

    # --- what is to be looked at ------------------------------------------------------------------------------------

    def suspect(self, position: int, now_ns: int) -> bool:
        """Somebody met a bad record there. Whether it may be sound soon: its file is going to be walked, and other copies asked."""
        base = self._base(position)
        if base in self._tried:
            return False
        walked_ns = self._walked_ns.get(base)
        if walked_ns is not None and now_ns - walked_ns < WALK_AGAIN_MS * NS_PER_MS:
            return False
        self._files[base] = None
        return True

    def next_file(self, now_ns: int) -> int | None:
        """First byte of a file that is to be walked now."""
        for base, due_ns in list(self._retry_ns.items()):
            if due_ns <= now_ns:
                del self._retry_ns[base]
                self._files[base] = None
        return next(iter(self._files), None)

    @property
    def due_ns(self) -> int | None:
        """When `next_file` has to be asked again, if nothing else happens."""
        return min(self._retry_ns.values(), default=None)

    def start_in(self, base: int) -> int:
        """Where the walk of a file begins."""
        return min((place for place in self.places if self._base(place) == base), default=base)

    # --- what was found ---------------------------------------------------------------------------------------------

    def found(self, position: int, problem: str) -> bool:
        """A walk met damage; whether that is news."""
        is_new = position not in self.places
        self.places[position] = problem
        return is_new

    def mended(self, position: int, size: int) -> None:
        self.places.pop(position, None)
        self._tried.discard(self._base(position))
        self.mended_count += 1
        self.mended_bytes += size

    def not_mended(self, position: int, now_ns: int) -> None:
        """No other copy gave it. The file is walked again after a pause."""
        base = self._base(position)
        self._files.pop(base, None)
        self._tried.add(base)
        self._retry_ns[base] = now_ns + MEND_PAUSE_MS * NS_PER_MS

    def walked(self, base: int, now_ns: int) -> None:
        """A file is sound to its end, or gone."""
        self._files.pop(base, None)
        self._retry_ns.pop(base, None)
        self._tried.discard(base)
        self.places = {place: why for place, why in self.places.items() if self._base(place) != base}
        self._walked_ns = {
            one: at_ns for one, at_ns in self._walked_ns.items() if now_ns - at_ns < WALK_AGAIN_MS * NS_PER_MS
        }
        self._walked_ns[base] = now_ns

    # --- what is shown ----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """For an operator; empty where nothing is known to be damaged."""
        if not self.places:
            return ""
        shown = [f"{place} ({why})" for place, why in sorted(self.places.items())[:MEND_PLACES_SHOWN]]
        more = len(self.places) - len(shown)
        return f"the log is damaged at {', '.join(shown)}{f' and {more} other places' if more else ''}"
