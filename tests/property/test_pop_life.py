"""The life of popped messages in a whole broker, from a seed.

Consumers pop, acknowledge, renew and die; copies wait in the retry topic and are popped again; there are stops, and the end comes at any
call to a file, of the process or of the machine. What was asked for and answered is one account, what pops get is the other:

* a message that was stored is delivered until it is acknowledged; it is never lost (P1);
* a message in flight is delivered to nobody before its time, until a crash;
* what was acknowledged is not delivered again until a crash; what was acknowledged before an orderly stop, never.

Now and then the topic is deleted and the clock is set back: what is left of an earlier topic is nobody's business, what is sent to the
next of that name is, and no message is hidden for longer than was asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.harness import second_life
from tests.unit.broker.conftest import SMALL_STORE, STORE_HOST
from tests.unit.broker.pop.conftest import Popper, PopRig
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LITTLE_WHEEL, close_as_killed

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.pop.checkpoints import PopCheckpoints
from orbitmq.broker.pop.in_flight import InFlight, PopQueue, QueueInFlight
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.broker.pop.revive_topic import ReviveTopic
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.pop import POP_CLOCK_SLACK_MS
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.opening import open_store
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import Appenders
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

STEPS = 60
CALLS_MAX = 900
SEEDS = 24
LONGEST_MS = 40_000


Popped = tuple[Any, str, str]
"""A message as it was popped, the topic that it lies in, its receipt."""


class Wrong(AssertionError):
    """The two accounts differ."""


class LivingRig(PopRig):
    """A broker whose files are recorded."""

    def __init__(self, root: Path, files: RecordingFiles, flush: FlushDiskType, now_ms: int | None) -> None:
        self.files = files
        self.first_now_ms = now_ms
        settings = BrokerSettings(flush_consumer_offset_interval_ms=1_000, pop_ck_stay_buffer_time_ms=3_000)
        super().__init__(root, settings, msgspec.structs.replace(SMALL_STORE, flush_disk_type=flush))

    def open(self) -> None:
        if self.first_now_ms is not None:
            self.clock.set_wall(self.first_now_ms)
        self.idempotence = Idempotence(self.files, self.root, self.clock, self.once_bounds)
        self.files.make_dirs(self.root / "config")
        exchange = TimerExchange(self.files, self.root, 1_000, **LITTLE_WHEEL)
        self.timers = Timers(self.files, self.root, self.clock, TimerSettings(), exchange)
        derived = DerivedState(idempotence=self.idempotence, timers=self.timers)
        self.store = open_store(
            self.root, self.store_settings, self.files, self.clock, notify=lambda call: call(),
            derived=derived.recoverable(), worker=InlineWorker(),
        )  # fmt: skip
        facilities = Facilities(
            tables=lambda name: ConfigFile(self.files, self.root / "config" / name),
            store_host=STORE_HOST,
            memory_bytes=1 << 30,
            random_below=lambda bound: self.chosen_queue % bound,
        )
        self.broker = make_broker(self.settings, self.store, self.clock, facilities, derived)
        Appenders(self.store, self.clock, self.broker.rooms.appenders).attach()

    def close(self) -> None:
        self.broker.close()
        DerivedState(timers=self.timers).hand_over()
        self.store.close()

    def die(self) -> None:
        close_as_killed(self.store)


class Account:
    """What was asked for, and what was answered."""

    def __init__(self) -> None:
        self.sent_count = 0
        self.hidden_ms = LONGEST_MS
        """For how long a message may be hidden at the end."""
        self.set_back_ms = 0
        """How far the clock was set back, in all: so much later may come what was in flight."""
        self.stored: set[bytes] = set()
        """Bodies that nobody has acknowledged."""
        self.held: dict[bytes, tuple[Any, int]] = {}
        """Body -> what its last pop got, and when it is due."""
        self.acknowledged: set[bytes] = set()
        self.earlier: list[tuple[bytes, Any]] = []
        """Body and what a pop before the last one got."""
        self.over: set[bytes] = set()
        """Acknowledged before an orderly stop."""
        self.half_deleted: set[bytes] = set()
        """Of a topic in whose deletion the end came: both the messages and their copies may be there yet."""

    def delivered(self, body: bytes, now_ms: int) -> None:
        if body in self.half_deleted:
            return
        if body in self.acknowledged | self.over:
            raise Wrong(f"{body!r} was acknowledged")
        if body in self.held and now_ms < self.held[body][1]:
            raise Wrong(f"{body!r} comes {self.held[body][1] - now_ms} ms early")

    @contextmanager
    def deletion(self) -> Iterator[None]:
        before = self.half_deleted
        self.half_deleted = {b"message %d" % number for number in range(1, self.sent_count + 1)}
        self.crashed()
        self.stored.clear()
        self.over.clear()
        yield
        self.half_deleted = before

    def stopped(self) -> None:
        self.over |= self.acknowledged

    def crashed(self) -> None:
        """Acknowledgements of the last seconds may be lost, and what was in flight may come at once."""
        self.acknowledged.clear()
        self.held.clear()
        self.earlier.clear()


class Life:
    """One seed's."""

    def __init__(self, rig: LivingRig, rng: random.Random, account: Account) -> None:
        self.rig, self.rng, self.account = rig, rng, account
        self.popper = Popper(rig)
        self.send()

    def acts(self) -> list[Callable[[], object]]:
        return [
            self.send, self.send, self.pop, self.pop, self.pop, self.ack, self.ack, self.ack, self.renew, self.pass_time, self.pass_time,
            self.restart, self.ack_late, self.delete_topic, self.set_clock_back,
        ]  # fmt: skip

    def live(self, steps: int) -> None:
        acts = self.acts()
        for _ in range(steps):
            self.rng.choice(acts)()

    def send(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.account.sent_count += 1
            body = b"message %d" % self.account.sent_count
            answer = self.rig.send("T", body, queue_id=self.rng.randrange(2))
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self.account.stored.add(body)

    def pop(self, count: int | None = None, invisible_ms: int | None = None) -> int:
        self.rig.chosen_queue = self.rng.randrange(100)
        invisible_ms = invisible_ms or self.rng.choice((1_000, 5_000, 20_000, LONGEST_MS))
        found = self.get(count or self.rng.randint(1, 8), invisible_ms)
        self.got(found, invisible_ms)
        return len(found)

    def get(self, count: int, invisible_ms: int) -> list[Popped]:
        return self.popper.pop(queueId=-1, maxMsgNums=count, invisibleTime=invisible_ms)

    def got(self, found: list[Popped], invisible_ms: int) -> None:
        """These messages were popped now, to be hidden for so long."""
        now_ms = self.rig.clock.now_ms()
        for popped in found:
            body = bytes(popped[0].body)
            self.account.delivered(body, now_ms)
            if body in self.account.held:
                self.account.earlier.append((body, self.account.held[body][0]))
            due_ms = sum(map(int, popped[2].split(" ")[1:3]))
            if due_ms > now_ms + invisible_ms + POP_CLOCK_SLACK_MS:
                raise Wrong(f"{body!r} is hidden until {due_ms}, asked for {invisible_ms} ms at {now_ms}")
            self.account.held[body] = popped, due_ms

    def ack(self) -> None:
        for body in self.rng.sample(sorted(self.account.held), min(3, len(self.account.held))):
            self.ack_one(body)

    def ack_one(self, body: bytes) -> None:
        popped, due_ms = self.account.held[body]
        is_in_time = self.rig.clock.now_ms() < due_ms
        if is_in_time:
            self.account.stored.discard(body)  # even if the end comes before the answer
        self.settle(popped, is_in_time=is_in_time)
        if is_in_time:
            self.account.acknowledged.add(body)
            del self.account.held[body]

    def settle(self, popped: Popped, *, is_in_time: bool) -> None:
        self.popper.ack(popped)

    def ack_late(self) -> None:
        """With a receipt of an earlier pop than the one that holds the message: it settles nothing."""
        old = [popped for body, popped in self.account.earlier if body in self.account.held]
        if old:
            self.settle(self.rng.choice(old), is_in_time=False)

    def renew(self) -> None:
        if not self.account.held:
            return
        body = self.rng.choice(sorted(self.account.held))
        popped, _ = self.account.held[body]
        renewed = self.change(popped, self.rng.choice((1_000, 20_000, LONGEST_MS)))
        if renewed is not None:
            self.account.earlier.append((body, popped))
            self.account.held[body] = renewed, sum(map(int, renewed[2].split(" ")[1:3]))

    def change(self, popped: Popped, invisible_ms: int) -> Popped | None:
        """What is popped with its new receipt; None where it was not hidden anew."""
        answer = self.popper.change(popped, invisible_ms)
        return self.popper.renewed(popped, answer.fields) if answer.code == ResponseCode.SUCCESS else None

    def pass_time(self) -> None:
        self.rig.advance(self.rng.choice((1, 400, 1_100, 4_500, 12_000)))

    def delete_topic(self) -> None:
        if self.rng.random() < 0.2:
            with self.account.deletion():
                self.rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            self.send()

    def set_clock_back(self) -> None:
        if self.rng.random() < 0.1:
            now_ms = self.rig.clock.now_ms()
            self.account.held = {
                body: (popped, due_ms if due_ms > now_ms else 0) for body, (popped, due_ms) in self.account.held.items()
            }
            self.rig.clock.set_wall(self.rig.clock.now_ms() - 100_000)
            self.account.set_back_ms += 100_000

    def restart(self) -> None:
        if self.rng.random() < 0.3:
            self.rig.first_now_ms = self.rig.clock.now_ms()
            self.rig.close()
            self.account.stopped()
            self.rig.open()
            self.popper = Popper(self.rig)

    def finish(self) -> None:
        """Pop and acknowledge until nothing comes any more. Raises Wrong when something never came."""
        for pause_ms in (self.account.hidden_ms + self.account.set_back_ms, *[LONGEST_MS] * 3):
            self.rig.advance(pause_ms)
            while self.pop(32, LONGEST_MS):
                for body in sorted(self.account.held):
                    self.ack_one(body)
        lost = self.account.stored - self.account.over - self.dead()
        if lost:
            raise Wrong(f"{sorted(lost)} are lost")

    def dead(self) -> set[bytes]:
        """Bodies of the dead letters of the group."""
        return set()


def run(
    seed: int,
    length: int = 1,
    make_rig: Callable[..., LivingRig] = LivingRig,
    make_life: Callable[..., Life] = Life,
    make_account: Callable[[], Account] = Account,
) -> None:
    """A life, so many times longer than usual, and its end. Raises Wrong."""
    rng = random.Random(seed)
    flush = rng.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH))
    with_power = flush is FlushDiskType.SYNC_FLUSH and rng.random() < 0.7
    account = make_account()

    def open_rig(root: Path, files: RecordingFiles, now_ms: int | None) -> LivingRig:
        return make_rig(root, files, flush, now_ms)

    def live(rig: LivingRig) -> None:
        make_life(rig, rng, account).live(STEPS * length)

    with second_life(rng, open_rig, live, CALLS_MAX * length, with_power=with_power) as rig:
        account.crashed()
        life = make_life(rig, rng, account)
        life.live(15)
        life.finish()
        rig.close()


