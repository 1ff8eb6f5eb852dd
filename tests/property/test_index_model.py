"""The key index against a dictionary, through writes, restarts and kills."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.clock import ManualClock
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.index import IndexService, Trust
from orbitmq.store.index_file import IndexFileShape

KEYS = st.sampled_from(["a", "b", "order-1", "order-2", "ключ", "😀" * 5, "7F000001000018B4AAC26E0D3B7C0001"])


class IndexMachine(RuleBasedStateMachine):
    """`records` is the log; `model` maps each key to the offsets of the records that carry it."""

    @initialize(slots=st.integers(1, 40), entries=st.integers(2, 30))
    def start(self, slots: int, entries: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.shape = IndexFileShape(slots, entries)
        self.clock = ManualClock()
        self.records: list[Dispatched] = []
        self.model: dict[str, list[int]] = {}
        self.index = self.open(Trust.COMPLETE, None, 0)
        self.mark: tuple[object, int] = (self.index.state(), 0)
        self.synced: tuple[object, int] = self.mark

    def open(self, trust: Trust, state: object, position: int | None) -> IndexService:
        index = IndexService(OsFiles(), Path(self.folder.name) / "index", self.shape, self.clock)
        index.load(trust, state, position)
        return index

    @rule(batch=st.lists(st.tuples(st.none() | KEYS, st.lists(KEYS, max_size=3, unique=True)), min_size=1, max_size=6))
    def apply(self, batch: list[tuple[str | None, list[str]]]) -> None:
        new = []
        for unique_key, words in batch:
            offset = self.records[-1].end_offset if self.records else 0
            keys = " ".join(words)
            record = Dispatched(offset, 50, "T", 0, 0, 0, self.clock.now_ms(), unique_key, keys, 0, 0, b"")
            self.records.append(record)
            new.append(record)
            for key in {*words, unique_key} - {None}:
                self.model.setdefault(str(key), []).append(offset)
        self.index.apply(new)

    @rule(ms=st.integers(0, 5000))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def write_and_mark(self) -> None:
        self.index.write()
        self.mark = (self.index.state(), self.index.position)

    @rule()
    def sync(self) -> None:
        self.index.write()
        mark = (self.index.state(), self.index.position)
        self.index.begin_sync()
        self.index.datasync()
        self.mark = self.synced = mark

    @rule()
    def stop_and_start(self) -> None:
        position = self.index.position
        self.index.close()
        self.index = self.open(Trust.COMPLETE, None, position)
        self.mark = (self.index.state(), position)

    @rule()
    def kill(self) -> None:
        self.index = self.open(Trust.PROCESS_ENDED, *self.mark)
        self.feed_again()

    @rule()
    def lose_power(self) -> None:
        self.index = self.open(Trust.POWER_FAILED, *self.synced)
        self.feed_again()
        self.sync()

    @rule()
    def rocketmq_crashed(self) -> None:
        self.index.write()
        self.index = self.open(Trust.FOREIGN_CRASH, None, None)
        self.feed_again()
        self.sync()

    @rule(data=st.data())
    def lose_the_tail(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.records)))
        end = self.records[keep].physical_offset if keep < len(self.records) else self.index.position
        del self.records[keep:]
        self.model = {key: [at for at in offsets if at < end] for key, offsets in self.model.items()}
        self.index.cut(end)
        self.sync()

    def feed_again(self) -> None:
        position = self.index.position
        self.index.apply([record for record in self.records if record.physical_offset >= position])

    @invariant()
    def every_key_is_found(self) -> None:
        if not hasattr(self, "index"):
            return
        for key, offsets in self.model.items():
            assert self.index.query("T", key, 10_000) == offsets

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            self.folder.cleanup()


IndexMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestIndexModel = IndexMachine.TestCase
