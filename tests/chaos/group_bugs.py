"""Bugs planted into `orbitmq broker` by `group_broker`: those of the core, those of a copy's timers, and one more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final
from unittest import mock

from tests.chaos import pair_bugs
from tests.property.group_bugs import BUGS, Plant

from orbitmq.replication.counting import LeaderCounting
from orbitmq.replication.view import View


@contextlib.contextmanager
def answered_before_the_copies() -> Iterator[None]:
    """A leader confirms what it has itself."""

    def confirmable_end(self: LeaderCounting, view: View, leader: str, safe_end: int) -> int | None:
        return None if self.marker_end is None or safe_end < self.marker_end else safe_end

    with mock.patch.object(LeaderCounting, "confirmable_end", confirmable_end):
        yield


def _for_good(plant: Callable[[], None]) -> Plant:
    """It is never taken out of its process."""

    @contextlib.contextmanager
    def planted() -> Iterator[None]:
        plant()
        yield

    return planted


PLANTED: Final[dict[str, Plant]] = {
    **BUGS,
    "answered_before_the_copies": answered_before_the_copies,
    "follower_forgets_recalls": _for_good(pair_bugs.slave_forgets_recalls),
    "follower_forgets_deliveries": _for_good(pair_bugs.slave_forgets_deliveries),
}
