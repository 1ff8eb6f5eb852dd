"""Files of the far tier that cannot be read, and indexes.

Rules of this file
1. Each is reported once. A file is left out until the next start; an index only costs time, and its files are written anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from orbitmq.timing.far.state import FarState

logger = logging.getLogger("orbitmq.timing")


class Damage:
    def __init__(self, state: FarState) -> None:
        self._state = state
        self.known: dict[str, str] = {}
        """Files and indexes, and why they cannot be read."""

    def note(self, name: str, reason: str) -> bool:
        """Somebody could not read `name`. False when nothing needs it any more."""
        file = self._state.files.get(name)
        if file is None and name not in self._state.index_uses:
            return False
        if name not in self.known:
            self.known[name] = reason
            if file is not None:
                logger.error(
                    "%s; %d far messages in it wait until it is repaired and the broker started again",
                    reason,
                    file.left,
                )
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

    @property
    def files(self) -> list[str]:
        """Those of them that hold messages."""
        return [name for name in self.known if name in self._state.files]
