"""Files of the far tier that cannot be read, and indexes.

Rules of this file
1. Each is reported once. An index only costs time, and its files are written anew.
2. Of a file the row groups that can be read are written anew at once; the rows of the others are lost until the file is repaired:
   each start tries them once, and `orbitmq timer far repair`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.far.changes import Compacted, FarFile
from orbitmq.timing.far.state import FarState
from orbitmq.timing.far.tier import Salvage

logger = logging.getLogger("orbitmq.timing")


class Damage:
    def __init__(self, state: FarState) -> None:
        self._state = state
        self.known: dict[str, str] = {}
        """Files and indexes, and why they cannot be read."""
        self._tried: set[str] = set()
        """Damaged files that this process has read row group by row group."""
        self._given_up: set[str] = set()

    def note(self, name: str, reason: str) -> bool:
        """Somebody could not read `name`. False when nothing needs it any more."""
        file = self._state.files.get(name)
        if file is None and name not in self._state.index_uses:
            return False
        if name not in self.known:
            self.known[name] = reason
            if file is not None:
                logger.error("%s; what can be read of its %d far messages is written anew", reason, file.left)
            else:
                logger.error("%s; look-ups by key read its files until they are written anew", reason)
        return True

    def note_all(self, found: Iterable[tuple[str, str]]) -> bool:
        """False when one of them is not needed any more."""
        unneeded = sum(not self.note(name, reason) for name, reason in found)
        return not unneeded

    def forget_removed(self) -> None:
        """What was written anew meanwhile is not damaged any more."""
        for name in [name for name in self.known if not self._is_needed(name)]:
            del self.known[name]

    def _is_needed(self, name: str) -> bool:
        return name in self._state.files or name in self._state.index_uses

    def give_up(self) -> None:
        """An operator wants what can be read of all damaged files, and the rest in quarantine."""
        self._given_up = set(self.files)

    def next_to_read(self) -> FarFile | None:
        """A damaged file that is to be read row group by row group."""
        for name in self.files:
            if name in self._given_up or name not in self._tried:
                return self._state.files[name]
        return None

    def gives_up(self, file: FarFile) -> bool:
        """Whether what cannot be read of a file is to be given up by a reading that begins now."""
        return file.name in self._given_up

    def salvaged(self, file: FarFile, result: Salvage, *, gives_up: bool) -> tuple[Compacted | None, list[FarUnit]]:
        """What came of that: the change to be noted, if any, and before it the messages that go to quarantine.

        gives_up: what `gives_up` said when it began. One that began before the operator asked has not seen the sound copy that may
        lie there since.
        """
        name, lost_count = file.name, sum(end - first for first, end in result.lost)
        if gives_up:
            self._given_up.discard(name)
        self._tried.add(name)
        whole = Compacted([name], result.added, result.dropped)
        if not lost_count:
            return whole, []
        if gives_up and len(result.known) == lost_count:
            logger.error("%d messages of %s are given up: %s", lost_count, name, result.reason)
            return whole, [FarUnit(-1, source - 1, 0, due_ms, topic) for due_ms, source, topic in result.known]
        logger.error(
            "%d messages of %s wait until it is repaired (orbitmq timer far repair), %d could be read: %s",
            lost_count,
            name,
            sum(added.rows for added in result.added),
            result.reason,
        )
        if file.lost and not result.added:
            return None, []
        return Compacted([], result.added, result.dropped, {name: result.lost}), []

    def is_sound(self, file: FarFile) -> bool:
        """Whether a file may be read."""
        return file.name not in self.known and not file.lost

    def reasons(self) -> dict[str, str]:
        """What is damaged, and why."""
        lost = {
            file.name: f"{file.left} of its {file.rows} rows cannot be read"
            for file in self._state.files.values()
            if file.lost
        }
        return lost | self.known

    @property
    def files(self) -> list[str]:
        """Those of them that hold messages."""
        return [file.name for file in self._state.files.values() if not self.is_sound(file)]
