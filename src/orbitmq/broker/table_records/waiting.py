"""Who waits until what changed in tables is a record of the log that nobody takes out of it again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orbitmq.errors import OrbitError
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore

OnRecorded = Callable[[BaseException | None], None]


def not_recorded() -> OrbitError:
    """Why a change does not count, or may not."""
    return OrbitError("the change is not in the log, or another leader may cut it off")


class RecordWaiters:
    """For records that are not appended yet."""

    def __init__(self) -> None:
        self._waiting: list[OnRecorded] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, on_done: OnRecorded) -> None:
        self._waiting.append(on_done)

    def _taken(self) -> list[OnRecorded]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def fail(self, error: OrbitError) -> None:
        """They are not going to be."""
        for on_done in self._taken():
            on_done(error)

    def appended(self, store: MessageStore, end: int) -> None:
        """They are, and end there at the latest."""
        for on_done in self._taken():
            when_confirmed(store, end, on_done)


def when_confirmed(store: MessageStore, end: int, on_done: OnRecorded) -> None:
    """Tell when everything is confirmed that ends at `end` or before, or that it is not; perhaps at once."""
    store.wait_durable(end, True, partial(_tell, on_done))


def _tell(on_done: OnRecorded, status: PutStatus) -> None:
    failed = status in (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.UNKNOWN)
    on_done(not_recorded() if failed else None)
