"""A broker that leads and one that gets nothing but the bytes of its log, to compare their tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.broker.conftest import ListPeer
from tests.worlds.raw_log import append_raw

from orbitmq.access.users import ACCESS_FILE
from orbitmq.broker.broker import Broker, make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.changes import OutlivingTable, RecordedTable
from orbitmq.broker.table_records.identity import StoreIdentity
from orbitmq.broker.table_records.level_lists import RecordedLevelLists
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.opening import open_store
from orbitmq.store.settings import StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import InlineWorker
from orbitmq.testing.disk import EmbeddedFiles
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory

NOW_MS = 1_767_225_600_000
KEY = bytes(range(32))
SETTINGS = StoreSettings(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=2_000,
    max_hash_slot_num=100,
    max_index_num=400,
)


ROUNDS_MAX = 20
"""Turns within which everything is recorded that is needed of a file."""


class TableBroker:
    """`leads`: it records what changes, tables that change all the time included."""

    levels = "1s 5s"

    def __init__(self, root: Path, clock: ManualClock, *, leads: bool, settings: StoreSettings = SETTINGS) -> None:
        self.root = root
        self.clock = clock
        self.leads = leads
        self.store_settings = settings
        self.is_followed = True
        self.files: Files = EmbeddedFiles(clock)
        self.nonce = 0
        self.open()

    # --- life -------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        files, root, clock, config = self.files, self.root, self.clock, self.root / "config"
        files.make_dirs(config)
        levels = DelayLevels.parse(self.levels)
        self.history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), levels, clock.now_ms())
        self.identity = StoreIdentity(files, root, self._random)
        self.records = TableRecords(clock, self.identity, [RecordedLevelLists(self.history, clock)])
        idempotence = self.idempotence = Idempotence(files, root, clock)
        self.records.ended.append(idempotence.end_topic)
        derived = DerivedState(tables=self.records, idempotence=idempotence)
        self.store: MessageStore = open_store(
            root,
            self.store_settings,
            files,
            clock,
            notify=lambda call: call(),
            due_time=self.history.due_time,
            derived=derived.recoverable(),
            worker=InlineWorker(),
        )
        self.history.keep()
        file = AccessFile(files, config / ACCESS_FILE, [KEY], self._random)
        access = SavedAccess(file, clock, file)
        access.load()
        facilities = Facilities(
            tables=lambda name: ConfigFile(files, config / name),
            store_host=bytes(8),
            memory_bytes=1 << 30,
            access=access,
        )
        self.access = access
        self.broker: Broker = make_broker(BrokerSettings(), self.store, clock, facilities, derived)
        self.derived = derived
        if self.leads:
            self.records.copy_follows(self.is_followed)
            self.records.attach(self.store)
            self.turn()

    def _random(self, count: int) -> bytes:
        self.nonce += 1
        return self.nonce.to_bytes(count, "big")

    def turn(self) -> None:
        self.store.run_due(self.clock.monotonic_ns())
        self.broker.end_turn()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.turn()

    def save_tables(self) -> None:
        """As the server does every few seconds."""
        for table in self.saved_tables():
            table.save()

    def close(self) -> None:
        self.broker.close()
        for table in self.saved_tables():
            table.save()
        self.store.close()

    def kill(self) -> None:
        self.store.abandon()

    def reopen(self) -> None:
        self.close()
        self.open()

    def crash(self) -> None:
        """The process ends without a word, and another one begins."""
        self.kill()
        self.open()

    def remove_files(self, count: int = 1, before: Callable[[], object] = lambda: None) -> None:
        """Retention: the oldest files of the log go, as soon as nothing in them is needed. `before()` is called at the last moment."""
        store, records = self.store, self.records
        end = store.log.sequence.segments[count - 1].end
        for _ in range(ROUNDS_MAX):
            needed = records.lowest_needed()
            if not self.leads or ((needed is None or needed >= end) and records.say_below(end)):
                break
            records.take_below(end, 1_000)
            self.turn()
        else:
            raise AssertionError(f"what lies below {end} is still needed")
        before()
        saved: list[bool] = []
        store.save_durably(saved.append)
        while not saved:
            self.advance(1)
        store.remove_paths(store.drop_first_segments(count))

    def lead(self) -> None:
        """It becomes the leader."""
        self.leads = True
        self.records.attach(self.store)
        self.turn()

    # --- requests -----------------------------------------------------------------------------------------------------

    def call(self, code: RequestCode, fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        """One request in a turn of its own; its answer."""
        peer = ListPeer(self.clock, 40_000)
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (fields or {}).items()
        }
        command = request(code, texts, body)
        command.opaque = 1
        answer = self.broker.handle(command, peer)
        self.broker.end_turn()
        if answer is None:
            assert peer.sent, "no answer"
            answer = peer.sent[0]
        return answer

    # --- what is compared -----------------------------------------------------------------------------------------------

    def saved_tables(self) -> list[Any]:
        rooms, broker = self.broker.rooms, self.broker
        return [broker.topics, broker.groups, broker.offsets, rooms.assignment.modes, rooms.pops.orders, self.access]

    def tables(self) -> dict[str, dict[str, Any]]:
        """Everything that a new leader has to know, by table and key."""
        return tables_of(self.records, self.access)


def tables_of(records: TableRecords, access: SavedAccess | None = None) -> dict[str, dict[str, Any]]:
    """What the tables of a broker hold, by table and key."""
    return {
        name: {key: _value(table, key, access) for key in table.recorded_keys()}
        for name, table in sorted(records._tables.items())
        if not isinstance(table, OutlivingTable)  # that is compared by what it tells
    }


def _value(table: RecordedTable, key: str, access: SavedAccess | None) -> Any:
    if access is not None and table is access:
        text = access.table.text(key)
        return None if text is None else msgspec.json.decode(text)
    value = table.recorded_value(key)
    return None if value is None else msgspec.json.decode(value)


class TablePair:
    def __init__(self, root: Path, settings: StoreSettings = SETTINGS) -> None:
        self.root, self.settings = root, settings
        self.clock = ManualClock(NOW_MS)
        self.leader = TableBroker(root / "leader", self.clock, leads=True, settings=settings)
        self.copy = TableBroker(root / "copy", self.clock, leads=False, settings=settings)
        self.made = 1

    def replicate(self, *, until: int | None = None) -> None:
        """Give the copy what the leader has confirmed and it lacks, to its own turn."""
        leader, copy = self.leader.store, self.copy.store
        end = leader.confirm_offset if until is None else until
        while copy.log.end < end:
            ours = max(copy.log.end, leader.log.start)
            segment = leader.log.sequence.find(ours)
            assert segment is not None
            data = leader.log.read(ours, min(end, segment.end) - ours)
            assert data is not None
            append_raw(copy, ours, bytes(data))
        self.copy.turn()

    def seed_copy(self) -> TableBroker:
        """The copy begins anew, with nothing, and gets what the log of the leader still has."""
        self.copy.close()
        self.made += 1
        self.copy = TableBroker(self.root / f"copy{self.made}", self.clock, leads=False, settings=self.settings)
        self.replicate()
        return self.copy

    def close(self) -> None:
        self.leader.close()
        self.copy.close()
