"""The storage of the far tier as brokers with one log share it: its mark, the state that lies beside the files, what this broker keeps.

Rules of this file
1. A mark is saved before it is written, and written once: what is kept never names storage that another group marked meanwhile.
2. A state is told after it is durable and lies there. Whoever begins with it looks whether it is that one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, TypeVar

from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.replication.kept_state import FarStorage
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.state_file import decode_state
from orbitmq.timing.far.tier import FarTierError, Tier, refuse_foreign, refuse_other_storage

T = TypeVar("T")

MARK_BYTES: Final = 16


class FarStateUntaken(OrbitError):
    """A broker could not begin with what another one knows of the far tier."""


class SharedStorage:
    """Of one broker whose tier can be read. `place` is where its settings say that the files lie."""

    def __init__(self, far: FarTimers, place: str, store: MessageStore, kept: KeptFile, worker: Worker) -> None:
        assert far.keeper is not None, "what reads the files is installed"
        self._far = far
        self._keeper: Final = far.keeper
        self._place = place
        self._store = store
        self._kept = kept
        self._worker = worker
        self._marking = asyncio.Lock()

    async def found_mark(self) -> str:
        """That it bears; empty where it bears none. Raises FarTierError."""
        return await self.asked(lambda tier: tier.mark(""))

    async def have_mark(self) -> str:
        """Have the storage bear a mark, which this broker knows from then on. Who asks meanwhile gets the same one. Raises OrbitError."""
        before = self._kept.state.far.mark
        async with self._marking:
            known = self._kept.state.far.mark
            return known if known != before else await self._have_mark()

    async def _have_mark(self) -> str:
        storage, store_id, serial = self._kept.state.far, self._far.saving.store_id, self._far.saving.serial
        mark = os.urandom(MARK_BYTES).hex()

        def looked(tier: Tier) -> str:
            opened = tier.open()
            refuse_foreign(opened, serial, store_id)
            return tier.mark("") if opened.store else ""

        own = await self.asked(looked)  # of storage that says it is this store's, where what was kept of it is lost
        await self.saved(FarStorage(own or mark, self._place, storage.sharers, storage.followed))
        found = await self.asked(lambda tier: tier.mark(mark))
        if found != self._kept.state.far.mark:
            await self.saved(FarStorage())
            raise FollowRefused(
                f"the storage of the far tier, {self._place}, bears the mark {found} of another group of brokers",
                remedy="give every group storage of its own (timerFarUrl)",
            )
        return found

    async def publish(self) -> tuple[str, int]:
        """Have the state as of now lie beside the files. Answers store and number of it, 0 where there is none. Raises OrbitError."""
        saved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._store.save_durably(lambda is_durable: None if saved.done() else saved.set_result(is_durable))
        if not await saved:
            raise FollowRefused("what is known of the far tier could not be saved: ask again")
        mark, saving = self._kept.state.far.mark, self._far.saving
        content, serial = saving.content, saving.serial
        if content is None:
            return "", 0

        def publish(tier: Tier) -> None:
            refuse_other_storage(tier.mark(""), mark)
            tier.publish(content)

        await self.asked(publish)
        return saving.store_id, serial

    async def take_state(self, store_id: str, serial: int) -> int:
        """Begin with the state that another broker said it has put there. Answers how many messages wait. Raises OrbitError."""
        try:
            saved = decode_state(await self.asked(lambda tier: tier.manifest()))
        except StoreDamagedError as error:
            raise FarStateUntaken(f"the state that the master put beside the far tier's files: {error}") from error
        if saved.store != store_id or saved.serial < serial:
            raise FarStateUntaken(
                f"the state beside the far tier's files is not the one that the master put there (number {saved.serial} of "
                f"{saved.store}, expected {serial} of {store_id})",
                remedy="it is asked again; if it stays so, another broker writes there: stop that one",
            )
        taken: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._far.take_state(saved, self._worker, lambda error: None if taken.done() else taken.set_result(error))
        if (why_not := await taken) is not None:
            raise FarStateUntaken(f"what is known of the far tier's files could not be saved: {why_not}") from why_not
        return saved.pending

    async def asked(self, job: Callable[[Tier], T]) -> T:
        """Raises FarTierError."""
        answered: asyncio.Future[T | BaseException] = asyncio.get_running_loop().create_future()
        self._keeper.ask(job, lambda result: None if answered.done() else answered.set_result(result))
        result = await answered
        if isinstance(result, OrbitError):
            raise result
        if isinstance(result, BaseException):
            raise FarTierError(f"{type(result).__name__}: {result}") from result
        return result

    async def saved(self, storage: FarStorage) -> None:
        """Keep this of it. Raises FollowRefused."""
        self._kept.state.far = storage
        if why_not := await self._kept.saved():
            raise FollowRefused(why_not)
