"""What clients ask of a master in a life: messages of every kind that waits, and what becomes of them later.

Rules of this file
1. All choices come from the generator of the life.
"""

from __future__ import annotations

import random

from tests.property.timer_broker import TimerBroker, answers

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, StoreUnwritableError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.recurring_bodies import CatchUp
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RunMessage

TOPIC = "orders"
GROUP = "pg"
SECOND, MINUTE = 1_000, 60_000


class Clients:
    """Of whichever broker is `master`."""

    rng: random.Random
    clock: ManualClock
    master: TimerBroker
    steps: list[str]
    number: int
    halves: list[dict[str, str]]
    """Answers to half messages that were not decided."""
    once: list[str]
    dues_ms: tuple[int, ...] = (1, 250, 1_000, 5_000, 40_000, 3 * MINUTE)
    moves_ms: tuple[int, ...] = (1_000, 20_000, 2 * MINUTE)
    levels: int = 3
    """Delay levels that are used, from 1."""

    def turn(self) -> None:
        raise NotImplementedError

    def _send(self, values: dict[str, str]) -> None:
        self.number += 1
        values = {Property.UNIQ_KEY: f"ID{self.number}", **values}
        self.master.send(TOPIC, self.rng.randrange(2), b"body %d" % self.number, values)

    def plain(self) -> None:
        self._send({})

    def timer(self) -> None:
        for _ in range(self.rng.choice((1, 1, 3))):
            due_ms = self.clock.now_ms() + self.rng.choice(self.dues_ms)
            self._send({Property.TIMER_DELIVER_MS: str(due_ms)})

    def level(self) -> None:
        self._send({Property.DELAY: str(self.rng.randint(1, self.levels))})

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
        deliver_ms = self.clock.now_ms() + self.rng.choice(self.moves_ms) if self.rng.random() < 0.6 else None
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
