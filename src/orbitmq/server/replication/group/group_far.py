"""The far tier of a replicated group: files in storage that all members share, written by who leads.

    the view names a mark    a member takes part when it has read that mark in its storage; else it is none
    it names none            nothing is taken into the tier: messages that are due late wait in the log

Rules of this file
1. Who founds a group with storage marks it, and the group's first view names that mark. So whoever joins is asked for it.
2. Who leads writes there under its epoch, and claims the storage when it begins. One of an earlier epoch changes nothing any more.
3. A file is removed when every member of the view has the record that lets go of it, on its disk: any of them may lead, by a person's word
   at least.
4. A member without a log begins with the state of the leader, which lies beside the files for it: what the log that is left does not say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ClientError, ConfigurationError, OrbitError, RemoteError
from orbitmq.limits.group import GROUP_MEMBERS_MAX
from orbitmq.limits.replication import TICKET_REQUEST_MS
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.kept_state import FarStorage
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.asking import call_once
from orbitmq.server.replication.group.link_source import OwnName
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.shared_storage import SharedStorage
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.sharing import Sharing
from orbitmq.timing.far.tier import refuse_other_storage

if TYPE_CHECKING:
    from orbitmq.replication.view import View

logger = logging.getLogger("orbitmq.replication")

REMEDY: Final = "give all members the same timerFarUrl, which all of them reach"


class NotOfGroup(OrbitError):
    """This directory can be no member of the group."""


class GroupFar:
    """Of one member. ConfigurationError where its settings cannot be those of a member."""

    def __init__(
        self,
        process: Surroundings,
        far: FarTimers | None,
        store: MessageStore,
        kept: KeptFile,
        worker: Worker,
        own: OwnName,
        all_have: Callable[[int], bool],
    ) -> None:
        """`all_have(position)`: every member of the view has the log up to there on its disk, as far as this leader knows."""
        self._process = process
        self._far = far
        self.place: Final = process.settings.broker.timer_far_url
        self._store = store
        self._kept = kept
        self._own = own
        self._all_have = all_have
        self._epoch: int | None = None
        self.mark = ""
        """That of the group's storage, which the view names and this member reads; empty where there is none."""
        self._known_to = 0
        """Position of the log up to which the state of another member says everything."""
        self._answering: set[asyncio.Task[None]] = set()
        self._refuse_settings()
        self._shared = (
            None if far is None or far.keeper is None else SharedStorage(far, self.place, store, kept, worker)
        )
        self._share()

    def _refuse_settings(self) -> None:
        far = self._far
        if self.place:
            if far is None or not far.has_tier:
                raise ConfigurationError(
                    "timerFarUrl is set, and pyarrow is not installed", remedy="install it: pip install 'orbitmq[lake]'"
                )
        elif self.named:
            raise ConfigurationError(
                f"the far tier of this group lies in storage that all members share (mark {self.named}), and timerFarUrl is not set",
                remedy=REMEDY,
            )
        elif far is not None and far.held.pending_count:
            raise ConfigurationError(
                f"{far.held.pending_count} messages wait in the far tier, whose files the other members do not get",
                remedy="`orbitmq timer far restore` brings them back into the log, at a broker that is no member yet; or move the files to "
                "storage that all members reach, and set timerFarUrl",
            )

    @property
    def named(self) -> str:
        """The mark of the group's storage, as the disk has it from this or an earlier start."""
        kept = self._kept.state.far
        return kept.mark if kept.named else ""

    @property
    def has_place(self) -> bool:
        """Whether the settings of this member name storage."""
        return bool(self.place)

    async def reads(self) -> str:
        """The mark of that storage; empty where it bears none. Raises OrbitError."""
        return "" if self._shared is None or not self.place else await self._shared.found_mark()

    # --- who may take part ------------------------------------------------------------------------------------------

    async def found(self) -> str:
        """The mark for a view that names none, which the storage of this member bears then. Empty where the settings name none. Raises
        OrbitError."""
        if self._shared is None or not self.place:
            return ""
        if mark := self._kept.state.far.mark:
            found = await self._shared.found_mark()
            if found == mark:
                return found
            if self._far is not None and self._far.held.files.by_name:
                refuse_other_storage(found, mark)
        return await self._shared.have_mark()

    async def enter(self, mark: str) -> None:
        """This member may take part in a group whose view names this mark. NotOfGroup where it may not; another OrbitError where that is
        not known yet."""
        if mark and self._kept.state.far != FarStorage(mark, self.place, named=True):
            if self._shared is None or not self.place:
                raise NotOfGroup(
                    f"the far tier of the group lies in storage that all members share (mark {mark}), and this member has no timerFarUrl",
                    remedy=REMEDY,
                )
            if (found := await self._shared.found_mark()) != mark:
                raise NotOfGroup(
                    f"the storage of the group's far tier has the mark {mark}, and that at {self.place} {found or 'none'}",
                    remedy=REMEDY,
                )
            await self._shared.saved(FarStorage(mark, self.place, named=True))
        self.mark = mark
        self._share()

    async def begin_empty(self, leader: str) -> None:
        """The log is empty: know what the leader, whose main port is there, knows of the files. Raises OrbitError."""
        if not self.mark or self._shared is None:
            return
        own = self._own
        wanted = FollowRequest(
            broker_name=own.group, broker_id=GROUP_MEMBERS_MAX, directory=own.store, process=own.claim, far=self.mark
        )
        process = self._process
        try:
            asked = request(RequestCode.FOLLOW_LOG, None, wanted.encode())
            answer = await call_once(leader, asked, TICKET_REQUEST_MS, process.clock, process.calling)
        except (ClientError, ValueError) as error:
            raise FollowRefused(
                f"the leader at {leader} cannot be asked for the state of the far tier: {error}"
            ) from error
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=leader)
        told = FollowAnswer.decode(bytes(answer.body))
        self._known_to = told.end
        if told.far_serial:
            count = await self._shared.take_state(told.far_store, told.far_serial)
            logger.info("this member begins with %d messages in the files of the far tier", count)

    def why_not_from(self, start: int) -> str:
        """Why an empty log may not begin there; empty where it may."""
        if not self.mark or start <= self._known_to:
            return ""
        return (
            f"the leader's log begins at {start}, and what it knew of the far tier was taken as of {self._known_to}: start this member "
            "again, it takes that anew"
        )

    # --- leading ----------------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """This member serves in that epoch, and writes to the storage from now on."""
        self._epoch = epoch
        self._share()

    def view_says(self, view: View) -> bool:
        """Whether the view names what this member knows."""
        return view.far == self.mark

    def _share(self) -> None:
        """Tell the tier what this member is to its storage."""
        if self._far is None:
            return
        sharing = Sharing()
        if self.mark:
            sharing = Sharing(self.mark, self._own.store, True, self._all_have, epoch=self._epoch)
        self._far.share(sharing, takes=bool(self.mark))

    def answer(self, wanted: FollowRequest, done: Callable[[FollowAnswer | OrbitError], None]) -> None:
        """A member whose log is empty asks for the state. At the leader."""
        if self._shared is None or not self.mark or wanted.far != self.mark or wanted.broker_name != self._own.group:
            done(FollowRefused("this broker is a member of a replicated group, which gives its log to members alone"))
            return
        if len(self._answering) >= GROUP_MEMBERS_MAX:
            done(FollowRefused(f"{GROUP_MEMBERS_MAX} members ask for the state of the far tier already: ask again"))
            return
        shared, end = self._shared, self._store.confirm_offset

        async def published() -> None:
            try:
                store_id, serial = await shared.publish()
                done(FollowAnswer(end=end, far=self.mark, far_store=store_id, far_serial=serial))
            except OrbitError as error:
                done(error if isinstance(error, FollowRefused) else FollowRefused(f"the far tier: {error}"))
            self._process.turn.schedule()

        task = asyncio.get_running_loop().create_task(published(), name="far tier of a member")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def close(self) -> None:
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
