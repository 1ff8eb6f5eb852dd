"""A broker that mends its log and the other copy of that log, without sockets: a test damages either, and says who answers.

Rules of this file
1. Threads run when the loop is given a pass; nothing sleeps, and time passes when a test says so.
2. The other copy answers by the rules that a broker answers by, over its own bytes, unless a test has it answer something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.worlds.little_store import SMALL, LittleStore

from orbitmq.errors import ConnectionLostError
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks
from orbitmq.replication.range_answers import OwnLog, check_range
from orbitmq.server.replication.mending import Mending
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.walking import Walked, walk

FILE = SMALL.mapped_file_size_commit_log
Ask = Callable[[str, LogRangeRequest], Awaitable[bytes]]


class MendingPair:
    """`little` is what is mended; `theirs` the bytes of the other copy, whole files."""

    def __init__(self, directory: Path, count: int = 60, body: Callable[[int], bytes] | None = None) -> None:
        self.little = LittleStore(directory)
        for number in range(count):
            data = bytes([number + 1]) * (200 + 41 * number) if body is None else body(number)
            self.little.send(body=data, KEYS=f"k{number}")
        self.store = self.little.store
        self.end = self.store.confirm_offset
        self.entries: list[Dispatched] = list(self.store.scan(0))
        sequence = self.store.log.sequence
        self.sound = b"".join(segment.read(segment.base, segment.size) for segment in sequence.segments)
        self.theirs = bytearray(self.sound)
        self.epochs = EpochMarks([EpochMark(1, 0)])
        self.their_epochs = self.epochs
        self.their_end = self.end
        self.asked: list[LogRangeRequest] = []
        self.is_reachable = True
        self.changes = 0
        self.addresses: Sequence[str] = ["other:1"]
        self.ask: Ask = self.answer
        self.mending = Mending(
            self.store,
            self.little.worker,
            self.little.clock,
            own=lambda: OwnLog("pair", "a-log", self.epochs, self.store.log.start, self.store.confirm_offset, FILE),
            others=self._others,
            ask=lambda address, wanted: self.ask(address, wanted),
            changed=self._changed,
        )
        self.store.reads.suspect = self.mending.suspect

    async def _others(self) -> Sequence[str]:
        return self.addresses

    def _changed(self) -> None:
        self.changes += 1

    async def answer(self, address: str, wanted: LogRangeRequest) -> bytes:
        self.asked.append(wanted)
        if not self.is_reachable:
            raise ConnectionLostError(f"{address} cannot be reached")
        own = OwnLog("pair", "a-log", self.their_epochs, self.store.log.start, self.their_end, FILE)
        size = check_range(wanted, own)
        return bytes(self.theirs[wanted.position : wanted.position + size])

    # --- damage -----------------------------------------------------------------------------------------------------

    def at(self, number: int) -> int:
        """Where a message lies in the log."""
        return self.entries[number].physical_offset

    def damage(self, position: int, data: bytes) -> None:
        segment = self.store.log.sequence.find(position)
        assert segment is not None
        segment.file.pwrite(data, position - segment.base)

    def flip(self, *numbers: int, theirs: bool = False) -> None:
        """A bit in the middle of the body of these messages."""
        for number in numbers:
            at = self.at(number) + 150
            if theirs:
                self.theirs[at] ^= 4
            else:
                self.damage(at, bytes([self.sound[at] ^ 4]))

    # --- time -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Everything that can be done at this moment."""
        for _ in range(3_000):
            await asyncio.sleep(0)
            stepped = self.little.worker.step()
            if not stepped and self.mending._running is None:
                return
        raise AssertionError("it does not come to an end")

    async def meet(self, *numbers: int) -> list[bool]:
        """Somebody reads these messages; what each is told, and then everything that follows."""
        told = [self.mending.suspect(self.at(number)) for number in numbers]
        await self.settle()
        return told

    async def pass_time(self, ms: int) -> None:
        self.little.clock.advance(ms)
        self.store.run_due(self.little.clock.monotonic_ns())
        await self.settle()

    # --- what is there ----------------------------------------------------------------------------------------------

    def walked(self, begin: int = 0) -> Walked:
        return walk(self.store.log, begin, self.end, 1 << 40)

    def is_as_it_was(self) -> bool:
        return all(
            self.little.log_bytes(one.physical_offset, one.end_offset)
            == self.sound[one.physical_offset : one.end_offset]
            for one in self.entries
        ) and self.walked() == Walked(self.end)
