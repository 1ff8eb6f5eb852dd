"""The life of transactions in a whole broker, from a seed.

Decisions are repeated, lost or contrary; there are checks, delays, retention and a clock that is set; and the end comes at any call
to a file, of the process or of the machine.

What was asked for and answered is one account, what the log says, read as anybody would read it, is the other. They have to agree:

* a message is never there twice, never without its commit, and always when its commit was answered;
* what nobody decided is undecided, or was given up with its message; it is never lost;
* nobody is asked about what was decided, and a decision is never turned round.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.harness import second_life
from tests.unit.broker.conftest import SMALL_STORE, STORE_HOST, ListPeer
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.messaging.test_telemetry import producer_says
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, UNKNOWN, TransactionRig
from tests.worlds.faults import RecordingFiles
from tests.worlds.grpc_calls import ListCall, commands
from tests.worlds.little_store import close_as_killed

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.transactions import checks as checks_module
from orbitmq.broker.transactions import ending as ending_module
from orbitmq.broker.transactions import op_progress as op_progress_module
from orbitmq.broker.transactions import transactions as transactions_module
from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.broker.transactions.op_records import decision_record
from orbitmq.broker.transactions.records import Ending, HalfFacts, copy_message
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import Transaction, Undecided
from orbitmq.protocol.grpc.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    RecoverOrphanedTransactionCommand,
    Resource,
    TransactionResolution,
    TransactionSource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.frame import Command
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import Appenders
from orbitmq.timing.rewriting import Rewriting

LATER_MS = 4_000_000_000_000
"""A clock so far ahead that every file has expired."""
STEPS = 40
CALLS_MAX = 700
SEEDS = 24
TINY = msgspec.structs.replace(SMALL_STORE, mapped_file_size_commit_log=16 * 1024)


class Wrong(AssertionError):
    """The two accounts differ."""


class LivingRig(WithFront, TransactionRig):
    """A broker whose files are recorded, with retention."""

    rules = CheckRules(count_max=6, reserved_ms=1 << 40)

    def __init__(self, root: Path, files: RecordingFiles, flush: FlushDiskType, now_ms: int) -> None:
        self.files = files
        self.first_now_ms = now_ms
        super().__init__(root, BrokerSettings(), msgspec.structs.replace(TINY, flush_disk_type=flush))

    def open(self) -> None:
        self.clock.set_wall(self.first_now_ms)
        self.idempotence = Idempotence(self.files, self.root, self.clock, self.once_bounds)
        self.files.make_dirs(self.root / "config")
        self.store = open_store(
            self.root, self.store_settings, self.files, self.clock, notify=lambda call: call(),
            derived=[self.idempotence, *self.more_derived()], worker=InlineWorker(),
        )  # fmt: skip
        derived = DerivedState(idempotence=self.idempotence, levels=self.levels, transactions=self.transactions)
        facilities = Facilities(
            tables=lambda name: ConfigFile(self.files, self.root / "config" / name),
            store_host=STORE_HOST,
            memory_bytes=1 << 30,
        )
        self.broker = make_broker(self.settings, self.store, self.clock, facilities, derived)
        rewriting = Rewriting(self.clock, derived.owners())
        Appenders(self.store, self.clock, [*self.broker.rooms.appenders, rewriting]).attach()
        self.open_front()
        self.housekeeping = Housekeeping(self.store, self.root, self.files, self.clock, rewriter=rewriting)

    def die(self) -> None:
        close_as_killed(self.store)


class Account:
    """What was asked for, and what was answered."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Command] = {}
        """Body -> the answer to its half message."""
        self.half_count = 0
        self.asked: dict[bytes, set[int]] = {}
        self.answered: dict[bytes, int] = {}
        """Body -> the decision that was answered first."""
        self._seen: dict[int, tuple[str, bytes]] = {}
        """Log position -> topic and body of every record that is or was in the log: retention takes what is done."""
        self._read_to = 0

    def read(self, rig: LivingRig) -> None:
        """Read on in the log. What a power failure took from its end was never there."""
        end = rig.store.confirm_offset
        if end < self._read_to:
            self._seen = {at: seen for at, seen in self._seen.items() if at < end}
        for entry in rig.store.scan(max(min(self._read_to, end), rig.store.log.start)):
            data = rig.store.log.record(entry.physical_offset)
            if data is not None and entry.topic != "plain":
                self._seen[entry.physical_offset] = entry.topic, bytes(decode_record(data).body)
        self._read_to = end

    def bodies(self, topic: str) -> Counter[bytes]:
        return Counter(body for of, body in self._seen.values() if of == topic)

    def took(self, body: bytes, state: int) -> None:
        if self.answered.setdefault(body, state) != state:
            raise Wrong(f"{body!r} was decided as {self.answered[body]} and then as {state}")


