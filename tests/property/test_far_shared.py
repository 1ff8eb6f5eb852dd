"""A leader and a follower with one storage for their far tiers, against a list: every message reaches the wheel of who leads in the end
once, at the time it was given last, or was recalled.

A run is random sends, recalls, waits and compactions at the leader, copies of its log that come late, followers that begin with nothing
after retention, ends of processes, and changes of who leads, after which the one before goes on as if it still did. Every second run is
that of a group: writers have epochs, and a deposed leader goes on removing what the next one was known to have let go of.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.property.test_far_model import FailingTier, little_bounds
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.clock import ManualClock
from orbitmq.store.durability import PutStatus
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.sharing import Sharing
from orbitmq.timing.far.state_file import SavedState, StateFile, decode_state

__all__ = ["little_bounds"]

SEEDS = range(12)
CAUGHT_WITHIN = 120
STEPS = 30
MARK = "ab" * 16


class Broker:
    """One directory, and the process on it."""

    def __init__(self, run: Run, number: int, *, leads: bool) -> None:
        self.run = run
        self.number = number
        self.root = run.root / f"store{number}"
        self.tier = FailingTier(str(run.root / "far"), run.chance)
        self.followed = not leads
        self.follower: Broker | None = None
        """Who is known to copy this one's log."""
        self.leads = leads
        self.epoch: int | None = None
        self.known_end: int | None = None
        """Of a zombie in a group: up to where the follower was known to have the log."""
        self.open()

    def open(self) -> None:
        self.far = LittleFar(
            self.root, self.tier, clock=self.run.clock, leads=False, mapped_file_size_commit_log=1 << 14
        )  # type: ignore[arg-type]
        if self.leads:
            self.lead()

    def lead(self) -> None:
        self.leads = True
        if self.run.epoch and self.known_end is None:
            self.run.epoch += 1
            self.epoch = self.run.epoch
        self.share()
        self.far.lead()

    def share(self) -> None:
        self.far.far.share(
            Sharing(MARK, f"{self.number:016x}" * 2, self.followed, self.copies_have, self.began, self.epoch),
            takes=True,
        )

    def began(self, writer: str) -> None:
        if writer:
            self.followed = False
            self.share()

    def copies_have(self, position: int) -> bool:
        follower = self.follower
        if self.known_end is not None:
            return self.known_end >= position
        if follower is None:
            return True
        return (
            not follower.leads
            and follower.number == self.run.follower.number
            and follower.far.store.log.end >= position
        )

    def end(self) -> None:
        self.far.close() if self.run.chance.random() < 0.3 else self.far.kill()
        self.open()

    def begin_anew(self, leader: Broker) -> None:
        """With nothing but what the leader put beside the files."""
        self.far.kill()
        shutil.rmtree(self.root)
        self.leads, self.followed = False, True
        self.open()
        leader.far.save()
        saving = leader.far.far.saving
        if saving.content is not None:
            ArrowTier(str(self.run.root / "far")).publish(saving.content)
            told: list[BaseException | None] = []
            saved = decode_state(ArrowTier(str(self.run.root / "far")).manifest())
            self.far.far.take_state(saved, self.far.worker, told.append)
            self.far.worker.close()
            assert told == [None]
        leader.follower = self


