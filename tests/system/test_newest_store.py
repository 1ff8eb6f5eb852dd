"""A store that RocketMQ 5.5 left at an orderly stop: what waits in it goes on here. Its contents stand in tests/vectors/README.md."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orbitmq.server.roles.takeover import facts_of
from orbitmq.store.files import OsFiles
from orbitmq.testing import EmbeddedBroker

ARCHIVE = Path(__file__).parents[1] / "vectors" / "stores" / "newest" / "5.5.0.tar.xz"
SENT = datetime.fromtimestamp(1795464575.620, UTC)
POPPED = datetime.fromtimestamp(1795464589.916, UTC)
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "mappedFileSizeTimerLog": "5200",
}
HOUR = timedelta(hours=1)


async def test_what_waits_in_it_goes_on(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    data = tmp_path / "5.5.0"
    assert facts_of(data, OsFiles()) == []
    async with EmbeddedBroker(now=SENT + timedelta(minutes=5), data=data, settings=SETTINGS) as broker:
        async with broker.connect() as mq:
            topics = await mq.admin.topic_configs((await mq.admin.masters())[0].address)
            groups = await mq.admin.groups()
            undecided = [transaction async for transaction in mq.transactions.list()]
        assert topics["Urgent"].attributes == {"message.type": "PRIORITY"}
        assert groups["Poppers"].attributes == {"priority.factor": "50"}
        assert [(one.topic, one.group) for one in undecided] == [("Decided", "TransactionGroup")]
        assert [one.body for one in await broker.messages("Decided")] == [b"committed"]
        priorities = {one.body: one.queue.queue_id for one in await broker.messages("Urgent")}
        assert priorities == {b"priority %d" % priority: priority for priority in range(4)}
        waiting = [(one.body, one.due) for one in await broker.pending("Timed")]
        assert waiting == [(b"due in %d h" % hours, SENT + hours * HOUR) for hours in (1, 2, 48)]

        await broker.advance_to(POPPED + HOUR)
        returned = await broker.messages("%RETRY%Poppers_Popped")
        assert [(one.body, one.reconsume_times) for one in returned] == [(b"popped 0", 1), (b"popped 2", 1)]
        await broker.advance_to(SENT + 2 * HOUR)
        assert [one.body for one in await broker.messages("Timed")] == [b"due in 1 h", b"due in 2 h"]
