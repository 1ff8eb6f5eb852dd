"""Reading far messages that no file holds from the log, where it does not hold the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.store.store import MessageStore
from orbitmq.timing.far.buffered import FarUnit
from orbitmq.timing.release import read_cold

logger = logging.getLogger("orbitmq.timing")

Read = list[tuple[FarUnit, bytes | None]]
"""Messages and their records as the log has them; None stands for a record that is damaged or gone."""


def read_units(
    store: MessageStore,
    units: list[FarUnit],
    done: Callable[[Read], None],
    failed: Callable[[], None],
    is_closed: Callable[[], bool],
) -> None:
    """Read these records. `done` runs on the loop, and the turn ends with it; once it `is_closed` nobody hears anything."""

    def finished(found: list[tuple[int, bytes | None]] | BaseException) -> None:
        if is_closed():
            return
        if isinstance(found, BaseException) or len(found) < len(units):
            why = found if isinstance(found, BaseException) else f"{len(units) - len(found)} of {len(units)}"
            logger.error("far messages could not be read from the log: %s", why)
            failed()
            return
        done([(unit, data) for unit, (_, data) in zip(units, found, strict=True)])
        store.commit()

    read_cold(store, [(unit.physical_offset, unit.size) for unit in units], finished)
