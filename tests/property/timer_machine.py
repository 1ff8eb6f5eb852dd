"""A broker's process and machine in the life of its timers: turns, ends of every kind, and starts.

Rules of this file
1. After each turn the account reads what the log says, and the answers that left meanwhile are held against it.
"""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.property.timer_account import Account, Broken
from tests.property.timer_broker import ROUNDS_MAX, CountedIds, Disk, Shape, TimerBroker, answers
from tests.unit.broker.conftest import ListPeer
from tests.worlds.faults import Killed, RecordingFiles

from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.frame import Command
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.far.tier import Tier

START_MS = 1_790_000_000_123
LATER_MS = 4_000_000_000_123
"""A clock so far ahead that every commit log file has expired."""

TOPICS = ("orders", "orders-2", "mail")
KEYS = ("k", "k1", "k12", "order-7", "bill")
QUEUES = 2
LATE_MS = 3_000
"""How late something may be by the virtual clock, once nothing is in its way."""

AUDITED_MS = 30_000
"""The same of a message that stood in a damaged file: it is found again after a while."""

FAR_LATE_MS = 180_000
STEPS = 45
SECOND, MINUTE = 1_000, 60_000
LATER = (1, 2, 3, 250, 999, 1_000, 1_001, 2_500, 7_000, 30_000, 90_000)
DAMAGED = ("timerwheel", "timerlog", "orbitmq.timers", "orbitmq.timerindex", "timercheck")

MakeTier = Callable[[Path], Tier]


class Asked(NamedTuple):
    """A change that somebody asked for: of one message, or of all of a topic with a key."""

    message_id: str
    topic: str | None
    key: str | None
    deliver_ms: int | None
    """None for a recall."""


class Open(NamedTuple):
    """A request whose answer has not been looked at."""

    answer: Command | None
    peer: ListPeer
    check: Callable[[Command], None]
    asked: Asked | None = None


