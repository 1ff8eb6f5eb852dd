"""The far tier beside copies: it goes on where every copy that is known shares its storage, and a slave begins with what is known of it.

Only the master writes there. A slave learns from the log which messages wait in which files, and reads the files when it is asked or leads.

Rules of this file
1. Storage is shared where both brokers read one mark in it, whatever they call it. The master's is saved before it is written there.
2. A copy that does not share it, or has no ticket to say so, gets no files: where messages wait in them it is not taken, else nothing is
   taken into the tier from then on.
3. A slave without a log begins with the state of the master, which lies beside the files for it: what the log that is left does not say.
4. What this broker is to the storage is said to the tier in one place, `tell`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError
from orbitmq.limits.replication import COPIES_MAX
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.kept_state import FarStorage
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.shared_storage import SharedStorage
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.sharing import Sharing

if TYPE_CHECKING:
    from orbitmq.server.replication.slave_port import SlavePort
    from orbitmq.timing.far.far_timers import FarTimers

logger = logging.getLogger("orbitmq.replication")

UNMARKED: Final = "-"
"""In a request for a ticket: the storage bears no mark."""


class FarCopies:
    """Of one broker. `place` is where its settings say that the tier's files lie; empty where they do not: then nothing is shared."""

    def __init__(self, far: FarTimers | None, place: str, store: MessageStore, kept: KeptFile, worker: Worker) -> None:
        self._far = far
        self._shared = None if far is None or far.keeper is None else SharedStorage(far, place, store, kept, worker)
        self._place = place
        self._kept = kept
        self._port: SlavePort | None = None
        self._asked_unmarked: set[int] = set()
        """Ids of slaves that were sent to look for the mark again, since it is there."""
        self._tasks: set[asyncio.Task[None]] = set()
        storage = kept.state.far
        if storage.mark and storage.url != place and (far is None or not far.held.files.by_name):
            kept.state.far = FarStorage()  # nothing lies there

    @property
    def is_shared(self) -> bool:
        """Whether every copy that is known shares the storage."""
        storage, port = self._kept.state.far, self._port
        if port is not None and any(one.copy and one.slave == one.address for one in port.connections):
            return False  # it came without a ticket
        return bool(storage.mark) and all(slave_id in storage.sharers for slave_id in self._kept.state.slaves)

    # --- at a master ------------------------------------------------------------------------------------------------

    def lead(self, port: SlavePort, *, copies_follow: bool) -> None:
        """This broker leads, and gives copies its log where they follow, or did."""
        self._port = port
        if copies_follow or self._kept.state.far.mark:
            self.tell()

    def tell(self) -> None:
        """Tell the tier what copies there are."""
        if self._far is None:
            return
        storage = self._kept.state.far
        sharing = Sharing()
        if storage.mark:
            sharing = Sharing(
                storage.mark, self._kept.state.directory, storage.followed, self._copies_have, self._began_to_write
            )
        self._far.share(sharing, takes=self.is_shared)

    def _copies_have(self, position: int) -> bool:
        following = {} if self._port is None else {one.slave: one for one in self._port.connections if one.copy}
        ends = (
            following[str(one)].link.acknowledged if str(one) in following else None for one in self._kept.state.slaves
        )
        return all(end is not None and end >= position for end in ends)

    def _began_to_write(self, writer: str) -> None:
        if writer and self._kept.state.far.followed:
            self._kept.state.far.followed = False
            self._kept.save()
            self.tell()
            logger.info("this broker writes to the shared storage of the far tier, as %s", writer)

    def why_not(self, far: str | None) -> str:
        """Why a copy may not follow that says this of its storage, None where it has no ticket; empty where it may."""
        held = None if self._far is None else self._far.held
        mark = self._kept.state.far.mark
        if held is None or not held.pending_count or (far and far == mark):
            return ""
        if far and mark:
            return (
                f"{held.pending_count} messages wait in the far tier, and the storage of this slave is another one (mark {far}, the "
                f"master's {mark}): give it the master's timerFarUrl, {self._place}"
            )
        remedy = "`orbitmq timer far restore` brings them back into the log"
        if far is not None:
            remedy += "; or give both brokers one timerFarUrl that both can reach"
        return f"{held.pending_count} messages wait in the far tier, whose files a copy does not get: {remedy}"

    def why_not_slave(self, slave_id: int | None) -> str:
        """As `why_not`, of one that connects: with its ticket, or None."""
        storage = self._kept.state.far
        return self.why_not(None if slave_id is None else storage.mark if slave_id in storage.sharers else "")

    def prepare(self, wanted: FollowRequest, done: Callable[[FollowAnswer | OrbitError], None]) -> None:
        """What a slave that wants a ticket is told of the far tier, or why it gets none: at once where it shares nothing."""
        if self._shared is None or not self._place or not wanted.far:
            why_not = self.why_not(wanted.far)
            done(FollowRefused(why_not) if why_not else FollowAnswer())
            return

        if len(self._tasks) >= COPIES_MAX:
            done(FollowRefused(f"{COPIES_MAX} slaves ask for the state of the far tier already: ask again"))
            return

        async def prepared() -> None:
            try:
                done(await self._prepared(wanted))
            except OrbitError as error:
                done(error if isinstance(error, FollowRefused) else FollowRefused(f"the far tier: {error}"))

        task = asyncio.get_running_loop().create_task(prepared(), name="far tier of a slave")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepared(self, wanted: FollowRequest) -> FollowAnswer:
        assert self._shared is not None
        was_marked = bool(self._kept.state.far.mark)
        if not was_marked:
            await self._shared.have_mark()
        mark = self._kept.state.far.mark
        if wanted.far == UNMARKED and not (was_marked and wanted.broker_id in self._asked_unmarked):
            if len(self._asked_unmarked) >= COPIES_MAX:
                self._asked_unmarked.clear()
            if was_marked:  # else marking may have taken longer than the slave waits for an answer
                self._asked_unmarked.add(wanted.broker_id)
            raise FollowRefused(
                f"the storage of this slave's far tier bore no mark when it looked, the master's bears {mark}",
                remedy=f"it asks again in a moment; if it is then another one, give it the master's timerFarUrl, {self._place}",
            )
        if why_not := self.why_not(wanted.far):
            raise FollowRefused(why_not)
        if wanted.far != mark:
            return FollowAnswer()
        self._asked_unmarked.discard(wanted.broker_id)
        return FollowAnswer(far=mark) if wanted.end else await self._published()

    async def _published(self) -> FollowAnswer:
        """The state as of now lies beside the files."""
        assert self._shared is not None
        store_id, serial = await self._shared.publish()
        return FollowAnswer(far=self._kept.state.far.mark, far_store=store_id, far_serial=serial)

    def granted(self, slave_id: int, told: FollowAnswer, answer: FollowAnswer) -> bool:
        """A slave gets a ticket with this answer, in which goes what it is told of the tier; before that is saved. Whether there is more
        to be saved."""
        answer.far, answer.far_store, answer.far_serial = told.far, told.far_store, told.far_serial
        storage = self._kept.state.far
        others = [one for one in storage.sharers if one != slave_id and one in self._kept.state.slaves]
        sharers = sorted([*others, slave_id]) if told.far else others
        is_news, storage.sharers = sharers != storage.sharers, sharers
        self.tell()
        return is_news

    # --- at a slave -------------------------------------------------------------------------------------------------

    async def claim(self) -> str:
        """What this slave says of its storage: nothing where its settings name none. FarTierError where it cannot be reached, and was not
        read before."""
        storage = self._kept.state.far
        if not self._place or self._shared is None:
            return ""
        if storage.mark and storage.url == self._place:
            return storage.mark
        return await self._shared.found_mark() or UNMARKED

    async def take(self, answer: FollowAnswer) -> None:
        """The master gave a ticket: both share the storage, or not. Raises OrbitError where this slave cannot begin with what the master
        knows of the files."""
        told = FarStorage(answer.far, self._place, [], followed=True) if answer.far else FarStorage()
        if not answer.far and self._far is not None and self._far.held.files.by_name:
            return  # whatever the master shares now: they lie where they lie
        if answer.far_serial and self._shared is not None:
            count = await self._shared.take_state(answer.far_store, answer.far_serial)
            logger.info("this slave begins with %d messages in the files of the far tier", count)
        if told != self._kept.state.far:
            self._kept.state.far = told
            if why_not := await self._kept.saved():
                raise FollowRefused(why_not)
