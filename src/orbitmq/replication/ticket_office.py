"""A master's answers to slaves that want to follow: is it one of this group, is its log a beginning of ours, and a ticket.

Rules of this file
1. A log that has parted from ours is refused: what the slave has and we have not would stay in it, or ours be written over it. Epochs
   tell where it did; that it did tell the last bytes of the slave's log as well, also of one that has no epochs.
2. The time as a writer of this process is an epoch from the first slave on: before that nobody has a copy of the log.
3. What is kept is changed here and saved by the caller: `is_changed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.limits.replication import FOLLOW_TAIL_BYTES
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.epoch_marks import EpochMarks, decode_marks, encode_marks
from orbitmq.replication.kept_state import KeptState
from orbitmq.replication.tickets import TicketBearer, TicketRefusal, Tickets


class FollowRefused(OrbitError):
    """A slave may not follow; the text says why, and the remedy what to do."""


_EMPTY: Final = (
    "if this master has the right log, empty the store of the slave and start it again; else make the slave the master"
)


class TicketOffice:
    def __init__(
        self,
        state: KeptState,
        group: str,
        began_at: int,
        log_id: Callable[[], str],
        extent: Callable[[], tuple[int, int]],
        crc_of: Callable[[int, int], int | None],
    ) -> None:
        """`began_at` is where the log ended when this process became master; `log_id()` is empty while the log has none; `extent()`:
        where it begins and ends; `crc_of(position,
        size)` is the CRC-32 of bytes of the log, None where they are not there any more."""
        self._state = state
        self._tickets = Tickets(group, state.directory, state.slaves)
        self._began_at = began_at
        self._log_id = log_id
        self._extent = extent
        self._crc_of = crc_of
        self._has_begun = False
        self.is_changed = False
        if state.epochs.marks or state.slaves:
            self._begin()

    def _begin(self) -> None:
        """From here on others may have what this process writes."""
        if not self._has_begun:
            self._has_begun = True
            marks = self._state.epochs
            marks.cut(self._began_at)
            marks.begin(marks.marks[-1].epoch + 1 if marks.marks else 1, self._began_at)
            self.is_changed = True

    def issue(self, wanted: FollowRequest, secret: bytes, now_ns: int) -> FollowAnswer:
        """A ticket for this slave. Raises FollowRefused."""
        log = self._log_id()
        if wanted.end and wanted.log and log and wanted.log != log:
            raise FollowRefused(
                f"the slave has another log ({wanted.log}) than this master ({log})",
                remedy="look whether both brokers belong together; if so, empty the store of the slave",
            )
        self._check_parted(wanted)
        bearer = TicketBearer(wanted.broker_name, wanted.broker_id, wanted.directory)
        refusal = self._tickets.issue(bearer, secret, now_ns)
        if refusal is not None:
            raise FollowRefused(refusal.value)
        self._begin()
        slaves = dict(self._tickets.stores)
        if slaves != self._state.slaves:
            self._state.slaves = slaves
            self.is_changed = True
        return FollowAnswer(ticket=secret.hex(), epochs=encode_marks(self._state.epochs).decode("ascii"))

    def _check_parted(self, wanted: FollowRequest) -> None:
        ours, (our_start, our_end) = self._state.epochs, self._extent()
        if wanted.end > our_end:
            raise FollowRefused(
                f"the slave has the log up to {wanted.end}, ours ends at {our_end}: they have parted, or this master has lost something",
                remedy=_EMPTY,
            )
        try:
            theirs = decode_marks(wanted.epochs.encode()) if wanted.epochs else EpochMarks()
        except StoreDamagedError as error:
            raise FollowRefused(str(error)) from error
        if not wanted.end:
            return
        if wanted.end < our_start:
            raise FollowRefused(
                f"the slave has the log up to {wanted.end}, ours begins at {our_start} by now",
                remedy="empty the store of the slave and start it again",
            )
        if not 0 < wanted.tail_bytes <= min(FOLLOW_TAIL_BYTES, wanted.end):
            raise FollowRefused(f"the slave has a log, and names {wanted.tail_bytes} bytes of its end")
        if theirs.marks and ours.marks:
            self._check_epochs(theirs, wanted.end)
        if self._crc_of(wanted.end - wanted.tail_bytes, wanted.tail_bytes) not in (wanted.tail_crc, None):
            raise FollowRefused(
                f"the log of the slave has other bytes before its end at {wanted.end} than ours: they have parted, or it is another",
                remedy=_EMPTY,
            )

    def _check_epochs(self, theirs: EpochMarks, their_end: int) -> None:
        shared = self._state.epochs.shared(self._extent()[1], theirs, their_end)
        if not shared.is_known or their_end > shared.end:
            where = f"at {shared.end}" if shared.is_known else "where no epoch is known to both"
            raise FollowRefused(
                f"the log of the slave, which ends at {their_end}, has parted from ours {where}", remedy=_EMPTY
            )

    def redeem(self, secret: bytes, now_ns: int) -> TicketBearer | TicketRefusal:
        """Who presents a ticket."""
        return self._tickets.redeem(secret, now_ns)

    def forget(self, slave_id: int) -> bool:
        """Another store may come with this id. False: it was not known."""
        if not self._tickets.forget(slave_id):
            return False
        self._state.slaves = dict(self._tickets.stores)
        self.is_changed = True
        return True


def adopt_epochs(state: KeptState, answer: FollowAnswer) -> bool:
    """A slave may follow: its log was, or is going to be, written by these. Whether that is news. Raises StoreDamagedError."""
    marks = decode_marks(answer.epochs.encode())
    if marks.marks == state.epochs.marks:
        return False
    state.epochs = marks
    return True
