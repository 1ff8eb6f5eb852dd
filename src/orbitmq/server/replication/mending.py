"""Damage of the log is fetched from another copy: the files, the requests and the times of it.

    a bad record is met -> the file is walked by a thread -> the other copies are asked -> the answer is checked, written, synced

Rules of this file
1. What is to be done is decided by `Damage`, whether an answer may be used by `MissingRange`. Nothing that came from elsewhere is written
   without it.
2. Only a broker that knows another copy of its log, by the epochs of both, does any of this; else damage stays what it is without copies.
3. The loop waits for nothing: walks, reads and writes are jobs of threads, one at a time.
4. The whole log is looked at again and again, slowly. Damage that nobody reads would be met by whoever needs this copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import ConnectionLostError, OrbitError, RequestTimeoutError
from orbitmq.limits.replication import CHECK_PAUSE_MS, CHECK_STEP_MS, WALK_AGAIN_MS, WALK_SLICE_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.damage import Damage
from orbitmq.replication.missing_range import MissingRange
from orbitmq.replication.range_answers import OwnLog, RangeRefused, check_range
from orbitmq.server.replication.range_fetching import fetched
from orbitmq.store.queues import restore_units
from orbitmq.store.store import MessageStore
from orbitmq.store.walking import next_record, walk
from orbitmq.store.worker import Worker
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")
T = TypeVar("T")

RETRY: Final = "damage of the log"
CHECK: Final = "check of the log"


class Mending:
    """Of one open store. `changed()` is called when damage was found, and when there is none any more."""

    def __init__(
        self,
        store: MessageStore,
        worker: Worker,
        clock: Clock,
        own: Callable[[], OwnLog],
        others: Callable[[], Awaitable[Sequence[str]]],
        ask: Callable[[str, LogRangeRequest], Awaitable[bytes]],
        changed: Callable[[], None],
    ) -> None:
        """`others()`: main ports of brokers that may have a copy. `ask(address, request)` answers the bytes, or raises OrbitError."""
        self.damage: Final = Damage(store.log.sequence.segment_size)
        self._store = store
        self._worker = worker
        self._clock = clock
        self._own = own
        self._others = others
        self._ask = ask
        self._changed = changed
        self._running: asyncio.Task[None] | None = None
        self._checked = 0
        """The whole log is being looked at, and is sound up to here."""
        self._is_checking = False
        self._silent: set[str] = set()
        """Other copies that gave no answer, for as long as damage is looked for."""
        self._is_told = False
        """Damage was reported, and that there is none any more was not."""
        store.deadlines.define(RETRY, self._go_on)
        store.deadlines.define(CHECK, self._check)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._store.reads.suspect = self.suspect
        self.check()

    def check(self) -> None:
        """Begin to look at the whole log, where another copy is known and that is not done yet."""
        if self._has_copies or self._store.is_copy:
            self._check_in(CHECK_STEP_MS)

    async def stop(self) -> None:
        self._store.deadlines.disarm(RETRY)
        self._store.deadlines.disarm(CHECK)
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def _has_copies(self) -> bool:
        own = self._own()
        return bool(own.log_id and own.epochs.marks)

    def suspect(self, position: int) -> bool:
        """A record there is bad, or cannot be read. Whether it may be sound soon."""
        log = self._store.log
        if not (log.start <= position < self._store.confirm_offset and self._has_copies):
            return False
        hopes = self.damage.suspect(position, self._clock.monotonic_ns())
        self._go_on()
        return hopes

    def _go_on(self) -> None:
        if self._running is None and self.damage.next_file(self._clock.monotonic_ns()) is not None:
            self._running = asyncio.get_running_loop().create_task(self._run(), name="mend the log")

    # --- the whole log ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """The next step through the log."""
        log, until = self._store.log, self._store.confirm_offset
        begin = max(self._checked, log.start)
        if self._is_checking:
            return
        if not self._has_copies or begin >= until:
            self._checked = 0
            if self._has_copies or self._store.is_copy:
                self._check_in(CHECK_PAUSE_MS if begin >= until > 0 else WALK_AGAIN_MS)
            return
        self._is_checking = True
        self._worker.submit(lambda: walk(log, begin, until, WALK_SLICE_BYTES), self._was_checked)

    def _was_checked(self, result: object) -> None:
        self._is_checking = False
        if isinstance(result, tuple):
            position, problem = result
            self._checked = position
            if problem:
                self.suspect(position)
                segment = self._store.log.sequence.find(position)
                self._checked = position if segment is None else segment.end  # the walk of the file finds the rest
        self._check_in(CHECK_STEP_MS)

    def _check_in(self, pause_ms: int) -> None:
        self._store.deadlines.arm(CHECK, self._clock.monotonic_ns() + pause_ms * NS_PER_MS)

    # --- a file -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        damage = self.damage
        self._silent.clear()
        try:
            while (base := damage.next_file(self._clock.monotonic_ns())) is not None:
                begun_ns = self._clock.monotonic_ns()
                try:
                    for stretch in damage.stretches(base):
                        await self._walk(*stretch)
                except (OrbitError, OSError, ValueError) as error:
                    logger.error(
                        "the file of the log that begins at %d could not be looked at, trying again: %s", base, error
                    )
                    damage.not_walked(base, self._clock.monotonic_ns())
                    continue
                now_ns = self._clock.monotonic_ns()
                damage.walked(base, now_ns, now_ns - begun_ns)
        finally:
            self._running = None
            self._store.deadlines.move(RETRY, damage.due_ns)
        if self._is_told and not damage.places:
            self._is_told = False
            logger.warning("the log has no damage any more that is known")
            self._changed()

    async def _walk(self, begin: int, end: int) -> None:
        """One stretch of a file: what is damaged is fetched; where nobody gives it, it goes on behind that."""
        log, damage = self._store.log, self.damage
        until = min(end, self._store.confirm_offset)
        while begin < until:
            at = begin
            begin, problem = await self._on_thread(partial(walk, log, at, until, WALK_SLICE_BYTES))
            damage.sound(at, begin)
            if problem:
                begin = await self._mend(begin, until, problem)

    async def _mend(self, begin: int, until: int, problem: str) -> int:
        """Fetch the damaged place that begins there. Answers where to go on."""
        damage, log = self.damage, self._store.log
        is_new = damage.found(begin, problem)
        if is_new:
            logger.error("the log is damaged at %d, and asked for at another copy: %s", begin, problem)
        if not self._is_told:
            self._is_told = True
            self._changed()
        refusals = []
        for address in await self._others():
            if address in self._silent:
                refusals.append(f"{address}: no answer a moment ago")
                continue
            try:
                missing = await self._fetched(address, begin)
                if not await self._write(missing):  # the file went meanwhile
                    damage.sound(begin, until)
                    return until
            except (OrbitError, OSError, ValueError) as error:
                refusals.append(f"{address}: {error}")
                if isinstance(error, ConnectionLostError | RequestTimeoutError):
                    self._silent.add(address)
                continue
            logger.warning(
                "the log was damaged at %d: %d bytes came from the copy at %s", begin, len(missing.data), address
            )
            damage.mended(begin, missing.end - begin)
            return missing.end
        if is_new:
            why = "; ".join(refusals) or "no other copy answers"
            logger.error("the damage of the log at %d stays, other copies are asked again: %s", begin, why)
        end = until if damage.is_full else await self._on_thread(partial(next_record, log, begin, until))
        damage.not_mended(begin, end, problem)
        return end

    async def _fetched(self, address: str, begin: int) -> MissingRange:
        """What another copy has there, checked as a whole. Raises OrbitError, OSError."""
        store = self._store
        return await fetched(
            store.log,
            self._own(),
            begin,
            store.confirm_offset,
            partial(self._ask, address),
            self._on_thread,
            store.due_time,
        )

    async def _write(self, missing: MissingRange) -> bool:
        """Durable on return, and known to its queues. False: the file is gone. Raises OSError."""
        store = self._store
        done: asyncio.Future[bool | BaseException] = asyncio.get_running_loop().create_future()
        store.overwrite(missing.begin, missing.data, partial(_tell, done))
        result = await done
        if isinstance(result, BaseException):
            raise result
        if result and (count := restore_units(store.queues, missing.entries)):
            logger.warning("%d units of consume queues were missing for what came from another copy", count)
        return result

    async def _on_thread(self, job: Callable[[], T]) -> T:
        """Raises what the job raises."""
        done: asyncio.Future[T | BaseException] = asyncio.get_running_loop().create_future()
        self._worker.submit(job, partial(_tell, done))
        result = await done
        if isinstance(result, BaseException):
            raise result
        return result

    # --- for other copies -------------------------------------------------------------------------------------------

    def answer(self, wanted: LogRangeRequest, done: Callable[[bytes | OrbitError], None]) -> None:
        """Bytes of this log for another copy, or why it gets none (`RangeRefused`). What was damaged there may be damaged here: the file is
        looked at."""
        own = self._own()
        try:
            size = check_range(wanted, own)
        except OrbitError as error:
            done(error)
            return
        self.suspect(wanted.position - wanted.position % own.segment_bytes)
        log = self._store.log

        def read(data: bytes | BaseException | None) -> None:
            if isinstance(data, bytes):
                done(data)
            else:
                done(RangeRefused(f"the log at {wanted.position} cannot be read here: {data or 'it is gone'}"))

        self._worker.submit(lambda: log.read_written(wanted.position, size), read)


def _tell(done: asyncio.Future[T], result: T) -> None:
    """A job has ended, perhaps when nobody waits for it any more."""
    if not done.done():
        done.set_result(result)
