"""A broker put together as `orbitmq serve` does it, without sockets and threads, upon files that fail, die and lose power when told to.

Rules of this file
1. Nothing sleeps and nothing runs in the background: `turn`, `work` and `step_worker` are all that happens.
2. `kill` ends it as the kernel ends a process: no job that was submitted runs, nothing is saved.
3. The far tier's files lie beside the store and are always durable: a machine that loses power keeps them.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from tests.unit.broker.conftest import STORE_HOST, ListPeer
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import SMALL, SteppedWorker

from orbitmq.broker.broker import Broker, make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.identity import StoreIdentity
from orbitmq.broker.table_records.level_lists import RecordedLevelLists
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.commands import SEND_V1_FIELDS, RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.opening import open_store
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import Appenders
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.process import Helper, Helpers
from orbitmq.timing.far.tier import Tier
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.rewriting import Rewriting
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

LEVELS = "1s 5s 40s"
BROKER_NAME = "broker-a"
IDS = count(1)
"""Ids of stores: no two are the same."""

ROUNDS_MAX = 400
"""Rounds of work after which something must be going in circles."""


class Shape(NamedTuple):
    """What one broker is like."""

    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    far_horizon_ms: int = 0
    """0: without a far tier."""
    log_file_bytes: int = 16 * 1024
    index: IndexShape = IndexShape(capacity=12, carried=2, small=4)
    cleans: bool = False
    """Whether old commit log files go."""
    has_all: bool = False
    """Whether it has recurring messages and transactions as well."""
    has_tables: bool = False
    """Whether its tables are in its log while a copy follows."""


class CountedIds:
    """Unique keys that are the same in every repetition of a life."""

    made = 0

    def __init__(self, clock: object, address: object) -> None:
        pass

    def next(self) -> str:
        CountedIds.made += 1
        return f"FRESH{CountedIds.made}"


class Disk:
    """The plan of a machine's files: when the process dies, and whether the disk is full."""

    def __init__(self) -> None:
        self.die_at: int | None = None
        self.is_full = False

    def __call__(self, call: Call) -> OSError | Killed | None:
        if self.die_at is not None and call.number >= self.die_at:
            return Killed()
        if self.is_full and call.kind in ("write", "create", "allocate", "mkdir"):
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(call.path))
        return None


