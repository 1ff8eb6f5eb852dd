"""Brokers with one far table in a shared directory, a producer of its files, and what consumers find at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from server_process import RawClient, ServedProcess, until

from orbitmq.protocol.far_table import (
    AddFiles,
    FilesChanged,
    FilesPage,
    FilesQuery,
    JobOpened,
    ListedFile,
    OpenJob,
    RecallRows,
    ReplaceFiles,
    RowsRecalled,
    StatusQuery,
    TableAnswer,
    TableFile,
    TableRequest,
    TableStatus,
    TableVerdict,
)
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

BUCKET_MS = 2_000
HORIZON_S = 5
TOPIC = "renewals"
QUEUES = 2
A = TypeVar("A", bound=TableAnswer)

SETTINGS: Mapping[str, object] = {
    "farTableOwner": "owner",
    "farTableBucketSec": BUCKET_MS // 1_000,
    "farTableHorizonSec": HORIZON_S,
    "farTableMarginSec": 1,
    "farTableLeaseSec": 3,
}

Serve = Callable[..., ServedProcess]


def serve_owner(serve: Serve, url: Path, ports: tuple[int, int] | None = None) -> ServedProcess:
    """The broker that owns the table, with the name server of all."""
    settings = {**SETTINGS, "brokerName": "owner", "farTableUrl": url}
    return serve("owner", settings=settings, ports=ports)


def serve_other(serve: Serve, name: str, owner: ServedProcess, url: Path) -> ServedProcess:
    settings = {
        **SETTINGS,
        "brokerName": name,
        "farTableUrl": url,
        "namesrvAddr": f"127.0.0.1:{owner.name_port}",
    }
    return serve(name, command="broker", settings=settings)


def ask(server: ServedProcess, code: RequestCode, request: TableRequest | StatusQuery, kind: type[A]) -> A:
    """The owner's answer, asked until there is one."""
    found: list[A] = []

    def answered() -> bool:
        try:
            with RawClient(server.port) as client:
                answer = client.call(code, {}, request.encode())
        except OSError:
            return False
        if answer.code != ResponseCode.SUCCESS:
            return False
        found.append(kind.decode(answer.body))
        return True

    until(answered, what=f"an answer to {type(request).__name__}")
    return found[0]


def status(owner: ServedProcess) -> TableStatus:
    return ask(owner, RequestCode.FAR_TABLE_STATUS, StatusQuery(), TableStatus)


class Job:
    """Puts rows into the table, as a pipeline does."""

    def __init__(self, owner: ServedProcess, url: Path, name: str) -> None:
        self.owner = owner
        self.url = url
        self.name = name
        self.table = status(owner).table

    def open(self, epoch: int = 0) -> JobOpened:
        request = OpenJob(self.table, self.name, epoch)
        opened = ask(self.owner, RequestCode.FAR_TABLE_OPEN, request, JobOpened)
        assert opened.verdict is TableVerdict.OK, opened
        return opened

    def write(self, name: str, rows: list[dict[str, object]]) -> TableFile:
        from orbitmq.timing.far_table.rows import facts_of, file_bytes, table_of

        table = table_of(rows)
        path = self.url / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = file_bytes(table).to_pybytes()
        path.write_bytes(content)
        facts = facts_of(table)
        return TableFile(name, facts.rows, len(content), facts.min_due_ms, facts.max_due_ms)

    def add(self, opened: JobOpened, files: list[TableFile], epoch: int = 0) -> FilesChanged:
        request = AddFiles(self.table, self.name, epoch, opened.attempt, files)
        return ask(self.owner, RequestCode.FAR_TABLE_ADD, request, FilesChanged)

    def replace(self, opened: JobOpened, olds: list[str], new: list[TableFile], from_ms: int) -> FilesChanged:
        request = ReplaceFiles(self.table, self.name, 0, opened.attempt, olds, new, from_ms)
        return ask(self.owner, RequestCode.FAR_TABLE_REPLACE, request, FilesChanged)

    def files(self) -> list[ListedFile]:
        return ask(self.owner, RequestCode.FAR_TABLE_FILES, FilesQuery(self.table), FilesPage).files

    def recall(self, message_id: str, due_ms: int | None = None) -> RowsRecalled:
        request = RecallRows(self.table, TOPIC, message_id, due_ms=due_ms)
        return ask(self.owner, RequestCode.FAR_TABLE_RECALL, request, RowsRecalled)


def rows_between(start_ms: int, until_ms: int, count: int, part: str) -> list[dict[str, object]]:
    """So many messages, spread over this time."""
    step = (until_ms - start_ms) / count
    return [
        {
            "deliverTimestamp": start_ms + int(number * step),
            "topic": TOPIC,
            "body": f"{part}-{number}".encode(),
            "msgId": f"{part}-{number}",
            "keys": f"contract-{number % 10} {part}",
            "properties": {"plan": "gold"},
        }
        for number in range(count)
    ]


def delivered(server: ServedProcess) -> dict[str, list[tuple[int, int]]]:
    """Of every message in the topic's queues: body -> (stated due time, store time)."""
    from orbitmq.protocol.properties import decode_properties
    from orbitmq.protocol.records import iter_records

    found: dict[str, list[tuple[int, int]]] = {}
    with RawClient(server.port) as client:
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                answer = client.call(
                    RequestCode.PULL_MESSAGE,
                    {
                        "consumerGroup": "readers", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
                        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
                    },
                )  # fmt: skip
                if answer.code != ResponseCode.SUCCESS:
                    break
                for record in iter_records(bytes(answer.body)):
                    due_ms = int(decode_properties(record.properties)["TIMER_DELIVER_MS"])
                    found.setdefault(record.body.decode(), []).append((due_ms, record.store_timestamp))
                    offset = record.queue_offset + 1
    return found


def timer_records(server: ServedProcess) -> int:
    """Records that ever came into the wheel's topic."""
    with RawClient(server.port) as client:
        answer = client.call(RequestCode.GET_MAX_OFFSET, {"topic": TIMER_TOPIC, "queueId": "0"})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.fields["offset"])


def now_ms() -> int:
    return int(time.time() * 1000)


def manifest(url: Path) -> dict[str, object]:
    return dict(json.loads((url / "manifest.json").read_bytes().splitlines()[0]))