class Life:
    """One seed's."""

    def __init__(self, rig: LivingRig, rng: random.Random, account: Account) -> None:
        self.rig, self.rng, self.account = rig, rng, account
        self.peer: ListPeer
        self.stream: ListCall
        self.join()

    def join(self) -> None:
        """Two producers of one group: one speaks remoting, the other one gRPC."""
        self.peer = self.rig.producer()
        self.stream = self.rig.client("5.x").connect(producer_says(GROUP))

    def live(self, steps: int) -> None:
        acts: list[Callable[[], None]] = [
            self.half, self.half, self.decide, self.decide, self.decide, self.pass_time, self.pass_time, self.traffic,
            self.look_after, self.set_clock, self.restart,
        ]  # fmt: skip
        for _ in range(steps):
            self.rng.choice(acts)()
            self.hear()
            self.account.read(self.rig)

    def half(self) -> None:
        self.account.half_count += 1
        body = b"half %d" % self.account.half_count
        more = {Property.DELAY: "1"} if self.rng.random() < 0.3 else {}
        if self.rng.random() < 0.1:  # what another message is a copy of says nobody but a broker
            more[Property.TRAN_PREPARED_QUEUE_OFFSET] = str(self.rng.randrange(self.account.half_count))
        answer = self.rig.send("orders", body, {"TRAN_MSG": "true", "PGROUP": "pg"} | more)
        if answer is not None and not answer.code:
            self.account.sent[body] = answer

    def decide(self) -> None:
        if self.account.sent:
            body = self.rng.choice(list(self.account.sent))
            self.end(body, self.account.sent[body])

    def end(self, body: bytes, place: Command) -> None:
        state = self.rng.choice((COMMIT, COMMIT, ROLLBACK, UNKNOWN))
        if state == UNKNOWN:
            return
        self.account.asked.setdefault(body, set()).add(state)
        if self.rng.random() < 0.5:
            answer = self.rig.end(place, state)
            is_stored = answer is not None and not answer.code
        else:
            is_stored = self.end_by_id(place.fields["transactionId"], state)
        if is_stored:
            self.account.took(body, state)

    def end_by_id(self, transaction_id: str, state: int) -> bool:
        request = EndTransactionRequest(
            topic=Resource(name="orders"),
            transaction_id=transaction_id,
            resolution=TransactionResolution.COMMIT if state == COMMIT else TransactionResolution.ROLLBACK,
            source=self.rng.choice(list(TransactionSource)),
        )
        waiting = {known.unique_key for known in self.rig.transactions.undecided}
        call = self.rig.client("5.x").start(Rpc.END_TRANSACTION, request)
        if not call.answers:
            return False
        status = EndTransactionResponse.FromString(call.answers[0]).status
        if status.code in (Code.NOT_FOUND, Code.BAD_REQUEST) and transaction_id in waiting:
            raise Wrong(f"the undecided transaction {transaction_id} cannot be decided: {status.message}")
        return status.code == Code.OK

    def hear(self) -> None:
        """Questions of the broker; some are answered."""
        decided = set(self.account.answered)
        for question in self.rig.questions(self.peer):
            body = bytes(decode_record(bytes(question.body)).body)
            if body in decided:
                raise Wrong(f"asked about {body!r}, which was decided")
            if self.rng.random() < 0.4:
                self.end(body, question)
        for command in commands(self.stream):
            if command.HasField("recover_orphaned_transaction_command"):
                self.hear_over_grpc(command.recover_orphaned_transaction_command, decided)

    def hear_over_grpc(self, asked: RecoverOrphanedTransactionCommand, decided: set[bytes]) -> None:
        body, sent = asked.message.body, self.account.sent.get(asked.message.body)
        if body in decided:
            raise Wrong(f"asked about {body!r}, which was decided")
        if sent is not None and asked.transaction_id != sent.fields["transactionId"]:
            raise Wrong(f"asked about {body!r} with another id")
        if self.rng.random() < 0.4:
            state = self.rng.choice((COMMIT, ROLLBACK))
            self.account.asked.setdefault(body, set()).add(state)
            if self.end_by_id(asked.transaction_id, state):
                self.account.took(body, state)

    def pass_time(self) -> None:
        self.rig.advance(self.rng.choice((1, 900, 6_001, 31_000)))

    def traffic(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.rig.send("plain", bytes(2_500))

    def look_after(self) -> None:
        self.rig.advance(1_001)  # what waits for its level is delivered, and read before it may go with its file
        self.account.read(self.rig)
        self.rig.housekeeping.request()
        self.rig.advance(2_000)

    def set_clock(self) -> None:
        if self.rng.random() < 0.3:
            self.rig.clock.set_wall(self.rig.clock.now_ms() + self.rng.choice((-100_000, -3, 5, 100_000)))

    def restart(self) -> None:
        if self.rng.random() < 0.3:
            self.rig.first_now_ms = self.rig.clock.now_ms()
            self.rig.close()
            self.rig.open()
            self.join()


def examine(rig: LivingRig, account: Account, *, all_is_there: bool) -> None:
    """Hold the log against the account. Raises Wrong."""
    account.read(rig)  # before anything is written where a power failure took something
    while (due_ms := rig.levels.next_due_ms) is not None:
        rig.clock.set_wall(max(due_ms, rig.clock.now_ms()))
        rig.advance(1_500)
    rig.advance(10)
    account.read(rig)
    halves, given_up = account.bodies(HALF_TOPIC), account.bodies(TRANS_CHECK_MAX_TIME_TOPIC)
    delivered = account.bodies("orders")
    waiting = Counter(
        bytes(record.body)
        for known in rig.transactions.undecided
        if (data := rig.store.log.record(known.place.physical_offset)) is not None
        for record in [decode_record(data)]
    )
    if len(rig.transactions.undecided) != waiting.total() or any(count > 1 for count in (waiting | delivered).values()):
        raise Wrong(f"undecided {waiting}, delivered {delivered}")
    rolled_back = {body for body, asked in account.asked.items() if ROLLBACK in asked}
    for body in account.sent:
        asked, answered = account.asked.get(body, set()), account.answered.get(body)
        if delivered[body] and COMMIT not in asked:
            raise Wrong(f"{body!r} was never committed and is there")
        if delivered[body] and (waiting[body] or given_up[body]):
            raise Wrong(f"{body!r} is there, and waits or was given up")
        if all_is_there and answered == COMMIT and not delivered[body]:
            raise Wrong(f"{body!r} was committed and is not there")
        if answered == ROLLBACK and delivered[body] and all_is_there:
            raise Wrong(f"{body!r} was rolled back and is there")
        known = waiting[body] + delivered[body] + given_up[body]
        if body not in rolled_back and not known and (all_is_there or body in halves):
            raise Wrong(f"{body!r} is lost")


def run(seed: int, length: int = 1) -> None:
    """A life, so many times longer than usual, and its end. Raises Wrong."""
    rng = random.Random(seed)
    flush = rng.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH))
    with_power = rng.random() < 0.5
    account = Account()

    def open_rig(root: Path, files: RecordingFiles, now_ms: int | None) -> LivingRig:
        return LivingRig(root, files, flush, now_ms or LATER_MS)

    def live(rig: LivingRig) -> None:
        Life(rig, rng, account).live(STEPS * length)

    with second_life(rng, open_rig, live, CALLS_MAX * length, with_power=with_power) as rig:
        all_is_there = flush is FlushDiskType.SYNC_FLUSH or not with_power
        examine(rig, account, all_is_there=all_is_there)
        if not all_is_there:  # what the machine took was never said, for what follows
            for body in list(account.answered):
                del account.answered[body]
        Life(rig, rng, account).live(10)
        examine(rig, account, all_is_there=all_is_there)
        rig.close()


