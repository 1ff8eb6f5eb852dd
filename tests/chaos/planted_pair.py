"""`orbitmq` with a planted bug: `planted_pair.py BUG broker ...`. The campaign of a pair has to catch each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from orbitmq.cli.main import main
from orbitmq.replication.classic.slave_link import SlaveLink
from orbitmq.replication.copies import Copies
from orbitmq.server.replication.following import Following

APPENDED_AFTER_S: Final = 0.3


def reported_before_the_append() -> None:
    """A slave reports what it has received, and appends it later."""

    def received(self: Any, data: bytes) -> None:
        link, now_ns = self.link, self._clock.monotonic_ns()
        pieces = [(piece.position, bytes(piece.data)) for piece in link.receive_data(data, now_ns)]
        if pieces:
            link._appended_end = link.received_end
            link._report(link.received_end, now_ns)
            self._go_on()
            asyncio.get_running_loop().call_later(APPENDED_AFTER_S, append, self, pieces)

    def append(self: Any, pieces: list[tuple[int, bytes]]) -> None:
        for position, data in pieces:
            self._store.append_raw(position, data)
        self._turn.schedule()

    SlaveLink.appended = lambda *_: None  # type: ignore[method-assign]
    Following.received = received  # type: ignore[method-assign]


def answered_before_the_copy() -> None:
    """A synchronous master takes for copied what it has itself, as long as a slave counts."""

    def confirmable_end(self: Any) -> int | None:
        return self._ages.end if self._positions() else correct(self)

    correct: Any = Copies.confirmable_end.fget
    Copies.confirmable_end = property(confirmable_end)  # type: ignore[method-assign, assignment]


PLANTED: Final[dict[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (reported_before_the_append, answered_before_the_copy)
}


if __name__ == "__main__":
    PLANTED[sys.argv.pop(1)]()
    sys.exit(main())
