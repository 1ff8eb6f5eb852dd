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
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.limits.replication import COPIES_MAX
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.kept_state import FarStorage
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.sharing import Sharing
from orbitmq.timing.far.state_file import decode_state
from orbitmq.timing.far.tier import FarTierError, Tier, refuse_foreign, refuse_other_storage

if TYPE_CHECKING:
    from orbitmq.server.replication.slave_port import SlavePort
    from orbitmq.timing.far.far_timers import FarTimers

logger = logging.getLogger("orbitmq.replication")
T = TypeVar("T")

MARK_BYTES: Final = 16
UNMARKED: Final = "-"
"""In a request for a ticket: the storage bears no mark."""


class FarStateUntaken(OrbitError):
    """A slave could not begin with what its master knows of the far tier."""


class FarCopies:
    """Of one broker. `place` is where its settings say that the tier's files lie; empty where they do not: then nothing is shared."""

    def __init__(self, far: FarTimers | None, place: str, store: MessageStore, kept: KeptFile, worker: Worker) -> None:
        self._far = far
        self._keeper: Final = None if far is None else far.keeper
        self._place = place
        self._store = store
        self._kept = kept
        self._worker = worker
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
        if self._keeper is None or not self._place or not wanted.far:
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
        if not self._kept.state.far.mark:
            await self._mark()
        mark = self._kept.state.far.mark
        if wanted.far == UNMARKED and wanted.broker_id not in self._asked_unmarked:
            if len(self._asked_unmarked) >= COPIES_MAX:
                self._asked_unmarked.clear()
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

    async def _mark(self) -> None:
        """Have the storage bear a mark, which this broker knows from then on."""
        assert self._far is not None
        storage, store_id, serial = self._kept.state.far, self._far.saving.store_id, self._far.saving.serial
        mark = os.urandom(MARK_BYTES).hex()

        def looked(tier: Tier) -> str:
            opened = tier.open()
            refuse_foreign(opened, serial, store_id)
            return tier.mark("") if opened.store else ""

        own = await self._asked(looked)  # of storage that says it is this store's, where what was kept of it is lost
        await self._saved(FarStorage(own or mark, self._place, storage.sharers, storage.followed))
        found = await self._asked(lambda tier: tier.mark(mark))
        if found != self._kept.state.far.mark:
            await self._saved(FarStorage())
            raise FollowRefused(
                f"the storage of the far tier, {self._place}, bears the mark {found} of another group of brokers",
                remedy="give every group storage of its own (timerFarUrl)",
            )

    async def _published(self) -> FollowAnswer:
        """The state as of now lies beside the files."""
        assert self._far is not None
        saved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._store.save_durably(lambda is_durable: None if saved.done() else saved.set_result(is_durable))
        if not await saved:
            raise FollowRefused("what is known of the far tier could not be saved: ask again")
        mark, saving = self._kept.state.far.mark, self._far.saving
        content, serial = saving.content, saving.serial
        if content is None:
            return FollowAnswer(far=mark)

        def publish(tier: Tier) -> None:
            refuse_other_storage(tier.mark(""), mark)
            tier.publish(content)

        await self._asked(publish)
        return FollowAnswer(far=mark, far_store=saving.store_id, far_serial=serial)

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
        if not self._place or self._keeper is None:
            return ""
        if storage.mark and storage.url == self._place:
            return storage.mark
        return await self._asked(lambda tier: tier.mark("")) or UNMARKED

    async def take(self, answer: FollowAnswer) -> None:
        """The master gave a ticket: both share the storage, or not. Raises OrbitError where this slave cannot begin with what the master
        knows of the files."""
        told = FarStorage(answer.far, self._place, [], followed=True) if answer.far else FarStorage()
        if not answer.far and self._far is not None and self._far.held.files.by_name:
            return  # whatever the master shares now: they lie where they lie
        if answer.far_serial:
            await self._take_state(answer)
        if told != self._kept.state.far:
            await self._saved(told)

    async def _take_state(self, answer: FollowAnswer) -> None:
        assert self._far is not None
        try:
            saved = decode_state(await self._asked(lambda tier: tier.manifest()))
        except StoreDamagedError as error:
            raise FarStateUntaken(f"the state that the master put beside the far tier's files: {error}") from error
        if saved.store != answer.far_store or saved.serial < answer.far_serial:
            raise FarStateUntaken(
                f"the state beside the far tier's files is not the one that the master put there (number {saved.serial} of "
                f"{saved.store}, expected {answer.far_serial} of {answer.far_store})",
                remedy="it is asked again; if it stays so, another broker writes there: stop that one",
            )
        taken: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._far.take_state(saved, self._worker, lambda error: None if taken.done() else taken.set_result(error))
        if (why_not := await taken) is not None:
            raise FarStateUntaken(f"what is known of the far tier's files could not be saved: {why_not}") from why_not
        logger.info("this slave begins with %d messages in the files of the far tier", saved.pending)

    # --- both -------------------------------------------------------------------------------------------------------

    async def _asked(self, job: Callable[[Tier], T]) -> T:
        """Raises FarTierError."""
        assert self._keeper is not None
        answered: asyncio.Future[T | BaseException] = asyncio.get_running_loop().create_future()
        self._keeper.ask(job, lambda result: None if answered.done() else answered.set_result(result))
        result = await answered
        if isinstance(result, OrbitError):
            raise result
        if isinstance(result, BaseException):
            raise FarTierError(f"{type(result).__name__}: {result}") from result
        return result

    async def _saved(self, storage: FarStorage) -> None:
        """Raises FollowRefused."""
        self._kept.state.far = storage
        saved: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._kept.save(lambda why_not: None if saved.done() else saved.set_result(why_not))
        if why_not := await saved:
            raise FollowRefused(why_not)
