"""The index of pending timers against the timers themselves, through everything that happens to a store and to the index's files.

What is pending, and what it says, is read from the timers one by one; every way of asking the index must name exactly that.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from tests.worlds.faults import Killed, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError, TimerIndexIncompleteError
from orbitmq.store.files import OsFiles
from orbitmq.timing.index import gathering
from orbitmq.timing.index.counting import Counting
from orbitmq.timing.index.missing import Missing
from orbitmq.timing.index.parts import Gathered, IndexShape, Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.timers import TimerRecord, TimerState

TOPICS = ("a", "b", "Topic", "a-long-name-of-a-topic")
KEYS = ("k", "k1", "k12", "order-1", "order-2", "ключ", "\N{GRINNING FACE}", "x" * 300)
SHAPE = IndexShape(capacity=12, carried=2, small=4)


class Life:
    """One store, from start to start."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = root
        self.clock = ManualClock()
        self.number = 0
        self.is_damaged = False
        """Whether somebody changed a file of the index."""
        self.begin(root / "0")

    def begin(self, root: Path, files: RecordingFiles | None = None, *, index: bool = True) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.files = files or RecordingFiles(OsFiles(), root)
        self.little = LittleStore(root, files=self.files, clock=self.clock, index=SHAPE if index else None)

    @property
    def index(self) -> TimerIndex:
        assert self.little.timer_index is not None
        return self.little.timer_index

    def pending(self) -> list[TimerRecord]:
        timers = self.little.timers
        records = [timers.read(offset) for offset in timers.pending.offsets()]
        return [record for record in records if record is not None]

    # --- what happens -------------------------------------------------------------------------------------------------

    def send(self) -> None:
        rng = self.rng
        near = rng.random() < 0.3
        for _ in range(rng.choice((1, 3, 10, 40))):
            self.number += 1
            keys = " ".join(rng.sample(KEYS, rng.choice((0, 1, 1, 3))))
            values = {"UNIQ_KEY": f"ID{rng.randrange(self.number)}"} if rng.random() < 0.9 else {}
            if keys:
                values["KEYS"] = keys
            after_ms = rng.randrange(1, 2_000 if near else 3_000_000)
            self.little.append(rng.choice(TOPICS), 0, b"body", after_ms=after_ms, **values)
        self.little.turn()

    def change(self) -> None:
        chosen = self.pending()
        for record in self.rng.sample(chosen, min(len(chosen), self.rng.choice((1, 5)))):
            timers = self.little.timers
            if timers.state_of(record.queue_offset) is not TimerState.PENDING:
                continue
            now_ms = self.clock.now_ms()
            messages = recall(record.record, now_ms)
            if self.rng.random() < 0.3:
                messages = reschedule(
                    record.record,
                    now_ms + self.rng.randrange(5_000, 900_000),
                    now_ms,
                    1_000,
                    fresh_key=f"F{self.number}",
                )
            timers.change(record, messages, wait=False, on_done=lambda status: None)
        self.little.turn()

    def wait(self) -> None:
        self.little.advance(self.rng.choice((1, 250, 2_000, 6_000, 400_000)))

    def stop(self) -> None:
        self.little.close()
        self.begin(self.root, self.files)

    def kill(self) -> None:
        self.little.kill()
        self.files.revive()
        self.begin(self.root, self.files)

    def kill_at_some_call(self) -> None:
        """The process ends at one of the next calls that change or sync a file."""
        last = self.files.calls[-1].number if self.files.calls else 0
        fatal = last + self.rng.randrange(1, 40)
        self.files.plan = lambda call: Killed("planned") if call.number >= fatal else None
        try:
            for _ in range(4):
                self.rng.choice((self.send, self.wait, self.change))()
        except (Killed, StoreUnwritableError):
            pass
        self.kill()

    def power_cut(self) -> None:
        target = self.folder / str(int(self.root.name) + 1)
        self.files.power_cut(target, self.rng)
        self.little.kill()
        self.begin(target, RecordingFiles(OsFiles(), target, boot=target.name))

    def without_index(self) -> None:
        """For a while the index is switched off."""
        self.little.close()
        self.begin(self.root, self.files, index=False)
        self.send()
        self.change()
        self.little.close()
        self.begin(self.root, self.files)

    def damage(self) -> None:
        """Somebody removes a file of the index, or changes a byte in it."""
        self.is_damaged = True
        self.little.close()
        files = sorted(self.root.glob("orbitmq.timerindex/*"))
        if files:
            path = self.rng.choice(files)
            content = bytearray(path.read_bytes())
            if self.rng.random() < 0.3 or not content:
                path.unlink()
            else:
                content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
                path.write_bytes(bytes(content))
        self.begin(self.root)

    # --- asking -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(200):
            self.little.worker.close()
            self.little.turn()
            try:
                self.index.counts()
                return
            except TimerIndexIncompleteError:
                self.little.advance(4)
        raise AssertionError("the index is never made ready")

    def pages(self, query: IndexQuery) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        cursor = None
        for _ in range(1000):
            page = self.index.page(query._replace(cursor=cursor, limit=self.rng.choice((1, 3, 50))))
            found += [(one.deliver_ms, one.queue_offset) for one in page.candidates]
            cursor = page.cursor
            if cursor is None:
                return found
        raise AssertionError("the pages never end")

    def judge(self) -> None:
        self.settle()
        records, rng = self.pending(), self.rng
        dues = sorted((record.deliver_ms, record.queue_offset) for record in records)
        assert self.pages(IndexQuery()) == dues
        assert all(one < other for one, other in pairwise(dues))
        topic = rng.choice(TOPICS)
        mine = sorted((one.deliver_ms, one.queue_offset) for one in records if one.topic == topic)
        assert self.pages(IndexQuery(topic=topic)) == mine
        low, high = sorted(self.clock.now_ms() + rng.randrange(-5_000, 3_000_000) for _ in range(2))
        part = mine[bisect_left(mine, (low, -1)) : bisect_left(mine, (high, -1))]
        assert self.pages(IndexQuery(topic=topic, from_ms=low, until_ms=high)) == part
        keyed = sorted(
            (key.encode()[:255], one.deliver_ms, one.queue_offset)
            for one in records
            if one.topic == topic and one.keys
            for key in one.keys.split(" ")
        )
        for prefix in ("", "k", "k1", "order", "\N{GRINNING FACE}", "zz"):
            fitting = [one[1:] for one in keyed if one[0].startswith(prefix.encode())]
            assert self.pages(IndexQuery(topic=topic, key_prefix=prefix)) == fitting
        for key in KEYS:
            fitting = [one[1:] for one in keyed if one[0] == key.encode()[:255]]
            assert self.pages(IndexQuery(topic=topic, key=key)) == fitting
            assert [(one.deliver_ms, one.queue_offset) for one in self.index.find_key(topic, key)] == sorted(fitting)
        for one in records:
            if one.unique_key is not None:
                assert one.queue_offset in [
                    found.queue_offset for found in self.index.find_id(one.topic, one.unique_key)
                ]
        counted = self.index.counts(bucket_ms=60_000)
        assert counted.pending == len(records) == self.little.timers.pending_count
        assert counted.by_topic == {name: n for name in sorted(TOPICS) if (n := sum(r.topic == name for r in records))}
        buckets: dict[int, int] = {}
        for due_ms, _ in dues:
            buckets[due_ms // 60_000 * 60_000] = buckets.get(due_ms // 60_000 * 60_000, 0) + 1
        assert counted.buckets == sorted(buckets.items())


class Contradictions(logging.Handler):
    """Keeps what is logged of timers that were not counted, or that were lost."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "was not counted" in record.msg or "in no slot" in record.msg:
            self.found.append(record.getMessage())


def one_life(seed: int, root: Path) -> None:
    contradictions = Contradictions()
    logger = logging.getLogger("orbitmq.timing")
    logger.addHandler(contradictions)
    try:
        live(seed, root, contradictions.found)
    finally:
        logger.removeHandler(contradictions)


def live(seed: int, root: Path, contradictions: list[str]) -> None:
    life = Life(seed, root)
    often = [life.send, life.send, life.send, life.wait, life.change, life.judge]
    seldom = [life.stop, life.kill, life.kill_at_some_call, life.power_cut, life.without_index, life.damage]
    for _ in range(life.rng.randint(10, 40)):
        life.rng.choice(often if life.rng.random() < 0.8 else seldom)()
    life.judge()
    life.little.close()
    assert life.is_damaged or not contradictions


@pytest.fixture(autouse=True)
def few_at_a_time() -> object:
    with mock.patch.object(gathering, "CHUNK", 4), mock.patch.object(gathering, "PART", 3):
        yield


SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_index_names_what_is_pending(seed: int, tmp_path: Path) -> None:
    one_life(seed, tmp_path)


def _add_twice(self: Parts, gathered: Gathered, path: Path) -> None:
    self._add_run(path)
    self._add_run(path)
    self.closed.remove(gathered)


PLANTED: dict[str, tuple[object, str, object]] = {
    "gaps are not noticed": (Missing, "add", lambda self, begin, end: None),
    "what goes is not counted": (Counting, "finished", lambda self, queue_offset, topic, deliver_ms: None),
    "what is late is over": (Run, "skip_gone", lambda self, is_pending, limit: setattr(self, "first", len(self))),
    "a run counts twice": (Parts, "sealed", _add_twice),
    "cursors name a time alone": (Run, "_behind", lambda self, after: self._first_due(after[0])),
    "runs are left out": (Parts, "sources", lambda self: [one.gathering for one in self.gathered()]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    owner, method, bug = PLANTED[name]
    with mock.patch.object(owner, method, bug):
        for seed in SEEDS:
            folder = tmp_path / str(seed)
            folder.mkdir()
            try:
                one_life(seed, folder)
            except Exception:
                return
    pytest.fail(f"nobody noticed that {name}")


if __name__ == "__main__":
    import argparse
    import tempfile

    parser = argparse.ArgumentParser(description="lives of the index from consecutive seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=100, help="how many lives")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            try:
                one_life(seed, Path(folder))
            except BaseException:
                print("seed", seed)
                raise