def problems(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            run(seed)
        except Wrong as wrong:
            yield f"seed {seed}: {wrong}"


def test_both_accounts_agree_whatever_happens() -> None:
    assert list(problems(range(SEEDS))) == []


# --- planted bugs -------------------------------------------------------------------------------------------------------


def test_an_offset_behind_a_message_in_flight_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueInFlight, "committable", property(lambda self: self.next_offset))
    assert any(problems(range(13, 200)))


def test_an_acknowledgement_that_settles_another_pop_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = QueueInFlight.settle

    def any_pop(self: QueueInFlight, offset: int, popped_ms: int) -> bool:
        for run in list(self.runs()):
            if run.first <= offset < run.first + run.size:
                popped_ms = run.popped_ms
        return whole(self, offset, popped_ms)

    monkeypatch.setattr(QueueInFlight, "settle", any_pop)
    assert any(problems(range(7, 200)))


def test_a_message_that_reappears_a_millisecond_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = InFlight.take_due
    monkeypatch.setattr(InFlight, "take_due", lambda self, now_ms, limit: whole(self, now_ms + 1, limit))
    monkeypatch.setattr(
        InFlight, "next_due_ms", property(lambda self: self._alarms[0][0] - 1 if self._alarms else None)
    )
    assert any(problems(range(30, 200)))


