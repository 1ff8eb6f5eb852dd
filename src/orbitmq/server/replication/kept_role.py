"""What a person's command made of a broker, over what its settings say: kept, so that a restart finds it.

Rules of this file
1. Settings that say it themselves end it: what was kept is forgotten.
"""

from __future__ import annotations

import asyncio
import logging

from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.promotion import PromotionRefused

logger = logging.getLogger("orbitmq.replication")


class KeptRole:
    """Of one broker, whose settings are `given`."""

    def __init__(self, kept: KeptFile, given: ReplicationSettings) -> None:
        self._kept = kept
        self._given = given

    def settings_now(self) -> ReplicationSettings:
        """The settings with the role that a start goes on with."""
        given, state = self._given, self._kept.state
        promoted = state.promoted
        if promoted is None:
            return given
        if given.kind is not BrokerKind.SLAVE:
            state.promoted = None
            self._kept.save()
            return given
        logger.warning(
            "this broker was made master by a command, and its settings still say SLAVE: give it brokerRole=%s and brokerId=0; "
            "or remove `promoted` from %s, and it follows a master again",
            promoted.value,
            self._kept.path,
        )
        return given.as_kind(promoted)

    async def keep_promoted(self, kind: BrokerKind) -> None:
        """A restart leads, and puts nothing aside. Raises PromotionRefused, with nothing changed, where it cannot be saved."""
        state = self._kept.state
        aside = state.aside, state.aside_end
        state.promoted, state.aside, state.aside_end = kind, "", 0
        if why_not := await self._saved():
            state.promoted, (state.aside, state.aside_end) = None, aside
            self._kept.save()  # another save that was on its way may have kept it
            raise PromotionRefused(f"that it is the master would be forgotten with the next start: {why_not}")
        if aside[0]:
            logger.warning("the next start does not put the store aside, as a command said before: this broker leads")

    async def _saved(self) -> str:
        """Why what is kept could not be saved; empty where it was."""
        saved: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._kept.save(saved.set_result)
        return await saved
