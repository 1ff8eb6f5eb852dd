"""Disks that fail: the server stops acknowledging at once, says why, goes on reading, and loses nothing it acknowledged.

A real process gets a limit on the size of its files while it runs, so that the kernel refuses its writes. Full disks and failed
syncs are injected below a server in this process, and seen over its sockets.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from server_process import RawClient, ServedProcess, free_ports, pull_fields, send_fields, until
from tests.edges.full_disk import small_file_system
from tests.edges.run import CannotRunError
from tests.worlds.faults import Call, Plan, RecordingFiles

from orbitmq.errors import StoreError
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.store.files import OsFiles

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
UNAVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE


def bodies(client: RawClient, topic: str = "orders") -> list[bytes]:
    """Every message of the topic's queue 0, in order."""
    found: list[bytes] = []
    at = 0
    while True:
        answer = client.call(PULL, pull_fields(topic, offset=at))
        if answer.code != ResponseCode.SUCCESS:
            return found
        found += [bytes(record.body) for record in iter_records(bytes(answer.body))]
        at = int(answer.fields["nextBeginOffset"])


def still_reads(client: RawClient, acknowledged: list[bytes]) -> None:
    found = bodies(client)
    assert [body for body in found if body in set(acknowledged)] == acknowledged
    assert client.call(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    assert client.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_kernel_refuses_to_write(serve: Callable[..., ServedProcess], flush: str) -> None:
    server = serve(settings={"flushDiskType": flush})
    server.create_topic("orders")
    with server.client() as client:
        acknowledged: list[bytes] = []
        answer = None
        for number in range(3_000):
            if number == 200:
                resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
            body = f"{number:06d}".encode() * 100
            answer = client.call(SEND, send_fields(), body)
            if answer.code != 0:
                break
            acknowledged.append(body)
        assert answer is not None
        if answer.code == ResponseCode.SYSTEM_ERROR:  # it was appended when the disk failed: nobody knows
            answer = client.call(SEND, send_fields(), body)
        assert answer.code == UNAVAILABLE
        assert "takes no messages" in (answer.remark or "")
        assert "too large" in (answer.remark or "") or "EFBIG" in (answer.remark or ""), answer.remark
        assert 200 <= len(acknowledged) < 1_000
        for _ in range(20):
            assert client.call(SEND, send_fields(), b"not now").code == UNAVAILABLE
        still_reads(client, acknowledged)
    assert len(server.log_lines("no messages are accepted")) == 1, "one line, not one for each send"
    server.stop(codes=(1,))
    assert server.log_lines("the store is left as after a crash")
    again = serve(settings={"flushDiskType": flush})
    with again.client() as client:
        found = bodies(client)
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) <= len(acknowledged) + 1, "the one that failed may be there: its answer promised nothing"
        assert client.call(SEND, send_fields(), b"and on").code == 0
    again.stop()


# --- faults below a server in this process ------------------------------------------------------------------------------


class Disk:
    """What the disk does at the moment."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.kinds: frozenset[str] = frozenset()
        self.part = ""
        self.hits = 0

    def fail(self, error: int, kinds: str, part: str) -> None:
        self.kinds, self.part, self.error = frozenset(kinds.split()), part, error

    def heal(self) -> None:
        self.error = None

    def plan(self, call: Call) -> OSError | None:
        if self.error is None or call.kind not in self.kinds or self.part not in str(call.path):
            return None
        self.hits += 1
        return OSError(self.error, "injected", str(call.path))


@asynccontextmanager
async def served(data: Path, plan: Plan, **settings: str) -> AsyncIterator[int]:
    """A server on this loop over a file system that may fail; gives the broker's port."""
    name_port, port = free_ports()
    OsFiles().make_dirs(data)
    small = {
        "grpcServerPort": "0",
        "mappedFileSizeCommitLog": "1048576",
        "maxIndexNum": "2000",
        "maxHashSlotNum": "500",
    } | settings
    process = ServerProcess(
        load_settings(
            roles=[Role.NAMESERVER, Role.BROKER],
            flags=[f"{key}={value}" for key, value in small.items()],
            overrides=Overrides(data=data, host="127.0.0.1", nameserver_port=name_port, broker_port=port),
        ),
        files=RecordingFiles(OsFiles(), data, plan=plan),
    )
    await process.start()
    try:
        yield port
    finally:
        await process.stop()