def problems(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            run(seed)
        except Wrong as wrong:
            yield f"seed {seed}: {wrong}"


def test_both_accounts_agree_whatever_happens() -> None:
    assert list(problems(range(SEEDS))) == []


def test_they_agree_where_the_mark_has_no_room_for_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "MARKED_UNDECIDED_MAX", 0)
    monkeypatch.setattr(op_progress_module, "OP_STRETCHES_MAX", 3)
    assert list(problems(range(1_000, 1_000 + SEEDS // 2))) == []


# --- planted bugs -------------------------------------------------------------------------------------------------------


def test_an_op_record_that_is_durable_before_its_commit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ending_module.TransactionEndings._commit

    def too_late(self: Any, known: Transaction) -> int:
        decision_record([place.queue_offset for place in known.places], Ending.COMMITTED, self._core)
        self._store.commit()
        return whole(self, known)

    monkeypatch.setattr(ending_module.TransactionEndings, "_commit", too_late)
    assert any(problems(range(300)))


def test_a_question_after_the_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Undecided, "_end", lambda self, known, ending: None)
    assert any(problems(range(10)))


def test_an_id_that_is_forgotten_with_a_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Undecided._replace

    def forgetful(self: Undecided, known: Transaction, facts: HalfFacts) -> None:
        whole(self, known, facts)
        self._with_id.pop((known.topic, known.unique_key), None)

    monkeypatch.setattr(Undecided, "_replace", forgetful)
    assert any(problems(range(10)))


def test_a_half_message_that_retention_takes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "lowest_needed", lambda self: None)
    monkeypatch.setattr(Transactions, "take_below", lambda self, position, limit: [])
    assert any(problems(range(40)))


def test_a_copy_that_names_no_source_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_source(record: Record, check_count: int) -> NewMessage:
        return msgspec.structs.replace(copy_message(record, check_count), prepared_transaction_offset=0)

    monkeypatch.setattr(checks_module, "copy_message", without_source)
    assert any(problems(range(10)))
