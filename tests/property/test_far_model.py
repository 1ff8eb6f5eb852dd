"""The far tier against a list: every message reaches the wheel once, at the time it was given last, or is recalled.

A run is random sends, recalls, reschedules, waits and compactions, with ends of the process between any two steps, orderly and
not, and a tier whose calls fail now and then, before or after their work is done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.clock import ManualClock
from orbitmq.store.durability import PutStatus
from orbitmq.timing.far import arrow_tier, keeper, outcomes, plan, state
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.changes import Landed, Promoted
from orbitmq.timing.far.tier import FarUnreachableError

SEEDS = range(40)
STEPS = 25


class FailingTier:
    """A tier that fails in one call of ten."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._tier = ArrowTier(url)
        self._chance = chance
        self.is_well = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._tier, name)

        def call(*arguments: Any) -> Any:
            fate = 1.0 if self.is_well or name == "stop" else self._chance.random()
            if fate < 0.05:
                raise FarUnreachableError("the network is gone")
            result = method(*arguments)
            if fate < 0.1:
                raise FarUnreachableError("the answer is lost")
            return result

        return call


class Run:
    """One life of a tier and what should come of it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.clock = ManualClock()
        self.tier = FailingTier(str(root / "far"), self.chance)
        self.far = self._open()
        self.due: dict[str, int] = {}
        """What is to reach the wheel, by unique key."""
        self.sent = 0

    def _open(self) -> LittleFar:
        return LittleFar(self.root / "store", self.tier, clock=self.clock, mapped_file_size_commit_log=1 << 20)  # type: ignore[arg-type]

    def step(self) -> None:
        kind = self.chance.choices(
            (self.send, self.change, self.wait, self.nudge, self.end, self.compact), (8, 5, 4, 3, 2, 1)
        )[0]
        kind()

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            key = f"U{self.sent}"
            due_ms = self.clock.now_ms() + self.chance.randrange(3 * DAY_MS + 2 * HOUR_MS, 12 * DAY_MS)
            self.far.send(due_ms, key.encode(), UNIQ_KEY=key, KEYS=f"k{self.sent % 3}")
            self.due[key] = due_ms
            self.sent += 1

    def change(self) -> None:
        if not self.due:
            return
        key = self.chance.choice(list(self.due))
        found = self.far.find_again(key)
        if found is None:
            return
        assert found.deliver_ms == self.due[key], "a message shows the time it was given last"
        if self.chance.random() < 0.5:
            if self.far.recall(found) is PutStatus.PUT_OK:
                del self.due[key]
            return
        due_ms = self.clock.now_ms() + self.chance.randrange(HOUR_MS, 12 * DAY_MS)
        if self.far.reschedule(found, due_ms) is PutStatus.PUT_OK:
            self.due[key] = due_ms

    def wait(self) -> None:
        self.far.advance(self.chance.choice((60_000, 11 * 60_000, HOUR_MS, DAY_MS)))

    def nudge(self) -> None:
        """A few turns, which may end in the middle of a step."""
        self.clock.advance(self.chance.choice((1, 1_000, 11 * 60_000)))
        for _ in range(self.chance.randrange(6)):
            self.far.step()

    def end(self) -> None:
        self.far.close() if self.chance.random() < 0.3 else self.far.kill()
        self.clock.advance(self.chance.choice((0, HOUR_MS)))
        self.far = self._open()

    def compact(self) -> None:
        assert self.far.far.keeper is not None
        self.far.far.keeper.request_compaction()

    def finish(self) -> None:
        """Let everything fall due, and compare."""
        assert self.far.far.counts().pending == sum(self.counted().values())
        self.tier.is_well = True
        self.far.advance(13 * DAY_MS)
        reached = Counter((body.decode(), due_ms) for due_ms, body in self.far.wheel())
        assert reached == Counter(self.due.items())
        counts = self.far.far.counts()
        assert (counts.pending, counts.by_topic, counts.by_day) == (0, {}, {})
        self.far.advance(HOUR_MS)
        left = [
            path for path in (self.root / "far").rglob("*.parquet") if path.is_file() and path.parent.name != "loads"
        ]
        assert left == [], "files that nobody needs are removed"
        self.far.close()

    def counted(self) -> Counter[int]:
        """Of what should reach the wheel, what has not."""
        reached = {body.decode() for _, body in self.far.wheel()}
        return Counter(due_ms // DAY_MS for key, due_ms in self.due.items() if key not in reached)


def run(seed: int) -> None:
    with TemporaryDirectory() as root:
        life = Run(Path(root), seed)
        for _ in range(STEPS):
            life.step()
        life.finish()


@pytest.fixture(autouse=True)
def little_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step happens within a few messages."""
    monkeypatch.setattr(keeper, "FAR_PROMOTION_ROWS_MAX", 5)
    monkeypatch.setattr(outcomes, "FAR_SLICE_ROWS", 2)
    monkeypatch.setattr(keeper, "FAR_LANDING_ROWS_MAX", 8)
    monkeypatch.setattr(plan, "FAR_LANDING_FILES_MAX", 4)
    monkeypatch.setattr(plan, "FAR_DAY_FILES_MAX", 2)
    monkeypatch.setattr(plan, "FAR_INDEXES_MAX", 3)
    monkeypatch.setattr(plan, "FAR_TOMBSTONES_MAX", 5)
    monkeypatch.setattr(arrow_tier, "FAR_DAY_ROWS_MIN", 3)
    monkeypatch.setattr(arrow_tier, "FAR_ROW_GROUP_ROWS", 4)


@pytest.mark.parametrize("seed", SEEDS[:24])
def test_every_message_reaches_the_wheel_once(seed: int) -> None:
    run(seed)


def _forget_tombstones(held: state.FarState, change: Landed) -> None:
    """A message finished while its file was written comes back."""
    if change.next > held.buffered.first:
        if change.file is not None:
            held.files.add(change.file)
        held.buffered.drop(change.next)
        held.is_changed = True


def _forget_marks(held: state.FarState, change: Promoted) -> None:
    """What was handed over is forgotten, and the file is not read on."""
    held.unmarked.clear()


def _keep_nothing(held: state.FarState, name: str) -> None:
    """Removing a file forgets every tombstone."""
    held.files.drop(name)
    held.tombstones.clear()


@pytest.mark.parametrize(
    ("name", "bug"),
    [("_landed", _forget_tombstones), ("_promoted", _forget_marks), ("_forget", _keep_nothing)],
)
def test_a_planted_bug_is_caught(name: str, bug: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.FarState, name, bug)

    def lives() -> None:
        for seed in SEEDS:
            run(seed)

    with pytest.raises(AssertionError):
        lives()
