"""The list of the far tier's files and their indexes: what lies in the tier, what cannot be read, and what may be removed.

Rules of this file
1. The list is kept here alone: who promotes, writes anew, answers from or removes files asks it.
2. What lies in the tier is a function of the log. What is damaged is learnt by reading, and forgotten with the process.
3. Damage counts by row group: what can be read of a damaged file is written anew at once. The other rows are `lost` until the file
   is repaired: each start tries them once, and `orbitmq timer far repair`. A damaged index only costs time until it is written anew.
4. A file is removed when a saved state that does not need it is durable, not before.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import Compacted, FarFile, Indexed
from orbitmq.timing.far.tier import Compaction, FarQuery, FileView, view_of

logger = logging.getLogger("orbitmq.timing")


class TierFiles:
    """The files of one store's far tier."""

    def __init__(self, files: Iterable[FarFile] = ()) -> None:
        self.by_name = {file.name: file for file in files}
        self.index_uses = Counter(file.index for file in self.by_name.values() if file.index)
        """Indexes, and how many of the files each one has."""
        self.unreadable: dict[str, str] = {}
        """Files and indexes that could not be read, and why."""
        self._tried: set[str] = set()
        """Damaged files that this process has read row group by row group."""
        self._given_up: set[str] = set()
        self._garbage: dict[str, int | None] = {}
        """Files and indexes that nothing speaks of any more, and the number of the saved state that is the first without them."""

    # --- what the log says ------------------------------------------------------------------------------------------

    def add(self, file: FarFile) -> None:
        if file.index and file.name not in self.by_name:
            self.index_uses[file.index] += 1
        self.by_name[file.name] = file

    def drop(self, name: str) -> FarFile:
        """Nothing needs a file any more."""
        file = self.by_name.pop(name)
        self._garbage[name] = None
        if file.index:
            self.index_uses[file.index] -= 1
            self._drop_unused(file.index)
        return file

    def indexed(self, change: Indexed) -> None:
        for number, name in enumerate(change.files):
            file = self.by_name.get(name)
            if file is not None and not file.index:
                file.index, file.index_number = change.index, number
                self.index_uses[file.index] += 1
        self._drop_unused(change.index)

    def _drop_unused(self, index: str) -> None:
        if not self.index_uses[index]:
            del self.index_uses[index]
            self._garbage[index] = None

    # --- garbage ----------------------------------------------------------------------------------------------------

    def saved(self, serial: int) -> None:
        """The list goes into the saved state with this number."""
        self._garbage = {name: serial if number is None else number for name, number in self._garbage.items()}

    def forget_garbage(self) -> None:
        """Somebody else removes what this log lets go of, or a sweep of the whole tier does."""
        self._garbage.clear()

    def removable(self, serial: int) -> list[str]:
        """Files and indexes to be removed when the state with this number is durable."""
        return [name for name, number in self._garbage.items() if number is not None and number <= serial]

    def removed(self, names: Iterable[str]) -> None:
        for name in names:
            self._garbage.pop(name, None)

    @property
    def has_garbage(self) -> bool:
        return bool(self._garbage)

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of all files and indexes."""
        return [*self.by_name, *self.index_uses]

    @property
    def not_removed(self) -> list[str]:
        """Likewise, and of those that wait to be removed."""
        return [*self.names, *self._garbage]

    @property
    def sound(self) -> list[FarFile]:
        """Files that may be read."""
        return [file for file in self.by_name.values() if self._is_sound(file)]

    @property
    def damaged(self) -> list[str]:
        """Files whose messages cannot be read, none of them or not all."""
        return [file.name for file in self.by_name.values() if not self._is_sound(file)]

    def _is_sound(self, file: FarFile) -> bool:
        return file.name not in self.unreadable and not file.lost

    def reasons(self) -> dict[str, str]:
        """Damaged files and indexes, and what is wrong with each."""
        lost = {
            file.name: f"{file.left} of its {file.rows} rows cannot be read"
            for file in self.by_name.values()
            if file.lost
        }
        return lost | self.unreadable

    def views(self, query: FarQuery) -> list[FileView]:
        """Files that may hold what is wanted, by due time of their next row."""
        since_ms = max(query.from_ms or 0, query.after[0] if query.after is not None else 0)
        found = [view_of(file) for file in self.sound if file.left and _may_hold(file, since_ms, query.until_ms)]
        return sorted(found, key=lambda view: view.next_ms)

    def left_out(self, query: FarQuery) -> int:
        """Number of messages within the query's times that lie in damaged files, whether they match or not."""
        damaged = (self.by_name[name] for name in self.damaged)
        return sum(file.left for file in damaged if _may_hold(file, query.from_ms or 0, query.until_ms))

    # --- damage -----------------------------------------------------------------------------------------------------

    def note_damage(self, found: Iterable[tuple[str, str]]) -> bool:
        """Files and indexes could not be read, for these reasons; each is reported once. False when one of them is not needed any more."""
        is_needed = True
        for name, reason in found:
            file = self.by_name.get(name)
            if file is None and name not in self.index_uses:
                is_needed = False
            elif name not in self.unreadable:
                self.unreadable[name] = reason
                if file is not None:
                    logger.error("%s; what can be read of its %d far messages is written anew", reason, file.left)
                else:
                    logger.error("%s; look-ups by key read its files until they are written anew", reason)
        return is_needed

    def forget_removed_damage(self) -> None:
        """Forget damage of files and indexes that were written anew meanwhile."""
        known = set(self.names)
        self.unreadable = {name: reason for name, reason in self.unreadable.items() if name in known}

    def give_up_damaged(self) -> None:
        """An operator wants what can be read of all damaged files, and the rest in quarantine."""
        self._given_up = set(self.damaged)

    def next_damaged(self) -> tuple[FarFile, bool] | None:
        """A damaged file that is to be read row group by row group, and whether what cannot be read of it is to be given up."""
        for name in self.damaged:
            if name in self._given_up or name not in self._tried:
                return self.by_name[name], name in self._given_up
        return None

    def rewritten(
        self, names: Sequence[str], result: Compaction, *, gives_up: bool
    ) -> tuple[Sequence[FarUnit], Compacted | None]:
        """Take the result of writing these files anew: answers the messages that go to quarantine, and the change to be noted, if any.

        gives_up: what `next_damaged` said when it began. One that began before the operator asked has not seen the sound copy that may
        lie there since.
        """
        self._tried.update(names)
        if gives_up:
            self._given_up.difference_update(names)
        lost = {name: sum(end - first for first, end in ranges) for name, ranges in result.lost.items()}
        is_known = bool(lost) and len(result.known) == sum(lost.values())
        for name, count in lost.items():
            fate = "are given up" if gives_up and is_known else "wait until it is repaired (orbitmq timer far repair)"
            logger.error("%d messages of %s %s: %s", count, name, fate, "; ".join(result.reasons))
        if gives_up and is_known:
            units = [FarUnit(-1, source - 1, 0, due_ms, topic) for due_ms, source, topic in result.known]
            return units, Compacted([*names], result.added, result.dropped)
        whole = [name for name in names if name not in lost]
        if not whole and not result.added and all(self.by_name[name].lost for name in lost):
            return [], None  # as it was
        return [], Compacted(whole, result.added, result.dropped, result.lost)


def _may_hold(file: FarFile, since_ms: int, until_ms: int | None) -> bool:
    """Whether rows of a file may be due from `since_ms` to before `until_ms`."""
    return file.max_ms >= since_ms and (until_ms is None or file.next_ms < until_ms)
