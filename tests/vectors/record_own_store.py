"""Records a store of this version of orbitmq, for later versions to open: `python -m tests.vectors.record_own_store NAME`.

Writes `stores/own/NAME.tar.xz` (the directory after an orderly stop), `NAME-killed.tar.xz` (the same after a crash) and
`NAME.expected.json.xz`: what the broker itself says is in it. Once a store is kept it is never written again: a version that cannot
open it has broken its promise.

Rules of this file
1. Everything that has a file of its own is in the store: queues, offsets, delay levels, near and far timers, recalled and rescheduled
   ones, recurring messages, idempotent keys, dead letters.
2. The calendar is virtual, so that the kept times never pass.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orbitmq
from orbitmq.protocol.remoting.timer_bodies import FarTierAction
from orbitmq.release import VERSION
from orbitmq.testing import EmbeddedBroker

OWN = Path(__file__).resolve().parent / "stores" / "own"
BEGIN = datetime(2026, 11, 22, 12, tzinfo=UTC)
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerFarEnable": "true",
    "flushConsumerOffsetInterval": "100",
}
SAVED_S = 6
"""Real seconds after which everything was saved durably that is saved while a broker runs."""

TOPICS = ("orders", "reminders", "once", "dropped")
GROUP = "billing"
CONSUMED = 80


def scope(number: int) -> orbitmq.Once:
    return orbitmq.Once(scope="import", epoch=7, key=f"row-{number}")


async def fill(broker: EmbeddedBroker) -> dict[str, Any]:
    """Put one of everything into the store; what only the senders know of it."""
    known: dict[str, Any] = {}
    async with broker.connect() as mq:
        for topic in TOPICS:
            await mq.admin.create_topic(topic, queues_count=4)
        await mq.send("dropped", b"goes with its topic")
        await mq.admin.delete_topic("dropped")
        for number in range(200):
            await mq.send(
                "orders",
                b"order %d " % number + b"." * (number * 37 % 900),
                key=f"o-{number}",
                tag="TaTb"[number % 2 * 2 :][:2],
            )
        await consume(mq, CONSUMED)
        for level in range(3, 19):
            await mq.send("reminders", b"level %d" % level, delay_level=level)
        handles = {}
        for name, days in (("near", 1), ("edge", 2.9), ("rolled", 10), ("far", 30), ("gone", 2), ("gone-far", 35)):
            for number in range(5):
                key = f"{name}-{number}"
                receipt = await mq.send("reminders", key.encode(), key=key, after=timedelta(days=days, seconds=number))
                handles[key] = receipt.recall_handle
                if name.startswith("gone"):
                    assert (await receipt.recall()).verdict is orbitmq.TimerVerdict.RECALLED
        for key in ("near-3", "far-3"):
            await mq.timers.reschedule(topic="reminders", key=key, after=timedelta(days=2.5))
        known["handles"] = handles
        await mq.recurring.put("hourly", "reminders", b"every hour", cron="0 * * * *")
        await mq.recurring.put("paused", "reminders", b"not now", every=timedelta(minutes=7))
        await mq.recurring.pause("paused")
        known["once"] = [(await mq.send("once", b"row %d" % n, once=scope(n))).message_id for n in range(20)]
    return known


async def consume(mq: orbitmq.Client, count: int) -> None:
    """Consume so many orders in the name of the group, and commit that."""
    options = orbitmq.LiteConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with mq.lite_consumer(GROUP, options=options) as consumer:
        await consumer.subscribe("orders")
        seen = 0
        while seen < count:
            seen += len(await consumer.poll(5_000, max_messages=min(32, count - seen)))
        await consumer.commit()


async def describe(broker: EmbeddedBroker) -> dict[str, Any]:
    """What the broker says is in its store."""
    async with broker.connect() as mq:
        recurring = [one async for one in mq.recurring.list()]
        found: dict[str, Any] = {
            "messages": {topic: [message.body.hex() for message in await broker.messages(topic)] for topic in TOPICS},
            "delayed": [
                [m.due.isoformat(), m.level, m.body.hex()] for m in await broker.pending() if m.level is not None
            ],
            "timers": sorted(
                [[list(timer.keys), timer.deliver_ms] async for timer in mq.timers.list(topic="reminders")]
            ),
            "recurring": sorted([one.name, one.paused] for one in recurring),
        }
    return found


def pack(directory: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(
            directory,
            target.name.removesuffix(".tar.xz"),
            filter=lambda one: None if one.name.endswith("/lock") else one,
        )


async def record(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        broker = EmbeddedBroker(now=BEGIN, data=data, settings=SETTINGS)
        async with broker:
            known = await fill(broker)
            await broker.advance(timedelta(minutes=3))
            async with broker.connect() as mq:
                await mq.timers.far_tier(FarTierAction.COMPACT)
            await asyncio.sleep(SAVED_S)
            expected = {
                "version": VERSION,
                "settings": SETTINGS,
                "now": broker.now.isoformat(),
                "consumed": CONSUMED,
                **known,
                **await describe(broker),
            }
            shutil.copytree(data, Path(folder) / "killed")
        pack(data, OWN / f"{name}.tar.xz")
        pack(Path(folder) / "killed", OWN / f"{name}-killed.tar.xz")
    (OWN / f"{name}.expected.json.xz").write_bytes(lzma.compress(json.dumps(expected).encode(), preset=9))


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