class Run:
    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.epoch = seed % 2
        """Of a group, which rises; 0 of a pair."""
        self.clock = ManualClock()
        assert ArrowTier(str(root / "far")).mark(MARK) == MARK
        self.leader = Broker(self, 0, leads=True)
        self.follower = Broker(self, 1, leads=False)
        self.leader.follower = self.follower
        self.zombies: list[Broker] = []
        self.brokers = 2
        self.due: dict[str, int] = {}
        self.reached: Counter[tuple[str, int]] = Counter()
        """What reached the wheel in files of the log that are gone."""
        self.sent = 0

    @property
    def far(self) -> LittleFar:
        return self.leader.far

    def step(self) -> None:
        kinds = (
            self.send,
            self.change,
            self.wait,
            self.nudge,
            self.copy,
            self.compact,
            self.end,
            self.anew,
            self.switch,
        )
        self.chance.choices(kinds, (8, 5, 4, 4, 6, 2, 1, 1, 1))[0]()

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            key = f"U{self.sent}"
            due_ms = self.clock.now_ms() + self.chance.randrange(3 * DAY_MS + 2 * HOUR_MS, 12 * DAY_MS)
            self.far.send(due_ms, key.encode(), UNIQ_KEY=key)
            self.due[key] = due_ms
            self.sent += 1

    def change(self) -> None:
        if not self.due:
            return
        key = self.chance.choice(list(self.due))
        found = self.far.find_again(key)
        if found is None:
            return
        assert found.deliver_ms == self.due[key]
        if self.chance.random() < 0.5:
            if self.far.recall(found) is PutStatus.PUT_OK:
                del self.due[key]
            return
        due_ms = self.clock.now_ms() + self.chance.randrange(HOUR_MS, 12 * DAY_MS)
        if self.far.reschedule(found, due_ms) is PutStatus.PUT_OK:
            self.due[key] = due_ms

    def wait(self) -> None:
        ms = self.chance.choice((60_000, 11 * 60_000, HOUR_MS, DAY_MS))
        self.far.advance(ms)
        for zombie in self.zombies:
            self.haunt(zombie)

    def haunt(self, zombie: Broker) -> None:
        """One that led goes on: it lands, writes anew, removes and publishes what it takes for its own."""
        if self.chance.random() < 0.2:
            zombie.end()
        if self.chance.random() < 0.3:
            zombie.far.send(self.clock.now_ms() + 5 * DAY_MS, b"lost")
        assert zombie.far.far.keeper is not None
        zombie.far.far.keeper.request_compaction()
        for _ in range(30):
            zombie.far.step()

    def nudge(self) -> None:
        self.clock.advance(self.chance.choice((1, 1_000, 11 * 60_000)))
        for _ in range(self.chance.randrange(6)):
            self.far.step()

    def copy(self) -> None:
        self.follower.far.copy(self.far)
        for _ in range(self.chance.randrange(4)):
            self.follower.far.step()

    def compact(self) -> None:
        assert self.far.far.keeper is not None
        self.far.far.keeper.request_compaction()

    def end(self) -> None:
        self.chance.choice((self.leader, self.follower)).end()

    def anew(self) -> None:
        """The follower begins with nothing, some of the log has gone, and only a part of it comes before it ends."""
        self.remember()
        self.far.remove_log(self.chance.randrange(8))
        self.follower.begin_anew(self.leader)

    def remember(self) -> None:
        self.reached |= Counter((body.decode(), due_ms) for due_ms, body in self.far.wheel())

    def switch(self) -> None:
        """All that is confirmed is at the follower, which leads from now on; the leader hears nothing of it."""
        self.far.store.commit()
        self.follower.far.copy(self.far)
        while self.follower.far.worker.step():
            pass
        self.remember()
        zombie, self.leader = self.leader, self.follower
        if self.epoch:
            zombie.known_end = self.far.store.log.end
        self.leader.lead()
        self.zombies.append(zombie)
        for _ in range(self.chance.randrange(6)):
            self.far.step()
        self.haunt(zombie)
        self.follower = Broker(self, self.brokers, leads=False)
        self.brokers += 1
        self.follower.begin_anew(self.leader)

    def finish(self) -> None:
        for broker in (self.leader, self.follower, *self.zombies):
            broker.tier.is_well = True
        self.switch()
        self.far.advance(13 * DAY_MS)
        self.remember()
        assert self.reached == Counter(self.due.items())
        counts = self.far.far.counts()
        assert (counts.pending, counts.by_topic, counts.by_day) == (0, {}, {})
        assert self.far.far.held.files.reasons() == {}
        self.follower.far.copy(self.far)
        self.far.advance(12 * HOUR_MS)
        self.follower.far.copy(self.far)
        assert self.follower.far.far.counts() == counts
        left = [path for path in (self.root / "far").rglob("*.parquet") if path.parent.name != "loads"]
        assert left == [], "files that nobody needs are removed"
        for broker in (self.leader, self.follower, *self.zombies):
            broker.far.kill()


def run(seed: int) -> None:
    with TemporaryDirectory() as root:
        life = Run(Path(root), seed)
        for _ in range(STEPS):
            life.step()
        life.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_reaches_the_wheel_of_who_leads_once(seed: int) -> None:
    run(seed)


def _lead_always(tier: ArrowTier, directory: str, writer: str, takes_over: bool, epoch: int | None = None) -> str:
    """Nobody looks who else writes, nor says that he does."""
    return ""


def _sweep_what_is_unknown(tier: ArrowTier, known: list[str], loads_before_ms: int, writer: str) -> list[str]:
    """Whoever wrote it."""
    return SWEEP(tier, known, loads_before_ms, "")


def _take_without_finished(saving: StateFile, saved: SavedState) -> tuple[bytes, SavedState]:
    """What was recalled in the log comes again."""
    return WRITE_TAKEN(saving, msgspec.structs.replace(saved, done={}))


def _begin_where_the_log_ends(far: FarTimers) -> None:
    """A follower that ends while it begins reads again what the state that it took says already."""
    held = far.held
    held.position = min(held.position, far._log.end) if far._log is not None else 0
    FINISH(far)


SWEEP, WRITE_TAKEN, FINISH = ArrowTier.sweep, StateFile.write_taken, FarTimers.finish_restore
PLANTS: dict[str, tuple[tuple[object, str, Callable[..., object]], ...]] = {
    "no writer counts": (
        (ArrowTier, "lead", _lead_always),
        (Broker, "copies_have", lambda broker, position: True),
    ),
    "finished messages of a state that is taken are forgotten": ((StateFile, "write_taken", _take_without_finished),),
    "a state that is ahead of the log is cut to it": ((FarTimers, "finish_restore", _begin_where_the_log_ends),),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, bug in PLANTS[plant]:
        monkeypatch.setattr(owner, name, bug)

    def lives() -> None:
        for seed in range(CAUGHT_WITHIN):
            run(seed)

    with pytest.raises(AssertionError):
        lives()