def test_a_checkpoint_that_counts_before_it_is_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PopCheckpoints._store_pop

    def at_once(self: Any, pop: Any) -> None:
        whole(self, pop)
        queue = self._in_flight.queues.get(pop.key)
        if queue is not None:
            queue.cover(range(pop.first, pop.end), pop.popped_ms)
            self._finish(pop.key)
            self._finish.__self__._offsets.save()

    monkeypatch.setattr(PopCheckpoints, "_store_pop", at_once)
    assert any(problems(range(20, 400)))


def test_a_start_that_reads_no_checkpoints_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReviveTopic, "take_up", lambda self: None)
    assert any(problems(range(40)))


def test_a_revive_topic_that_is_left_behind_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReviveTopic, "_is_in_flight", lambda self, checkpoint: False)
    assert any(problems(range(5, 200)))


def test_a_renewal_without_a_checkpoint_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(
        self: PopCheckpoints,
        queue: QueueInFlight,
        offset: int,
        popped_ms: int,
        new_popped_ms: int,
        due_ms: int,
        **more: Any,
    ) -> bool:
        covered = queue.covered(offset, popped_ms)
        if covered is not None:
            self._settled(PopQueue(*queue.key), covered)
        return queue.renew(offset, popped_ms, new_popped_ms, due_ms, **more)

    monkeypatch.setattr(PopCheckpoints, "renew", forgets)
    assert any(problems(range(18, 200)))


def test_what_is_in_flight_of_a_deleted_topic_and_not_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopProgress, "_dropped", lambda self, topic, group, queue_ids: None)
    assert any(problems(range(400)))