class TimerBroker:
    """One process of the broker."""

    def __init__(
        self,
        root: Path,
        files: RecordingFiles,
        clock: ManualClock,
        shape: Shape,
        tier: Tier | None,
        *,
        appends: bool = True,
    ) -> None:
        self.clock, self.files, self.shape = clock, files, shape
        self.worker, self.far_worker, self.table_worker = SteppedWorker(), SteppedWorker(), SteppedWorker()
        config = root / "config"
        files.make_dirs(config)
        history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), DelayLevels.parse(LEVELS), clock.now_ms())
        self.release = LevelRelease(
            clock, history.due_time, LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), clock)
        )
        self.timers = Timers(
            files,
            root,
            clock,
            TimerSettings(shape=shape.index),
            TimerExchange(files, root, 1_000, 600, log_file_bytes=52 * 20 + 16, slot_count=8_192),
        )
        self.timers._ledger.shorten_from_bytes = 1_000
        self.far = FarTimers(
            files,
            root,
            clock,
            None if tier is None else Helpers(Helper(clock, tier, self.far_worker)),
            horizon_ms=shape.far_horizon_ms or 1 << 40,
            takes=tier is not None,
        )
        self.idempotence = Idempotence(files, root, clock, shorten_from_bytes=1_000)
        tables: TableRecords | None = None
        if shape.has_tables:
            identity = StoreIdentity(files, root, lambda count: f"{next(IDS):0{count}d}".encode())
            tables = TableRecords(clock, identity, [RecordedLevelLists(history, clock)])
            tables.ended.append(self.idempotence.end_topic)
        self.derived = DerivedState(
            tables=tables,
            levels=self.release,
            idempotence=self.idempotence,
            timers=self.timers,
            far=self.far,
        )
        if shape.has_all:
            offsets = ConfigFile(files, config / "consumerOffset.json")
            self.derived.recurrences = Recurrences(clock)
            self.derived.transactions = Transactions(offsets, history.due_time, CheckRules())
        self.store: MessageStore = open_store(
            root,
            self._store_settings(),
            files,
            clock,
            notify=lambda call: call(),
            due_time=history.due_time,
            derived=self.derived.recoverable(),
            worker=self.worker,
        )
        history.keep()
        self.rewriting = Rewriting(clock, self.derived.owners())
        self.housekeeping: Housekeeping | None = None
        if shape.cleans:
            say_below = (lambda position: True) if tables is None else tables.say_below
            self.housekeeping = Housekeeping(
                self.store, root, files, clock, rewriter=self.rewriting, say_below=say_below
            )
        with mock.patch("orbitmq.broker.admission.UniqueIds", CountedIds):
            self.broker = self._broker(root)
        self.appenders = Appenders(self.store, clock, [*self.broker.rooms.appenders, self.rewriting])
        if appends:
            self.appenders.attach()

    def _store_settings(self) -> StoreSettings:
        shape = self.shape
        return msgspec.structs.replace(
            SMALL, flush_disk_type=shape.flush, mapped_file_size_commit_log=shape.log_file_bytes
        )

    def _broker(self, root: Path) -> Broker:
        facilities = Facilities(
            tables=lambda name: ConfigFile(self.files, root / "config" / name),
            store_host=STORE_HOST,
            worker=self.table_worker,
            memory_bytes=1 << 30,
            random_below=lambda bound: 0,
        )
        settings = BrokerSettings(broker_name=BROKER_NAME, message_delay_level=LEVELS)
        return make_broker(settings, self.store, self.clock, facilities, self.derived)

    # --- time and work ----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One turn of the event loop: what is due runs, then everything is written."""
        self.store.run_due(self.clock.monotonic_ns())
        self.broker.end_turn()

    def step_worker(self) -> bool:
        """The oldest job of each thread; False when there was none."""
        stepped = [worker.step() for worker in (self.worker, self.far_worker, self.table_worker)]
        return any(stepped)

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(
        self, code: int, body: bytes = b"", fields: dict[str, str] | None = None
    ) -> tuple[Command | None, ListPeer]:
        """Hand over a request without ending the turn: its answer, now or later among what the peer was sent."""
        peer = ListPeer(self.clock)
        command = request(code, fields, body)
        try:
            return self.broker.handle(command, peer), peer
        except Refusal as refusal:
            return Command(refusal.code, remark=refusal.remark), peer

    def send(
        self, topic: str, queue_id: int, body: bytes, values: dict[str, str], sys_flag: int = 0
    ) -> tuple[Command | None, ListPeer]:
        fields: dict[str, Any] = {
            "producerGroup": "pg",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": sys_flag,
            "bornTimestamp": self.clock.now_ms() - 5,
            "flag": 0,
            "properties": encode_properties(values).decode(),
            "reconsumeTimes": 0,
            "unitMode": "false",
            "batch": "false",
        }
        return self.ask(
            RequestCode.SEND_MESSAGE_V2, body, {SEND_V1_FIELDS[name]: str(value) for name, value in fields.items()}
        )

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The orderly stop."""
        self.broker.close()
        self.table_worker.close()
        self.derived.hand_over()
        self.store.close()

    def kill(self) -> None:
        for worker in (self.worker, self.far_worker, self.table_worker):
            worker.jobs.clear()
        if self.store.index is not None:
            for file in self.store.index.index_files:
                file.close()
        for queue in self.store.queues:
            queue.close()
        with suppress(Killed):
            self.store.abandon()


def answers(command: Command | None, peer: ListPeer) -> Command | None:
    """The answer to a request, once there is one."""
    return command if command is not None else next(iter(peer.sent), None)
