"""Decisions at random, most of them about something else: exactly those that name a half message in every field decide it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, TransactionRig

from orbitmq.broker.transactions import ending
from orbitmq.broker.transactions.ending import ProducerDecision
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command

ODD = ("", "-1", "0", "7", "9" * 30, "x", str(2**63 - 1), str(-(2**63)), "\u00e9" * 300)
"""What stands in a field that is no field of a half message."""

COMMITTED, ROLLED_BACK, OPEN = "committed", "rolled back", "open"


def fields_of(half: Command, state: int) -> dict[str, Any]:
    """The decision that means a half message."""
    said = half.fields
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": said["queueOffset"],
        "commitLogOffset": str(int(said["msgId"][16:], 16)),
        "commitOrRollback": str(state),
        "fromTransactionCheck": "false",
        "msgId": said["transactionId"],
        "transactionId": said["transactionId"],
        "topic": "orders",
    }


class DecisionModel:
    """What has become of each half message, by the decisions that mean it."""

    def __init__(self, halves: list[Command]) -> None:
        self.states = [OPEN] * len(halves)
        self._means = [
            tuple(fields_of(half, 0)[name] for name in ("producerGroup", "tranStateTableOffset", "commitLogOffset"))
            for half in halves
        ]
        self._keys = [half.fields["transactionId"] for half in halves]

    def told(self, fields: dict[str, Any]) -> bool:
        """Whether the decision is taken."""
        named = tuple(fields.get(name) for name in ("producerGroup", "tranStateTableOffset", "commitLogOffset"))
        if named not in self._means:
            return False
        number = self._means.index(named)
        ids = {fields.get("msgId", ""), fields.get("transactionId", "")} - {""}
        wanted = {str(COMMIT): COMMITTED, str(ROLLBACK): ROLLED_BACK}.get(fields.get("commitOrRollback", ""))
        if wanted is None or (ids and self._keys[number] not in ids) or self.states[number] not in (OPEN, wanted):
            return False
        self.states[number] = wanted
        return True


def decide_at_random(tx: TransactionRig, seed: int) -> None:
    chance = random.Random(seed)
    halves = [tx.half(body=b"%d" % number) for number in range(12)]
    plain = tx.sent_ok("orders", b"plain", {})
    model = DecisionModel(halves)
    others = [str(int(plain.fields["msgId"][16:], 16)), plain.fields["msgId"]]
    for _ in range(250):
        asked = fields_of(chance.choice(halves), chance.choice([COMMIT, ROLLBACK, 0, 4, 99]))
        for name in chance.sample(sorted(asked), chance.choice([0, 0, 1, 1, 2, 8])):
            stranger = fields_of(chance.choice(halves), COMMIT)[name]
            asked[name] = chance.choice([*ODD, *others, stranger, stranger, stranger])
        if chance.random() < 0.1:
            del asked[chance.choice(sorted(asked))]
        answer = tx.try_call(RequestCode.END_TRANSACTION, asked)
        taken = model.told(asked)
        assert answer is None or (answer.code == 0) is taken, (asked, answer)
        assert answer is not None or not taken, asked
        if chance.random() < 0.02:
            tx.kill()
    stored = sorted(int(body) for body in tx.bodies() if body != b"plain")
    assert stored == [number for number, state in enumerate(model.states) if state == COMMITTED]
    assert tx.undecided == model.states.count(OPEN)
    assert len(tx.records(HALF_TOPIC)) == len(halves)
    assert tx.broker.statistics.failed_handler_count == 0


@pytest.mark.parametrize("seed", range(6))
def test_only_what_names_a_half_message_decides_it(tx: TransactionRig, seed: int) -> None:
    decide_at_random(tx, seed)


@pytest.mark.parametrize("planted", ["any group decides", "any offset decides"])
def test_planted_bugs_are_caught(tx: TransactionRig, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    sound = ending._check_same

    def lax(decision: ProducerDecision, group: str, unique_key: str, queue_offset: int) -> None:
        if planted == "any group decides":
            sound(decision, decision.group, unique_key, queue_offset)
        else:
            sound(decision, group, unique_key, decision.queue_offset)

    monkeypatch.setattr(ending, "_check_same", lax)
    with pytest.raises(AssertionError):
        decide_at_random(tx, 1)
