"""Rows that an orbitmq broker took out of the far table are RocketMQ 5.3.3's to deliver: each once, at its time, recalled ones never."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.ledger import SMALL_FILES
from rig.toolchain import BROKER_VERSION, java_build
from rig.wire import Wire

from orbitmq.protocol.far_table import (
    AddFiles,
    FilesChanged,
    JobOpened,
    OpenJob,
    RecallRows,
    RowsRecalled,
    RowVerdict,
    StatusQuery,
    TableAnswer,
    TableFile,
    TableRequest,
    TableStatus,
    TableVerdict,
)
from orbitmq.protocol.remoting.codes import RequestCode

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

A = TypeVar("A", bound=TableAnswer)

TOPIC = "FarRows"
COUNT = 40
STEP_MS = 250
BUCKET_S, HORIZON_S = 30, 60
JAVA_SETTINGS = SMALL_FILES | {"mappedFileSizeTimerLog": str(52 * 100)}


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    pytest.importorskip("pyarrow", reason="the far table's files are written with pyarrow")
    available(lambda: java_build(BROKER_VERSION))


def ask(wire: Wire, code: RequestCode, request: TableRequest | StatusQuery, kind: type[A]) -> A:
    return kind.decode(wire.call(int(code), {}, request.encode())[1])


def write(url: Path, name: str, start_ms: int) -> TableFile:
    """A file of rows with and without a queue, a tag, a key, and properties of their own."""
    from orbitmq.timing.far_table.rows import facts_of, file_bytes, table_of

    table = table_of(
        {
            "deliverTimestamp": start_ms + STEP_MS * number,
            "topic": TOPIC,
            "queueId": 0 if number % 2 else None,
            "body": b"row %d" % number,
            "msgId": f"{number:032X}",
            "tags": "gold" if number % 3 else None,
            "keys": f"contract-{number}",
            "properties": {"plan": "yearly"} if number % 5 else {},
        }
        for number in range(COUNT)
    )
    content = file_bytes(table).to_pybytes()
    (url / name).write_bytes(content)
    facts = facts_of(table)
    return TableFile(name, facts.rows, len(content), facts.min_due_ms, facts.max_due_ms)


def status(wire: Wire) -> TableStatus:
    return ask(wire, RequestCode.FAR_TABLE_STATUS, StatusQuery(), TableStatus)


def test_promoted_rows_are_javas_to_deliver(brokers: Callable[..., BrokerUnderTest], tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "table"
    url.mkdir()
    ours = brokers(
        Kind.ORBITMQ,
        "ours",
        data=data,
        settings=JAVA_SETTINGS
        | {
            "farTableUrl": str(url),
            "farTableOwner": "ours",
            "brokerName": "ours",
            "farTableBucketSec": str(BUCKET_S),
            "farTableHorizonSec": str(HORIZON_S),
            "farTableMarginSec": "1",
        },
    ).start()
    with ours.wire() as wire:
        wire.create_topic(TOPIC, 1)
        table = status(wire).table
        opened = ask(wire, RequestCode.FAR_TABLE_OPEN, OpenJob(table, "load"), JobOpened)
        file = write(url, "landing/load.parquet", opened.split_ms)
        added = AddFiles(table, "load", 0, opened.attempt, [file])
        assert ask(wire, RequestCode.FAR_TABLE_ADD, added, FilesChanged).verdict is TableVerdict.OK
        recalled = set(range(0, COUNT, 4))
        for number in recalled:
            named = RecallRows(table, TOPIC, f"{number:032X}", due_ms=opened.split_ms + STEP_MS * number)
            told = ask(wire, RequestCode.FAR_TABLE_RECALL, named, RowsRecalled)
            assert [row.verdict for row in told.rows] == [RowVerdict.RECALLED]
        ends = time.monotonic() + 60
        while (now := status(wire)).file_count or now.share_count:
            assert time.monotonic() < ends, now
            time.sleep(0.2)
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=JAVA_SETTINGS).start()
    first_ms = opened.split_ms + STEP_MS
    assert time.time_ns() // 1_000_000 < first_ms, "the change of brokers took longer than planned"
    wanted = {b"row %d" % number: number for number in range(COUNT) if number not in recalled}
    last_s = (opened.split_ms + STEP_MS * COUNT) / 1000
    with java.wire() as wire:
        while True:
            found = wire.read_queue(TOPIC, 0)
            if time.time() > last_s + 20 or (
                time.time() > last_s + 3 and wanted.keys() <= {stored.body for stored in found}
            ):
                break
            time.sleep(0.5)
    java.stop()
    assert Counter(stored.body for stored in found) == Counter(list(wanted))
    early = [stored.body for stored in found if stored.store_at < opened.split_ms + STEP_MS * wanted[stored.body]]
    assert early == [], "came early"
    for stored in found:
        number = wanted[stored.body]
        assert stored.properties["UNIQ_KEY"] == f"{number:032X}"
        assert stored.properties["KEYS"] == f"contract-{number}"
        assert stored.properties.get("TAGS") == ("gold" if number % 3 else None)
        assert stored.properties.get("plan") == ("yearly" if number % 5 else None)
