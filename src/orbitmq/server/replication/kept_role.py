"""What a person's command made of a broker, over what its settings say: kept, so that a restart finds it.

Rules of this file
1. Settings that say it themselves end it: what was kept is forgotten.
"""

from __future__ import annotations

import logging

from orbitmq.replication.kept_state import Demoted
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.replication.kept_file import KeptFile

logger = logging.getLogger("orbitmq.replication")


class KeptRole:
    """Of one broker, whose settings are `given`."""

    def __init__(self, kept: KeptFile, given: ReplicationSettings) -> None:
        self._kept = kept
        self._given = given

    def settings_now(self) -> ReplicationSettings:
        """The settings with the role that a start goes on with."""
        given, state = self._given, self._kept.state
        is_slave = given.kind is BrokerKind.SLAVE
        if (state.demoted if is_slave else state.promoted) is not None:  # they say it themselves
            state.promoted, state.demoted = (state.promoted, None) if is_slave else (None, state.demoted)
            self._kept.save()
        if state.promoted is not None:
            logger.warning(
                "this broker was made master by a command, and its settings still say SLAVE: give it brokerRole=%s and brokerId=0; "
                "or remove `promoted` from %s, and it follows a master again",
                state.promoted.value,
                self._kept.path,
            )
            return given.as_kind(state.promoted)
        if state.demoted is not None:
            logger.warning(
                "this broker was made a slave by a command, and its settings still say that it is a master: give it brokerRole=SLAVE and "
                "brokerId=%d; or remove `demoted` from %s, and it leads again",
                state.demoted.id,
                self._kept.path,
            )
            return given.as_kind(BrokerKind.SLAVE)
        return given

    async def keep_promoted(self, kind: BrokerKind) -> None:
        """A restart leads, and puts nothing aside. Raises PromotionRefused, with nothing changed, where it cannot be saved."""
        state = self._kept.state
        before = state.promoted, state.demoted, state.aside, state.aside_end
        self._lead(kind)
        if why_not := await self._kept.saved():
            state.promoted, state.demoted, state.aside, state.aside_end = before
            self._kept.save()  # another save that was on its way may have kept it
            from orbitmq.server.replication.promotion import PromotionRefused

            raise PromotionRefused(f"that it is the master would be forgotten with the next start: {why_not}")
        if before[2]:
            logger.warning("the next start does not put the store aside, as a command said before: this broker leads")

    def lead_again(self, kind: BrokerKind) -> None:
        """As `keep_promoted`, for one that leads whether that can be saved or not; it is tried until it can."""
        self._lead(kind)
        self._kept.save()

    def _lead(self, kind: BrokerKind) -> None:
        state = self._kept.state
        state.promoted = kind if self._given.kind is BrokerKind.SLAVE else None
        state.demoted, state.aside, state.aside_end = None, "", 0

    async def keep_demoted(self, demoted: Demoted) -> None:
        """A restart follows. Raises DemotionRefused, with nothing changed, where it cannot be saved."""
        state = self._kept.state
        before = state.promoted
        state.promoted, state.demoted = None, self._as_slave(demoted)
        if why_not := await self._kept.saved():
            self.lead_again(before or self._given.kind)  # another save that was on its way may have kept it
            from orbitmq.server.replication.demotion import DemotionRefused

            raise DemotionRefused(f"that it is a slave would be forgotten with the next start: {why_not}")

    def _as_slave(self, demoted: Demoted) -> Demoted | None:
        """None where the settings say it themselves."""
        return None if self._given.kind is BrokerKind.SLAVE else demoted

    async def follows(self, demoted: Demoted) -> None:
        """It is known by now whom this slave follows. Where that cannot be saved, it is tried again."""
        self._kept.state.demoted = self._as_slave(demoted)
        await self._kept.saved()
