"""Bugs planted into `orbitmq broker` by `group_broker`: those of the core, those of a copy's timers, and one more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final
from unittest import mock

from tests.chaos import pair_bugs
from tests.chaos.recorded_broker import COMMIT_LOG
from tests.property.group_bugs import BUGS, Plant
from tests.worlds.faults import RecordingFile

from orbitmq.replication.counting import LeaderCounting
from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.replica_steps import KeptEpoch
from orbitmq.replication.view import View
from orbitmq.server.replication.group.member_record import MemberRecord


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


def log_is_not_synced() -> None:
    """What was written to the log counts as synced."""

    def datasync(self: RecordingFile) -> None:
        if COMMIT_LOG not in self.path.parts:
            correct(self)

    correct = RecordingFile.datasync
    RecordingFile.datasync = datasync  # type: ignore[method-assign]


def epoch_not_durable() -> None:
    """A member forgets with its process which epoch it was in. That of the core is mended by the next write of the same file."""

    def keep(self: MemberRecord, epoch: KeptEpoch, marks: tuple[EpochMark, ...], done: Callable[[str], None]) -> None:
        correct(self, epoch._replace(epoch=0, serial=0), marks, done)

    correct = MemberRecord.keep
    MemberRecord.keep = keep  # type: ignore[method-assign]


PLANTED: Final[dict[str, Plant]] = {
    **BUGS,
    "epoch_not_durable": _for_good(epoch_not_durable),
    "log_is_not_synced": _for_good(log_is_not_synced),
    "answered_before_the_copies": answered_before_the_copies,
    "follower_forgets_recalls": _for_good(pair_bugs.slave_forgets_recalls),
    "follower_forgets_deliveries": _for_good(pair_bugs.slave_forgets_deliveries),
}
