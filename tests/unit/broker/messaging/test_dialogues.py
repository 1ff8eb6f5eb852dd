"""What RocketMQ's proxy answered in recorded dialogues, our front end answers as well, but for what is named here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.pop.conftest import PopRig
from tests.unit.broker.transactions.conftest import TransactionRig
from tests.vectors.record_grpc_dialogues import VECTORS, answer_kind
from tests.worlds.grpc_dialogues import ORDERLY, TOPICS, Ask, Heard, Wait, dialogues, form

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.calls import read_call
from orbitmq.protocol.grpc.rpcs import RPCS, SERVICE, Shape
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.store.settings import StoreSettings

RECORDED = {line["name"]: line["answers"] for line in map(json.loads, VECTORS.read_text().splitlines())}

_TYPE = "a refusal stands in the entry of its message as well, like every other outcome"
_NAME = "the text is the name of the code, for which programs look, where RocketMQ has a sentence"
_MISSING = "a topic that does not exist is said to be missing, not to be of another type or an error of the server"
_WRITTEN = "what a client wrote is not called an error of the server"
_REPEAT = "a decision that is repeated is answered as the first was"
_HIDDEN = "properties that have a field are not shown as user properties as well"

DIFFERENT = {
    ("routes", 15): "a group needs a name",
    ("wrong sends", 2): _MISSING,
    **{("wrong sends", number): _TYPE for number in range(19, 25)},
    ("wrong sends", 26): "a message may be due at any time, unless maxDelayTimeMills is set",
    ("receives", 1): _NAME,
    ("receives", 3): _HIDDEN,
    ("receives", 6): _WRITTEN,
    ("receives", 7): _MISSING,
    ("receives", 18): "a handle whose time is over makes no dead letter: the message is on its way to somebody else",
    **{("receives", number): _WRITTEN for number in (19, 20, 22)},
    ("polls", 7): _MISSING,
    ("polls", 10): _WRITTEN,
    **{("orderly", number): _NAME for number in (1, 5)},
    **{("orderly", number): _HIDDEN for number in (4, 7)},
    ("transactions", 2): _WRITTEN,
    **{("transactions", number): _REPEAT for number in (6, 9)},
    ("recalls", 2): _MISSING,
    **{("recalls", number): _WRITTEN for number in (4, 5)},
}
"""Answers that differ on purpose, by dialogue and number, and why."""


class DialogueRig(WithFront, TransactionRig):
    """A broker with all that calls need."""

    def more_parts(self) -> dict[str, Any]:
        return super().more_parts() | {"timers": self.timers}

    def more_derived(self) -> list[Any]:
        return [*super().more_derived(), *PopRig.more_derived(self)]  # type: ignore[arg-type]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DialogueRig]:
    rig = DialogueRig(tmp_path, BrokerSettings(recall_message_enable=True), StoreSettings())
    for topic, kind in TOPICS.items():
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": kind})
    rig.broker.groups.put(SubscriptionGroupConfig(group_name=ORDERLY, consume_message_orderly=True))
    yield rig
    rig.close()


def ask(rig: DialogueRig, asked: Ask) -> Heard:
    row = RPCS[asked.rpc]
    if not row.is_served:
        with pytest.raises(CallError) as caught:
            read_call(
                RequestFields.made(
                    [
                        (b":method", b"POST"),
                        (b":path", f"/{SERVICE}/{row.rpc}".encode()),
                        (b"content-type", b"application/grpc"),
                    ]
                )
            )
        return Heard([], caught.value.status)
    caller = rig.client(asked.client)
    call = caller.begin(asked.rpc, timeout_ms=asked.timeout_ms, version=asked.version)
    caller.send(call, asked.message)
    for _ in range(60):
        if call.ends or (row.shape is Shape.BIDIRECTIONAL and call.answers):
            break
        rig.advance(500)
    kind: Any = answer_kind(asked.rpc)
    return Heard([kind.FromString(answer) for answer in call.answers], 0 if call.error is None else call.error.status)


@pytest.mark.parametrize("name", RECORDED)
def test_a_dialogue_goes_as_with_rocketmqs_proxy(rig: DialogueRig, name: str) -> None:
    dialogue, number, found = dialogues(rig.clock.now_ms() // 1000)[name], 0, []
    step = next(dialogue)
    while True:
        heard = Heard([], 0)
        if isinstance(step, Wait):
            rig.advance(step.ms)
        else:
            heard = ask(rig, step)
            ours, theirs = {"rpc": step.rpc.value, **form(heard)}, RECORDED[name][number]
            if (ours != theirs) != ((name, number) in DIFFERENT):
                found.append((number, ours, theirs))
            number += 1
        try:
            step = dialogue.send(heard)
        except StopIteration:
            break
    assert number == len(RECORDED[name])
    assert not found, "\n".join(f"{number}:\n  ours   {ours}\n  theirs {theirs}" for number, ours, theirs in found)
