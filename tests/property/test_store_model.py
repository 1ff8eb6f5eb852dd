"""The store against a model of a few lines: lists of messages, and a rule for what a crash may take.

Steps come in any order: appending, batches, commits, time, flushes and saves, reads with filters, by time and by key,
deleting topics, orderly stops, kills and power failures. After every opening the whole store is compared.
"""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.crash.planted import planted
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import iter_records
from orbitmq.store.files import OsFiles
from orbitmq.store.reading import GetStatus
from orbitmq.store.settings import FlushDiskType

TOPICS = ("A", "B")
QUEUE_IDS = (0, 1)
TAGS = ("red", "blue", "")
KEYS = ("k1", "k2")

topics = st.sampled_from(TOPICS)
queue_ids = st.sampled_from(QUEUE_IDS)
messages = st.tuples(st.binary(max_size=40) | st.just(b"x" * 900), st.sampled_from(TAGS), st.sampled_from(KEYS))


class Stored(NamedTuple):
    body: bytes
    tag: str
    key: str
    store_timestamp: int
    end_offset: int
    physical_offset: int


Place = tuple[str, int]


class StoreModel(RuleBasedStateMachine):
    """`committed` is what the store must have, in order; `appended` what this turn added."""

    flush = FlushDiskType.ASYNC_FLUSH

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.base = Path(tempfile.mkdtemp(prefix="orbitmq-model-", dir=memory if memory.is_dir() else None))
        self.lives = 0
        self.committed: dict[Place, list[Stored]] = {}
        self.appended: list[tuple[Place, Stored]] = []
        self.recovered: dict[Place, int] | None = None
        """Ends of the queues after the crash before this life, None after an orderly stop."""
        self.clock = ManualClock(1_000_000)
        self.rng = random.Random(0)

    def teardown(self) -> None:
        if hasattr(self, "little"):
            self.little.kill()
        shutil.rmtree(self.base)
        gc.collect()

    @initialize()
    def begin(self) -> None:
        self.root = self.base / "store"
        self.root.mkdir()
        self.open(RecordingFiles(OsFiles(), self.root))

    def open(self, files: RecordingFiles) -> None:
        self.files = files
        self.little = LittleStore(self.root, files=files, clock=self.clock, flush_disk_type=self.flush)

    # --- writing ----------------------------------------------------------------------------------------------------

    @rule(topic=topics, queue_id=queue_ids, what=messages)
    def append(self, topic: str, queue_id: int, what: tuple[bytes, str, str]) -> None:
        self.note(topic, queue_id, [what], [self.little.append(topic, queue_id, what[0], **self.values(what))])

    @rule(topic=topics, queue_id=queue_ids, what=st.lists(messages, min_size=1, max_size=5))
    def append_batch(self, topic: str, queue_id: int, what: list[tuple[bytes, str, str]]) -> None:
        batch = [self.little.message(topic, queue_id, one[0], **self.values(one)) for one in what]
        self.note(topic, queue_id, what, self.little.store.append_batch(batch))

    def values(self, what: tuple[bytes, str, str]) -> dict[str, str]:
        return {"KEYS": what[2]} | ({"TAGS": what[1]} if what[1] else {})

    def note(self, topic: str, queue_id: int, what, placed) -> None:  # type: ignore[no-untyped-def]
        place = (topic, queue_id)
        before = len(self.committed.get(place, [])) + sum(where == place for where, _ in self.appended)
        for number, (one, entry) in enumerate(zip(what, placed, strict=True)):
            assert entry.queue_offset == before + number
            stored = Stored(*one, entry.store_timestamp, entry.end_offset, entry.physical_offset)
            self.appended.append((place, stored))

    @rule()
    def commit(self) -> None:
        self.little.store.commit()
        for place, stored in self.appended:
            self.committed.setdefault(place, []).append(stored)
        self.appended = []
        if self.flush is FlushDiskType.SYNC_FLUSH:
            self.little.worker.close()

    @rule(ms=st.sampled_from([1, 50, 250, 600, 6_000]))
    def pass_time(self, ms: int) -> None:
        """Flushes and saves become due; the worker may or may not get to them."""
        self.commit()
        self.clock.advance(ms)
        self.little.turn()
        if self.rng.random() < 0.6:
            self.little.worker.close()

    @rule(ms=st.integers(-5_000, 5_000))
    def step_clock(self, ms: int) -> None:
        self.clock.set_wall(max(self.clock.now_ms() + ms, 1))

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.commit()
        self.little.store.delete_topic(topic)
        self.little.worker.close()  # the deletion is durable: what a power failure leaves of it is not modelled
        for queue_id in QUEUE_IDS:
            self.committed.pop((topic, queue_id), None)
            if self.recovered is not None:
                self.recovered.pop((topic, queue_id), None)

    # --- reading ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.appended)
    @rule(topic=topics, queue_id=queue_ids, offset=st.integers(0, 30), tag=st.sampled_from(("", *TAGS[:2])))
    def read(self, topic: str, queue_id: int, offset: int, tag: str) -> None:
        expected = self.committed.get((topic, queue_id))
        code = tags_code(tag) if tag else 0
        result = self.little.store.get(
            topic, queue_id, offset, 3, 1 << 20, (lambda found: found == code) if tag else None
        )
        if result.cold:
            finished = []
            self.little.store.read_cold(result, finished.append)
            self.little.worker.close()
            (result,) = finished
        if not expected:
            assert result.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
        elif offset >= len(expected):
            ahead = GetStatus.OFFSET_OVERFLOW_ONE if offset == len(expected) else GetStatus.OFFSET_OVERFLOW_BADLY
            assert (result.status, result.next_offset) == (ahead, self.end_for(topic, queue_id, offset))
        else:
            bodies = [bytes(r.body) for r in iter_records(b"".join(bytes(part) for part in result.records))]
            within = expected[offset : result.next_offset]
            assert bodies == [one.body for one in within if not tag or one.tag == tag]
            assert result.next_offset > offset
            assert len(bodies) <= 3

    def end_for(self, topic: str, queue_id: int, offset: int) -> int:
        """Where a reader goes on that asks for `offset`, at the end or beyond it."""
        end = len(self.committed[topic, queue_id])
        return end if offset == end or self.recovered is None else self.recovered.get((topic, queue_id), 0)

    @precondition(lambda self: not self.appended)
    @rule(topic=topics, queue_id=queue_ids, at=st.integers(990_000, 1_060_000), upper=st.booleans())
    def read_by_time(self, topic: str, queue_id: int, at: int, upper: bool) -> None:
        times = [one.store_timestamp for one in self.committed.get((topic, queue_id), [])]
        assert times == sorted(times)
        if upper:
            expected = max(sum(time <= at for time in times) - 1, 0)
        else:
            expected = sum(time < at for time in times)
        store = self.little.store
        assert self.little.asked(lambda: store.offset_by_time(topic, queue_id, at, upper=upper)) == expected

    @precondition(lambda self: not self.appended)
    @rule(topic=topics, key=st.sampled_from(KEYS))
    def read_by_key(self, topic: str, key: str) -> None:
        found = self.little.asked(lambda: self.little.store.query_by_key(topic, key, 10_000, 0, 1 << 62))
        expected = {
            one.physical_offset
            for (name, _), queue in self.committed.items()
            if name == topic
            for one in queue
            if one.key == key
        }
        assert expected <= set(found), "records of a deleted topic may be found as well"
        assert found == sorted(found)

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "little") and not self.appended:
            for (topic, queue_id), queue in self.committed.items():
                assert self.little.store.max_offset(topic, queue_id) == len(queue)

    # --- ends -------------------------------------------------------------------------------------------------------

    @rule()
    def stop_and_open(self) -> None:
        self.commit()
        self.little.close()
        self.open(RecordingFiles(OsFiles(), self.root, boot=self.files.boot))
        assert self.little.store.report.scanned_records == 0
        self.recovered = None
        self.compare()

    @rule()
    def kill_and_open(self) -> None:
        """What was not committed is lost, nothing else."""
        self.appended = []
        self.little.kill()
        self.open(self.files)
        self.note_recovered()
        self.compare()

    @rule(seed=st.integers(0, 1_000), keep=st.sampled_from([0.0, 0.5, 1.0]))
    def power_cut_and_open(self, seed: int, keep: float) -> None:
        """Of what was not synced a part is lost, from some message on."""
        self.appended = []
        synced = self.little.store.log.synced_end
        self.little.kill()
        self.lives += 1
        target = self.base / f"store{self.lives}"
        self.files.power_cut(target, random.Random(seed), keep=keep)
        shutil.rmtree(self.root)
        self.root = target
        self.open(RecordingFiles(OsFiles(), target, boot=f"boot{self.lives}"))
        end = self.little.store.log.end
        assert end >= synced
        for place, queue in list(self.committed.items()):
            self.committed[place] = [one for one in queue if one.end_offset <= end]
            if not self.committed[place]:
                del self.committed[place]
        self.note_recovered()
        self.compare()

    def note_recovered(self) -> None:
        found = self.little.store.log.sequence.segments
        self.recovered = {place: len(queue) for place, queue in self.committed.items()} if found else None

    def compare(self) -> None:
        store = self.little.store
        for topic in TOPICS:
            for queue_id in QUEUE_IDS:
                expected = self.committed.get((topic, queue_id), [])
                records = self.little.records(topic, queue_id)
                assert [bytes(record.body) for record in records] == [one.body for one in expected]
                assert [record.store_timestamp for record in records] == [one.store_timestamp for one in expected]
                assert [record.queue_offset for record in records] == list(range(len(expected)))
                assert store.max_offset(topic, queue_id) == len(expected)
                for record, one in zip(records, expected, strict=True):
                    assert decode_properties(record.properties)["KEYS"] == one.key


