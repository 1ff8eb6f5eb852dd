"""The same conversation about priorities with our broker and with RocketMQ 5.5: queues that are chosen, and the order of pops."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.dispatched import until_dispatched, until_routed
from rig.toolchain import NEW_VERSION, java_build
from rig.wire import MAX_OFFSET, Stored, Wire, records

import orbitmq
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

pytestmark = pytest.mark.java

POP = 200050
TOPIC, QUEUES_COUNT = "Urgent", 4
PRIORITY = "_SYS_MSG_PRIORITY_"
SENT = {0: 0, 9: 3, 2: 2, 1: 1, 3: 3}
"""Priorities in the order in which they are sent, each with its queue."""
BY_PRIORITY = ["9", "3", "2", "1", "0"]
SHORT_MS, LONG_MS = 2_000, 60_000
WAIT_S = 120


@pytest.fixture(params=Kind, ids=lambda kind: kind.value)
def judged(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    brokers: Callable[..., BrokerUnderTest],
) -> BrokerUnderTest:
    available(lambda: java_build(NEW_VERSION))
    return brokers(request.param, "broker", release=NEW_VERSION).start()


async def test_either_broker_gives_out_the_same(judged: BrokerUnderTest) -> None:
    async with orbitmq.connect(judged.name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=QUEUES_COUNT, attributes={"message.type": "PRIORITY"})
        await mq.admin.create_topic("Usual", queues_count=QUEUES_COUNT)
        by_chance = SubscriptionGroupConfig(attributes={"+priority.factor": "0"})
        for group, settings in {"Lift": None, "Late": None, "Chance": by_chance}.items():
            await mq.admin.create_group(group, settings=settings)
        for topic in (TOPIC, "Usual"):
            await until_routed(mq, topic)
            for priority, queue_id in SENT.items():
                receipt = await mq.send(topic, str(priority).encode(), priority=priority)
                assert receipt.queue.queue_id == queue_id
            await until_dispatched(mq, topic, len(SENT))
        with judged.wire() as wire:
            what_has_no_priority(wire)
            assert [pop(wire, "Lift").body.decode() for _ in SENT] == BY_PRIORITY
            what_fails_comes_after_the_rest(wire)
            for number in range(32):
                await mq.send(TOPIC, b"more", priority=number % QUEUES_COUNT)
            await until_dispatched(mq, TOPIC, len(SENT) + 32)
            queues = [pop(wire, "Chance").queue_id for _ in range(32)]
            assert queues != sorted(queues, reverse=True)


def what_has_no_priority(wire: Wire) -> None:
    """A key of an order wins: the message stays in its sender's queue, without the property. A word is left alone."""
    for body, properties in {
        b"in order": {PRIORITY: "3", "__SHARDINGKEY": "a"},
        b"no number": {PRIORITY: "high"},
    }.items():
        assert wire.send("Usual", 1, body, properties).queue_id == 1
    stored = {record.body: record.properties for record in wire.read_queue("Usual", 1)}
    assert PRIORITY not in stored[b"in order"]
    assert stored[b"no number"][PRIORITY] == "high"


def what_fails_comes_after_the_rest(wire: Wire) -> None:
    assert pop(wire, "Late", invisible_ms=SHORT_MS).body == b"9"
    retry = {"topic": f"%RETRY%Late_{TOPIC}", "queueId": "0"}
    ends = time.monotonic() + WAIT_S
    while wire.ask(MAX_OFFSET, retry)[0].get("extFields", {}).get("offset", "0") == "0":
        assert time.monotonic() < ends, "it is not in the retry topic"
        time.sleep(0.1)
    assert [pop(wire, "Late").body.decode() for _ in SENT] == [*BY_PRIORITY[1:], "9"]


def pop(wire: Wire, group: str, *, invisible_ms: int = LONG_MS) -> Stored:
    """One message of any queue of the topic."""
    fields = {
        "consumerGroup": group, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": str(invisible_ms),
        "pollTime": "0", "bornTime": str(int(time.time() * 1000)), "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    (popped,) = records(wire.call(POP, fields)[1])
    return popped
