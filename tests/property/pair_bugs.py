"""Bugs to plant into masters and slaves with real stores: a life that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active. Those that need no store are in `replica_bugs`, some of which are used
here too. A tail that is dispatched at a start, and the next offset of a cut record, need a log that is cut while it is open, which no pair
does: they are in `test_copied_log`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.property import replica_bugs
from tests.property.master_bugs import PLANTS as MASTER_PLANTS

from orbitmq.replication.classic.master_link import MasterLink
from orbitmq.replication.ticket_office import TicketOffice
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.store import MessageStore


@contextmanager
def counted_while_seeded() -> Iterator[None]:
    """A slave without a log is given the newest file only, and counts."""
    correct = MasterLink.__init__

    def begin(self: MasterLink, *given: Any, from_oldest: bool = False) -> None:
        correct(self, *given)

    with mock.patch.object(MasterLink, "__init__", begin):
        yield


@contextmanager
def parted_logs_followed() -> Iterator[None]:
    """A master compares nothing with the log of a slave."""
    with mock.patch.object(TicketOffice, "_check_parted"):
        yield


@contextmanager
def beyond_our_end_counted() -> Iterator[None]:
    """A report beyond the master's end counts (RocketMQ 3015)."""
    with parted_logs_followed(), replica_bugs.beyond_our_end_counted():
        yield


@contextmanager
def timers_released_by_a_slave() -> Iterator[None]:
    """A slave appends what is due."""
    correct = ReplicationRole.follow

    def follow(self: ReplicationRole) -> None:
        correct(self)
        self._appenders.attach()

    with mock.patch.object(MessageStore, "only_copy"), mock.patch.object(ReplicationRole, "follow", follow):
        yield


@contextmanager
def store_time_of_a_new_master() -> Iterator[None]:
    """A new master stamps records by its own clock, whatever the log says."""

    def stamp(self: CommitLog, now_ms: int) -> int:
        self.last_store_timestamp = now_ms
        return now_ms

    with mock.patch.object(CommitLog, "stamp", stamp):
        yield


def _both(*plants: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            yield

    return planted


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledged before the slave wrote": _both(
        replica_bugs.acknowledged_before_written, replica_bugs.a_report_of_what_was_not_sent
    ),
    "written reported for synced": replica_bugs.written_for_synced,
    "counted while it is seeded": counted_while_seeded,
    "a report beyond the end counted": beyond_our_end_counted,
    "logs that have parted are not compared": parted_logs_followed,
    "timers released by a slave": timers_released_by_a_slave,
    "recurring messages not applied by a slave": MASTER_PLANTS["recurring messages not applied by a slave"],
    "store time goes back after a take-over": store_time_of_a_new_master,
}