class SynchronousStoreModel(StoreModel):
    flush = FlushDiskType.SYNC_FLUSH


BUDGET = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestStore = StoreModel.TestCase
TestStore.settings = BUDGET
TestSynchronousStore = SynchronousStoreModel.TestCase
TestSynchronousStore.settings = BUDGET


Step = Callable[[StoreModel], None]

KEPT: dict[str, tuple[Step, ...]] = {
    "consume_queue_gap_closed_up": (
        lambda model: model.append("B", 0, (b"", "red", "k1")),
        lambda model: model.delete_topic("A"),
        lambda model: model.power_cut_and_open(seed=0, keep=0.0),
    ),
    "unsynced_files_trusted": (
        lambda model: model.append("A", 0, (b"", "red", "k1")),
        lambda model: model.commit(),
        lambda model: model.kill_and_open(),
        lambda model: model.power_cut_and_open(seed=0, keep=0.0),
    ),
}
"""The shortest of the steps that found a planted bug, by its name."""


def play(model: StoreModel, steps: tuple[Step, ...]) -> None:
    try:
        model.begin()
        for step in steps:
            step(model)
            model.ends_agree()
    finally:
        model.teardown()


@pytest.mark.parametrize("model", [StoreModel, SynchronousStoreModel])
@pytest.mark.parametrize("steps", KEPT)
def test_kept_steps_hold(steps: str, model: type[StoreModel]) -> None:
    play(model(), KEPT[steps])


@pytest.mark.parametrize("bug", KEPT)
def test_they_catch_the_planted_bug(bug: str) -> None:
    with planted(bug), pytest.raises((AssertionError, OrbitError)):
        play(StoreModel(), KEPT[bug])
