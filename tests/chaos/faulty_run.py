"""What campaigns of brokers that fail have in common: chance from a seed, findings, waiting, and the ledger of other programs."""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tests.chaos.pair_ledger import Ledger
from tests.chaos.pair_programs import TICKS, TIMERS
from tests.system.server_process import RawClient, ServedProcess, pull_fields

from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

QUEUES: Final = 4
HEALED_LIMIT_S: Final = 60.0

AnyDisaster = TypeVar("AnyDisaster", bound=Enum)


async def came_true(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether it did within so long. It is asked in a thread."""
    ends = time.monotonic() + limit_s
    while not await asyncio.to_thread(condition):
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(0.05)
    return True


class FaultyRun(ABC, Generic[AnyDisaster]):
    """`findings` is empty when every promise was kept. bug: planted ones, with commas."""

    def __init__(self, seed: int, bug: str | None) -> None:
        self._chance = random.Random(seed)
        self.seed = seed
        self._bug = bug
        self.findings: list[str] = []
        self.faults: Counter[AnyDisaster] = Counter()
        self.ledger = Ledger()

    @abstractmethod
    async def run(self, disasters: Sequence[AnyDisaster]) -> None:
        """Until the first finding."""

    @abstractmethod
    def drawn(self, count: int, names: Collection[str] | None = None) -> list[AnyDisaster]:
        """Each once before any twice; only those with these names."""

    @abstractmethod
    def summary(self) -> str:
        """What was done and what came of it."""

    def _each_once(self, possible: Sequence[AnyDisaster], count: int) -> list[AnyDisaster]:
        """Before any comes twice."""
        drawn: list[AnyDisaster] = []
        while possible and len(drawn) < count:
            drawn += self._chance.sample(possible, len(possible))
        return drawn[:count]

    async def _until(self, condition: Callable[[], bool], what: str, limit_s: float = HEALED_LIMIT_S) -> None:
        if not await came_true(condition, limit_s):
            self.findings.append(f"no {what} within {limit_s} s")

    def _judge_log(self, process: ServedProcess) -> None:
        """Nothing failed in a way that nobody had thought of."""
        if "Traceback" in (log := process.log()):
            self.findings.append(f"a traceback:\n{log[max(0, log.index('Traceback') - 300) :][:3_000]}")

    # --- timers and the recurring message -------------------------------------------------------------------------

    def _judge_ledger(self, port: int) -> None:
        """By what the topics at this broker hold."""
        for topic, note in ((TIMERS, self._note_timer), (TICKS, self._note_tick)):
            for queue in range(QUEUES):
                self._read(port, topic, queue, note)
        self.findings += self.ledger.findings()

    def _note_timer(self, name: bytes, _: bytes) -> None:
        if (timer := self.ledger.timers.get(name)) is not None:
            timer.stored_count += 1

    def _note_tick(self, _: bytes, properties: bytes) -> None:
        planned = re.search(rb"ORBITMQ_PLANNED_MS\x01(\d+)", properties)
        assert planned is not None
        self.ledger.ticks[int(planned[1])] += 1

    def _read(self, port: int, topic: str, queue: int, note: Callable[[bytes, bytes], None]) -> None:
        """All that a queue holds."""
        count = 0
        with RawClient(port) as client:
            while True:
                answer = client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, queue, count))
                if answer.code != ResponseCode.SUCCESS:
                    break
                for record in decode_records(bytes(answer.body)):
                    note(bytes(record.body), bytes(record.properties))
                    count += 1


def play(options: argparse.Namespace, made: Callable[[Path, int], FaultyRun[Any]]) -> int:
    """Every seed. `made(directory, seed)`: its run."""
    broken = 0
    for seed in range(options.seed, options.seed + options.seeds):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="orbitmq-chaos-", ignore_cleanup_errors=True) as directory:
            run = made(Path(directory), seed)
            asyncio.run(run.run(run.drawn(options.disasters, options.of)))
            if run.findings and options.keep:
                shutil.copytree(directory, options.keep / f"seed-{seed}", dirs_exist_ok=True)
        print(f"{run.summary()}; {time.monotonic() - began:.0f} s", flush=True)
        for finding in run.findings:
            print(f"  BROKEN: {finding}", flush=True)
        broken += bool(run.findings)
    print(f"{options.seeds} seeds from {options.seed}: {broken} broken")
    return 1 if broken else 0
