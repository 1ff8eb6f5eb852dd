"""Bugs to plant into members of a group with real stores: a life that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active. Those that need no store are in `group_bugs`, one of which is used here
too: what a power failure really takes needs a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from tests.property.group_bugs import BUGS as CORE_BUGS
from tests.property.group_bugs import Plant
from tests.property.master_bugs import PLANTS as MASTER_PLANTS
from tests.property.pair_bugs import (
    files_removed_before_copies_have_what_replaced_them,
    repeats_answered_from_what_may_be_cut,
)
from tests.property.test_copied_log import next_offset_of_a_cut_record_kept, tail_dispatched_at_start

from orbitmq.server.replication.group.group_duties import GroupDuties
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import Appenders


@contextmanager
def timers_released_by_a_deposed_leader() -> Iterator[None]:
    """Who leads no more goes on with what is due."""
    correct = GroupDuties.step_down

    def step_down(self: GroupDuties) -> None:
        led = self.leads
        with (
            mock.patch.object(Appenders, "detach" if led else "attach"),
            mock.patch.object(MessageStore, "only_copy" if led else "allow"),
        ):
            correct(self)

    with mock.patch.object(GroupDuties, "step_down", step_down):
        yield


BUGS: Final[dict[str, Plant]] = {
    "tail dispatched at start": tail_dispatched_at_start,
    "next offset of a cut record kept": next_offset_of_a_cut_record_kept,
    "repeat answered from a record that may be cut": repeats_answered_from_what_may_be_cut,
    "timers released by a deposed leader": timers_released_by_a_deposed_leader,
    "rewritten file removed before the others have its copies": files_removed_before_copies_have_what_replaced_them,
    "recurring messages not applied by a follower": MASTER_PLANTS["recurring messages not applied by a slave"],
    "member that lost its end stays in the set": CORE_BUGS["member_that_lost_its_end_stays"],
}
