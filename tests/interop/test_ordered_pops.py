"""The same conversation about ordered pops with either broker: who is given what, when a queue is blocked, what is counted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic, until_dispatched

import orbitmq
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.store.config_files import parse_table

pytestmark = pytest.mark.java

TOPIC, GROUP = "OrderedPops", "InOrder"
INVISIBLE_MS = 8_000
LIMIT_S = 180


class Asker:
    """Sends requests of the POP family about queue 0 to one broker."""

    def __init__(self, mq: orbitmq.Client, address: str, broker_name: str) -> None:
        self.mq, self.address, self.broker_name = mq, address, broker_name

    async def ask(self, code: RequestCode, **fields: Any) -> Command:
        values = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0} | fields
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
        return await self.mq.network.invoke(self.address, code, texts, timeout_ms=10_000)

    async def pop(self, count: int, attempt: str = "") -> tuple[list[str], str, list[str]]:
        """Bodies, how often each was given out before, and receipts."""
        answer = await self.ask(
            RequestCode.POP_MESSAGE,
            maxMsgNums=count, invisibleTime=INVISIBLE_MS, pollTime=0, bornTime=self.mq.clock.now_ms(), initMode=0, expType="TAG",
            exp="*", order=True, attemptId=attempt,
        )  # fmt: skip
        if answer.code != ResponseCode.SUCCESS:
            return [], "", []
        records = list(iter_records(bytes(answer.body)))
        words = f"{records[0].queue_offset} {answer.text('popTime')} {INVISIBLE_MS} {answer.text('reviveQid')}"
        receipts = [f"{words} 0 {self.broker_name} 0 {record.queue_offset}" for record in records]
        return [record.body.decode() for record in records], answer.text("orderCountInfo"), receipts

    async def about(self, code: RequestCode, receipt: str, **fields: Any) -> Command:
        return await self.ask(code, extraInfo=receipt, offset=receipt.rsplit(" ", 1)[1], **fields)

    async def ack(self, receipt: str) -> int:
        return (await self.about(RequestCode.ACK_MESSAGE, receipt)).code

    async def committed(self) -> str:
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET)
        return answer.text("offset")


async def test_either_broker_says_the_same(broker: BrokerUnderTest) -> None:
    async with asyncio.timeout(LIMIT_S), orbitmq.connect(broker.name_server) as mq:
        await create_topic(mq, TOPIC, queues_count=1)
        for number in range(4):
            await mq.send(TOPIC, b"%d" % number)
        await until_dispatched(mq, TOPIC, 4)
        async with mq.consumer(GROUP, TOPIC):
            pass  # the broker makes the group
        (queue,) = (await mq.routes.get(TOPIC)).subscribe_queues
        address = mq.routes.master(queue.broker_name)
        assert address is not None
        asker = Asker(mq, address, queue.broker_name)
        await asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=0)

        bodies, counts, first = await asker.pop(2, "one")
        assert (bodies, counts) == (["0", "1"], "0 0 0")
        assert first[0].split(" ")[3] == "999"
        assert await asker.pop(2, "two") == ([], "", []), "blocked"
        bodies, counts, second = await asker.pop(2, "one")
        assert (bodies, counts) == (["0", "1"], "0 0 0"), "the same attempt"
        assert await asker.ack(second[1]) == ResponseCode.SUCCESS
        assert await asker.committed() == "0"
        assert await asker.pop(2, "two") == ([], "", []), "blocked by the first"
        await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
        bodies, counts, third = await asker.pop(3, "three")
        assert bodies == ["0", "1", "2"]
        assert set(counts.split(";")) == {"0 qo0%0 1", "0 qo0%1 1", "0 0 0"}
        assert await asker.ack(second[0]) == ResponseCode.SUCCESS
        assert await asker.committed() == "0", "the receipt is out of date"
        changed = await asker.about(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, third[2], invisibleTime=30_000)
        assert (changed.code, changed.text("reviveQid")) == (ResponseCode.SUCCESS, "999")
        assert changed.text("popTime") == third[2].split(" ")[1]
        assert [await asker.ack(receipt) for receipt in third[:2]] == [ResponseCode.SUCCESS] * 2
        assert await asker.committed() == "2"
        await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
        assert await asker.pop(2, "four") == ([], "", []), "hidden for longer"
        assert await asker.ack(third[2]) == ResponseCode.SUCCESS
        assert await asker.committed() == "3"
        bodies, counts, last = await asker.pop(2, "five")
        assert (bodies, counts) == (["3"], "0 0 0")
        await asker.about(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, last[0], invisibleTime=60_000)
    entry = await asyncio.to_thread(saved, broker.data / "config" / "consumerOrderInfo.json", "five")
    popped_ms = int(last[0].split(" ")[1])
    assert entry.pop("l") > 0
    (until_ms,) = entry.pop("ot").values()
    assert until_ms >= popped_ms + 60_000
    assert entry == {"a": "five", "cm": 0, "i": INVISIBLE_MS, "o": [3], "oc": {}, "popTime": popped_ms}


def saved(file: Path, attempt: str) -> dict[str, Any]:
    """What a broker has saved of the queue, once it is that of this attempt and has its latest time. Blocks."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if file.exists():
            entry = parse_table(file.read_bytes())["table"].get(f"{TOPIC}@{GROUP}", {}).get("0", {})
            if entry.get("a") == attempt and entry.get("ot"):
                return dict(entry)
        time.sleep(0.5)
    raise TimeoutError(f"{file} has nothing of attempt {attempt!r}")