class Machine:
    def __init__(self, base: Path, seed: int, make_tier: MakeTier | None) -> None:
        self.rng = rng = random.Random(seed)
        CountedIds.made = 0
        self.base = base
        self.seed = seed
        self.cleans = rng.random() < 0.3
        self.clock = ManualClock(LATER_MS if self.cleans else START_MS)
        self.account = Account()
        self.shape = Shape(
            flush=rng.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH)),
            far_horizon_ms=rng.choice((0, 30 * MINUTE)) if make_tier is not None else 0,
            log_file_bytes=rng.choice((16, 16, 64)) * 1024,
            cleans=self.cleans,
        )
        self.tier = make_tier(base / "far") if make_tier is not None and self.shape.far_horizon_ms else None
        self.calm = rng.random() < 0.25
        """Whether the process stays alive, so that the rest of the steps has room."""
        self.died: set[int] = set()
        self.is_damaged = False
        self.boots = 0
        self.number = 0
        self.handles: dict[str, str] = {}
        self.once: list[str] = []
        self.open: list[Open] = []
        self.retries = False
        """Whether senders store messages twice."""
        self.synced_end = 0
        self.steps: list[str] = []
        self.here: TimerBroker | None = None
        self.root = base / "store0"
        self.root.mkdir()
        self._files()
        self._start()

    # --- the process and the machine --------------------------------------------------------------------------------

    def _files(self) -> None:
        self.disk = Disk()
        self.files = RecordingFiles(OsFiles(), self.root, plan=self.disk, boot=f"boot{self.boots}")

    @property
    def broker(self) -> TimerBroker:
        assert self.here is not None
        return self.here

    def _start(self) -> None:
        """Start until the process lives; a start may die as well."""
        while self.here is None:
            try:
                self.here = TimerBroker(self.root, self.files, self.clock, self.shape, self.tier)
            except Killed:
                gc.collect()  # what a start that died left open
                self._revive()
        self.broker.timers.paused = False
        self.account.crashed(self.broker.store, self.clock.now_ms())
        self._note_synced()

    def _revive(self) -> None:
        self.disk.die_at = None
        self.disk.is_full = False
        self.files.revive(self.disk)

    def _note_synced(self) -> None:
        if self.here is not None:
            self.synced_end = max(self.synced_end, self.here.store.log.synced_end)

    def _end(self) -> None:
        """The process is dead."""
        self._note_synced()
        self.account.safe_end = self.account.end
        if self.here is not None:
            self.here.kill()
            self.here = None
        self.open.clear()
        self._revive()

    def kill(self) -> None:
        self._end()
        self._down()
        self._start()

    def doom(self) -> None:
        """The process dies at one of its next calls."""
        self.disk.die_at = len(self.files.calls) + self.rng.randint(1, 60)

    def power(self) -> None:
        """The machine loses power."""
        if self.shape.flush is FlushDiskType.SYNC_FLUSH:
            self._note_synced()
        self._end()
        self.account.safe_end = (
            self.account.end if self.shape.flush is FlushDiskType.SYNC_FLUSH else min(self.synced_end, self.account.end)
        )
        self.boots += 1
        after = self.base / f"store{self.boots}"
        self.files.power_cut(after, self.rng)
        self.root = after
        self._files()
        self._down()
        self._start()
        self.synced_end = self.broker.store.log.synced_end

    def restart(self) -> None:
        if self.disk.is_full:
            self.fill_disk()
        self.turn()
        self.broker.stop()
        self.account.safe_end = self.account.end
        self.here = None
        self.open.clear()
        self._down()
        self._start()

    def change_hands(self) -> None:
        """An orderly stop, and a start that knows no more than what a RocketMQ broker knows: its own files."""
        self.restart_with(self._forget_ours)

    def _forget_ours(self) -> None:
        for name in ("orbitmq.mark", "orbitmq.timers"):
            (self.root / name).unlink(missing_ok=True)
        shutil.rmtree(self.root / "orbitmq.timerindex", ignore_errors=True)
        self._files()

    def damage(self) -> None:
        """Files of the timers are damaged while the broker is down."""
        if self.rng.random() < 0.5:
            self.restart_with(self._damage)
        else:
            self._end()
            self._damage()
            self._start()

    def restart_with(self, meanwhile: Callable[[], None]) -> None:
        self.disk.is_full = False
        self.turn()
        self.broker.stop()
        self.account.safe_end = self.account.end
        self.here = None
        self.open.clear()
        meanwhile()
        self._start()

    def _damage(self) -> None:
        rng = self.rng
        found = sorted(
            path for path in self.root.rglob("*") if path.is_file() and any(name in str(path) for name in DAMAGED)
        )
        self.is_damaged = self.account.is_damaged = True
        for path in rng.sample(found, min(len(found), rng.choice((1, 1, 2, 3)))):
            data = bytearray(path.read_bytes())
            version = data[7:8]
            way = rng.random()
            if way < 0.15 or not data:
                path.unlink()
                continue
            if way < 0.3:
                del data[rng.randrange(len(data)) :]
            elif way < 0.5:
                at = rng.randrange(len(data))
                data[at : at + 4096] = bytes(len(data[at : at + 4096]))
            else:
                used = [at for at in range(0, len(data), 8) if any(data[at : at + 8])] or [0]
                for _ in range(rng.choice((1, 3))):
                    data[min(rng.choice(used) + rng.randrange(8), len(data) - 1)] ^= 1 << rng.randrange(8)
                if data[7:8].isdigit() and "orbitmq." in str(path.relative_to(self.root)):
                    data[7:8] = version  # a later version is refused, as it should be
            path.write_bytes(data)
            self.steps.append(f"  damaged {path.relative_to(self.root)}")
        self._files()  # what is there now is what counts

    def _down(self) -> None:
        if self.rng.random() < 0.4:
            self.clock.advance(self.rng.choice((1, 900, 5_000, 3 * MINUTE, 30 * MINUTE)))

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        store = self.broker.store
        self.account.turns.append((store.log.end, store.confirm_offset))
        self.broker.turn()
        self._seen()

    def _seen(self) -> None:
        """What the log and the answers say now."""
        self.account.watch(self.broker.store, self.clock.now_ms())
        still: list[Open] = []
        for one in self.open:
            answer = answers(one.answer, one.peer)
            if answer is None:
                still.append(one)
            else:
                one.check(answer)
        self.open = still
        if self.broker.broker.statistics.failed_handler_count:
            raise Broken("a handler failed")

    def work(self, rounds: int = 3) -> None:
        """Turns, and all that the threads have to do."""
        for _ in range(rounds):
            self.turn()
            for _ in range(ROUNDS_MAX):
                if not self.broker.step_worker():
                    break
                self._seen()
            else:
                raise Broken("the threads are never done")
        self._seen()

    def let_go(self) -> None:
        """What is due may not leave for a while, as where another broker has become the leader."""
        appenders = self.broker.appenders
        appenders.detach()
        for _ in range(self.rng.randrange(3)):
            self.clock.advance(self.rng.choice((1, 900, 5_000)))
            self.nudge()
        appenders.attach()

    def nudge(self) -> None:
        self.turn()
        for _ in range(self.rng.randrange(4)):
            self.broker.step_worker()
            self._seen()
