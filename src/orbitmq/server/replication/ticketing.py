"""A master gives tickets to slaves, and forgets slaves: what its decisions change is saved before they are told."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, StoreUnwritableError
from orbitmq.limits.replication import TICKET_BYTES
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.away_slaves import AwaySlaves
from orbitmq.replication.ticket_office import TicketOffice, TwinRefused
from orbitmq.replication.tickets import TicketBearer, TicketRefusal
from orbitmq.server.replication.asking import crc_of
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.store.commit_log import CommitLog

logger = logging.getLogger("orbitmq.replication")


class Ticketing:
    """From the moment on in which a broker became master."""

    def __init__(
        self,
        broker_name: str,
        log: CommitLog,
        log_id: Callable[[], str],
        kept: KeptFile,
        clock: Clock,
        away: AwaySlaves,
    ) -> None:
        """`away` hears who asks."""
        self._kept = kept
        self._clock = clock
        self._told_twins: dict[int, str] = {}
        """Slaves of which the log says that there are two."""
        self._away = away
        self._office = TicketOffice(
            kept.state,
            broker_name,
            log.end,
            log_id,
            lambda: (log.start, log.end),
            lambda position, size: crc_of(log, position, size),
        )
        self._save(lambda why_not: None)

    def slaves_follow_from(self, followed_from: Callable[[int], str]) -> None:
        """Who follows now: `followed_from(id)` is its address, empty where no slave with that id does."""
        self._office.followed_from = followed_from

    def issue(
        self,
        wanted: FollowRequest,
        done: Callable[[FollowAnswer | OrbitError], None],
        granted: Callable[[FollowAnswer], bool] = lambda answer: False,
    ) -> None:
        """A ticket for a slave, or why it gets none (FollowRefused; StoreUnwritableError where it could not be saved who it is).
        `granted(answer)` may add to what the slave is told, and says whether that changed what is kept."""
        try:
            if wanted.compares:
                done(self._office.compare(wanted))
                return
            answer = self._office.issue(wanted, os.urandom(TICKET_BYTES), self._clock.monotonic_ns())
            self._office.is_changed |= granted(answer)
        except OrbitError as error:
            self._away.refused(str(wanted.broker_id), str(error), self._clock.monotonic_ns())
            if isinstance(error, TwinRefused) and self._told_twins.get(wanted.broker_id) != str(error):
                self._told_twins[wanted.broker_id] = str(error)
                logger.warning("a slave is refused: %s", error)
            done(error)
            return
        self._note(wanted)
        self._save(lambda why_not: done(StoreUnwritableError(why_not) if why_not else answer))

    def _note(self, wanted: FollowRequest) -> None:
        """Trouble of a slave is told here as well, because sends that it fails are answered here."""
        slave, now_ns = str(wanted.broker_id), self._clock.monotonic_ns()
        if self._away.asked(slave, wanted.address, wanted.end, wanted.trouble, now_ns):
            logger.warning("slave %s has trouble with its store: %s", slave, wanted.trouble)

    def redeem(self, secret: bytes, now_ns: int) -> TicketBearer | TicketRefusal:
        """Who presents a ticket."""
        return self._office.redeem(secret, now_ns)

    def forget(self, slave_id: int, done: Callable[[bool | OrbitError], None]) -> None:
        """Another directory may come with this id. False: it was not known. One that followed when it was forgotten, and went, is listed
        until it is forgotten again."""
        was_away = self._away.forget(str(slave_id))
        if not self._office.forget(slave_id) and not was_away:
            done(False)
            return
        self._save(lambda why_not: done(StoreUnwritableError(why_not) if why_not else True))

    def _save(self, done: Callable[[str], None]) -> None:
        changed, self._office.is_changed = self._office.is_changed, False
        if changed or not self._kept.is_saved:
            self._kept.save(done)
        else:
            done("")
