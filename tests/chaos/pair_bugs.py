"""Bugs planted into `orbitmq broker` by `recorded_broker`. The campaign of a pair has to catch each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from orbitmq.replication.classic.slave_link import SlaveLink
from orbitmq.replication.copies import Copies
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.server.replication.demotion import Demotion
from orbitmq.server.replication.following import Following
from orbitmq.server.replication.promotion import Promotion
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.timers.timers import CHANGES, Timers

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
        return self._ages.end if self.positions else correct(self)

    correct: Any = Copies.confirmable_end.fget
    Copies.confirmable_end = property(confirmable_end)  # type: ignore[method-assign, assignment]


def successor_leads_behind() -> None:
    """A master makes a slave the master in its place before that has everything, and the slave does not look either."""

    async def nothing(*_: object) -> None:
        pass

    Demotion.copied = nothing  # type: ignore[method-assign, assignment]
    Promotion._refuse_behind = nothing  # type: ignore[method-assign, assignment]


def _slave_misses(is_missed: Callable[[Dispatched], bool]) -> None:
    """While it is a slave, a broker does not learn of these records that the timers which they name have ended."""

    def finish_sources(self: Any, entries: Sequence[Dispatched]) -> None:
        correct(self, [entry for entry in entries if self._store is not None or not is_missed(entry)])

    correct: Any = Timers._finish_sources
    Timers._finish_sources = finish_sources  # type: ignore[method-assign]


def slave_forgets_recalls() -> None:
    _slave_misses(lambda entry: entry.topic in CHANGES)


def slave_forgets_deliveries() -> None:
    _slave_misses(lambda entry: entry.topic not in CHANGES)


def role_is_not_synced() -> None:
    """What a broker was made by a command is in its file, and not on its disk."""

    def save(self: Any, table: object) -> None:
        if self._path.name != REPLICATION_FILE:
            correct(self, table)
            return
        self._files.make_dirs(self._path.parent)
        new = self._path.with_name(self._path.name + ".tmp")
        file = self._files.open(new, create=True)
        file.truncate(0)
        file.pwrite(ConfigFile.encode(table), 0)
        file.close()
        self._files.rename(new, self._path)

    correct: Any = ConfigFile.save
    ConfigFile.save = save  # type: ignore[method-assign]


PLANTED: Final[dict[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (
        reported_before_the_append,
        answered_before_the_copy,
        successor_leads_behind,
        slave_forgets_recalls,
        slave_forgets_deliveries,
        role_is_not_synced,
    )
}
