"""Sends over gRPC with synchronous flush, and the end at any call to a file, of the process or of the machine.

A request has up to four messages, plain, timed or half ones that are committed later, and is answered with all of them. Every message whose
entry said OK is there afterwards, once, and comes when it is due; a commit that was answered counts; nothing is there that nobody sent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.crash.harness import second_life
from tests.crash.planted import planted
from tests.unit.broker.conftest import SMALL_STORE, STORE_HOST
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.pop.conftest import PopRig
from tests.unit.broker.transactions.conftest import TransactionRig
from tests.worlds.faults import Killed, RecordingFiles
from tests.worlds.grpc_calls import Caller, ListCall
from tests.worlds.little_store import LITTLE_WHEEL, close_as_killed

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.protocol.grpc.merged_settings import duration_of
from orbitmq.protocol.grpc.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    Message,
    MessageType,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
    TransactionResolution,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.durability import PutStatus
from orbitmq.store.opening import level_due_time, open_store
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import Appenders
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

STEPS = 80
CALLS_MAX = 600
SEEDS = 30
QUEUES = 2
LONGEST_MS = 20_000


class Wrong(AssertionError):
    """A promise was broken."""


class LivingRig(WithFront, TransactionRig, PopRig):
    """A broker whose files are recorded; every answer waits for the sync of the log."""

    def __init__(self, root: Path, files: RecordingFiles, now_ms: int | None) -> None:
        self.files = files
        self.first_now_ms = now_ms
        store = msgspec.structs.replace(SMALL_STORE, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        super().__init__(root, BrokerSettings(enable_mixed_message_type=True), store)

    def open(self) -> None:
        if self.first_now_ms is not None:
            self.clock.set_wall(self.first_now_ms)
        self.idempotence = Idempotence(self.files, self.root, self.clock, self.once_bounds)
        config = self.root / "config"
        self.files.make_dirs(config)
        exchange = TimerExchange(self.files, self.root, 1_000, **LITTLE_WHEEL)
        self.timers = Timers(self.files, self.root, self.clock, TimerSettings(), exchange)
        offsets = ConfigFile(self.files, config / "consumerOffset.json")
        self.transactions = Transactions(offsets, level_due_time(DelayLevels.parse()), self.rules)
        derived = DerivedState(idempotence=self.idempotence, timers=self.timers, transactions=self.transactions)
        self.store = open_store(
            self.root, self.store_settings, self.files, self.clock, notify=lambda call: call(),
            derived=derived.recoverable(), worker=InlineWorker(),
        )  # fmt: skip
        facilities = Facilities(
            tables=lambda name: ConfigFile(self.files, config / name),
            store_host=STORE_HOST,
            memory_bytes=1 << 30,
            random_below=lambda bound: self.chosen_queue % bound,
        )
        self.broker = make_broker(self.settings, self.store, self.clock, facilities, derived)
        Appenders(self.store, self.clock, self.broker.rooms.appenders).attach()
        topic = TopicConfig(topic_name="M", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        self.broker.topics.put(topic, {f"+{MESSAGE_TYPE}": "MIXED"})
        self.open_front()

    def close(self) -> None:
        self.broker.close()
        DerivedState(timers=self.timers).hand_over()
        self.store.close()

    def die(self) -> None:
        close_as_killed(self.store)

    def delivered(self) -> Counter[str]:
        """How often each message is in the queues of its topic."""
        return Counter(bytes(one.body).decode() for queue_id in range(QUEUES) for one in self.records("M", queue_id))


class Account:
    """What was asked for, and what was answered. Messages are known by their bodies, which are their ids."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.stored: set[str] = set()
        """What is to be delivered."""
        self.halves: set[str] = set()
        """Half messages that nobody has decided."""
        self.decided: dict[str, set[int]] = {}
        """What was said about half messages, answered or not."""


