"""A master and a slave in two processes that share the storage of the far tier: what one took in the other delivers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from promoted_pair import PromotedPair
from server_process import RawClient, ServedProcess, pull_fields, send_fields, until
from tests.far_loads import write_file

import orbitmq
from orbitmq import TimerVerdict
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import Record, decode_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.far_load_bodies import (
    FarLoadAction,
    FarLoadRequest,
    FarLoadState,
    FarLoadVerdict,
    LoadFile,
)
from orbitmq.protocol.remoting.replication_bodies import PromoteRequest
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState

TOPIC = "renewals"
COUNT = 1_000
LOADED = 120
NEXT_YEAR_MS = 300 * 86_400_000
SHIFTED = """
import os, time
real, shift_ns = time.time_ns, int(os.environ["SHIFT_MS"]) * 1_000_000
time.time_ns = lambda: real() + shift_ns
import orbitmq.cli.main
orbitmq.cli.main.main()
"""
"""A server at another time."""


def far(server: ServedProcess, action: FarTierAction = FarTierAction.STATUS) -> FarTierState:
    with server.client() as client:
        answer = client.call(RequestCode.FAR_TIER, {}, FarTierRequest(action=action).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return FarTierState.decode(bytes(answer.body))


def landed(server: ServedProcess) -> None:
    far(server, FarTierAction.COMPACT)
    until(lambda: far(server).in_log == 0, 60, what="everything in files")


def load(server: ServedProcess, tier: Path, rows: list[tuple[int, str]], job: str) -> None:
    """Rows of a job as its tasks and its driver bring them."""

    def asked(**wanted: object) -> FarLoadState:
        with RawClient(server.port) as client:
            body = FarLoadRequest(job=job, **wanted).encode()  # type: ignore[arg-type]
            answer = client.call(RequestCode.FAR_LOAD, {}, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return FarLoadState.decode(bytes(answer.body))

    opened = asked(action=FarLoadAction.OPEN)
    assert (opened.verdict, Path(opened.url)) == (FarLoadVerdict.OPEN, tier), opened.reason
    assert (tier / opened.probe).read_text() == opened.probe_text
    file = write_file(tier, rows, job=job, attempt=opened.attempt, topic=TOPIC)
    files = [LoadFile(name=file.name, size_bytes=file.size_bytes, crc=file.crc, rows=file.rows)]
    wanted = {"attempt": opened.attempt, "created_ms": opened.created_ms, "split_ms": opened.split_ms, "files": files}
    until(lambda: asked(action=FarLoadAction.LOAD, **wanted).verdict is FarLoadVerdict.LOADED, 60, what="a load")


def next_year_ms() -> int:
    return int(time.time() * 1_000) + NEXT_YEAR_MS


async def send(names: str, due_ms: list[int]) -> list[str]:
    """Recall handles; the body of each is its number."""
    async with orbitmq.connect(names) as mq:
        receipts = [
            await mq.send(
                TOPIC, b"%d" % number, at=datetime.fromtimestamp(at_ms / 1_000, UTC), key=f"contract-{number}"
            )
            for number, at_ms in enumerate(due_ms)
        ]
    return [str(receipt.recall_handle) for receipt in receipts]


async def recall(names: str, handles: list[str]) -> list[TimerVerdict]:
    async with orbitmq.connect(names) as mq:
        return [(await mq.timers.recall(handle)).verdict for handle in handles]


async def handles_of(names: str, prefix: str) -> list[str]:
    async with orbitmq.connect(names) as mq:
        return [str(one.recall_handle) async for one in mq.timers.list(topic=TOPIC, key_prefix=prefix)]


def delivered(server: ServedProcess, topic: str = TOPIC, queues: int = 2) -> list[Record]:
    found: list[Record] = []
    with RawClient(server.port) as client:
        for queue_id in range(queues):
            offset = 0
            while (answer := client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset))).code == 0:
                records = decode_records(bytes(answer.body))
                found += records
                offset = records[-1].queue_offset + 1
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def pair(tmp_path: Path, shared: Path) -> Iterator[PromotedPair]:
    made = PromotedPair(tmp_path, "SYNC_MASTER", timerFarUrl=str(shared))
    made.create_topic(TOPIC, 2)
    until(lambda: far(made.master).takes_messages, what="a far tier that takes messages")
    yield made
    made.end()


def test_far_messages_of_a_master_that_is_lost_come_from_its_slave_each_once_and_a_zombie_harms_nothing(
    pair: PromotedPair, shared: Path, tmp_path: Path
) -> None:
    first_ms = next_year_ms()
    due_ms = [first_ms + number * 10 for number in range(COUNT)]
    handles = asyncio.run(send(pair.name_server, due_ms))
    landed(pair.master)
    load(pair.master, shared, [(first_ms + number * 50, f"row{number:05d}") for number in range(LOADED)], "yearly")
    loaded_handles = asyncio.run(handles_of(pair.name_server, "krow0000"))
    recalled = asyncio.run(recall(pair.name_server, handles[100:130] + loaded_handles[:5]))
    assert set(recalled) == {TimerVerdict.RECALLED}
    pending = COUNT + LOADED - len(recalled)
    until(lambda: far(pair.slave).pending == pending, what="a slave that knows what waits")
    assert far(pair.slave).trouble is None
    zombie, new = pair.master, pair.slave
    zombie.send_signal(signal.SIGSTOP)
    with RawClient(new.port) as client:
        answer = client.call(RequestCode.PROMOTE_SLAVE, {}, PromoteRequest(although_master_lives=True).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    with new.client() as client:  # the new master writes to the storage before the old one wakes
        fields = send_fields(TOPIC, {Property.UNIQ_KEY: "A" * 32, "TIMER_DELIVER_MS": str(first_ms)})
        assert client.call(RequestCode.SEND_MESSAGE_V2, fields, b"of the new master").code == ResponseCode.SUCCESS
    landed(new)
    zombie.send_signal(signal.SIGCONT)
    far(zombie, FarTierAction.COMPACT)
    until(lambda: "another broker took over" in (far(zombie).trouble or ""), 60, what="a zombie that knows it")
    zombie.kill()
    back = pair.restart_first()
    far(back, FarTierAction.COMPACT)
    until(lambda: "another broker took over" in (far(back).trouble or ""), 60, what="a zombie that came back")
    back.kill()
    assert (far(new).damaged, far(new).trouble, far(new).pending) == ({}, None, pending + 1)

    new.kill()
    shift_ms = first_ms - int(time.time() * 1_000) - 20_000
    new = pair.another("second", brokerId=1, program=("-c", SHIFTED), environment={"SHIFT_MS": str(shift_ms)})
    expected = {b"%d" % number: at_ms for number, at_ms in enumerate(due_ms) if not 100 <= number < 130}
    expected[b"of the new master"] = first_ms
    until(lambda: far(new).pending == 0, 120, what="everything promoted")
    until(lambda: len(delivered(new)) >= pending + 1, 60, what="everything delivered")
    found = delivered(new)
    counts = Counter(bytes(record.body) for record in found)
    assert [body for body, count in counts.items() if count > 1] == []
    rows = {body for body in counts if body.startswith(b"row")}
    assert set(counts) - rows == set(expected)
    assert len(rows) == LOADED - 5
    for record in found:
        body = bytes(record.body)
        at_ms = first_ms + int(body[3:]) * 50 if body.startswith(b"row") else expected[body]
        assert record.store_timestamp >= at_ms, "early"


def test_a_slave_with_other_storage_is_refused_while_messages_wait_and_told_what_to_do(
    pair: PromotedPair, tmp_path: Path
) -> None:
    asyncio.run(send(pair.name_server, [next_year_ms()] * 3))
    other = pair.another("third", brokerId=2, timerFarUrl=str(tmp_path / "other"))
    until(lambda: f"give it the master's timerFarUrl, {tmp_path / 'shared'}" in other.log(), 60, what="the remedy")
    assert far(pair.master).takes_messages
    without = pair.another("fourth", brokerId=3, timerFarUrl="")
    until(lambda: "timer far restore" in without.log(), 60, what="the reason of the refusal")
    assert "give both brokers one timerFarUrl" in without.log()


def test_a_slave_that_begins_with_nothing_knows_what_waits_in_the_files(pair: PromotedPair) -> None:
    handles = asyncio.run(send(pair.name_server, [next_year_ms()] * 200))
    landed(pair.master)
    asyncio.run(recall(pair.name_server, handles[:10]))
    asyncio.run(send(pair.name_server, [next_year_ms()] * 10))
    late = pair.another("third", brokerId=2)
    until(lambda: far(late).in_log == 10, 60, what="a slave that has the log")
    state = far(late)
    assert (state.pending, state.file_rows, state.trouble) == (200, 200, None)
    late.kill()
    again = pair.another("third", brokerId=2)
    until(lambda: far(again).pending == 200, 60, what="the same after a crash")
