"""Bugs to plant into masters and slaves with real stores: a life that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active. Those that need no store are in `replica_bugs`, some of which are used
here too. A tail that is dispatched at a start, and the next offset of a cut record (RocketMQ 7689), need a log that is cut while it is
open, which no pair does: `test_copied_log` has both, and catches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.property import replica_bugs
from tests.property.master_bugs import PLANTS as MASTER_PLANTS

from orbitmq.broker.sends import Sends
from orbitmq.replication.classic.master_link import MasterLink
from orbitmq.replication.ticket_office import TicketOffice
from orbitmq.server.replication.demotion import Demotion
from orbitmq.server.replication.kept_role import KeptRole
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.retention import RetainedFile
from orbitmq.store.store import MessageStore
from orbitmq.timing.rewriting import Rewriting


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
def handed_over_too_early() -> Iterator[None]:
    """A master that steps down waits for nobody to have its log."""

    async def copied(*given: object) -> None:
        pass

    with mock.patch.object(Demotion, "copied", copied):
        yield


@contextmanager
def handed_over_and_forgotten() -> Iterator[None]:
    """A master that has stepped down leads again after a start."""

    async def keep(*given: object) -> None:
        pass

    with mock.patch.object(KeptRole, "keep_demoted", keep), mock.patch.object(KeptRole, "follows", keep):
        yield


@contextmanager
def store_time_of_a_new_master() -> Iterator[None]:
    """A new master stamps records by its own clock, whatever the log says."""

    def stamp(self: CommitLog, now_ms: int) -> int:
        self.last_store_timestamp = now_ms
        return now_ms

    with mock.patch.object(CommitLog, "stamp", stamp):
        yield


@contextmanager
def repeats_answered_from_what_may_be_cut() -> Iterator[None]:
    """A repeat is told where the first send lies, although copies lack that one, and another master may never get it."""
    correct = Sends._tell_first

    def at_once(self: MessageStore, end: int, wait: bool, on_done: Callable[[PutStatus], None]) -> None:
        on_done(PutStatus.PUT_OK)

    def tell_first(self: Sends, *given: Any) -> None:
        with mock.patch.object(MessageStore, "wait_durable", at_once):
            correct(self, *given)

    with mock.patch.object(Sends, "_tell_first", tell_first):
        yield


@contextmanager
def files_removed_before_copies_have_what_replaced_them() -> Iterator[None]:
    """A record that was put again counts as gone from its old place at once, and files go when the disk has what replaced their records."""
    correct_lowest, correct_remove = Rewriting.lowest_pending, Housekeeping._remove

    def lowest_pending(self: Rewriting) -> int | None:
        if self._store is None:
            return correct_lowest(self)
        sources = {entry.prepared_transaction_offset - 1 for entry in self._store.confirmation.tail}
        known = []
        for owner in self._owners:
            lowest = owner.lowest_needed()
            if lowest in sources:
                lowest = min((at for _, at, _ in owner.pending_units() if at not in sources), default=None)  # type: ignore[attr-defined]
            if lowest is not None:
                known.append(lowest)
        return min(known, default=None)

    def remove(self: Housekeeping, files: Sequence[RetainedFile]) -> None:
        store, save = self._store, self._store.save_durably

        def save_durably(_: MessageStore, saved: Callable[[bool], None]) -> None:
            def done(durable: bool) -> None:
                with (
                    mock.patch.object(MessageStore, "confirm_offset", store.log.written_end),
                    mock.patch.object(self, "_say_below", return_value=True),
                ):
                    saved(durable)

            save(done)

        with (
            mock.patch.object(MessageStore, "save_durably", save_durably),
            mock.patch.object(self, "_say_below", return_value=True),
        ):
            correct_remove(self, files)

    with (
        mock.patch.object(Rewriting, "lowest_pending", lowest_pending),
        mock.patch.object(Housekeeping, "_remove", remove),
    ):
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
    "handed over before the slave has everything": handed_over_too_early,
    "handed over and forgotten with the next start": handed_over_and_forgotten,
    "timers released by a slave": timers_released_by_a_slave,
    "recurring messages not applied by a slave": MASTER_PLANTS["recurring messages not applied by a slave"],
    "store time goes back after a take-over": store_time_of_a_new_master,
    "repeat answered from a record that may be cut": repeats_answered_from_what_may_be_cut,
    "rewritten file removed before its copies are on the slave": files_removed_before_copies_have_what_replaced_them,
}
