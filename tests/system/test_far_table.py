"""Three brokers with one far table on a shared directory: every row is delivered once, in time, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far table's files are written with pyarrow")

from far_table_rig import (
    BUCKET_MS,
    QUEUES,
    TOPIC,
    Job,
    Serve,
    delivered,
    manifest,
    now_ms,
    rows_between,
    serve_other,
    serve_owner,
    status,
    timer_records,
)
from server_process import ServedProcess, clean_environment, until

import orbitmq
import orbitmq.sync
from orbitmq.client import TimerVerdict
from orbitmq.errors import ClientError, NotFoundError
from orbitmq.protocol.far_table import RowVerdict, StatusQuery, TableVerdict
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

FILES = 3
ROWS = 12_000
"""Of each file: some thousand in a bucket, so that a broker is in the middle of one when it is killed."""
SPAN_MS = 20_000
RECALLED = [f"part0-{number}" for number in range(ROWS // 2 + 100, ROWS, 1_500)]


def compacted(job: Job, olds: list[str], rows: list[dict[str, object]], from_ms: int, gone: set[str]) -> None:
    """Two files become one, without what was recalled, for rows due from `from_ms` on."""
    opened = job.open()
    kept = [row for row in rows if int(str(row["deliverTimestamp"])) >= from_ms and row["msgId"] not in gone]
    file = job.write("buckets/dueDay=any/compacted.parquet", kept)
    assert job.replace(opened, olds, [file], from_ms).verdict is TableVerdict.OK


def kill_one_in_the_middle(others: dict[str, ServedProcess]) -> str:
    """Kill a broker that is storing rows; its name."""
    killed: list[str] = []
    before = {name: timer_records(server) for name, server in others.items() if server.running}

    def storing() -> bool:
        for name, count in before.items():
            if timer_records(others[name]) > count + 300:
                others[name].kill()
                killed.append(name)
                return True
        return False

    until(storing, limit_s=30, what="a broker that is storing rows")
    return killed[0]


def test_every_row_once_and_in_time_whoever_is_killed(serve: Serve, tmp_path: Path) -> None:
    url = tmp_path / "table"
    owner = serve_owner(serve, url)
    others = {name: serve_other(serve, name, owner, url) for name in ("east", "west")}
    for server in (owner, *others.values()):
        server.create_topic(TOPIC, QUEUES)

    job = Job(owner, url, "load")
    opened = job.open()
    start_ms = opened.split_ms + 5 * BUCKET_MS  # time to write the files
    parts = [rows_between(start_ms + part, start_ms + SPAN_MS, ROWS, f"part{part}") for part in range(FILES)]
    files = [job.write(f"landing/load-{number}.parquet", rows) for number, rows in enumerate(parts)]
    assert job.add(opened, files).verdict is TableVerdict.OK
    assert job.add(opened, files).verdict is TableVerdict.REPEATED
    gone: set[str] = set()
    for message_id in RECALLED:
        due_ms = next(int(str(row["deliverTimestamp"])) for row in parts[0] if row["msgId"] == message_id)
        (row,) = job.recall(message_id, due_ms).rows
        assert row.verdict in (RowVerdict.RECALLED, RowVerdict.HANDED_OVER)  # on a slow machine a broker has it by now
        if row.verdict is RowVerdict.RECALLED:
            gone.add(message_id)
    assert gone
    assert [row.verdict for row in job.recall("nobody").rows] == [RowVerdict.NOT_FOUND]
    from_ms = (start_ms + SPAN_MS // 2) // BUCKET_MS * BUCKET_MS
    compacted(Job(owner, url, "compaction"), [files[0].name, files[1].name], parts[0] + parts[1], from_ms, gone)

    name = kill_one_in_the_middle(others)
    others[name] = serve_other(serve, name, owner, url)
    ports = owner.name_port, owner.port
    owner.kill()
    owner = serve_owner(serve, url, ports)
    kill_one_in_the_middle(others)
    for name, server in list(others.items()):
        if not server.running:
            others[name] = serve_other(serve, name, owner, url)

    last_ms = max(int(str(row["deliverTimestamp"])) for rows in parts for row in rows)
    until(
        lambda: status(owner).share_count == 0 and status(owner).file_count == 0, limit_s=60, what="no row in the table"
    )
    until(lambda: now_ms() > last_ms + 500, limit_s=60, what="the time of the last row")

    expected = {str(row["msgId"]) for rows in parts for row in rows} - gone
    found: dict[str, list[tuple[int, int]]] = {}
    takers = []
    until(
        lambda: sum(map(len, (delivered(server) for server in (owner, *others.values())))) >= len(expected), limit_s=60
    )
    for server in (owner, *others.values()):
        here = delivered(server)
        takers.append(len(here))
        for body, times in here.items():
            found.setdefault(body, []).extend(times)
    assert set(found) == expected
    assert {body: times for body, times in found.items() if len(times) > 1} == {}
    assert [times for times in found.values() if times[0][1] < times[0][0]] == []
    assert sum(count > 0 for count in takers) >= 2, takers
    until(lambda: not list(url.rglob("*.parquet")), limit_s=90, what="no file that nobody needs")
    assert manifest(url)["files"] == []
    for server in (owner, *others.values()):
        server.stop()


def test_programs_and_commands_find_the_owner_from_any_broker(serve: Serve, tmp_path: Path) -> None:
    url = tmp_path / "table"
    owner = serve_owner(serve, url)
    other = serve_other(serve, "east", owner, url)
    servers = f"127.0.0.1:{owner.name_port}"

    async def asked() -> tuple[str, list[str]]:
        async with orbitmq.connect(servers) as mq:
            status = await mq.far_table.status()
            rows = await mq.far_table.recall(TOPIC, message_id="nobody")
            return status.table, [row.verdict.value for row in rows]

    table, verdicts = asyncio.run(asked())
    assert (table, verdicts) == (str(json.loads((url / "table.json").read_bytes())["table"]), ["not_found"])
    with orbitmq.sync.connect(servers) as mq:
        assert mq.far_table.open_job("job", 3).verdict is TableVerdict.OK
        assert mq.far_table.open_job("job", 2).verdict is TableVerdict.STALE_EPOCH
        assert mq.far_table.files() == []
        assert mq.far_table.recalls(0, now_ms()) == []

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "orbitmq.cli.main", "timer", "table", *words, "--json"],
            capture_output=True, text=True, timeout=60, check=False,
            env={**clean_environment(), "ORBITMQ_NAMESRV": servers},
        )  # fmt: skip

    assert json.loads(command("status").stdout)["table"] == table
    assert command("files").returncode == 0
    assert command("recall", "--topic", TOPIC, "--id", "nobody").returncode == 1
    assert command("recall", "--topic", TOPIC).returncode == 2
    with other.client() as client:
        answer = client.call(RequestCode.FAR_TABLE_STATUS, {}, StatusQuery().encode())
    assert (answer.code, answer.fields["owner"]) == (ResponseCode.NOT_TABLE_OWNER, "owner")
    for server in (owner, other):
        server.stop()


def test_programs_and_commands_name_rows_as_they_name_timer_messages(serve: Serve, tmp_path: Path) -> None:
    owner = serve_owner(serve, tmp_path / "table")
    other = serve_other(serve, "east", owner, tmp_path / "table")
    servers = f"127.0.0.1:{owner.name_port}"
    for server in (owner, other):
        server.create_topic(TOPIC, QUEUES)
    job = Job(owner, tmp_path / "table", "load")
    opened = job.open()
    far_ms, soon_ms = opened.split_ms + 300_000, opened.split_ms + 2 * BUCKET_MS
    rows = rows_between(far_ms, far_ms + 40_000, 4, "far") + rows_between(soon_ms, soon_ms + 1, 1, "soon")
    assert job.add(opened, [job.write("landing/load.parquet", rows)]).verdict is TableVerdict.OK

    def command(*words: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "orbitmq.cli.main", "timer", *words],
            capture_output=True, text=True, timeout=60, check=False,
            env={**clean_environment(), "ORBITMQ_NAMESRV": servers},
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr

    with orbitmq.sync.connect(servers) as mq:
        timers = mq.timers
        listed = [(timer.message_id, timer.tier) for timer in timers.list(topic=TOPIC, due_from=far_ms)]
        assert listed == [(f"far-{number}", "table") for number in range(4)]
        assert timers.status(topic=TOPIC, key="contract-1").verdict is TimerVerdict.PENDING
        assert timers.recall(topic=TOPIC, key="contract-1").verdict is TimerVerdict.RECALLED
        assert timers.recall(topic=TOPIC, key="contract-1").verdict is TimerVerdict.ALREADY_RECALLED
        assert timers.recall(topic=TOPIC, key="far").verdict is TimerVerdict.AMBIGUOUS
        assert timers.recall(topic=TOPIC, message_id="nobody").verdict is TimerVerdict.NOT_FOUND
        with pytest.raises(ClientError, match="due times stand"):
            timers.reschedule(topic=TOPIC, message_id="far-2", after=9)
        code, shown = command("list", "--topic", TOPIC)
        assert (code, [f"far-{number}" in shown for number in range(4)]) == (0, [True, False, True, True])
        assert command("recall", "--topic", TOPIC, "--id", "far-2")[0] == 0
        code, shown = command("recall", "--topic", TOPIC, "--id", "far-2")
        assert (code, "already_recalled" in shown) == (1, True)
        assert json.loads(command("stats", "--json")[1])["table"] >= 4
        until(lambda: status(owner).frontier_ms > soon_ms and status(owner).share_count == 0, limit_s=60)
        outcome = timers.status(topic=TOPIC, message_id="soon-0")
        assert outcome.verdict in (TimerVerdict.PENDING, TimerVerdict.ALREADY_DELIVERED)
        assert outcome.timer is not None
        assert outcome.timer.queue.broker_name in ("owner", "east")
    for server in (owner, other):
        server.stop()


def test_a_broker_without_a_table_says_so(serve: Serve) -> None:
    server = serve("alone")
    with (
        orbitmq.sync.connect(f"127.0.0.1:{server.name_port}") as mq,
        pytest.raises(NotFoundError, match="no broker of this cluster has a far table"),
    ):
        mq.far_table.status()
    server.stop()