class Life:
    """One seed's."""

    def __init__(self, rig: LivingRig, rng: random.Random, account: Account) -> None:
        self.rig, self.rng, self.account = rig, rng, account
        self.caller: Caller = rig.client()

    def live(self, steps: int) -> None:
        acts: list[Callable[[], None]] = [self.send, self.send, self.send, self.decide, self.pass_time, self.restart]
        for _ in range(steps):
            self.rng.choice(acts)()

    def send(self) -> None:
        messages = [self.message() for _ in range(self.rng.choice((1, 1, 2, 4)))]
        self.rig.chosen_queue = self.rng.randrange(QUEUES)
        call = self.caller.begin(Rpc.SEND_MESSAGE)
        try:
            self.caller.send(call, SendMessageRequest(messages=messages))
        finally:
            self.took_sent(call, messages)

    def took_sent(self, call: ListCall, messages: list[Message]) -> None:
        """What was answered counts, also when the end came later in the same turn."""
        for answer in map(SendMessageResponse.FromString, call.answers):
            for message, entry in zip(messages, answer.entries, strict=True):
                is_half = message.system_properties.message_type == MessageType.TRANSACTION
                if entry.status.code == Code.OK:
                    (self.account.halves if is_half else self.account.stored).add(entry.message_id)

    def message(self) -> Message:
        name = f"message {len(self.account.tried)}"
        self.account.tried.add(name)
        system = SystemProperties(message_id=name, message_type=MessageType.NORMAL)
        way = self.rng.random()
        if way < 0.2:
            system.message_type = MessageType.TRANSACTION
        elif way < 0.4:
            due = duration_of(self.rig.clock.now_ms() + self.rng.randint(1, LONGEST_MS))
            system.delivery_timestamp.seconds, system.delivery_timestamp.nanos = due.seconds, due.nanos
        return Message(topic=Resource(name="M"), body=name.encode(), system_properties=system)

    def decide(self) -> None:
        if not self.account.halves:
            return
        name = self.rng.choice(sorted(self.account.halves))
        resolution = self.rng.choice((TransactionResolution.COMMIT, TransactionResolution.ROLLBACK))
        self.account.decided.setdefault(name, set()).add(resolution)
        call = self.caller.begin(Rpc.END_TRANSACTION)
        request = EndTransactionRequest(topic=Resource(name="M"), transaction_id=name, resolution=resolution)
        try:
            self.caller.send(call, request)
        finally:
            for answer in map(EndTransactionResponse.FromString, call.answers):
                if answer.status.code == Code.OK:
                    self.account.halves.discard(name)
                    if resolution == TransactionResolution.COMMIT:
                        self.account.stored.add(name)

    def pass_time(self) -> None:
        self.rig.advance(self.rng.choice((1, 900, 2_500, 7_000)))

    def restart(self) -> None:
        if self.rng.random() < 0.2:
            self.rig.first_now_ms = self.rig.clock.now_ms()
            self.rig.close()
            self.rig.open()
            self.caller = self.rig.client()


def examine(rig: LivingRig, account: Account) -> None:
    """Let everything fall due and hold the topic against the account. Raises Wrong."""
    rig.advance(LONGEST_MS + 2_000)
    found = rig.delivered()
    if lost := account.stored - found.keys():
        raise Wrong(f"acknowledged and lost: {sorted(lost)}")
    if twice := [name for name, count in found.items() if count > 1]:
        raise Wrong(f"there more than once: {twice}")
    if strange := found.keys() - account.tried:
        raise Wrong(f"nobody sent {sorted(strange)}")
    undecided = {known.unique_key for known in rig.transactions.undecided}
    for name in account.halves:
        if name in found and TransactionResolution.COMMIT not in account.decided.get(name, ()):
            raise Wrong(f"{name} was never committed and is there")
        if (
            name not in found
            and name not in undecided
            and TransactionResolution.ROLLBACK not in account.decided.get(name, ())
        ):
            raise Wrong(f"the half message {name} is lost")


def run(seed: int, length: int = 1) -> None:
    """A life, so many times longer than usual, its end, and another life. Raises Wrong."""
    rng, account = random.Random(seed), Account()

    def live(rig: LivingRig) -> None:
        Life(rig, rng, account).live(STEPS * length)

    with second_life(rng, LivingRig, live, CALLS_MAX * length, with_power=rng.random() < 0.5) as rig:
        with suppress(Killed):
            examine(rig, account)
            Life(rig, rng, account).live(10)
            examine(rig, account)
        rig.close()


def problems(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            run(seed)
        except Wrong as wrong:
            yield f"seed {seed}: {wrong}"


def test_what_was_answered_is_there_whatever_happens() -> None:
    assert list(problems(range(SEEDS))) == []


def test_an_answer_before_the_write_is_noticed() -> None:
    with planted("acknowledged_before_written"):
        assert any(problems(range(SEEDS)))


def test_an_answer_before_the_sync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MessageStore.commit

    def when_written(self: MessageStore) -> None:
        waiters, self._turn_waiters = self._turn_waiters, []
        self.log.write()
        for _, _, told in waiters:
            told(PutStatus.PUT_OK)
        whole(self)

    monkeypatch.setattr(MessageStore, "commit", when_written)
    assert any(problems(range(10 * SEEDS)))
