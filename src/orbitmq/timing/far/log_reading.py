"""Reading far messages that no file holds from the log, where it does not hold the loop.

Rules of this file
1. What a read found is given away on the loop, and the turn is ended with it; a tier that was closed meanwhile hears nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from orbitmq.store.reading import read_and_verify
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.buffered import FarUnit

logger = logging.getLogger("orbitmq.timing")

ReadUnits = Callable[[list[tuple[FarUnit, bytes | None]]], None]


class Reader(Protocol):
    """Who reads."""

    @property
    def is_closed(self) -> bool: ...


def read_units(
    store: MessageStore, units: list[FarUnit], done: ReadUnits, failed: Callable[[], None], reader: Reader
) -> None:
    """None stands for a record that is damaged or gone."""

    def job() -> list[tuple[FarUnit, bytes | None]]:
        found: list[tuple[FarUnit, bytes | None]] = []
        for unit in units:
            read = read_and_verify(store.log, [(unit.physical_offset, unit.size, unit.queue_offset)])
            found.append((unit, read.records[0] if read.records else None))
        return found

    def finished(result: list[tuple[FarUnit, bytes | None]] | BaseException) -> None:
        if reader.is_closed:
            return
        if isinstance(result, BaseException):
            logger.error("far messages could not be read from the log: %s", result)
            failed()
            return
        done(result)
        store.commit()

    store.read_elsewhere(job, finished)
