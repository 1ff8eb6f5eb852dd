"""Bugs to plant into links, copies and epochs: an account that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from orbitmq.protocol.replication.frames import LogPiece
from orbitmq.replication import copies
from orbitmq.replication.acknowledgements import CopyRule
from orbitmq.replication.classic.log_extent import LogExtent
from orbitmq.replication.classic.master_link import MasterLink
from orbitmq.replication.classic.slave_link import SlaveLink
from orbitmq.replication.copies import Copies, Copy
from orbitmq.replication.epoch_marks import EpochMarks, SharedLog

Plant = Callable[[], AbstractContextManager[Any]]


@contextmanager
def acknowledged_before_written() -> Iterator[None]:
    """A slave reports what it received."""
    correct = SlaveLink.receive_data

    def receive_data(self: SlaveLink, data: bytes, now_ns: int) -> list[LogPiece]:
        pieces = correct(self, data, now_ns)
        if pieces and self.received_end is not None:
            self._report(self.received_end, now_ns)
        return pieces

    with mock.patch.object(SlaveLink, "receive_data", receive_data):
        yield


@contextmanager
def written_for_synced() -> Iterator[None]:
    """A slave whose reports promise the disk reports what it wrote."""
    correct = SlaveLink.appended

    def appended(self: SlaveLink, written_end: int, synced_end: int, now_ns: int, unfinished_bytes: int = 0) -> None:
        correct(self, written_end, written_end, now_ns, unfinished_bytes)

    with mock.patch.object(SlaveLink, "appended", appended):
        yield


@contextmanager
def beyond_our_end_counted() -> Iterator[None]:
    """A master takes a slave that is beyond its end for one that is very far (RocketMQ 3015)."""
    correct = MasterLink._ask

    def ask(self: MasterLink, position: int, now_ns: int) -> None:
        if position > self._extent.end:
            self.asked = self._reported = position
            self._begin(position, now_ns)
        else:
            correct(self, position, now_ns)

    def log_is(self: MasterLink, extent: LogExtent) -> None:
        self._extent = extent

    with mock.patch.object(MasterLink, "_ask", ask), mock.patch.object(MasterLink, "log_is", log_is):
        yield


@contextmanager
def counted_while_seeded() -> Iterator[None]:
    """A slave counts that lacks the beginning of the log."""
    correct = Copies.connected

    def connected(self: Copies, *given: Any, seeding: bool = False, **named: Any) -> Copy | None:
        return correct(self, *given, **named)

    with mock.patch.object(Copies, "connected", connected):
        yield


@contextmanager
def never_lower() -> Iterator[None]:
    """The position of a slave is the highest that it ever had (RocketMQ's `push2SlaveMaxOffset`)."""
    correct = Copies.connected, Copies.reported
    highest: dict[str, tuple[Copies, int]] = {}

    def highest_of(of: Copies, slave: str, position: int) -> int:
        whose, before = highest.get(slave, (of, 0))
        highest[slave] = (of, position if whose is not of else max(position, before))
        return highest[slave][1]

    def connected(self: Copies, slave: str, position: int, now_ns: int, **named: Any) -> Copy | None:
        return correct[0](self, slave, highest_of(self, named["counts_as"], position), now_ns, **named)

    def reported(self: Copies, copy: Copy, position: int, now_ns: int) -> None:
        correct[1](self, copy, highest_of(self, copy.counts_as, position), now_ns)

    with mock.patch.object(Copies, "connected", connected), mock.patch.object(Copies, "reported", reported):
        yield


@contextmanager
def one_byte_beyond_a_file() -> Iterator[None]:
    """Files are taken to have one byte more than they have."""
    correct = MasterLink.log_is

    def log_is(self: MasterLink, extent: LogExtent) -> None:
        correct(self, extent._replace(file_bytes=extent.file_bytes + 1))

    with mock.patch.object(MasterLink, "log_is", log_is):
        yield


@contextmanager
def epochs_not_compared() -> Iterator[None]:
    """A slave that is not beyond the master's end is taken to have the same log."""

    def shared(self: EpochMarks, our_end: int, theirs: EpochMarks, their_end: int) -> SharedLog:
        return SharedLog(min(our_end, their_end), True)

    with mock.patch.object(EpochMarks, "shared", shared):
        yield


@contextmanager
def late_copies_count() -> Iterator[None]:
    """Sends wait for a copy however late it is."""

    def look(self: Copies, copy: Copy, now_ns: int) -> None:
        if copy.state not in copies.HOLDING:
            self._step(copy, copies.CopyEvent.KEEPS_UP)
        self._step(copy, copies.CopyEvent.LEVEL)

    with mock.patch.object(Copies, "_look", look):
        yield


@contextmanager
def the_foremost_copy_is_enough() -> Iterator[None]:
    """One copy satisfies a rule that asks for more."""

    def outcome(rule: CopyRule, positions: Sequence[int], end: int) -> copies.CopyOutcome | None:
        return copies.CopyOutcome.COPIED if max(positions, default=0) >= end else None

    with mock.patch.object(copies, "outcome", outcome):
        yield


@contextmanager
def a_report_of_what_was_not_sent() -> Iterator[None]:
    """A slave reports the end of the transfer that it is in the middle of, and the master believes it."""
    correct = SlaveLink.appended

    def appended(self: SlaveLink, written_end: int, synced_end: int, now_ns: int, unfinished_bytes: int = 0) -> None:
        correct(self, written_end, synced_end, now_ns, unfinished_bytes)
        if self.received_end is not None and written_end == self.received_end:
            self._report(written_end + self._transfers._left, now_ns)

    with mock.patch.object(SlaveLink, "appended", appended):
        yield


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        acknowledged_before_written,
        written_for_synced,
        beyond_our_end_counted,
        counted_while_seeded,
        never_lower,
        one_byte_beyond_a_file,
        epochs_not_compared,
        late_copies_count,
        the_foremost_copy_is_enough,
        a_report_of_what_was_not_sent,
    )
}
