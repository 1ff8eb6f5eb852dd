"""The life of a master and of a slave that copies its log, from one seed: everything that waits for a time, and roles that change.

The slave gets the bytes of the log every few steps. When it has all of them and has applied them, it knows what the master knows. Now
and then the roles change, in order or because the master is gone with what it had not sent; a master may also end and begin again at once.

Rules of this file
1. A seed repeats a life in every detail.
2. What the log says at the end is the judge: whatever takes the place of a record names it, and nothing is named twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import quiet, scratch
from tests.property.timer_broker import CountedIds, Disk, Shape, TimerBroker, answers
from tests.worlds.faults import RecordingFiles
from tests.worlds.raw_log import append_raw

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, StoreUnwritableError
from orbitmq.protocol.names import QUARANTINE_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.recurring_bodies import CatchUp
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RunMessage

START_MS = 1_790_000_000_123
TOPIC = "orders"
GROUP = "pg"
SECOND, MINUTE = 1_000, 60_000
LOG_FILE_BYTES = 4 << 20
"""All of a life lies in one file, so that a slave can be given any part of it in one piece."""
STEPS = 60
ROUNDS = 40
"""Rounds of turns and work within which everything comes to rest."""
DRAINED_MS = 6 * MINUTE
"""After this everything that waits has left."""
DRAIN_STEP_MS = 30 * SECOND


class Broken(AssertionError):
    """A promise was not kept."""


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    steps: list[str]


class Life:
    def __init__(self, base: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        CountedIds.made = 0
        self.base = base
        self.clock = ManualClock(START_MS)
        flush = self.rng.choice(list(FlushDiskType))
        self.shape = Shape(flush=flush, log_file_bytes=LOG_FILE_BYTES, has_all=True)
        self.made = 0
        self.number = 0
        self.steps: list[str] = []
        self.halves: list[dict[str, str]] = []
        """Answers to half messages that were not decided."""
        self.once: list[str] = []
        self.master, self.slave = self._node(appends=True), self._node(appends=False)

    def _node(self, *, appends: bool) -> TimerBroker:
        root = self.base / f"node{self.made}"
        root.mkdir()
        self.made += 1
        files = RecordingFiles(OsFiles(), root, plan=Disk(), boot=f"boot{self.made}")
        node = TimerBroker(root, files, self.clock, self.shape, None, appends=appends)
        node.broker.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2), {})
        return node

    def close(self) -> None:
        for node in (self.master, self.slave):
            node.kill()

    # --- what clients do --------------------------------------------------------------------------------------------

    def _send(self, values: dict[str, str]) -> None:
        self.number += 1
        values = {Property.UNIQ_KEY: f"ID{self.number}", **values}
        self.master.send(TOPIC, self.rng.randrange(2), b"body %d" % self.number, values)

    def plain(self) -> None:
        self._send({})

    def timer(self) -> None:
        for _ in range(self.rng.choice((1, 1, 3))):
            due_ms = self.clock.now_ms() + self.rng.choice((1, 250, 1_000, 5_000, 40_000, 3 * MINUTE))
            self._send({Property.TIMER_DELIVER_MS: str(due_ms)})

    def level(self) -> None:
        self._send({Property.DELAY: str(self.rng.randint(1, 3))})

    def idempotent(self) -> None:
        """A send that is recognised, or a repeat of one."""
        key = self.rng.choice(self.once) if self.once and self.rng.random() < 0.4 else f"K{self.number}"
        self.once.append(key)
        epoch = str(self.number // 12)
        values = {Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: epoch, Property.ONCE_KEY: key}
        if self.rng.random() < 0.3:
            values[Property.DELAY] = "2"
        self._send(values)

    def half(self) -> None:
        self.number += 1
        values = {Property.UNIQ_KEY: f"ID{self.number}", "TRAN_MSG": "true", "PGROUP": GROUP}
        answer, peer = self.master.send(TOPIC, 0, b"half %d" % self.number, values, sys_flag=4)
        self.turn()
        told = answers(answer, peer)
        if told is not None and told.code == ResponseCode.SUCCESS:
            self.halves.append(dict(told.fields))

    def decide(self) -> None:
        if self.halves:
            said = self.halves.pop(self.rng.randrange(len(self.halves)))
            fields = {
                "producerGroup": GROUP,
                "tranStateTableOffset": said["queueOffset"],
                "commitLogOffset": str(int(said["msgId"][16:], 16)),
                "commitOrRollback": self.rng.choice(("8", "12")),
                "msgId": said["transactionId"],
                "transactionId": said["transactionId"],
            }
            self.master.ask(RequestCode.END_TRANSACTION, b"", fields)

    def change(self) -> None:
        """Recall or move a timer message."""
        deliver_ms = (
            self.clock.now_ms() + self.rng.choice((1_000, 20_000, 2 * MINUTE)) if self.rng.random() < 0.6 else None
        )
        selector = TimerSelector(topic=TOPIC, message_id=f"ID{self.rng.randint(1, max(self.number, 1))}")
        code = RequestCode.RECALL_TIMERS if deliver_ms is None else RequestCode.RESCHEDULE_TIMERS
        self.master.ask(code, ChangeTimers(selector, deliver_ms, None).encode())

    def recur(self) -> None:
        """Define, pause, resume or delete a recurring message."""
        recurrences, name = self.master.derived.recurrences, self.rng.choice("abc")
        assert recurrences is not None
        state, way = recurrences.get(name), self.rng.random()
        try:
            if state is None or way < 0.4:
                rule = Rule(interval_ms=self.rng.choice((7_000, 45_000)), catch_up=CatchUp.ALL, catch_up_max=50)
                recurrences.put(name, rule, RunMessage(TOPIC, b"run of %s" % name.encode()), lambda status: None)
            elif way < 0.8:
                recurrences.set_paused(state, paused=not state.paused, on_done=lambda status: None)
            else:
                recurrences.delete(state, lambda status: None)
        except (StoreUnwritableError, ConfigurationError) as error:
            self.steps.append(f"  refused: {error}")

    # --- time and roles ---------------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.clock.advance(self.rng.choice((1, 40, 700, 1_000, 5_000, 40_000, 2 * MINUTE)))

    def turn(self) -> None:
        self.master.turn()
        for _ in range(self.rng.randrange(4)):
            self.master.step_worker()
        self.slave.turn()
        for _ in range(self.rng.randrange(3)):
            self.slave.step_worker()

    def replicate(self) -> None:
        """Give the slave some of what it lacks, or all of it; then it knows what the master knows."""
        is_all = self.rng.random() < 0.7
        if is_all:
            self._rest(self.master)
        begin = self.slave.store.log.end
        ends = [entry.end_offset for entry in self.master.store.scan(begin)]
        if ends:
            end = ends[-1] if is_all else self.rng.choice(ends)
            data = self.master.store.log.read(begin, end - begin)
            assert data is not None
            append_raw(self.slave.store, begin, bytes(data))
        if is_all:
            self._rest(self.slave)
            self._compare()

    def _rest(self, node: TimerBroker) -> None:
        """Turns at this moment until everything in the log has been applied; what becomes due meanwhile is appended by a master."""
        for _ in range(ROUNDS):
            node.turn()
            while node.step_worker():
                pass
            if node.store.confirm_offset == node.store.log.end and not node.timers.is_releasing:
                return
        raise Broken("the log is never applied to its end")

    def change_roles(self) -> None:
        """In order: the slave has all of the log."""
        self.master.appenders.detach()
        self._rest(self.master)
        begin, end = self.slave.store.log.end, self.master.store.log.end
        if end > begin:
            append_raw(self.slave.store, begin, bytes(self.master.store.log.read(begin, end - begin) or b""))
        if self.rng.random() < 0.5:
            self._rest(self.slave)
            self._compare()
        self.master, self.slave = self.slave, self.master
        self._take_over()

    def lose_master(self) -> None:
        """What it had not sent is lost with it; another slave begins with nothing."""
        self.master.kill()
        self.master, self.slave = self.slave, self._node(appends=False)
        self.halves.clear()
        self._take_over()

    def flap(self) -> None:
        """The master ends and begins again at once, whatever is in flight."""
        self.master.turn()
        self.master.appenders.detach()
        self._take_over()

    def _take_over(self) -> None:
        appenders = self.master.appenders
        appenders.attach()
        for _ in range(ROUNDS):
            if appenders.are_attached:
                return
            self.clock.advance(5)
            self.master.turn()
            if self.rng.random() < 0.5:
                self.master.step_worker()
        raise Broken("nobody begins to append")

    # --- what both know ---------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        for name, told in known(self.master).items():
            also = known(self.slave)[name]
            if told != also:
                raise Broken(f"{name}: the master knows {told}, the slave {also}")

    # --- the end ----------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        kinds: dict[Callable[[], None], float] = {
            self.plain: 1, self.timer: 5, self.level: 3, self.idempotent: 3, self.half: 1.5, self.decide: 1.5, self.change: 4,
            self.recur: 1.5, self.wait: 8, self.replicate: 5, self.change_roles: 1.2, self.lose_master: 0.4, self.flap: 1,
        }  # fmt: skip
        for _ in range(steps):
            (step,) = self.rng.choices(list(kinds), list(kinds.values()))
            self.steps.append(f"{step.__name__} at {self.clock.now_ms()}")
            step()
            self.turn()
        self.steps.append("the end")
        self.change_roles()
        for _ in range(DRAINED_MS // DRAIN_STEP_MS):
            self.clock.advance(DRAIN_STEP_MS)
            self._rest(self.master)
        self._judge()

    def _judge(self) -> None:
        """By the log of the last master."""
        store = self.master.store
        records: list[Record] = []
        for entry in store.scan(store.log.start):
            data = store.log.record(entry.physical_offset)
            assert data is not None
            records.append(decode_record(bytes(data)))
        replaced = Counter(
            record.prepared_transaction_offset - 1
            for record in records
            if record.prepared_transaction_offset and not record.sys_flag & TRANSACTION_MASK
        )
        if twice := [at for at, count in replaced.items() if count > 1]:
            raise Broken(f"two records take the place of those at {twice}")
        by_position = {record.physical_offset: record for record in records}
        for record in records:
            values = decode_properties(record.properties)
            is_waiting = record.topic == SCHEDULE_TOPIC or (
                record.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY not in values
            )
            if is_waiting and not replaced[record.physical_offset]:
                raise Broken(f"the message at {record.physical_offset} never left")
            source = by_position.get(record.prepared_transaction_offset - 1)
            if source is not None and source.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and record.topic == TOPIC:
                said = decode_properties(source.properties)
                due_ms = int(said.get(Property.DUE_MS) or said[Property.TIMER_DELIVER_MS])
                if record.store_timestamp < due_ms:
                    raise Broken(f"{record.body!r} came {due_ms - record.store_timestamp} ms early")
            if record.topic == QUARANTINE_TOPIC:
                raise Broken(f"quarantined: {values}")
        for what, names in _once(records).items():
            if again := [name for name, count in Counter(names).items() if count > 1]:
                raise Broken(f"{what} twice: {again}")


def _once(records: list[Record]) -> dict[str, list[object]]:
    """What may be in the log once."""
    runs: list[object] = []
    keys: list[object] = []
    committed: list[object] = []
    for record in records:
        values = decode_properties(record.properties)
        if Property.RUN in values:
            runs.append(values[Property.UNIQ_KEY])
        if Property.ONCE_KEY in values and not record.prepared_transaction_offset:
            keys.append((values[Property.ONCE_EPOCH], values[Property.ONCE_KEY]))
        if record.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT:
            committed.append(record.prepared_transaction_offset)
    return {"runs": runs, "idempotent sends": keys, "commits": committed}


def known(node: TimerBroker) -> dict[str, object]:
    """What a broker has learnt from the log."""
    timers, levels, derived = node.timers, node.release, node.derived
    assert derived.recurrences is not None
    assert derived.transactions is not None
    memory, undecided = node.idempotence.memory, derived.transactions.undecided
    return {
        "timers": sorted(timers.pending_units()),
        "timer offsets": (list(timers.pending.offsets()), timers.pending_count, timers.next_offset),
        "timers of the index": sorted(
            (due_ms, offset)
            for due_ms, offset, _ in timers.index.due((0, -1), 1 << 60, 10_000).entries
            if timers.pending.is_pending(offset)
        ),
        "levels": (levels.state(), sorted(levels.pending_units())),
        "recurring": (sorted(derived.recurrences, key=lambda state: state.name), derived.recurrences.next_due_ms),
        "undecided": [(one.places, one.size, one.check_count, one.first_ms, one.group) for one in undecided],
        "unnamed": undecided.unnamed,
        "scopes": {
            name: [(keys.epoch, sorted(keys.items())) for keys in (scope.current, scope.previous) if keys is not None]
            for name, scope in memory._lasting.items()
        },
        "keys": (memory.key_count, memory.used_bytes),
    }


def run(seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet():
        try:
            life = Life(base, seed)
            life.live(steps)
        except Exception as error:
            problem = error
        finally:
            if life is not None:
                life.close()
    return Verdict(seed, problem, [] if life is None else life.steps)