def prepare(client: RawClient) -> list[bytes]:
    answer = client.call(SEND, send_fields(), b"first")
    assert answer.code == 0, answer.remark
    return [b"first"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_full_disk_is_told_and_heals(tmp_path: Path, flush: str) -> None:
    disk = Disk()

    def scenario(port: int) -> None:
        with RawClient(port) as client:
            acknowledged = prepare(client)
            disk.fail(errno.ENOSPC, "write", "commitlog")
            for _ in range(3):
                answer = client.call(SEND, send_fields(), b"refused")
                assert answer.code == UNAVAILABLE
                assert "full" in (answer.remark or "")
            assert disk.hits == 1, "the disk is not tried again for every send"
            still_reads(client, acknowledged)
            disk.heal()
            until(lambda: client.call(SEND, send_fields(), b"second").code == 0, 10, "sends being taken again")
            found = bodies(client)
            assert found[0] == b"first"
            assert set(found[1:]) == {b"second"}

    async with served(tmp_path / "data", disk.plan, flushDiskType=flush) as port:
        await asyncio.to_thread(scenario, port)


@pytest.mark.parametrize("part", ["consumequeue", "index", "commitlog/00000000000001048576"])
async def test_no_room_for_a_file_of_its_own(tmp_path: Path, part: str) -> None:
    """The next log file, or a derived one, cannot be created: what was acknowledged is still delivered."""
    disk = Disk()

    def scenario(port: int) -> None:
        with RawClient(port) as client:
            acknowledged = prepare(client)
            disk.fail(errno.ENOSPC, "write create allocate truncate", part)
            refused = 0
            for number in range(2_500):
                body = f"{number:05d}".encode() + b"x" * 1_000
                answer = client.call(SEND, send_fields(), body)
                if answer.code == 0:
                    acknowledged.append(body)
                else:
                    assert answer.code == UNAVAILABLE, answer.remark
                    refused += 1
                    if refused > 3:
                        break
            assert disk.hits > 0
            disk.heal()
            until(lambda: client.call(SEND, send_fields(), b"again").code == 0, 10, "sends being taken again")
            still_reads(client, acknowledged)

    async with served(tmp_path / "data", disk.plan) as port:
        await asyncio.to_thread(scenario, port)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_failed_sync_is_the_end_of_writing(tmp_path: Path, flush: str) -> None:
    disk = Disk()
    data = tmp_path / "data"
    acknowledged: list[bytes] = []

    def scenario(port: int) -> None:
        with RawClient(port) as client:
            acknowledged.extend(prepare(client))
            disk.fail(errno.EIO, "datasync sync", "commitlog")
            until_refused = time.monotonic() + 10
            code = 0
            while code == 0 and time.monotonic() < until_refused:
                body = f"{len(acknowledged):05d}".encode()
                answer = client.call(SEND, send_fields(), body)
                code = answer.code
                if code == 0:
                    acknowledged.append(body)
                time.sleep(0.02)
            waited = flush == "SYNC_FLUSH"
            assert code == (ResponseCode.SYSTEM_ERROR if waited else UNAVAILABLE), answer.remark
            assert disk.hits == 1
            if waited:
                assert len(acknowledged) == 1, "nothing that was not synced is acknowledged"
                assert "it may stay or not" in (answer.remark or "")
            disk.heal()
            answer = client.call(SEND, send_fields(), b"too late")
            assert answer.code == UNAVAILABLE, "a failed sync may have lost what the next one calls safe"
            assert "restart" in (answer.remark or "")
            still_reads(client, acknowledged)

    with pytest.raises(StoreError, match="the store is left as after a crash"):
        async with served(data, disk.plan, flushDiskType=flush) as port:
            await asyncio.to_thread(scenario, port)

    def afterwards(port: int) -> None:
        with RawClient(port) as client:
            found = bodies(client)
            assert [body for body in found if body in set(acknowledged)] == acknowledged
            assert client.call(SEND, send_fields(), b"and on").code == 0

    async with served(data, lambda call: None) as port:
        await asyncio.to_thread(afterwards, port)


async def test_tables_that_cannot_be_saved_are_told_and_tried_again(tmp_path: Path) -> None:
    disk = Disk()

    def scenario(port: int) -> None:
        with RawClient(port) as client:
            prepare(client)
            disk.fail(errno.EIO, "write create rename atomic", "config")
            fields = {
                "topic": "new-topic", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
                "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            answer = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "could not be saved" in (answer.remark or "")
            assert client.call(SEND, send_fields(), b"goes on").code == 0
            disk.heal()
            assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0

    async with served(tmp_path / "data", disk.plan) as port:
        await asyncio.to_thread(scenario, port)
    assert "new-topic" in (tmp_path / "data" / "config" / "topics.json").read_text()


def test_a_small_disk_makes_room_as_soon_as_it_is_missed(serve: Callable[..., ServedProcess], tmp_path: Path) -> None:
    """A file system that is really full, again and again; with `cleanResourceInterval` alone each time would last ten seconds."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_file_system(tmp_path / "disk", 24))
        except CannotRunError as error:
            pytest.skip(str(error))
        (tmp_path / "server").mkdir()
        (tmp_path / "server" / "data").symlink_to(disk)
        server = serve(settings={"mappedFileSizeCommitLog": 1_048_576})
        server.create_topic("orders", 1)
        body, spans, refused_at = b"x" * 60_000, [], 0.0
        with server.client() as client:
            group = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"billing"}')
            assert group.code == 0, group.remark
            assert client.call(SEND, send_fields(), body).code == 0
            commit = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "commitOffset": "1"}
            assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
            while len(spans) < 3:
                code, now = client.call(SEND, send_fields(), body).code, time.monotonic()
                assert code in (0, UNAVAILABLE)
                if code and not refused_at:
                    refused_at = now
                elif not code and refused_at:
                    spans.append(now - refused_at)
                    refused_at = 0.0
                time.sleep(0.02 if code else 0)
        assert sorted(spans)[1] < 5, spans
        early = server.log_lines("go before their time")
        assert early
        assert "not read by billing on orders (" in early[0]
        server.stop()
