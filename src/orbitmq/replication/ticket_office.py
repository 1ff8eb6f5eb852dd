"""A master's answers to slaves that want to follow: is it one of this group, is its log a beginning of ours, and a ticket.

Rules of this file
1. A log that has parted from ours is refused: what the slave has and we have not would stay in it, or ours be written over it. Epochs
   tell where it did; that it did tell the last bytes of the slave's log as well, also of one that has no epochs.
2. The time as a writer of this process is an epoch from the first slave on: before that nobody has a copy of the log.
3. Two processes with copies of one directory would drive each other out for ever. The one that comes back, after the other has taken its
   place, is refused while that one follows. A process that ended does not come back.
4. What is kept is changed here and saved by the caller: `is_changed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.limits.replication import FOLLOW_TAIL_BYTES, SLAVE_LIVES_REMEMBERED_MAX, SLAVE_NAME_CHARS_MAX
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.epoch_marks import EpochMarks, decode_marks, encode_marks
from orbitmq.replication.kept_state import KeptState
from orbitmq.replication.log_relation import LogRelation
from orbitmq.replication.tickets import TicketBearer, TicketRefusal, Tickets


class FollowRefused(OrbitError):
    """A slave may not follow; the text says why, and the remedy what to do. `relation`: what its log is to the master's, where that is the
    reason."""

    def __init__(self, message: str, *, remedy: str | None = None, relation: LogRelation | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.relation = relation


class TwinRefused(FollowRefused):
    """Another process, with a copy of the same directory, follows as this slave."""


_EMPTY: Final = "if this master has the right log, empty the store of the slave (orbitmq replica reseed); else make the slave the master"


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
        self._lives: dict[int, list[str]] = {}
        """Processes that have followed as a slave, the last one last."""
        self.followed_from: Callable[[int], str] = lambda slave_id: ""
        """Where a slave with that id follows from now; empty where none does."""
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
        _check_texts(wanted)
        self._check_log(wanted)
        self._check_twin(wanted)
        refusal = self._tickets.issue(_bearer(wanted), secret, now_ns)
        if refusal is not None:
            raise FollowRefused(refusal.value)
        self._note_life(wanted)
        self._begin()
        slaves = dict(self._tickets.stores)
        if slaves != self._state.slaves:
            self._state.slaves = slaves
            self.is_changed = True
        if self._state.note_copy(wanted.address):
            self.is_changed = True
        epochs = encode_marks(self._state.epochs).decode("ascii")
        return FollowAnswer(ticket=secret.hex(), epochs=epochs, end=self._extent()[1])

    def compare(self, wanted: FollowRequest) -> FollowAnswer:
        """What the log of a slave is to ours. Raises FollowRefused for a request that says nothing sound of it, and where another log would
        not help: this slave would get no ticket with that either."""
        _check_texts(wanted)
        self._check_twin(wanted)
        if (refusal := self._tickets.refusal(_bearer(wanted))) is not None:
            raise FollowRefused(refusal.value)
        end = self._extent()[1]
        try:
            self._check_log(wanted)
        except FollowRefused as error:
            if error.relation is None:
                raise
            return FollowAnswer(end=end, relation=error.relation.value, why=str(error))
        return FollowAnswer(end=end, relation=LogRelation.BEGINNING.value)

    def _check_twin(self, wanted: FollowRequest) -> None:
        where = self.followed_from(wanted.broker_id)
        if where and wanted.process in self._lives.get(wanted.broker_id, [])[:-1]:
            raise TwinRefused(
                f"another process follows as slave {wanted.broker_id}, from {where}: both have a copy of one directory, and would drive "
                "each other out for ever",
                remedy="stop one of them; it may come back with an empty directory and a brokerId of its own",
            )

    def _note_life(self, wanted: FollowRequest) -> None:
        if wanted.process:
            lives = [life for life in self._lives.get(wanted.broker_id, []) if life != wanted.process]
            self._lives[wanted.broker_id] = [*lives, wanted.process][-SLAVE_LIVES_REMEMBERED_MAX:]

    def _check_log(self, wanted: FollowRequest) -> None:
        log = self._log_id()
        if wanted.end and wanted.log and log and wanted.log != log:
            raise FollowRefused(
                f"the slave has another log ({wanted.log}) than this master ({log})",
                remedy="look whether both brokers belong together; if so, empty the store of the slave (orbitmq replica reseed)",
                relation=LogRelation.OTHER,
            )
        self._check_parted(wanted)

    def _check_parted(self, wanted: FollowRequest) -> None:
        ours, (our_start, our_end) = self._state.epochs, self._extent()
        if wanted.end > our_end:
            raise FollowRefused(
                f"the slave has the log up to {wanted.end}, ours ends at {our_end}: they have parted, or this master has lost something",
                remedy=_EMPTY,
                relation=LogRelation.PARTED,
            )
        try:
            theirs = decode_marks(wanted.epochs.encode()) if wanted.epochs else EpochMarks()
        except StoreDamagedError as error:
            raise FollowRefused(str(error)) from error
        if not wanted.end:
            return
        if theirs.marks and ours.marks:
            self._check_epochs(theirs, wanted.end)
        if wanted.end < our_start:
            raise FollowRefused(
                f"the slave has the log up to {wanted.end}, ours begins at {our_start} by now",
                remedy="empty the store of the slave (orbitmq replica reseed)",
                relation=LogRelation.BEHIND,
            )
        if not 0 < wanted.tail_bytes <= min(FOLLOW_TAIL_BYTES, wanted.end):
            raise FollowRefused(f"the slave has a log, and names {wanted.tail_bytes} bytes of its end")
        if self._crc_of(wanted.end - wanted.tail_bytes, wanted.tail_bytes) not in (wanted.tail_crc, None):
            raise FollowRefused(
                f"the log of the slave has other bytes before its end at {wanted.end} than ours: they have parted, or it is another",
                remedy=_EMPTY,
                relation=LogRelation.PARTED,
            )

    def _check_epochs(self, theirs: EpochMarks, their_end: int) -> None:
        shared = self._state.epochs.shared(self._extent()[1], theirs, their_end)
        if not shared.is_known or their_end > shared.end:
            where = f"at {shared.end}" if shared.is_known else "where no epoch is known to both"
            raise FollowRefused(
                f"the log of the slave, which ends at {their_end}, has parted from ours {where}",
                remedy=_EMPTY,
                relation=LogRelation.PARTED,
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


def _bearer(wanted: FollowRequest) -> TicketBearer:
    return TicketBearer(wanted.broker_name, wanted.broker_id, wanted.directory, wanted.address, wanted.is_damaged)


def _check_texts(wanted: FollowRequest) -> None:
    """What is kept of a request, or told of it, is short; `epochs` and what a ticket is for have bounds of their own."""
    for name, text in (
        ("process", wanted.process),
        ("log", wanted.log),
        ("far", wanted.far),
        ("trouble", wanted.trouble),
    ):
        if len(text) > SLAVE_NAME_CHARS_MAX:
            raise FollowRefused(f"{name} has {len(text)} characters, and may have {SLAVE_NAME_CHARS_MAX}")


def adopt_epochs(state: KeptState, answer: FollowAnswer) -> bool:
    """A slave may follow: its log was, or is going to be, written by these. Whether that is news. Raises StoreDamagedError."""
    marks = decode_marks(answer.epochs.encode())
    if marks.marks == state.epochs.marks:
        return False
    state.epochs = marks
    return True
